"""What one generation cost: passes, drafted and accepted tokens, seconds. Knows no model and no text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Step:
    """What one forward pass emitted.

    ``tokens`` are the emitted ids in order; the first ``accepted`` of them were drafted. ``drafted`` is the length
    of the draft that the pass checked, and ``sources`` names where each of its tokens was copied from.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    sources: tuple[str, ...]


@dataclass(slots=True)
class SourceStats:
    """Tokens drafted from one source, and how many of them the target accepted."""

    drafted: int = 0
    accepted: int = 0


def add_sources(total: dict[str, SourceStats], more: Mapping[str, SourceStats]) -> None:
    """Add counts by source to ``total``."""
    for name, counts in more.items():
        source = total.setdefault(name, SourceStats())
        source.drafted += counts.drafted
        source.accepted += counts.accepted


@dataclass(slots=True)
class Stats:
    """Counts and seconds of one generation.

    ``passes`` are forward passes after the prefill; ``tokens`` counts every emitted token, the first one
    (which the prefill gives) included; ``cached_tokens`` of the prompt had been read by an earlier request.
    ``prefills`` is 1, or how many generations these counts are the sum of.
    Seconds are wall-clock: ``prefill_seconds`` until the first token, ``drafting_seconds`` in the drafter,
    ``verifying_seconds`` in the target and the accept rule.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    prefills: int = 1
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    by_source: dict[str, SourceStats] = field(default_factory=dict)
    prefill_seconds: float = 0.0
    drafting_seconds: float = 0.0
    verifying_seconds: float = 0.0

    def add(self, step: Step) -> None:
        """Count one pass."""
        self.passes += 1
        self.tokens += len(step.tokens)
        self.drafted += step.drafted
        self.accepted += step.accepted
        for position, name in enumerate(step.sources):
            source = self.by_source.setdefault(name, SourceStats())
            source.drafted += 1
            source.accepted += position < step.accepted

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the whole generation."""
        return self.prefill_seconds + self.drafting_seconds + self.verifying_seconds

    @property
    def tokens_per_pass(self) -> float:
        """Tokens emitted per forward pass after the prefill (1.0 for plain decoding)."""
        return (self.tokens - self.prefills) / self.passes if self.passes else 1.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafted tokens that were accepted; 0.0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over all seconds, prefill included."""
        return self.tokens / self.seconds if self.seconds > 0 else float(np.inf)
