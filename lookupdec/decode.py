"""The decode loop and the two protocols it joins. Knows no tensor, no text and no index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookupdec.ids import Ids, Reference
from lookupdec.stats import Stats, Step
from lookupdec.verify import accept


class Drafter(Protocol):
    """Guesses the next tokens by copying. One drafter serves one request at a time."""

    @property
    def sources(self) -> Sequence[str]:
        """Where each token of the last draft was copied from."""
        ...

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        """Start a request. ``reference`` is text expected to come back: ids, or a span of the prompt."""
        ...

    def propose(self, limit: int) -> Sequence[int] | npt.NDArray[np.int32]:
        """Return at most ``limit`` ids that may come next; empty is a fine answer."""
        ...

    def observe(self, ids: Ids) -> None:
        """Tell the tokens that were emitted since the last call."""
        ...

    def end(self) -> None:
        """Finish the request."""
        ...


class Target(Protocol):
    """A language model that remembers what it has read."""

    def start(self, prompt: Ids) -> int:
        """Read the prompt and return the model's own first choice."""
        ...

    def step(self, ids: Sequence[int]) -> Iterable[int]:
        """Read ``ids`` in one forward pass and give the model's own choice after each, lazily and in order.

        The caller asks for the choice after ``ids[i]`` only when every choice before it equalled the id that
        follows it, so that draws and logits processors see only what is really emitted.
        """
        ...

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` ids that were read."""
        ...


class PlainDrafter:
    """Never drafts: turns the loop into plain decoding."""

    sources: Sequence[str] = ()

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        """Do nothing."""

    def propose(self, limit: int) -> Sequence[int]:  # noqa: ARG002
        """Return no draft."""
        return ()

    def observe(self, ids: Ids) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


def stops_at(stop_ids: Collection[int]) -> Callable[[int], bool]:
    """Return the predicate "this token ends the output" for a set of end-of-text ids."""
    stop_set = frozenset(int(token) for token in stop_ids)
    return stop_set.__contains__


def decode(
    target: Target,
    drafter: Drafter,
    prompt: Ids,
    *,
    limit: int,
    is_last: Callable[[int], bool],
    stats: Stats | None = None,
    reference: Ids | slice | Reference | None = None,
    namespace: str | None = None,
) -> Generator[Step, None, None]:
    """Generate up to ``limit`` tokens (at least 1) and yield one ``Step`` per pass, the prefill's first.

    ``is_last(token)`` is asked once for every emitted token, in order; the output ends with the first token
    it is true for. A consumer that stops early leaves nothing running. ``stats`` is filled as it goes.
    """
    stats = Stats() if stats is None else stats
    stats.prompt_tokens = len(prompt)
    began = perf_counter()
    drafter.begin(prompt, reference=reference, namespace=namespace)
    stats.drafting_seconds += perf_counter() - began
    unobserved: tuple[int, ...] = ()
    try:
        began = perf_counter()
        first = target.start(prompt)
        stats.prefill_seconds += perf_counter() - began
        stats.tokens, unobserved, ended = 1, (first,), is_last(first)
        yield Step(unobserved, 0, 0, ())
        while not ended and stats.tokens < limit:
            began = perf_counter()
            last = unobserved[-1]
            drafter.observe(unobserved)
            unobserved = ()
            room = limit - stats.tokens - 1
            draft = [int(token) for token in drafter.propose(room)] if room > 0 else []
            drafted = perf_counter()
            emitted, accepted, ended = accept(draft, target.step([last, *draft]), is_last)
            # The last emitted token is read by the next pass; of this pass, what stands before it stays.
            target.rewind(1 + len(draft) - len(emitted))
            step = Step(emitted, len(draft), accepted, tuple(drafter.sources) if draft else ())
            stats.add(step)
            stats.drafting_seconds += drafted - began
            stats.verifying_seconds += perf_counter() - drafted
            unobserved = emitted
            yield step
    finally:
        drafter.observe(unobserved)
        drafter.end()
