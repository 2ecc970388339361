"""The rolling cache of past outputs: a searchable corpus per namespace, one byte budget. Knows no drafting.

Threads. One lock serialises writers; searches take none. A search reads ``Corpus.arrays`` once and works on
that set of arrays, which a writer may be extending in place at that moment. That is safe, because

- a set is never resized: growth and eviction build a whole new set and swap it in, and the old one is not
  written again, so every state, edge and position that stands in a set lies within that same set;
- a cell holds its first value (NONE, SEPARATOR in the text) or one that was meant for it, never a leftover;
- suffix links lead to strictly shorter states, edge lists to edges entered before, and at least a quarter of
  the edge table stays empty, so every walk ends.

A search may therefore see half a document, and guess wrong. It cannot crash, hang, or see another namespace.
State numbers are valid within one ``Automaton.generation`` only.
"""

from __future__ import annotations

import hashlib
import threading
from itertools import count
from pathlib import Path

import numpy as np

from lookupdec import _kernels as kernels
from lookupdec._kernels import SEPARATOR, Automaton
from lookupdec.cachefile import pack, unpack
from lookupdec.errors import DrafterError, InputError
from lookupdec.files import read_bytes, write_atomically
from lookupdec.ids import Ids, Int32Array, as_ids
from lookupdec.limits import PAST_BYTES

GROWTH = 10  # by one part in ten; with that, 1M tokens stay under 64 MB
EDGE_GROWTH = 5
SPARE = 8  # states and slots, for tiny corpora
STATES_PER_TOKEN = 1.5  # measured on code, used while a corpus has less than
EDGES_PER_TOKEN = 0.6  # ENOUGH_TOKENS of its own
ENOUGH_TOKENS = 1024
KEPT_AFTER_EVICTION = 0.6  # of the budget; 0.75 holds 5 % more on average and adds at 1.6M tokens/s, not 2.4M
DOCUMENT_BYTES = 384  # Python's own for one entry of the document table
MIN_TOKEN_BYTES = 64  # a document that needs more than the budget at this rate is cut before it is indexed

_SEPARATORS = np.full(1, SEPARATOR, np.int32)
_generations = count(1)

Key = tuple[str | None, bytes]


class Corpus:
    """The documents of one namespace: their text and its generalised suffix automaton.

    ``arrays`` is replaced as a whole: read it once a search.
    """

    __slots__ = ("arrays",)

    def __init__(self, arrays: Automaton) -> None:
        self.arrays = arrays


