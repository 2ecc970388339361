"""The suffix index of one request: everything written so far, searchable by its own end. Knows no drafting.

An online suffix automaton over int32 token ids (Blumer et al. 1985). Appending is amortised O(1), and the longest
earlier occurrence of the text's own suffix is the suffix link of its last state: it is there after every append,
without a search. Memory is at most 100 bytes a token (typically about 65): 28 per state (at most two states a
token), 16 per transition that does not fit in its state, in a hash at most three quarters full, and 4 for the text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lookupdec import _kernels as kernels
from lookupdec._kernels import Automaton
from lookupdec.errors import DrafterError
from lookupdec.ids import MAX_ID, Ids, Int32Array, as_ids

MIN_CAPACITY = 256
GROWTH = 1.2
STATES_PER_TOKEN = 1.75  # measured on code; at most 2
EDGES_PER_TOKEN = 0.75  # slots of the hash, measured on code
MAX_TOKENS = 2**26 - 1  # 8 fields a state, two states a token, addressed by int32


_SEPARATORS = np.full(1, kernels.SEPARATOR, np.int32)


class Match(NamedTuple):
    """An earlier occurrence: its last ``length`` tokens end before position ``end``, where the copy would go on."""

    length: int
    end: int


class SuffixIndex:
    """All tokens of one request, with the longest earlier occurrence of their suffix at every moment.

    Parameters
    ----------
    capacity
        Tokens to make room for at once; the index grows beyond it as needed.
    """

    def __init__(self, capacity: int = 0) -> None:
        if capacity < 0:
            raise DrafterError(f"capacity must not be negative, got {capacity}")
        capacity = max(capacity, MIN_CAPACITY)
        self._text: Int32Array = np.empty(capacity, np.int32)
        self._states: Int32Array = np.empty(
            int(capacity * STATES_PER_TOKEN + 4) * kernels.STATE_FIELDS, np.int32
        )
        self._edges: Int32Array = np.full(
            int(capacity * EDGES_PER_TOKEN + 4) * kernels.EDGE_FIELDS, kernels.NONE, np.int32
        )
        self._meta: Int32Array = np.zeros(kernels.META_FIELDS, np.int32)
        self._one: Int32Array = np.zeros(1, np.int32)
        kernels.new_state(self._states, self._meta, 0)

    def __len__(self) -> int:
        return int(self._meta[kernels.N_TOKENS])

    @property
    def tokens(self) -> Int32Array:
        """The indexed tokens, a view of shape (len,), int32."""
        return self._text[: len(self)]

    @property
    def nbytes(self) -> int:
        """Bytes that the index occupies, room to grow included."""
        return self._text.nbytes + self._states.nbytes + self._edges.nbytes + self._meta.nbytes

    def append(self, token: int) -> None:
        """Add one token.

        Raises
        ------
        DrafterError
            The id is negative or larger than int32 holds.
        """
        if not isinstance(token, int | np.integer) or not 0 <= token <= MAX_ID:
            raise DrafterError(f"a token id must be a whole number in 0 .. {MAX_ID}, got {token}")
        self._one[0] = token
        self._extend(self._one)

    def extend(self, ids: Ids) -> None:
        """Add tokens in order.

        Raises
        ------
        DrafterError
            The ids are not whole numbers in 0 .. 2**31 - 2.
        """
        self._extend(as_ids(ids))

    def add_document(self, ids: Ids) -> None:
        """Add tokens that stand by themselves: no match crosses from them to what comes later."""
        self._extend(as_ids(ids))
        self._extend(_SEPARATORS)

    @property
    def automaton(self) -> Automaton:
        """The arrays as they are now; they are other ones after the next growth."""
        return Automaton(self._states, self._edges, self._meta, self._text)

    def make_room(self, tokens: int) -> None:
        """Enlarge whichever array kept ``tokens`` more from being added."""
        self._grow(len(self) + tokens)

    def _extend(self, ids: Int32Array) -> None:
        done = self._append_some(ids)
        while done < ids.size:
            self.make_room(ids.size - done)
            done += self._append_some(ids[done:])

    def _append_some(self, ids: Int32Array) -> int:
        return kernels.extend(self._states, self._edges, self._meta, self._text, ids)

    def _grow(self, wanted: int) -> None:
        """Enlarge whichever array stopped the last extend."""
        size = len(self)
        if wanted > MAX_TOKENS:
            raise DrafterError(f"a request may hold {MAX_TOKENS:,} tokens, got {wanted:,}")
        if size == self._text.size:
            self._text = _enlarged(self._text, max(wanted, int(size * GROWTH)))
        elif int(self._meta[kernels.N_STATES]) > self._states.size // kernels.STATE_FIELDS - 2:
            states = int(self._meta[kernels.N_STATES] * GROWTH + 4)
            self._states = _enlarged(self._states, states * kernels.STATE_FIELDS)
        else:
            slots = int(self._edges.size // kernels.EDGE_FIELDS * GROWTH + 4)
            larger = np.full(slots * kernels.EDGE_FIELDS, kernels.NONE, np.int32)
            kernels.rehash(self._states, self._edges, larger)
            self._edges = larger

    def longest_match(self) -> Match:
        """Return the longest earlier occurrence of the text's suffix, the latest where several are equally long.

        It may overlap the suffix itself. Length 0 where the last token is new.
        """
        state = kernels.context_state(self._states, self._meta)
        return self._match(state) if state else Match(0, 0)

    def contexts(self) -> list[Match]:
        """Return the latest earlier occurrence for every length at which it changes, longest first.

        At most ``MAX_PATH`` of them: only text such as "aaaa" has more.
        """
        found: list[Match] = []
        state = kernels.context_state(self._states, self._meta)
        while state > 0 and len(found) < kernels.MAX_PATH:
            found.append(self._match(state))
            state = int(self._states[state * kernels.STATE_FIELDS + kernels.LINK])
        return found

    def _match(self, state: int) -> Match:
        at = state * kernels.STATE_FIELDS
        return Match(int(self._states[at + kernels.LENGTH]), int(self._states[at + kernels.RECENT]))


def _enlarged(array: Int32Array, size: int) -> Int32Array:
    larger = np.empty(size, np.int32)
    larger[: array.size] = array
    return larger
