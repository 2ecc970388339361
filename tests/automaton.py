"""What the tests of the suffix index and of the rolling cache share: walking an automaton and checking it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lookupdec import _kernels as kernels
from lookupdec.ids import Int32Array
from tests.oracle import slow_follow, slow_links

SLOW_STATES = 200  # beyond, reading the whole table for every edge takes too long


def reached(states: Int32Array, edges: Int32Array, span: Sequence[int]) -> int:
    """Return the state that reading ``span`` leads to, or NONE."""
    state = 0
    for token in span:
        state = kernels.follow(states, edges, state, token)
        if state == kernels.NONE:
            break
    return state


def field(states: Int32Array, state: int, which: int) -> int:
    return int(states[state * kernels.STATE_FIELDS + which])


def check_structure(states: Int32Array, edges: Int32Array, meta: Int32Array) -> None:
    """Check what every walk relies on: links get shorter, lists are whole, a quarter of a table is empty."""
    n_states = int(meta[kernels.N_STATES])
    slots = edges.size // kernels.EDGE_FIELDS
    listed = 0
    for state in range(n_states):
        link = field(states, state, kernels.LINK)
        assert (link == kernels.NONE) == (state == 0)
        if link != kernels.NONE:
            assert field(states, link, kernels.LENGTH) < field(states, state, kernels.LENGTH)
        tokens = slow_links(states, edges, state)
        assert len(tokens) == len(set(tokens))
        for token in tokens:
            target = kernels.follow(states, edges, state, token)
            assert 0 < target < n_states
            if n_states < SLOW_STATES:
                assert target == slow_follow(states, edges, state, token)
        listed += max(0, len(tokens) - 1)
        assert kernels.degree(states, edges, state) == max(0, len(tokens) - 1)
    assert listed == meta[kernels.N_EDGES]
    assert np.count_nonzero(edges[:: kernels.EDGE_FIELDS] != kernels.NONE) == listed
    assert listed * 4 <= slots * 3
