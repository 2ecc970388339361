from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec import _kernels as kernels
from lookupdec import index
from lookupdec.errors import DrafterError
from lookupdec.index import Match, SuffixIndex
from tests.automaton import check_structure, field, reached
from tests.oracle import slow_contexts, slow_ends

# Short enough for MAX_PATH never to bind, with few enough ids for everything to repeat.
texts = st.integers(1, 4).flatmap(lambda ids: st.lists(st.integers(0, ids - 1), max_size=40))


def indexed(text: Sequence[int]) -> SuffixIndex:
    whole = SuffixIndex()
    whole.extend(text)
    return whole


class TestOracles:
    @given(texts)
    def test_contexts_after_every_token(self, text: list[int]) -> None:
        suffixes = SuffixIndex()
        for size, token in enumerate(text, start=1):
            suffixes.append(token)
            contexts = slow_contexts(text[:size])
            assert suffixes.contexts() == contexts
            assert suffixes.longest_match() == (contexts[0] if contexts else (0, 0))

    @given(texts)
    def test_every_span_leads_to_its_occurrences(self, text: list[int]) -> None:
        suffixes = indexed(text)
        for start in range(len(text)):
            for stop in range(start + 1, len(text) + 1):
                state = reached(suffixes._states, suffixes._edges, text[start:stop])
                ends = slow_ends(text[:-1], text[start:stop])
                assert field(suffixes._states, state, kernels.COUNT) == len(ends)
                assert field(suffixes._states, state, kernels.RECENT) == (ends[-1] if ends else kernels.NONE)

    @given(texts, st.lists(st.integers(0, 4), min_size=1, max_size=3))
    def test_other_spans_lead_nowhere(self, text: list[int], span: list[int]) -> None:
        suffixes = indexed(text)
        state = reached(suffixes._states, suffixes._edges, span)
        assert (state != kernels.NONE) == bool(slow_ends(text, span))

    @given(texts)
    def test_structure(self, text: list[int]) -> None:
        suffixes = indexed(text)
        check_structure(suffixes._states, suffixes._edges, suffixes._meta)

    @given(texts, st.integers(1, 50))
    def test_moving_the_edges_keeps_them(self, text: list[int], room: int) -> None:
        suffixes = indexed(text)
        slots = suffixes._edges.size // kernels.EDGE_FIELDS + room
        larger = np.full(slots * kernels.EDGE_FIELDS, kernels.NONE, np.int32)
        before = {
            (state, token): kernels.follow(suffixes._states, suffixes._edges, state, token)
            for state in range(int(suffixes._meta[kernels.N_STATES]))
            for token in range(5)
        }
        kernels.rehash(suffixes._states, suffixes._edges, larger)
        check_structure(suffixes._states, larger, suffixes._meta)
        for (state, token), target in before.items():
            assert kernels.follow(suffixes._states, larger, state, token) == target


@given(st.lists(texts, max_size=6))
def test_pieces_give_what_the_whole_gives(pieces: list[list[int]]) -> None:
    whole = indexed([token for piece in pieces for token in piece])
    grown = SuffixIndex()
    for piece in pieces:
        grown.extend(piece)
    assert np.array_equal(grown.tokens, whole.tokens)
    assert grown.contexts() == whole.contexts()
    assert grown.longest_match() == whole.longest_match()


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 20, 49152]))
def test_growth_keeps_everything(seed: int, ids: int) -> None:
    text = np.random.default_rng(seed).integers(0, ids, 1000).astype(np.int32)
    grown = SuffixIndex()
    roomy = SuffixIndex(capacity=3000)
    for start in range(0, text.size, 100):
        grown.extend(text[start : start + 100])
        roomy.extend(text[start : start + 100])
        assert grown.contexts() == roomy.contexts()
    check_structure(grown._states, grown._edges, grown._meta)
    assert np.array_equal(grown.tokens, text)


def test_a_match_may_overlap_its_own_text() -> None:
    assert indexed([7] * 10).longest_match() == Match(9, 9)


def test_a_new_last_token_matches_nothing() -> None:
    suffixes = indexed([1, 2, 1, 2, 3])
    assert suffixes.longest_match() == Match(0, 0)
    assert suffixes.contexts() == []


def test_an_empty_index_matches_nothing() -> None:
    suffixes = SuffixIndex()
    suffixes.extend([])
    assert len(suffixes) == 0
    assert suffixes.longest_match() == Match(0, 0)
    assert suffixes.contexts() == []


def test_one_token_over_and_over_stays_cheap_and_valid() -> None:
    text = [7] * 3000 + [8]
    suffixes = indexed(text)
    suffixes.extend([7] * 100)
    contexts = suffixes.contexts()
    assert len(contexts) == kernels.MAX_PATH
    assert contexts[0].length == 100
    for length, end in contexts:
        assert length <= end < len(suffixes)
        assert suffixes.tokens[end - length : end].tolist() == [7] * length


def test_two_hundred_thousand_tokens_of_any_kind() -> None:
    generator = np.random.default_rng(0)
    for text in (
        np.zeros(200_000, np.int32),
        np.append(np.zeros(200_000, np.int32), np.arange(1, 9, dtype=np.int32)),
        generator.integers(0, 49152, 200_000).astype(np.int32),
        generator.integers(0, 2, 200_000).astype(np.int32),
    ):
        suffixes = SuffixIndex()
        suffixes.extend(text)
        assert len(suffixes) == text.size
        assert suffixes.nbytes <= 130 * text.size


class TestBadInput:
    @pytest.mark.parametrize(
        "ids", [[-1], [2**31 - 1], [0.5], ["a"], [[1, 2]], [None], 3, np.zeros((2, 2), np.int32)]
    )
    def test_bad_ids_are_refused_and_change_nothing(self, ids: list[int]) -> None:
        suffixes = indexed([1, 2, 1])
        with pytest.raises(DrafterError, match="token ids must"):
            suffixes.extend(ids)
        assert suffixes.tokens.tolist() == [1, 2, 1]
        assert suffixes.longest_match() == Match(1, 1)

    @pytest.mark.parametrize("token", [-1, 2**31 - 1, 2**31, 1.5])
    def test_a_bad_token_is_refused(self, token: int) -> None:
        suffixes = indexed([1])
        with pytest.raises(DrafterError, match="a token id must"):
            suffixes.append(token)
        assert len(suffixes) == 1

    def test_the_largest_id_is_indexed(self) -> None:
        largest = 2**31 - 2
        assert indexed([largest, 0, largest]).longest_match() == Match(1, 1)

    def test_a_negative_capacity_is_refused(self) -> None:
        with pytest.raises(DrafterError, match="capacity"):
            SuffixIndex(capacity=-1)

    def test_too_many_tokens_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(index, "MAX_TOKENS", 1000)
        suffixes = SuffixIndex()
        suffixes.extend(range(900))
        with pytest.raises(DrafterError, match="1,000 tokens"):
            suffixes.extend(range(200))


def test_kernels_give_the_same_without_compilation() -> None:
    run = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=uncompiled",
            "-W", "ignore:overflow encountered in scalar multiply:RuntimeWarning",  # the hash means to wrap
            "tests/test_index.py::TestOracles", "tests/test_cache.py::TestOracles",
        ],
        cwd=Path(__file__).parents[1], env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
