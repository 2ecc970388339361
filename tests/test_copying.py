from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec import _copying as copying
from lookupdec import _cursor as cursor
from lookupdec import _drafting as drafting
from lookupdec import _kernels as kernels
from lookupdec import _replacements as replacements
from lookupdec import _survival as survival
from lookupdec.cache import RollingCache
from lookupdec.draft import CopyDrafter
from lookupdec.index import SuffixIndex
from lookupdec.policy import CostModel
from lookupdec.replay import Trace, replay
from tests.automaton import reached
from tests.oracle import slow_common_suffix, slow_ends, slow_known_suffix, slow_replacements, slow_search_near

texts = st.integers(1, 4).flatmap(lambda ids: st.lists(st.integers(0, ids - 1), min_size=1, max_size=40))
documents_of = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=4)


def own_of(text: list[int]) -> kernels.Automaton:
    index = SuffixIndex()
    index.extend(text)
    return index.automaton


class TestOracles:
    @given(texts, st.integers(0, 40), st.integers(0, 40), st.integers(0, 30))
    def test_common_suffix(self, text: list[int], first: int, second: int, limit: int) -> None:
        first, second = min(first, len(text)), min(second, len(text))
        found = cursor.common_suffix(np.array(text, np.int32), first, second, limit)
        assert found == slow_common_suffix(text, first, second, limit)

    @given(st.lists(st.integers(0, 3), min_size=2, max_size=900), st.floats(0, 1))
    def test_search_near(self, text: list[int], where: float) -> None:
        size = len(text)
        anchor = int(where * (size - 1))
        places = range(max(1, anchor - cursor.SEARCH_BACK), min(anchor + cursor.SEARCH_AHEAD, size - 1))
        found, worth = cursor.search_near(np.array(text, np.int32), size, anchor, size - 1)
        expected, expected_worth = slow_search_near(text, anchor, places, cursor.MAX_COMPARED)
        assert worth == expected_worth
        if expected >= 0:  # of two places equally near either will do
            assert slow_common_suffix(text, found, size, 24) == slow_common_suffix(text, expected, size, 24)
            assert abs(found - anchor - 1) == abs(expected - anchor - 1)
        else:
            assert found == kernels.NONE

    @given(documents_of, st.lists(st.integers(0, 3), max_size=25))
    def test_a_match_is_the_longest_known_end(self, documents: list[list[int]], written: list[int]) -> None:
        cache = RollingCache()
        for document in documents:
            cache.add(document)
        past = arrays_of(cache)
        now = np.zeros(2, np.int64)
        for size, token in enumerate(written, start=1):
            copying.follow_match(past, now, 0, token)
            length = slow_known_suffix(documents, written[:size])
            assert now[1] == length
            assert now[0] == reached(past.states, past.edges, written[size - length : size])

    @given(documents_of, documents_of, st.lists(st.integers(0, 3), min_size=2, max_size=25))
    def test_a_match_stays_right_while_documents_are_added(
        self, documents: list[list[int]], added: list[list[int]], written: list[int]
    ) -> None:
        cache = RollingCache()
        for document in documents:
            cache.add(document)
        now = np.zeros(2, np.int64)
        for size, token in enumerate(written, start=1):
            past = arrays_of(cache)
            copying.follow_match(past, now, 0, token)
            length = int(now[1])
            assert slow_known_suffix(documents, written[:size]) <= length
            assert length <= slow_known_suffix(documents + added, written[:size])
            assert now[0] == reached(past.states, past.edges, written[size - length : size])
            if size <= len(added):
                cache.add(added[size - 1])

    @given(texts)
    def test_own_match_is_the_longest_repeated_end(self, text: list[int]) -> None:
        now = np.zeros(survival.POSITION_FIELDS, np.int64)
        copying.set_own_match(own_of(text), now)
        length = int(now[survival.OWN_LENGTH])
        assert length == slow_known_suffix([text[:-1]], text)

    @given(texts)
    def test_tokens_offered_after_a_context(self, text: list[int]) -> None:
        own = own_of(text)
        for size in range(1, len(text)):
            span = text[:size]
            followers = [text[end] for end in slow_ends(text[:-1], span)]
            state = reached(own.states, own.edges, span)
            if followers:
                assert copying.recent_token(own, state) == followers[-1]
                # Counted are tokens that were continued themselves: the text's last one is not yet.
                counted = [text[end] for end in slow_ends(text[:-2], span)]
                token = copying.frequent_token(own, state)
                assert token in followers
                assert counted.count(token) == max(map(counted.count, followers))

    def test_drafts_through_steady_copies_are_nearly_those_of_full_estimates(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fast = drafts_of_an_edit()
        monkeypatch.setattr(drafting, "STEADY_TOKENS", 0)
        monkeypatch.setattr(drafting, "propose", getattr(drafting.propose, "py_func", drafting.propose))
        full = drafts_of_an_edit()
        assert sum(map(len, full)) > 1000
        assert sum(map(len, fast)) == pytest.approx(sum(map(len, full)), rel=0.05)
        for some, other in zip(fast, full, strict=True):
            shorter = min(len(some), len(other))
            assert some[:shorter] == other[:shorter]


def drafts_of_an_edit() -> list[list[int]]:
    """Return what is drafted for the same edit at every twentieth token, as a compiled run and another see it."""
    generator = np.random.default_rng(5)
    text = generator.integers(0, 60, 500).tolist()
    output = [*text[:150], 77, *text[151:300], 5, 6, *text[300:380], *text[400:]]
    cache = RollingCache()
    cache.add(output[:250])
    drafter = CopyDrafter(cache, cost=CostModel(per_token=0.003))
    drafts = []
    drafter.begin(text, reference=slice(0, len(text)))
    for start in range(0, len(output), 20):
        drafts.append(drafter.propose(200).tolist())
        drafter.observe(output[start : start + 20])
    return drafts


def arrays_of(cache: RollingCache) -> kernels.Automaton:
    corpus = cache.corpus()
    assert corpus is not None
    return corpus.arrays


class TestCursor:
    """Where the copy goes on after each token of an output, by the text of the prompt."""

    def follow(self, text: list[int], output: list[int]) -> list[int]:
        drafter = CopyDrafter()
        drafter.begin(text, reference=slice(0, len(text)))
        cursors = []
        for token in output:
            drafter.observe([token])
            cursors.append(int(drafter._now[survival.CURSOR]))
        return cursors

    def test_a_copy_moves_it_on(self) -> None:
        assert self.follow(list(range(20)), list(range(10))) == list(range(1, 11))

    def test_a_substitution_skips_one_token(self) -> None:
        assert self.follow(list(range(20)), [0, 1, 2, 99, 4, 5]) == [1, 2, 3, 4, 5, 6]

    def test_an_insertion_is_resumed_where_it_began(self) -> None:
        assert self.follow(list(range(20)), [0, 1, 2, 99, 98, 3, 4])[-2:] == [4, 5]

    def test_a_deletion_is_resumed_after_it(self) -> None:
        assert self.follow(list(range(20)), [0, 1, 2, 9, 10])[-2:] == [10, 11]

    def test_of_equal_places_the_nearest_is_taken(self) -> None:
        line = [7, 7]
        text = [1, *line, 2, *line, 3, *line, 4, *line]
        assert self.follow(text, [1, 7, 7, 99, 7])[-1] == 5  # after the "7" that follows the "2"

    def test_a_moved_block_is_found(self) -> None:
        text = list(range(200))
        cursors = self.follow(text, [*text[:20], *text[120:150]])
        assert cursors[-1] == 150
        assert cursors[24] == 125

    def test_a_long_match_far_away_moves_it(self) -> None:
        text = list(range(2000))
        assert self.follow(text, [*text[:20], *text[1500:1530]])[-1] == 1530


class TestReplacements:
    """What was replaced is replaced again, as in a rename: soon without a pass for every place."""

    NAME, OTHER = [900, 901], [910, 911, 912]

    def sentences(self, name: list[int], count: int = 30) -> list[int]:
        generator = np.random.default_rng(2)
        return [id for _ in range(count) for id in (*generator.integers(0, 800, 15).tolist(), *name)]

    def passes(self, text: list[int], output: list[int]) -> int:
        trace = Trace("t", np.array(text, np.int32), np.array(output, np.int32), slice(0, len(text)))
        return replay(CopyDrafter(cost=CostModel(per_token=0.003)), [trace], with_reference=True).passes

    @pytest.mark.parametrize(
        ("old", "new"),
        [(NAME, OTHER), (OTHER, NAME), (NAME, [*OTHER, *NAME]), ([*NAME, *OTHER], OTHER), (OTHER, [7])],
        ids=["longer", "shorter", "inserted", "deleted", "one"],
    )
    def test_a_rename_takes_few_passes(self, old: list[int], new: list[int]) -> None:
        text, output = self.sentences(old), self.sentences(new)
        assert self.passes(text, output) <= 20  # of thirty differences

    def test_the_cursor_follows_it_and_comes_back(self) -> None:
        text = [*range(10), 900, *range(10, 20), 900, *range(20, 30)]
        output = [*range(10), 910, 911, *range(10, 20), 910, 911, 20]
        drafter = CopyDrafter()
        drafter.begin(text, reference=slice(0, len(text)))
        cursors = []
        for token in output:
            drafter.observe([token])
            cursors.append(int(drafter._now[survival.CURSOR]))
        assert cursors[-4:] == [21, len(text) + 11, 22, 23]

    def test_a_token_that_stays_after_all_is_found(self) -> None:
        text = [*range(10), 900, *range(10, 20), 900, *range(20, 30)]
        drafter = CopyDrafter()
        drafter.begin(text, reference=slice(0, len(text)))
        drafter.observe([*range(10), 910, *range(10, 20), 900])
        assert drafter._now[survival.CURSOR] == 22

    def test_one_request_knows_nothing_of_another(self) -> None:
        text = self.sentences(self.NAME)
        drafter = CopyDrafter()
        for _ in range(2):
            drafter.begin(text, reference=slice(0, len(text)))
            assert not drafter._scratch[copying.REPLACED_AT :].any()
            drafter.observe(self.sentences(self.OTHER))
            assert drafter._scratch[copying.REPLACED_AT :].any()
            drafter.end()

    @given(
        st.lists(st.integers(0, 3), min_size=12, max_size=30),
        st.lists(st.tuples(*[st.integers(-3, 11)] * 4), max_size=12),
    )
    def test_what_is_remembered(self, text: list[int], noted: list[tuple[int, ...]]) -> None:
        replaced = np.zeros(replacements.REPLACED_SIZE, np.int64)
        for anchor, skipped, place, written in noted:
            replacements.remember(
                replaced, np.array(text, np.int32), abs(anchor), skipped, abs(place), written
            )
        expected = slow_replacements(text, [(abs(a), s, abs(p), w) for a, s, p, w in noted])
        for token in range(5):
            slot = replacements.slot_of(replaced, token)
            found = None if slot < 0 else replaced[slot + 1 : slot + 5].tolist()
            assert found == expected.get(token)


class TestEnds:
    def test_a_token_that_ended_outputs_may_end_this_one(self) -> None:
        ends = np.array([[9, 4, 4], [8, 1, 100]], np.int32).ravel()
        assert copying.chance_to_go_on(ends, 7) == 1.0
        assert copying.chance_to_go_on(ends, 9) == pytest.approx(0.125)
        assert copying.chance_to_go_on(ends, 8) == pytest.approx(0.995)

    def test_emitted_ones_are_counted(self) -> None:
        ends = np.array([[9, 4, 4], [-1, -1, -1]], np.int32).ravel()
        copying.count_emitted(ends, 9)
        copying.count_emitted(ends, 5)
        assert ends.tolist() == [9, 4, 5, -1, -1, -1]


@pytest.mark.parametrize(
    ("module", "compiled_in"),
    [
        (survival, [kernels]),
        (replacements, [kernels, survival]),
        (cursor, [kernels, survival, replacements]),
        (copying, [kernels, survival, replacements, cursor]),
        (drafting, [kernels, survival, replacements, cursor, copying]),
    ],
    ids=["survival", "replacements", "cursor", "copying", "drafting"],
)
def test_kernels_kept_compiled_are_those_of_all_their_files(
    module: ModuleType, compiled_in: list[ModuleType]
) -> None:
    digest = hashlib.sha256()
    for other in compiled_in:
        assert other.__file__ is not None
        digest.update(Path(other.__file__).read_bytes())
    expected = digest.hexdigest()[:12]
    assert expected == module.COMPILED_WITH, f'write COMPILED_WITH = "{expected}" in {module.__file__}'


def test_the_survival_asked_for_falls_with_the_hazard() -> None:
    stops = CostModel(per_token=0.03).stops()
    asked = [drafting.stop_below(stops, ratio) for ratio in np.geomspace(1e-12, 1e6, 60)]
    assert asked == sorted(asked, reverse=True)
    assert 0 < asked[-1] < asked[0] <= 1


def test_kernels_give_the_same_without_compilation() -> None:
    run = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=uncompiled",
            "-W", "ignore:overflow encountered:RuntimeWarning",  # the hashes mean to wrap
            "tests/test_copying.py::TestOracles", "tests/test_copying.py::TestCursor",
            "tests/test_copying.py::TestReplacements",
            "tests/test_survival.py::TestOracles", "tests/test_draft.py::TestAnyText",
        ],
        cwd=Path(__file__).parents[1], env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