class RollingCache:
    """Past outputs, searchable by their ids, in namespaces that never see each other's text.

    When the budget is exceeded the oldest documents go, by when they were last added, over all namespaces.
    Of a document larger than the budget the end is kept. Any number of threads may use one cache.

    Parameters
    ----------
    capacity_bytes
        Budget for all that is held; 0 holds nothing. Growth needs up to twice as much for a moment.
    """

    def __init__(self, capacity_bytes: int = PAST_BYTES) -> None:
        if capacity_bytes < 0:
            raise InputError(f"capacity_bytes must not be negative, got {capacity_bytes}")
        self._capacity = capacity_bytes
        self._corpora: dict[str | None, Corpus] = {}
        self._documents: dict[Key, slice] = {}  # oldest first; where each stands in its corpus's text
        self._tokens = 0
        self._array_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many tokens are held."""
        return self._tokens

    @property
    def nbytes(self) -> int:
        """Bytes held, room to grow included."""
        return self._array_bytes + len(self._documents) * DOCUMENT_BYTES

    def namespaces(self) -> tuple[str | None, ...]:
        """Return the namespaces that hold text; None is the one used where none is named."""
        return tuple(self._corpora)

    def corpus(self, namespace: str | None = None) -> Corpus | None:
        """Return what one namespace holds, or None where that is nothing. Takes no lock."""
        return self._corpora.get(namespace)

    def add(self, ids: Ids, *, namespace: str | None = None) -> None:
        """Keep a document. One that is held already counts as new again and is not stored twice.

        Raises
        ------
        DrafterError
            The ids are not whole numbers in 0 .. 2**31 - 2, or the namespace is not a string.
        """
        document = as_ids(ids)
        if document.size == 0:
            return
        if namespace is not None and not isinstance(namespace, str):
            raise DrafterError(f"a namespace is a string or None, got {type(namespace).__name__}")
        key = (namespace, hashlib.blake2b(document.data, digest_size=16).digest())
        with self._lock:
            held = self._documents.pop(key, None)
            if held is not None:
                self._documents[key] = held
                return
            self._append(key, document[max(0, document.size - self._capacity // MIN_TOKEN_BYTES) :])
            if self.nbytes > self._capacity:
                self._evict()

    def clear(self, *namespaces: str | None) -> None:
        """Forget the documents of the namespaces given, or everything where none is."""
        with self._lock:
            for namespace in namespaces or self.namespaces():
                for key in self._keys(namespace):
                    self._forget(key)
                self._rebuild(namespace)

    def save(self, path: str | Path, *, fingerprint: str = "") -> None:
        """Write all documents to a file, whole or not at all.

        ``fingerprint`` names the tokenizer, whose ids mean nothing to another. Raises ``FileError``.
        """
        with self._lock:
            documents = [
                (namespace, self._corpora[namespace].arrays.text[place].copy())
                for (namespace, _), place in self._documents.items()
            ]
        write_atomically(Path(path), pack(documents, fingerprint))

    @classmethod
    def load(
        cls, path: str | Path, *, fingerprint: str = "", capacity_bytes: int = PAST_BYTES
    ) -> RollingCache:
        """Return a new cache with the documents of a saved one, the newest as far as they fit.

        Raises
        ------
        FileError
            The file cannot be read, is damaged, or is of another version or tokenizer. It is left as it is.
        """
        cache = cls(capacity_bytes)
        for namespace, ids in unpack(read_bytes(Path(path)), Path(path), fingerprint):
            cache.add(ids, namespace=namespace)
        return cache

    def _append(self, key: Key, document: Int32Array) -> None:
        if document.size == 0:
            return
        corpus = self._corpora.get(key[0])
        arrays = corpus.arrays if corpus else _empty(document.size + 1)
        arrays, start = _with_document(arrays, document)
        self._publish(key[0], arrays)
        self._documents[key] = slice(start, start + document.size)
        self._tokens += document.size

    def _evict(self) -> None:
        """Drop the oldest documents until the budget is kept; the newest only loses its beginning."""
        while self._documents and self.nbytes > self._capacity:
            excess = self.nbytes - int(self._capacity * KEPT_AFTER_EVICTION)
            *older, newest = self._documents
            if older:
                affected = self._forget_worth(excess, older)
            else:
                self._shorten(newest, excess / self.nbytes)
                affected = {newest[0]}
            for namespace in affected:
                self._rebuild(namespace)

    def _forget_worth(self, excess: float, oldest_first: list[Key]) -> set[str | None]:
        """Forget documents that occupy about ``excess`` bytes; return their namespaces."""
        token_bytes = {
            namespace: corpus.arrays.nbytes / int(corpus.arrays.meta[kernels.N_TOKENS])
            for namespace, corpus in self._corpora.items()
        }
        affected = set()
        for key in oldest_first:
            if excess <= 0:
                break
            excess -= DOCUMENT_BYTES + token_bytes[key[0]] * (_size(self._documents[key]) + 1)
            self._forget(key)
            affected.add(key[0])
        return affected

    def _shorten(self, key: Key, share: float) -> None:
        """Forget at least the first token of a document, and ``share`` of it."""
        place = self._documents[key]
        kept = min(int(_size(place) * (1 - share)), _size(place) - 1)
        self._forget(key)
        if kept > 0:
            self._documents[key] = slice(place.stop - kept, place.stop)
            self._tokens += kept

    def _forget(self, key: Key) -> None:
        self._tokens -= _size(self._documents.pop(key))

    def _keys(self, namespace: str | None) -> list[Key]:
        return [key for key in self._documents if key[0] == namespace]

    def _rebuild(self, namespace: str | None) -> None:
        """Index what is left of a namespace anew, in new arrays: searches go on in the old ones meanwhile."""
        corpus = self._corpora.get(namespace)
        if corpus is None:
            return
        old = corpus.arrays
        places: dict[Key, slice] = {}
        pieces: list[Int32Array] = []
        end = 0
        for key in self._keys(namespace):
            place = self._documents[key]
            pieces += [old.text[place], _SEPARATORS]
            places[key] = slice(end, end + _size(place))
            end += _size(place) + 1
        arrays = _empty(end + end // GROWTH, old)
        self._publish(namespace, _extended(arrays, np.concatenate(pieces)) if pieces else arrays)
        self._documents.update(places)

    def _publish(self, namespace: str | None, arrays: Automaton) -> None:
        """Let searches find ``arrays``, also those that hold the namespace's corpus already."""
        corpus = self._corpora.get(namespace)
        if corpus is None:
            self._corpora[namespace] = Corpus(arrays)
            self._array_bytes += arrays.nbytes
            return
        self._array_bytes += arrays.nbytes - corpus.arrays.nbytes
        corpus.arrays = arrays
        if int(arrays.meta[kernels.N_TOKENS]) == 0:
            self._array_bytes -= arrays.nbytes
            del self._corpora[namespace]


