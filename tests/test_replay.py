from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookupdec.decode import PlainDrafter
from lookupdec.errors import InputError
from lookupdec.ids import Ids, Reference
from lookupdec.replay import (
    CONTEXT_TOKENS,
    Recording,
    ReplayResult,
    Trace,
    best_speedup,
    copy_limit,
    load_traces,
    longest_copy,
    replay,
)
from lookupdec.stats import SourceStats, Stats
from tests.oracle import slow_longest_copy

ROOT = Path(__file__).resolve().parents[1]
TRACES = next(
    (folder for folder in (ROOT / "shared/traces", ROOT.parent / "shared/traces") if folder.is_dir()), None
)
needs_traces = pytest.mark.skipif(TRACES is None, reason="the recorded traces are not here")


def make_trace(prompt: Sequence[int], output: Sequence[int], reference: slice = slice(0, 0)) -> Trace:
    return Trace("t", np.array(prompt, dtype=np.int32), np.array(output, dtype=np.int32), reference)


class ListedDrafter:
    """Proposes what it was given, in order, and writes down all it is told."""

    sources: Sequence[str] = ()

    def __init__(self, *drafts: Sequence[int]) -> None:
        self.drafts = list(drafts)
        self.calls: list[tuple[Any, ...]] = []
        self.limits: list[int] = []

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        self.calls.append(("begin", list(prompt), reference, namespace))

    def propose(self, limit: int) -> Sequence[int]:
        self.limits.append(limit)
        draft = self.drafts.pop(0) if self.drafts else ()
        self.sources = ("list",) * len(draft)
        return draft

    def observe(self, ids: Ids) -> None:
        self.calls.append(("observe", list(ids)))

    def end(self) -> None:
        self.calls.append(("end",))


def test_plain_decoding_needs_one_pass_a_token_after_the_first() -> None:
    result = replay(PlainDrafter(), [make_trace([1, 2], [3, 4, 5]), make_trace([1], [2])])
    assert (result.traces, result.tokens, result.passes, result.drafted) == (2, 2, 2, 0)


def test_passes_drafted_and_accepted_are_counted_by_hand() -> None:
    # Output 5 6 7 8 9: 5 is given; draft 6 7 0 gives 6 7 and the target's 8; an empty draft gives 9.
    result = replay(ListedDrafter([6, 7, 0], []), [make_trace([1], [5, 6, 7, 8, 9])])
    assert (result.tokens, result.passes, result.drafted, result.accepted) == (4, 2, 3, 2)
    assert result.by_source == {"list": SourceStats(drafted=3, accepted=2)}
    assert result.cost(0.5) == 3.5
    assert result.speedup(0.5) == pytest.approx(4 / 3.5)
    assert result.tokens_per_pass == 2.0


def test_a_draft_past_the_end_counts_whole_and_ends_the_trace() -> None:
    result = replay(ListedDrafter([6, 0, 1, 2]), [make_trace([1], [5, 6, 0])])
    assert (result.tokens, result.passes, result.drafted, result.accepted) == (2, 1, 4, 2)


def test_an_end_of_turn_token_inside_the_output_does_not_end_it() -> None:
    result = replay(PlainDrafter(), [make_trace([1], [5, 0, 7, 0])])
    assert result.tokens == 3


def test_the_drafter_is_told_what_it_would_be_told_live() -> None:
    drafter = ListedDrafter([6, 0])
    trace = make_trace([1, 2], [5, 6, 7, 8], slice(1, 2))
    replay(drafter, [trace], with_reference=True, namespace="n")
    assert drafter.calls == [
        ("begin", [1, 2], slice(1, 2), "n"),
        ("observe", [5]),
        ("observe", [6, 7]),
        ("observe", [8]),
        ("end",),
    ]


def test_reference_is_kept_back_unless_asked_for() -> None:
    drafter = ListedDrafter()
    replay(drafter, [make_trace([1, 2], [5, 6], slice(1, 2))])
    assert drafter.calls[0] == ("begin", [1, 2], None, None)


def test_limit_depends_on_the_tokens_so_far_and_not_on_the_output() -> None:
    short, long = ListedDrafter(), ListedDrafter()
    replay(short, [make_trace([1, 2], [5, 6])])
    replay(long, [make_trace([1, 2], [5] * 100)])
    assert short.limits == long.limits[:1] == [CONTEXT_TOKENS - 2 - 1 - 1]
    assert long.limits[1] == long.limits[0] - 1


