"""Numba kernels of the suffix index: an online suffix automaton on flat int32 arrays. Knows no drafting.

Layout (all int32):

``states``  [capacity_states * 7]  one automaton state after the other, fields ``LENGTH`` .. ``MORE`` below
``edges``   [capacity_edges * 4]   open-addressing hash of the transitions that do not fit in their state
``meta``    [8]                    counters, fields ``N_TOKENS`` .. ``GENERATION`` below

Several documents share one automaton (the generalised suffix automaton); a separator stands between them.

Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Int32Array = npt.NDArray[np.int32]

# Fields of a state. LENGTH: of its longest string. LINK: state of the longest proper suffix with other ends.
# RECENT: end (exclusive) of its latest occurrence. COUNT: occurrences seen. An occurrence is noted when the token
# after it arrives, so that RECENT always points to a token that can be copied.
# TOKEN, NEXT: its first transition, kept inline since most states have no other. MORE: its other transitions, a list.
LENGTH, LINK, RECENT, COUNT, TOKEN, NEXT, MORE = range(7)
STATE_FIELDS = 7

# Fields of an edge: from STATE by TOKEN to TARGET; CHAIN is the next edge of the same state.
EDGE_STATE, EDGE_TOKEN, EDGE_TARGET, EDGE_CHAIN = range(4)
EDGE_FIELDS = 4

# GENERATION: of several documents only, set by whoever rebuilds the automaton.
N_TOKENS, N_STATES, N_EDGES, LAST, GENERATION = range(5)
META_FIELDS = 8

# Contexts marked per appended token. Text has about ten; only degenerate input ("aaaa") has more, and there the
# shorter ones keep an older, still valid, occurrence. The bound is what makes append amortised O(1).
MAX_PATH = 48

NONE = -1

SEPARATOR = 2**31 - 1
"""Ends a document: a copy stops here, no match crosses it, and no token has this id."""


class Automaton(NamedTuple):
    """The arrays of one index, with room to grow."""

    states: Int32Array
    edges: Int32Array
    meta: Int32Array
    text: Int32Array

    @property
    def generation(self) -> int:
        """Changes whenever state numbers lose their meaning; growth keeps it."""
        return int(self.meta[GENERATION])

    @property
    def nbytes(self) -> int:
        """Bytes of all four arrays."""
        return self.states.nbytes + self.edges.nbytes + self.meta.nbytes + self.text.nbytes


@njit(cache=True, nogil=True)
def context_state(states: Int32Array, meta: Int32Array) -> int:
    """Return the state of the longest earlier occurrence of the text's end; 0 without one."""
    state = meta[LAST]
    if states[state * STATE_FIELDS + RECENT] == NONE:  # nothing has followed it yet: it is the end itself
        state = states[state * STATE_FIELDS + LINK]
    return max(state, 0)


