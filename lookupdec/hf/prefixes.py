"""Kept prefixes: the keys and values of recent requests, so that the next one need not read the same text again.

Knows no model and no cache object: ``target`` fills them in and hands them over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from lookupdec.errors import InputError
from lookupdec.ids import Ids
from lookupdec.limits import PREFIX_BYTES

States = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values, layer by layer, each of shape (1, heads, positions, head size)."""

_SHORTEST = 16  # tokens: below that, looking and copying cost more than reading


@dataclass(frozen=True, slots=True, eq=False)  # eq: entries are found by identity
class _Entry:
    namespace: str | None
    ids: npt.NDArray[np.int32]
    states: States
    nbytes: int


class PrefixCache:
    """Keys and values of recent requests by what was read, the least recently used out first.

    Kept tensors are shared and never written to. Entries of one namespace are never found from another. Any number
    of threads may share one. It serves one model: whoever changes the weights or the adapter clears it.

    Parameters
    ----------
    max_bytes
        Budget for all entries together; what alone is larger is not kept. 0 keeps nothing.

    Raises
    ------
    InputError
        The budget is negative.
    """

    def __init__(self, max_bytes: int = PREFIX_BYTES) -> None:
        if max_bytes < 0:
            raise InputError(f"the budget for kept prefixes must be at least 0 bytes, not {max_bytes}")
        self.max_bytes = max_bytes
        self._entries: list[_Entry] = []  # the most recently used last
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """What all entries take."""
        return sum(entry.nbytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries = []

    def find(self, ids: Ids, namespace: str | None = None) -> States:
        """Return the states of the longest kept beginning of ``ids``, empty where there is none.

        At least one id is left to read, for the choice after the last one.
        """
        wanted = np.asarray(ids, np.int32)[:-1]
        with self._lock:
            found = [
                (_common(entry.ids, wanted), entry) for entry in self._entries if entry.namespace == namespace
            ]
            length, best = max(found, key=lambda pair: pair[0], default=(0, None))
            if best is None or length < _SHORTEST:
                return ()
            self._entries.remove(best)
            self._entries.append(best)
        return [(keys[:, :, :length], values[:, :, :length]) for keys, values in best.states]

    def add(self, ids: Ids, states: States, namespace: str | None = None) -> None:
        """Keep the states of ``ids``, one position an id, in the place of entries that they contain."""
        read = np.array(ids, np.int32)
        nbytes = read.nbytes + sum(tensor.untyped_storage().nbytes() for pair in states for tensor in pair)
        if len(read) < _SHORTEST or nbytes > self.max_bytes:
            return
        entry = _Entry(namespace, read, states, nbytes)
        with self._lock:
            kept = [old for old in self._entries if not _contains(entry, old)]
            left = self.max_bytes - nbytes
            while kept and sum(old.nbytes for old in kept) > left:
                del kept[0]
            self._entries = [*kept, entry]


def _common(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32]) -> int:
    length = min(len(one), len(other))
    differences = np.flatnonzero(one[:length] != other[:length])
    return int(differences[0]) if len(differences) else length


def _contains(entry: _Entry, old: _Entry) -> bool:
    return old.namespace == entry.namespace and _common(old.ids, entry.ids) == len(old.ids)
