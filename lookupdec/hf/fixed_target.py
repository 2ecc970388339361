"""The loop's target over passes of fixed widths. Knows no kernel and no text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from lookupdec.hf import fixed_width
from lookupdec.hf.choose import Chooser, sent
from lookupdec.hf.fixed_width import Lane, Outcome, answer_of
from lookupdec.hf.prefixes import States
from lookupdec.ids import Ids


class FixedTarget:
    """One generation on a lane. What is read is a position: going back moves it.

    A draft that is wider than the widest pass is read in several, each only when everything before it was
    accepted. A pass waits for the device once: for greedy choices and for draws whose settings look at one row
    or at the ids before it. Other logits processors, and whoever records scores, are served one choice at a time.
    """

    def __init__(self, lane: Lane, chooser: Chooser, *, prefill_chunk: int | None = None) -> None:
        self._lane = lane
        self._chooser = chooser
        self._prefill_chunk = prefill_chunk
        self._position = 0  # of the next id to read
        self._first_logits: torch.Tensor | None = None
        self.release: Callable[[], object] = lambda: None
        """Gives the lane back, once; whoever lends it sets this."""

    def resume(self, states: States) -> None:
        """Start from the states of the prompt's beginning, which is not read again."""
        self._lane.clear()
        self._lane.restore(states)
        self._position = states[0][0].shape[2] if states else 0

    def states(self) -> States:
        """Return copies of what the cache holds now: the cache itself goes to the next request."""
        return self._lane.cache.states(0, self._position)

    def start(self, prompt: Ids) -> int:
        """Read the prompt in chunks and return the first choice."""
        for _ in self.prefill(prompt):
            pass
        assert self._first_logits is not None
        return next(self._chooser.choices(self._first_logits))

    def prefill(self, prompt: Ids) -> Iterator[None]:
        """Read the prompt, pausing between its chunks; ``start`` then has nothing left to read."""
        if self._first_logits is not None:
            return
        if not self._position:
            self._lane.clear()
        ids = sent([int(token) for token in prompt], self._lane.device)
        chunk = self._prefill_chunk or fixed_width.PREFILL_CHUNK
        while True:
            end = min(self._position + chunk, len(ids))
            logits = self._lane.read(ids[self._position : end], self._position)
            self._position = end
            if end == len(ids):
                break
            yield
        self._first_logits = logits

    def step(self, ids: Sequence[int]) -> Iterator[int]:
        """Read ``ids``, in one pass where one is wide enough, and give the choice after each."""
        start, widest = self._position, self._lane.widths[-1]
        self._position += len(ids)
        # The first pass begins now, its answer is waited for when it is asked for.
        outcome = self._lane.run(start, ids[:widest])
        return self._choices(ids, start, outcome)

    def rewind(self, count: int) -> None:
        """Forget the last ``count`` ids: what comes next is written over them."""
        self._position -= count

    def finish(self) -> None:
        """Do nothing: the cache stays with its lane."""

    def _choices(self, ids: Sequence[int], start: int, outcome: Outcome) -> Iterator[int]:
        widest = self._lane.widths[-1]
        for offset in range(0, len(ids), widest):
            piece = ids[offset : offset + widest]
            if offset:
                outcome = self._lane.run(start + offset, piece)
            given = 0
            for token in self._chosen(outcome, len(piece)):
                given += 1
                yield token
            if given < len(piece):
                return

    def _chosen(self, outcome: Outcome, rows: int) -> Iterator[int]:
        chooser, fetch = self._chooser, self._lane.fetch
        if chooser.takes_likeliest:
            agreed, *tokens = fetch(outcome.answer)
            return chooser.told(tokens[: agreed + 1])
        logits, sought = outcome.logits, outcome.sought[:rows]
        # Where every pass is equally wide, so is what is done with its logits.
        has_one_width = len(self._lane.widths) == 1
        made = chooser.at_once(logits if has_one_width else logits[:rows], sought[1:])
        if made is None:
            return chooser.choices(logits[:rows])
        agreed, *tokens = fetch(answer_of(made.tokens, sought))
        return chooser.told(tokens[: agreed + 1], made.states)
