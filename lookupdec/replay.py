"""Runs a drafter over recorded outputs and counts passes. Knows no model, no text and no drafter by name.

A recording takes the place of the target, so the loop, the accept rule and the order of the drafter's calls
are those of live decoding. The drafter sees the prompt, the reference if asked for, and what was emitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from lookupdec.decode import Drafter, decode
from lookupdec.errors import InputError
from lookupdec.ids import Ids
from lookupdec.stats import SourceStats, Stats, add_sources
from lookupdec.traces import Trace, load_traces

__all__ = ["COPY_CAPS", "ReplayResult", "Trace", "best_speedup", "copy_limit", "load_traces", "replay"]

CONTEXT_TOKENS = 8192
"""The drafter's ``limit`` is what this leaves after prompt and output so far: no hint of the end."""
COPY_CAPS = (64, 128, 1024)
"""Longest spans that the copy limit is computed with."""


@dataclass(slots=True)
class ReplayResult:
    """What one drafter needed on some traces.

    ``tokens`` leaves out each trace's first token, which the prefill gives. ``seconds`` is the wall-clock
    time inside the drafter (begin, observe and propose); there is one proposal a pass.
    """

    traces: int = 0
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    by_source: dict[str, SourceStats] = field(default_factory=dict)

    def add(self, stats: Stats) -> None:
        """Count one trace."""
        self.traces += 1
        self.tokens += stats.tokens - 1
        self.passes += stats.passes
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.seconds += stats.drafting_seconds
        add_sources(self.by_source, stats.by_source)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens emitted per forward pass."""
        return self.tokens / self.passes if self.passes else 1.0

    @property
    def microseconds_per_proposal(self) -> float:
        """Mean time in the drafter per pass."""
        return 1e6 * self.seconds / self.passes if self.passes else 0.0

    def cost(self, alpha: float) -> float:
        """Return the run's cost in one-token forwards, where one drafted token costs ``alpha`` of them."""
        return self.passes + alpha * self.drafted

    def speedup(self, alpha: float) -> float:
        """Return output tokens over cost: how many times faster than one pass a token."""
        cost = self.cost(alpha)
        return self.tokens / cost if cost else 1.0

    def as_dict(self) -> dict[str, object]:
        """Return the counts and what does not depend on alpha as JSON-ready values."""
        return {
            **asdict(self),
            "seconds": round(self.seconds, 4),
            "tokens_per_pass": round(self.tokens_per_pass, 3),
            "microseconds_per_proposal": round(self.microseconds_per_proposal, 2),
        }


class Recording:
    """A target that recites a recorded output, whatever it reads."""

    def __init__(self, output: npt.NDArray[np.int32]) -> None:
        self._output: list[int] = output.tolist()
        self._read = 0  # ids of the output that were read and not rewound

    def start(self, prompt: Ids) -> int:  # noqa: ARG002
        """Return the output's first id."""
        return self._output[0]

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        """Return the recorded id after each of ``ids``, as far as the output goes."""
        start = self._read + 1
        self._read += len(ids)
        return iter(self._output[start : start + len(ids)])

    def rewind(self, count: int) -> None:
        """Take back the last ``count`` ids."""
        self._read -= count


def replay(
    drafter: Drafter,
    traces: Iterable[Trace],
    *,
    with_reference: bool = False,
    namespace: str | None = None,
    on_trace: Callable[[Trace, Stats], None] | None = None,
) -> ReplayResult:
    """Run one drafter over the traces in order and count what it needed.

    The drafter keeps whatever state it carries from one request to the next. ``with_reference`` gives it the
    span of the prompt that holds the text under edit. ``on_trace`` is told every trace with its own counts.
    """
    result = ReplayResult()
    for trace in traces:
        stats = _replay_one(drafter, trace, trace.reference if with_reference else None, namespace)
        result.add(stats)
        if on_trace is not None:
            on_trace(trace, stats)
    return result


def _replay_one(drafter: Drafter, trace: Trace, reference: slice | None, namespace: str | None) -> Stats:
    if len(trace.prompt) + len(trace.output) >= CONTEXT_TOKENS:
        raise InputError(f"trace {trace.id}: prompt and output must be under {CONTEXT_TOKENS} tokens")
    stats = Stats()
    left = len(trace.output)

    def is_last(token: int) -> bool:  # noqa: ARG001
        # By position, not by id: an output may quote the end-of-turn token.
        nonlocal left
        left -= 1
        return left == 0

    steps = decode(
        Recording(trace.output),
        drafter,
        trace.prompt,
        limit=CONTEXT_TOKENS - len(trace.prompt),
        is_last=is_last,
        stats=stats,
        reference=reference,
        namespace=namespace,
    )
    deque(steps, maxlen=0)
    return stats


def copy_limit(traces: Sequence[Trace], caps: Iterable[int] = COPY_CAPS) -> dict[int, ReplayResult]:
    """Return, for each longest span allowed, what copying needs when the drafter knows the output.

    Each pass copies the longest span that stands in the prompt or the output so far and will be accepted; the
    token after it is the target's own. No drafter that copies one span a pass from there needs less.
    """
    return {cap: _copy_limit(traces, cap) for cap in caps}


def best_speedup(results: Iterable[ReplayResult], alpha: float) -> float:
    """Return the highest speed-up among results of the same traces."""
    return max(result.speedup(alpha) for result in results)


def _copy_limit(traces: Sequence[Trace], cap: int) -> ReplayResult:
    result = ReplayResult()
    for trace in traces:
        text = np.concatenate([trace.prompt, trace.output])
        position = len(trace.prompt) + 1
        stats = Stats(tokens=len(trace.output))
        while position < len(text):
            span = longest_copy(text, position, min(cap, len(text) - position - 1))
            stats.passes += 1
            stats.drafted += span
            position += span + 1
        stats.accepted = stats.drafted
        result.add(stats)
    return result


def longest_copy(text: npt.NDArray[np.int32], position: int, cap: int) -> int:
    """Return how many tokens from ``position`` on, at most ``cap``, also stand together wholly before it."""
    seen, ahead = text[:position], text[position : position + cap]
    if not len(ahead):
        return 0
    starts = np.flatnonzero(seen == ahead[0])
    length = 1 if len(starts) else 0
    while len(starts) > 1 and length < len(ahead):
        starts = starts[starts + length < position]
        longer = starts[seen[starts + length] == ahead[length]]
        if not len(longer):
            return length
        starts, length = longer, length + 1
    if len(starts):  # one candidate left: compare it in one go
        rest = min(len(ahead), position - int(starts[0]))
        differs = np.flatnonzero(seen[starts[0] : starts[0] + rest] != ahead[:rest])
        length = int(differs[0]) if len(differs) else rest
    return length
