from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from lookupdec import peers
from lookupdec.decode import Drafter
from lookupdec.errors import InputError
from lookupdec.peers import PEER_ROWS, ArcticSuffix, PromptLookup, VllmNgram, rows_by_peer
from lookupdec.replay import Trace, load_traces, replay
from tests.oracle import slow_leftmost_ngram, slow_longest_ngram
from tests.test_replay import TRACES, make_trace, needs_traces

LIMIT = 1000


def first_draft(drafter: Drafter, prompt: Sequence[int], limit: int = LIMIT) -> list[int]:
    drafter.begin(prompt)
    draft = [int(token) for token in drafter.propose(limit)]
    drafter.end()
    return draft


def small_texts(count: int) -> list[list[int]]:
    generator = np.random.default_rng(0)
    sizes = generator.integers(0, 30, count)
    return [generator.integers(0, generator.integers(1, 4), size).tolist() for size in sizes]


@pytest.mark.parametrize("search", [peers.leftmost_ngram, peers._leftmost_ngram])
def test_leftmost_ngram_equals_the_slow_one(search: Callable[..., int]) -> None:
    for text in small_texts(300):
        for size in range(1, 4):
            if size < len(text):
                assert search(np.array(text, dtype=np.int32), size) == slow_leftmost_ngram(text, size)


@pytest.mark.parametrize("search", [peers.longest_ngram, peers._longest_ngram])
def test_longest_ngram_equals_the_slow_one(search: Callable[..., int]) -> None:
    for text in small_texts(300):
        for smallest, largest in ((1, 1), (2, 5), (5, 5), (1, 40)):
            found = search(np.array(text, dtype=np.int32), smallest, largest)
            assert found == slow_longest_ngram(text, smallest, largest)


class TestPromptLookup:
    def test_copies_from_the_leftmost_place(self) -> None:
        assert first_draft(PromptLookup(2, 3), [1, 2, 7, 7, 7, 1, 2, 8, 8, 8, 1, 2]) == [7, 7, 7]

    def test_prefers_the_longer_ngram(self) -> None:
        assert first_draft(PromptLookup(2, 1), [2, 7, 1, 2, 8, 1, 2]) == [8]

    def test_falls_back_to_one_token(self) -> None:
        assert first_draft(PromptLookup(3, 2), [2, 7, 9, 1, 2]) == [7, 9]

    def test_copies_up_to_the_end_of_the_text(self) -> None:
        assert first_draft(PromptLookup(2, 10), [1, 2, 3, 1, 2]) == [3, 1, 2]

    @pytest.mark.parametrize("prompt", [[], [1], [1, 2, 3]])
    def test_drafts_nothing_without_a_match(self, prompt: list[int]) -> None:
        assert first_draft(PromptLookup(2, 10), prompt) == []


class TestVllmNgram:
    def test_copies_from_the_leftmost_place_of_the_longest_match(self) -> None:
        prompt = [2, 6, 1, 2, 7, 1, 2, 8, 1, 2]
        assert first_draft(VllmNgram(1, 5, 1), prompt) == [7]

    def test_stops_looking_at_the_largest_ngram(self) -> None:
        assert first_draft(VllmNgram(1, 1, 1), [2, 6, 1, 2, 7, 1, 2]) == [6]

    def test_drafts_nothing_below_the_smallest_ngram(self) -> None:
        assert first_draft(VllmNgram(3, 5, 10), [1, 2, 7, 1, 2]) == []

    @pytest.mark.parametrize("prompt", [[], [1]])
    def test_drafts_nothing_on_short_prompts(self, prompt: list[int]) -> None:
        assert first_draft(VllmNgram(1, 5, 10), prompt) == []


@pytest.mark.parametrize("make", [PromptLookup, VllmNgram])
def test_limit_is_kept(make: Callable[[], Drafter]) -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5]
    assert first_draft(make(), prompt, limit=3) == [6, 7, 8]
    assert first_draft(make(), prompt, limit=0) == []


def test_observed_tokens_are_part_of_the_text() -> None:
    drafter = PromptLookup(2, 2)
    drafter.begin([1])
    for token in range(2, 50):
        drafter.observe([token])
        assert len(drafter.propose(LIMIT)) == 0
    drafter.observe([1, 2])
    assert drafter.propose(LIMIT).tolist() == [3, 4]  # type: ignore[union-attr, unused-ignore]


def test_a_drafter_forgets_the_request_before() -> None:
    drafter = VllmNgram(1, 5, 10)
    assert first_draft(drafter, [1, 2, 1]) == [2, 1]
    assert first_draft(drafter, [1]) == []


class TestArctic:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("arctic_inference")

    def test_drafts_from_the_prompt(self) -> None:
        prompt = [1, 2, 3, 4, 5, 6, 1, 2, 3]
        assert first_draft(ArcticSuffix(8, 8, 1.0, past_outputs=False), prompt) == [4, 5, 6]

    @pytest.mark.parametrize(("past_outputs", "drafted"), [(True, True), (False, False)])
    def test_past_outputs_are_kept_if_asked_for(self, past_outputs: bool, drafted: bool) -> None:
        drafter = ArcticSuffix(8, 8, 1.0, past_outputs=past_outputs)
        replay(drafter, [make_trace([100], [1, 2, 3, 4, 5, 6])])
        drafter.begin([200])
        drafter.observe([1, 2, 3])
        assert bool(drafter.propose(LIMIT)) is drafted
        drafter.end()

    def test_limit_is_kept(self) -> None:
        assert first_draft(ArcticSuffix(8, 8, 1.0), [1, 2, 3, 4, 5, 6, 1, 2, 3], limit=2) == [4, 5]


def test_a_missing_arctic_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arctic_inference.suffix_decoding", None)
    with pytest.raises(InputError, match="pip install arctic-inference"):
        ArcticSuffix()


def test_rows_are_grouped_by_peer_and_named_once() -> None:
    groups = rows_by_peer()
    assert list(groups) == ["transformers", "vllm", "arctic"]
    assert [row for rows in groups.values() for row in rows] == list(PEER_ROWS)
    assert len({row.name for row in PEER_ROWS}) == len(PEER_ROWS)


@pytest.fixture(scope="module")
def config_edit() -> list[Trace]:
    assert TRACES is not None
    return load_traces(TRACES / "config_edit.jsonl")


def read_baseline(folder: Path | None) -> dict[str, dict[str, dict[str, float]]]:
    assert folder is not None
    files: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(
        (folder / "baselines.json").read_text()
    )["files"]
    return files["config_edit"]


@pytest.mark.model
@needs_traces
@pytest.mark.parametrize("row", [row for row in PEER_ROWS if row.peer != "arctic"], ids=lambda row: row.name)
def test_rules_reproduce_their_baseline_rows(row: peers.PeerRow, config_edit: list[Trace]) -> None:
    assert_within_one_percent(row, config_edit)


@pytest.mark.model
@needs_traces
@pytest.mark.parametrize("row", rows_by_peer()["arctic"][:3], ids=lambda row: row.name)
def test_arctic_reproduces_its_baseline_rows(row: peers.PeerRow, config_edit: list[Trace]) -> None:
    pytest.importorskip("arctic_inference")
    assert_within_one_percent(row, config_edit)


def assert_within_one_percent(row: peers.PeerRow, traces: list[Trace]) -> None:
    result = replay(row.make(), traces)
    expected = read_baseline(TRACES)["peers"][row.name]
    for name in ("tokens", "passes", "drafted", "accepted"):
        assert getattr(result, name) == pytest.approx(expected[name], rel=0.01), name
