"""Reading the prompt, from where an earlier request had read it, and keeping what was read. Knows no text."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from time import perf_counter
from typing import Protocol

from lookupdec.decode import Target
from lookupdec.hf.prefixes import PrefixCache, States
from lookupdec.ids import Ids
from lookupdec.stats import Stats, Step


class ResumableTarget(Target, Protocol):
    """A target that can go on from what an earlier one had read, and pauses while it reads a prompt."""

    def resume(self, states: States) -> None:
        """Start from the states of the prompt's beginning, which is not read again."""
        ...

    def prefill(self, prompt: Ids) -> Iterator[None]:
        """Read the prompt, pausing between its chunks; ``start`` then has nothing left to read."""
        ...

    def states(self) -> States:
        """Return what was read so far, to be kept; empty where that cannot be."""
        ...

    @property
    def release(self) -> Callable[[], object]:
        """Give back what was lent for the generation, at its end; the target is then no longer used."""
        ...


class KeptPrefix:
    """One request between its target and the kept prefixes, None for none of them."""

    def __init__(
        self,
        prefixes: PrefixCache | None,
        target: ResumableTarget,
        ids: list[int],
        namespace: str | None,
    ) -> None:
        self._prefixes = prefixes
        self._target = target
        self._ids = ids
        self._namespace = namespace
        self._emitted: list[int] = []

    def prefill(self, stats: Stats) -> Generator[Step, None, None]:
        """Read the prompt; yield an empty step after each chunk of it but the last."""
        began = perf_counter()
        if self._prefixes is not None:
            states = self._prefixes.find(self._ids, self._namespace)
            self._target.resume(states)
            stats.cached_tokens = states[0][0].shape[2] if states else 0
        for _ in self._target.prefill(self._ids):
            stats.prefill_seconds += perf_counter() - began
            try:
                yield Step((), 0, 0, ())
            except GeneratorExit:
                self._keep()
                raise
            began = perf_counter()
        stats.prefill_seconds += perf_counter() - began

    def follow(self, passes: Generator[Step, None, None]) -> Generator[Step, None, None]:
        """Pass the steps on, and keep what was read when the consumer stops or the output ends.

        Not when a pass fails: it may have changed some layers of the cache and not others.
        """
        with closing(passes):
            for step in passes:
                self._emitted.extend(step.tokens)
                try:
                    yield step
                except GeneratorExit:
                    self._keep()
                    raise
        self._keep()

    def _keep(self) -> None:
        if self._prefixes is not None and (states := self._target.states()):
            read = (self._ids + self._emitted)[: states[0][0].shape[2]]
            self._prefixes.add(read, states, self._namespace)