def test_a_trace_beyond_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="under 8192 tokens"):
        replay(PlainDrafter(), [make_trace([1] * 5000, [2] * 5000)])


def test_on_trace_gets_each_trace_with_its_own_counts() -> None:
    seen: list[tuple[Trace, int]] = []
    traces = [make_trace([1], [2, 3]), make_trace([1], [2, 3, 4])]
    replay(PlainDrafter(), traces, on_trace=lambda trace, stats: seen.append((trace, stats.passes)))
    assert [(trace is given, passes) for (trace, passes), given in zip(seen, traces, strict=True)] == [
        (True, 1),
        (True, 2),
    ]


def test_recording_takes_back_what_is_rewound() -> None:
    recording = Recording(np.array([5, 6, 7, 8], dtype=np.int32))
    assert recording.start([1]) == 5
    assert list(recording.step([5, 9, 9])) == [6, 7, 8]
    recording.rewind(2)
    assert list(recording.step([6])) == [7]


def test_result_without_passes_divides_by_nothing() -> None:
    result = ReplayResult()
    assert (result.tokens_per_pass, result.microseconds_per_proposal, result.speedup(0.03)) == (1.0, 0.0, 1.0)


def test_result_adds_the_sources_of_traces() -> None:
    result = ReplayResult()
    for _ in range(2):
        result.add(Stats(tokens=5, passes=2, by_source={"a": SourceStats(3, 1)}, drafting_seconds=0.5))
    assert (result.tokens, result.passes, result.seconds) == (8, 4, 1.0)
    assert result.by_source == {"a": SourceStats(6, 2)}
    assert result.microseconds_per_proposal == 250_000
    json.dumps(result.as_dict())


class TestCopyLimit:
    def test_by_hand(self) -> None:
        # 1 is given; 2 3 is copied, 9 is the target's own; 1 2 3 is copied, 4 is the target's own.
        limits = copy_limit([make_trace([1, 2, 3], [1, 2, 3, 9, 1, 2, 3, 4])], caps=(64,))
        assert (limits[64].passes, limits[64].drafted, limits[64].accepted, limits[64].tokens) == (2, 5, 5, 7)

    def test_a_cap_splits_long_copies(self) -> None:
        trace = make_trace(range(10), range(10))
        limits = copy_limit([trace], caps=(2, 64))
        assert (limits[2].passes, limits[2].drafted) == (3, 6)
        assert (limits[64].passes, limits[64].drafted) == (1, 8)

    def test_every_token_is_drafted_or_the_targets_own(self) -> None:
        generator = np.random.default_rng(0)
        traces = [
            make_trace(generator.integers(0, 4, 30).tolist(), generator.integers(0, 4, 50).tolist())
            for _ in range(5)
        ]
        for result in copy_limit(traces).values():
            assert result.passes + result.accepted == result.tokens == 5 * 49

    def test_best_speedup_is_the_highest(self) -> None:
        few_passes = ReplayResult(tokens=100, passes=10, drafted=500)
        few_drafts = ReplayResult(tokens=100, passes=20, drafted=50)
        assert best_speedup([few_passes, few_drafts], 0.0) == 10.0
        assert best_speedup([few_passes, few_drafts], 1.0) == pytest.approx(100 / 70)

    def test_longest_copy_equals_the_slow_one(self) -> None:
        generator = np.random.default_rng(1)
        for _ in range(400):
            text = generator.integers(0, generator.integers(1, 5), 40).astype(np.int32)
            position, cap = int(generator.integers(0, 41)), int(generator.integers(0, 30))
            assert longest_copy(text, position, cap) == slow_longest_copy(text.tolist(), position, cap)


@pytest.mark.model
@needs_traces
def test_recorded_edits_have_the_counts_of_the_baselines() -> None:
    assert TRACES is not None
    expected = json.loads((TRACES / "baselines.json").read_text())["files"]["config_edit"]
    traces = load_traces(TRACES / "config_edit.jsonl", 150)
    limits = copy_limit(traces)
    assert len(traces) == expected["traces"]
    assert replay(PlainDrafter(), traces).tokens == expected["tokens"]
    for cap, result in limits.items():
        row = expected["copy_limit"][str(cap)]
        assert {name: getattr(result, name) for name in row} == row
    for alpha, speedup in expected["limit_speedup"].items():
        assert best_speedup(limits.values(), float(alpha)) == pytest.approx(speedup, abs=1e-3)
