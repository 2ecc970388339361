"""Rotary positions that turn otherwise once a text gets long: which tokens one pass may read. Knows no cache.

transformers picks the frequencies of a whole pass by its last position. With ``longrope`` (Phi-3, MiniCPM) they are
others beyond the length the model was first trained for, with ``dynamic`` others at every length beyond the context
that the config states. A pass over a draft must not reach from one set into the next.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from lookupdec.hf.network import by_layer, inner_model

_turns: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class Rope:
    """Where the frequencies of a model change.

    ``lengths``, rising: those up to which a text is read with one set, and beyond which with another. ``every_from``:
    the length from which on each has a set of its own; None where there is none.
    """

    lengths: tuple[int, ...]
    every_from: int | None = None

    @property
    def shortest(self) -> int:
        """The length up to which nothing changes."""
        return min(self.lengths + (() if self.every_from is None else (self.every_from,)))

    def width(self, read: int, count: int) -> int:
        """Return how many of ``count`` tokens one pass may read after ``read``."""
        if self.every_from is not None and read >= self.every_from:
            return 1
        ends = self.lengths if self.every_from is None else (*self.lengths, self.every_from)
        return min([count, *(end - read for end in ends if end > read)])


def rope_of(model: Any) -> Rope | None:
    """Return where the frequencies of a model change by its config; None for the many where they never do."""
    config = model.config.get_text_config(decoder=True)
    kinds: list[Mapping[str, Any]] = []
    for given in by_layer(config, "rope_parameters"):
        if isinstance(given, Mapping) and given not in kinds:
            # Some models give every type of layer parameters of its own.
            kinds += [kind for kind in (given, *given.values()) if isinstance(kind, Mapping)]
    context = getattr(config, "max_position_embeddings", None)
    lengths, every_from = set(), None
    for kind in kinds:
        name = kind.get("rope_type") or ""
        if name == "longrope" and (length := kind.get("original_max_position_embeddings")):
            lengths.add(int(length))
        elif "dynamic" in name and context:
            every_from = int(context)
    return Rope(tuple(sorted(lengths)), every_from) if lengths or every_from else None


def turn_of(model: Any, rope: Rope | None) -> AbstractContextManager[object]:
    """Return what a pass of a model runs within: such a model keeps the frequencies of its last pass in itself."""
    if rope is None:
        return nullcontext()
    with _making:
        return _turns.setdefault(inner_model(model), threading.Lock())
