"""Small drafters for the tests of ``lookupdec.hf``: a plain copier and two that are no help at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lookupdec.decode import Drafter, PlainDrafter
from lookupdec.ids import Ids, Reference


class NaiveCopier:
    """Copies what followed the last earlier occurrence of the longest matching end of the text."""

    def __init__(self, most: int = 50) -> None:
        self.sources: Sequence[str] = ()
        self.most = most
        self.text: list[int] = []
        self.ended = 0
        self.reference: list[int] = []

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        ids = [int(token) for token in prompt]
        if isinstance(reference, Reference):
            reference = reference.ids
        self.reference = ids[reference] if isinstance(reference, slice) else [int(i) for i in reference or ()]
        self.text = self.reference + ids
        self.ended = 0

    def propose(self, limit: int) -> Sequence[int]:
        self.sources = ()
        for length in (3, 2, 1):
            tail = self.text[-length:]
            for start in range(len(self.text) - length - 1, -1, -1):
                if self.text[start : start + length] == tail:
                    return self._drafted(self.text[start + length :][: min(limit, self.most)], "prompt")
        return ()

    def _drafted(self, draft: Sequence[int], source: str) -> Sequence[int]:
        self.sources = (source,) * len(draft)
        return draft

    def observe(self, ids: Ids) -> None:
        self.text.extend(int(token) for token in ids)

    def end(self) -> None:
        self.ended += 1


class Garbage(NaiveCopier):
    """Always drafts, and hardly ever right."""

    def propose(self, limit: int) -> Sequence[int]:
        draft = [(7 * len(self.text) + 3 * offset) % 11 for offset in range(min(limit, 5))]
        return self._drafted(draft, "garbage")


class Alternating(NaiveCopier):
    """Drafts in every second pass only."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0

    def propose(self, limit: int) -> Sequence[int]:
        self.turn += 1
        self.sources = ()
        return super().propose(limit) if self.turn % 2 else ()


class Known(NaiveCopier):
    """Drafts the continuation it was given at the right place: everything is accepted."""

    def __init__(self, continuation: Sequence[int], most: int = 50) -> None:
        super().__init__(most)
        self.continuation = list(continuation)
        self.told = 0

    def observe(self, ids: Ids) -> None:
        self.told += len(ids)

    def propose(self, limit: int) -> Sequence[int]:
        return self._drafted(self.continuation[self.told :][: min(limit, self.most)], "known")


def the_default() -> None:
    """Leave the choice to lookupdec: a ``CopyDrafter``."""


DRAFTERS: list[Callable[[], Drafter | None]] = [
    the_default,
    NaiveCopier,
    Garbage,
    Alternating,
    PlainDrafter,
]