def _size(place: slice) -> int:
    return int(place.stop - place.start)


def _with_document(arrays: Automaton, document: Int32Array) -> tuple[Automaton, int]:
    """Append one document; return the arrays that now hold it, and where in their text it starts."""
    start = int(arrays.meta[kernels.N_TOKENS])
    pieces = [document, _SEPARATORS]
    if start and arrays.text[start - 1] != SEPARATOR:  # an earlier one was interrupted, out of memory
        pieces.insert(0, _SEPARATORS)
        start += 1
    return _extended(arrays, np.concatenate(pieces)), start


def _extended(arrays: Automaton, ids: Int32Array) -> Automaton:
    """Append documents, each with its separator, in place as far as they fit and then in larger arrays."""
    done = 0
    stuck = False
    while True:
        step = kernels.extend(*arrays, ids[done:])
        done += step
        if done == ids.size:
            return arrays
        arrays = _enlarged(arrays, ids.size - done, twice=stuck and step == 0)
        stuck = True


def _empty(tokens: int, like: Automaton | None = None) -> Automaton:
    """Return arrays with room for ``tokens``, sized by what those of ``like`` needed a token."""
    states, edges = _per_token(like)
    arrays = Automaton(
        np.full((int(tokens * states) + SPARE) * kernels.STATE_FIELDS, kernels.NONE, np.int32),
        np.full(_slots(int(tokens * edges)) * kernels.EDGE_FIELDS, kernels.NONE, np.int32),
        np.zeros(kernels.META_FIELDS, np.int32),
        np.full(tokens, SEPARATOR, np.int32),
    )
    arrays.meta[kernels.GENERATION] = next(_generations)
    kernels.new_state(arrays.states, arrays.meta, 0)
    return arrays


def _enlarged(arrays: Automaton, tokens: int, *, twice: bool) -> Automaton:
    """Return a copy with room for ``tokens`` more, or for the usual growth where that is more.

    ``twice``: one token needs more edges than usual growth gives ("aaaab").
    """
    old_states, old_edges, meta, text = arrays
    used = int(meta[kernels.N_TOKENS])
    n_states = int(meta[kernels.N_STATES])
    room = max(tokens, used // GROWTH)
    states_per_token, edges_per_token = _per_token(arrays)
    capacity = n_states + int(room * states_per_token) + SPARE
    states = _resized(old_states, capacity * kernels.STATE_FIELDS, kernels.NONE)

    # Moving edges costs more than copying the rest: they grow on their own, less often and by more.
    needed = int(meta[kernels.N_EDGES] + tokens * edges_per_token)
    it_was_the_edges = used < text.size and n_states <= old_states.size // kernels.STATE_FIELDS - 2
    slots = old_edges.size // kernels.EDGE_FIELDS
    if it_was_the_edges or _slots(needed) > slots:
        slots = max(_slots(needed), slots * 2 if twice else slots + slots // EDGE_GROWTH) + SPARE
        edges = np.full(slots * kernels.EDGE_FIELDS, kernels.NONE, np.int32)
        kernels.rehash(states, old_edges, edges)
    else:
        edges = old_edges.copy()
    return Automaton(states, edges, meta.copy(), _resized(text, used + room, SEPARATOR))


def _per_token(arrays: Automaton | None) -> tuple[float, float]:
    """Return how many states and edges a token needs, measured where there is enough text."""
    used = 0 if arrays is None else int(arrays.meta[kernels.N_TOKENS])
    if arrays is None or used < ENOUGH_TOKENS:
        return STATES_PER_TOKEN, EDGES_PER_TOKEN
    return int(arrays.meta[kernels.N_STATES]) / used, int(arrays.meta[kernels.N_EDGES]) / used


def _slots(edges: int) -> int:
    return edges * 4 // 3 + SPARE  # a quarter stays empty


def _resized(array: Int32Array, size: int, unused: int) -> Int32Array:
    resized = np.empty(size, np.int32)
    common = min(size, array.size)
    resized[:common] = array[:common]
    resized[common:] = unused
    return resized
