"""Timing passes where they are used: what a drafted token costs on a model follows them. Knows no drafting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Protocol

from lookupdec.errors import InputError
from lookupdec.hf.prefill import ResumableTarget
from lookupdec.hf.prefixes import States
from lookupdec.ids import Ids
from lookupdec.policy import CostModel

KEPT_PASSES = 31  # of each width, the newest
FEWEST_PASSES = 8
RANGES = (2, 8, 24, 72)  # where the ranges of wider passes begin, where widths are not fixed
DRIFT = 1.3  # the factor by which a width's cost must have changed for all to be set anew


class Watch(Protocol):
    """Follows what passes take."""

    cost: CostModel

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass over ``width`` tokens; say whether the cost changed."""
        ...


class WidthWatch:
    """Follows passes of fixed widths and sets their costs anew when one has drifted.

    Parameters
    ----------
    seconds
        What a pass of each width was measured to take.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self.cost = CostModel.from_widths(seconds)
        self._believed = dict(seconds)
        self._passes: dict[int, deque[float]] = {width: deque(maxlen=KEPT_PASSES) for width in seconds}

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass over ``width`` tokens, padding not counted; say whether the costs changed.

        What is wider than the widest pass was read in several, and says nothing about one.
        """
        if width < 1 or seconds <= 0:
            raise InputError(f"a pass has at least 1 token and takes time, got {width} and {seconds}")
        paid_for = next((known for known in sorted(self._believed) if known >= width), None)
        if paid_for is None:
            return False
        passes = self._passes[paid_for]
        passes.append(seconds)
        if len(passes) < FEWEST_PASSES or 1 / DRIFT < median(passes) / self._believed[paid_for] < DRIFT:
            return False
        # A busier or a calmer device, or a longer context: widths that were not seen since are believed to have
        # changed as much as the others did on average.
        seen = {known: median(taken) for known, taken in self._passes.items() if len(taken) >= FEWEST_PASSES}
        factor = median(now / self._believed[known] for known, now in seen.items())
        self._believed = {known: seen.get(known, before * factor) for known, before in self._believed.items()}
        before, self.cost = self.cost, CostModel.from_widths(self._believed)
        return self.cost != before


class CostWatch:
    """Follows what passes take during generations and sets the cost anew when it has drifted.

    Parameters
    ----------
    cost
        What is believed at first.
    """

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._singles: deque[float] = deque(maxlen=KEPT_PASSES)
        self._wider: dict[int, deque[tuple[int, float]]] = {
            start: deque(maxlen=KEPT_PASSES) for start in RANGES
        }

    def add(self, width: int, seconds: float) -> bool:
        """Take in a pass of ``width`` tokens, the one before the draft included; say whether the cost changed."""
        if width < 1 or seconds <= 0:
            raise InputError(f"a pass has at least 1 token and takes time, got {width} and {seconds}")
        if width == 1:
            self._singles.append(seconds)
        else:
            self._wider[max(start for start in RANGES if start <= width)].append((width, seconds))
        observed = self._observed()
        if observed is None or 1 / DRIFT < observed.per_token / self.cost.per_token < DRIFT:
            return False
        self.cost = observed
        return True

    def _observed(self) -> CostModel | None:
        """Return the cost by the medians of each range, None while there are too few passes."""
        known = [passes for passes in self._wider.values() if len(passes) >= FEWEST_PASSES]
        if not known or len(self._singles) < FEWEST_PASSES:
            return None
        medians = {1: median(self._singles)}
        for passes in known:
            # Of widths and seconds apart: the range is narrow enough for its passes to lie on a line.
            width = round(median(width for width, _ in passes))
            medians[width] = median(taken for _, taken in passes)
        return CostModel.from_passes(medians)


class WatchedTarget:
    """A target whose passes are timed, from the start of a pass until its choices are known."""

    def __init__(self, target: ResumableTarget, watch: Watch) -> None:
        self._target = target
        self._watch = watch
        self._width, self._begun = 0, 0.0

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

    def step(self, ids: Sequence[int]) -> Iterable[int]:
        """Read ``ids`` and give the choice after each."""
        self._width, self._begun = len(ids), perf_counter()
        return self._target.step(ids)

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` ids; it comes when the choices of a pass are known."""
        seconds = perf_counter() - self._begun
        self._target.rewind(count)
        with _adding:
            # A clock may stand still for the shortest of passes.
            self._watch.add(self._width, max(seconds, 1e-9))


# Requests of several threads may share a watch.
_adding = threading.Lock()