@njit(cache=True, nogil=True)
def edge_slot(edges: Int32Array, state: int, token: int) -> int:
    """Return the slot that holds the edge (state, token), or the empty one where it belongs."""
    slots = edges.size // EDGE_FIELDS
    mixed = np.uint64(state) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(token) * np.uint64(
        0xD6E8FEB86659FD93
    )
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    slot: int = np.int64(((mixed >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32))
    while True:
        at = slot * EDGE_FIELDS
        found = edges[at + EDGE_STATE]
        if found == NONE or (found == state and edges[at + EDGE_TOKEN] == token):
            return at
        slot += 1
        if slot == slots:
            slot = 0


@njit(cache=True, nogil=True)
def follow(states: Int32Array, edges: Int32Array, state: int, token: int) -> int:
    """Return the state reached from ``state`` by ``token``, or NONE."""
    at = state * STATE_FIELDS
    if states[at + NEXT] == NONE:
        return NONE
    if states[at + TOKEN] == token:
        return states[at + NEXT]
    if states[at + MORE] == NONE:
        return NONE
    slot = edge_slot(edges, state, token)
    if edges[slot + EDGE_STATE] == NONE:
        return NONE
    return edges[slot + EDGE_TARGET]


@njit(cache=True, nogil=True)
def redirect(
    states: Int32Array, edges: Int32Array, meta: Int32Array, state: int, token: int, target: int
) -> None:
    """Make ``token`` lead from ``state`` to ``target``, whether or not it led anywhere before."""
    at = state * STATE_FIELDS
    if states[at + NEXT] == NONE or states[at + TOKEN] == token:
        states[at + TOKEN] = token
        states[at + NEXT] = target
        return
    slot = edge_slot(edges, state, token)
    if edges[slot + EDGE_STATE] == NONE:
        edges[slot + EDGE_STATE] = state
        edges[slot + EDGE_TOKEN] = token
        edges[slot + EDGE_CHAIN] = states[at + MORE]
        states[at + MORE] = slot
        meta[N_EDGES] += 1
    edges[slot + EDGE_TARGET] = target


@njit(cache=True, nogil=True)
def clone(states: Int32Array, edges: Int32Array, meta: Int32Array, original: int, length: int) -> int:
    """Copy a state under a shorter longest string and return the copy."""
    copy = meta[N_STATES]
    meta[N_STATES] += 1
    source = original * STATE_FIELDS
    target = copy * STATE_FIELDS
    for field in range(STATE_FIELDS):
        states[target + field] = states[source + field]
    states[target + LENGTH] = length
    states[target + MORE] = NONE
    slot = states[source + MORE]
    while slot != NONE:
        redirect(states, edges, meta, copy, edges[slot + EDGE_TOKEN], edges[slot + EDGE_TARGET])
        slot = edges[slot + EDGE_CHAIN]
    states[source + LINK] = copy
    return copy


@njit(cache=True, nogil=True)
def new_state(states: Int32Array, meta: Int32Array, length: int) -> int:
    """Add a state without transitions, of which no occurrence has been noted yet."""
    state = meta[N_STATES]
    meta[N_STATES] += 1
    at = state * STATE_FIELDS
    states[at + LENGTH] = length
    states[at + LINK] = NONE
    states[at + RECENT] = NONE
    states[at + COUNT] = 0
    states[at + TOKEN] = NONE
    states[at + NEXT] = NONE
    states[at + MORE] = NONE
    return state


@njit(cache=True, nogil=True)
def degree(states: Int32Array, edges: Int32Array, state: int) -> int:
    """Return how many edges a clone of ``state`` would add to the table."""
    count = 0
    slot = states[state * STATE_FIELDS + MORE]
    while slot != NONE:
        count += 1
        slot = edges[slot + EDGE_CHAIN]
    return count


@njit(cache=True, nogil=True)
def append(states: Int32Array, edges: Int32Array, meta: Int32Array, token: int) -> bool:
    """Extend the automaton by one token, or return False and change nothing where its edges would not fit.

    One token can add as many edges as there are contexts ("aaaab"), so they are counted before anything moves.
    """
    first = meta[LAST]
    state = first
    target = NONE
    added = 0
    while state != NONE:
        target = follow(states, edges, state, token)
        if target != NONE:
            break
        added += 1
        state = states[state * STATE_FIELDS + LINK]
    must_clone = False
    length = 0
    if target != NONE:
        length = states[state * STATE_FIELDS + LENGTH] + 1
        must_clone = states[target * STATE_FIELDS + LENGTH] != length
        if must_clone:
            added += degree(states, edges, target)
    if (meta[N_EDGES] + added) * 4 > edges.size // EDGE_FIELDS * 3:
        return False

    current = new_state(states, meta, states[first * STATE_FIELDS + LENGTH] + 1)
    meta[LAST] = current
    while first != state:
        redirect(states, edges, meta, first, token, current)
        first = states[first * STATE_FIELDS + LINK]
    if target == NONE:
        states[current * STATE_FIELDS + LINK] = 0
        return True
    if must_clone:
        copy = clone(states, edges, meta, target, length)
        while state != NONE and follow(states, edges, state, token) == target:
            redirect(states, edges, meta, state, token, copy)
            state = states[state * STATE_FIELDS + LINK]
        target = copy
    states[current * STATE_FIELDS + LINK] = target
    return True


@njit(cache=True, nogil=True)
def mark(states: Int32Array, state: int, end: int) -> None:
    """Note that ``state`` and all its shorter contexts have their latest occurrence at ``end``."""
    for _ in range(MAX_PATH):
        if state <= 0:
            return
        at = state * STATE_FIELDS
        states[at + RECENT] = end
        states[at + COUNT] += 1
        state = states[at + LINK]


@njit(cache=True, nogil=True)
def rejoin(states: Int32Array, edges: Int32Array, meta: Int32Array, token: int) -> bool:
    """Extend the current document by a token that an earlier one continued with too; False where none did or no room.

    The generalised automaton of several documents: text that stands in it already adds no states.
    """
    state = meta[LAST]
    target = follow(states, edges, state, token)
    if target == NONE:
        return False
    length = states[state * STATE_FIELDS + LENGTH] + 1
    if states[target * STATE_FIELDS + LENGTH] != length:
        if (meta[N_EDGES] + degree(states, edges, target)) * 4 > edges.size // EDGE_FIELDS * 3:
            return False
        copy = clone(states, edges, meta, target, length)
        while state != NONE and follow(states, edges, state, token) == target:
            redirect(states, edges, meta, state, token, copy)
            state = states[state * STATE_FIELDS + LINK]
        target = copy
    meta[LAST] = target
    return True


@njit(cache=True, nogil=True)
def extend(states: Int32Array, edges: Int32Array, meta: Int32Array, text: Int32Array, ids: Int32Array) -> int:
    """Append ``ids`` until they or the room are used up; return how many were appended. ``text`` receives them.

    ``SEPARATOR`` ends a document: it is kept in ``text``, where a copy must stop, and the automaton starts anew
    after it, so that no match crosses it. No id of the text may equal it.
    """
    max_states = states.size // STATE_FIELDS - 2
    done = 0
    while done < ids.size:
        position = meta[N_TOKENS]
        if meta[N_STATES] > max_states or position >= text.size:
            break
        token = ids[done]
        last = meta[LAST]
        if token == SEPARATOR:
            meta[LAST] = 0
        else:
            known = follow(states, edges, last, token) != NONE
            if not (rejoin(states, edges, meta, token) if known else append(states, edges, meta, token)):
                break
        text[position] = token
        meta[N_TOKENS] = position + 1
        if token != SEPARATOR:
            mark(states, last, position)
        done += 1
    return done


@njit(cache=True, nogil=True)
def rehash(states: Int32Array, edges: Int32Array, larger: Int32Array) -> None:
    """Move all edges into the empty table ``larger``, rebuilding each state's list."""
    for more in range(MORE, states.size, STATE_FIELDS):  # all: in order is faster than only those with edges
        states[more] = NONE
    for old in range(0, edges.size, EDGE_FIELDS):
        state = edges[old + EDGE_STATE]
        if state == NONE:
            continue
        slot = edge_slot(larger, state, edges[old + EDGE_TOKEN])
        larger[slot + EDGE_STATE] = state
        larger[slot + EDGE_TOKEN] = edges[old + EDGE_TOKEN]
        larger[slot + EDGE_TARGET] = edges[old + EDGE_TARGET]
        larger[slot + EDGE_CHAIN] = states[state * STATE_FIELDS + MORE]
        states[state * STATE_FIELDS + MORE] = slot
