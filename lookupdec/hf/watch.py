"""Timing passes where they are used: what a drafted token costs on a model follows them. Knows no drafting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Protocol

import torch

from lookupdec.errors import InputError
from lookupdec.hf.prefill import ResumableTarget
from lookupdec.hf.prefixes import States
from lookupdec.ids import Ids
from lookupdec.policy import CostModel

KEPT_PASSES = 31  # of each width, the newest
FEWEST_PASSES = 8
RANGES = (2, 8, 24, 72)  # where the ranges of wider passes begin, where widths are not fixed
STALE_AFTER = 200  # passes: what was seen before says nothing about now
# Per token, in passes of one: from 0.9 on nothing would be drafted, and nothing learnt any more.
DEAREST = 0.5
DRIFT = 1.3  # the factor by which a width's cost must have changed for all to be set anew


CPU_COST, CPU_HALF_COST = 0.08, 0.05
"""What a drafted token costs on two CPU cores, in passes of one token: the default model in float32 and bfloat16."""


def usual_cost(device: torch.device, dtype: torch.dtype) -> CostModel:
    """Return what a drafted token usually costs on a device in a dtype, for where nothing was measured."""
    if device.type != "cpu":
        return CostModel()
    return CostModel(CPU_COST if dtype == torch.float32 else CPU_HALF_COST)


class Watch(Protocol):
    """Follows what passes take."""

    cost: CostModel

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass over ``width`` tokens; say whether the cost changed."""
        ...


@dataclass(slots=True)
class _Passes:
    """The newest passes of one width or of a range of them: widths and seconds, and when the last one came."""

    taken: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=KEPT_PASSES))
    newest: int = 0

    def add(self, number: int, width: int, seconds: float) -> None:
        self.taken.append((width, seconds))
        self.newest = number

    def forget_what_is_old(self, number: int) -> bool:
        """Forget all where none has come for long, say whether that is so: the device may be another by now."""
        is_old = bool(self.taken) and number - self.newest > STALE_AFTER
        if is_old:
            self.taken.clear()
        return is_old

    @property
    def are_enough(self) -> bool:
        return len(self.taken) >= FEWEST_PASSES

    @property
    def width(self) -> int:
        return round(median(width for width, _ in self.taken))

    @property
    def seconds(self) -> float:
        return median(seconds for _, seconds in self.taken)


class WidthWatch:
    """Follows passes of fixed widths and sets their costs anew when one has drifted.

    A width that is no longer used, maybe since it was dear for a while, is believed to cost what it did at first
    beside the narrowest.

    Parameters
    ----------
    seconds
        What a pass of each width was measured to take.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self.cost = CostModel.from_widths(seconds)
        self._measured = dict(seconds)
        self._believed = dict(seconds)
        self._passes = {width: _Passes() for width in seconds}
        self._number = 0

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass over ``width`` tokens, padding not counted; say whether the costs changed.

        What is wider than the widest pass was read in several, and says nothing about one.
        """
        _check_pass(width, seconds)
        paid_for = next((known for known in sorted(self._believed) if known >= width), None)
        if paid_for is None:
            return False
        self._number += 1
        passes = self._passes[paid_for]
        old = [seen.forget_what_is_old(self._number) for seen in self._passes.values()]
        passes.add(self._number, paid_for, seconds)
        has_drifted = passes.are_enough and not (
            1 / DRIFT < passes.seconds / self._believed[paid_for] < DRIFT
        )
        if not (any(old) or has_drifted):
            return False
        self._believed = self._seen_or_scaled()
        before, self.cost = self.cost, CostModel.from_widths(self._believed)
        return self.cost != before

    def _seen_or_scaled(self) -> dict[int, float]:
        # A busier or a calmer device, or a longer context: widths that were not seen are believed to have changed
        # as much as the narrowest.
        seen = {width: passes.seconds for width, passes in self._passes.items() if passes.are_enough}
        narrowest = min(self._measured)
        if narrowest in seen:
            factor = seen[narrowest] / self._measured[narrowest]
        elif seen:
            factor = median(now / self._measured[width] for width, now in seen.items())
        else:
            factor = self._believed[narrowest] / self._measured[narrowest]
        return {width: seen.get(width, before * factor) for width, before in self._measured.items()}


class CostWatch:
    """Follows what passes take during generations and sets the cost anew when it has drifted.

    Where no draft has been read for long the cost is again what it was at first, so that drafts are tried again.

    Parameters
    ----------
    cost
        What is believed at first, as far as it lets drafts be tried at all.
    """

    def __init__(self, cost: CostModel) -> None:
        self.cost = self._first = _tryable(cost)
        self._singles = _Passes()
        self._wider = {start: _Passes() for start in RANGES}
        self._number = 0

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass of ``width`` tokens, the one before the draft included; say whether the cost changed."""
        _check_pass(width, seconds)
        self._number += 1
        old = [passes.forget_what_is_old(self._number) for passes in self._wider.values()]
        if width == 1:
            self._singles.add(self._number, width, seconds)
        else:
            self._wider[max(start for start in RANGES if start <= width)].add(self._number, width, seconds)
        before = self.cost
        if any(old) and not any(passes.taken for passes in self._wider.values()):
            self.cost = self._first
        observed = self._observed()
        if observed is not None and not 1 / DRIFT < observed.per_token / self.cost.per_token < DRIFT:
            self.cost = observed
        return self.cost != before

    def _observed(self) -> CostModel | None:
        """Return the cost by the medians of each range, None while there are too few passes."""
        known = [passes for passes in self._wider.values() if passes.are_enough]
        if not known or not self._singles.are_enough:
            return None
        # Of widths and seconds apart: the range is narrow enough for its passes to lie on a line.
        medians = {1: self._singles.seconds} | {passes.width: passes.seconds for passes in known}
        return _tryable(CostModel.from_passes(medians))


def _tryable(cost: CostModel) -> CostModel:
    return replace(cost, per_token=min(cost.per_token, DEAREST))


def _check_pass(width: int, seconds: float) -> None:
    if width < 1 or seconds <= 0:
        raise InputError(f"a pass has at least 1 token and takes time, got {width} and {seconds}")


class WatchedTarget:
    """A target whose passes are timed, from the start of a pass until its first choice is known.

    The pass is over then; what is made of the other choices takes as long however they were drafted.
    """

    def __init__(self, target: ResumableTarget, watch: Watch) -> None:
        self._target = target
        self._watch = watch

    def start(self, prompt: Ids) -> int:
        """Read the prompt and return the first choice."""
        return self._target.start(prompt)

    def resume(self, states: States) -> None:
        """Start from the states of the prompt's beginning."""
        self._target.resume(states)

    def prefill(self, prompt: Ids) -> Iterator[None]:
        """Read the prompt, pausing between its chunks."""
        return self._target.prefill(prompt)

    def states(self) -> States:
        """Return what was read so far."""
        return self._target.states()

    def release(self) -> None:
        """Give back what was lent for the generation."""
        self._target.release()

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        """Read ``ids`` and give the choice after each."""
        begun = perf_counter()
        return self._timed(iter(self._target.step(ids)), len(ids), begun)

    def _timed(self, choices: Iterator[int], width: int, begun: float) -> Iterator[int]:
        first = next(choices)
        seconds = perf_counter() - begun
        with _adding:
            # A clock may stand still for the shortest of passes.
            self._watch.add(width, max(seconds, 1e-9))
        yield first
        yield from choices

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` ids."""
        self._target.rewind(count)


# Requests of several threads may share a watch.
_adding = threading.Lock()
