"""A reader of the rolling cache at its simplest: what a search costs, and what it finds while others write."""

from __future__ import annotations

from numba import njit

from lookupdec import _kernels as kernels
from lookupdec.ids import Int32Array


@njit(nogil=True)
def search(
    states: Int32Array, edges: Int32Array, text: Int32Array, state: int, query: Int32Array, draft: Int32Array
) -> tuple[int, int]:
    """Read ``query`` from ``state`` on and copy what last followed its match; return state and copied."""
    for token in query:
        target = kernels.follow(states, edges, state, token)
        while target == kernels.NONE and state > 0:
            state = max(states[state * kernels.STATE_FIELDS + kernels.LINK], 0)
            target = kernels.follow(states, edges, state, token)
        state = max(target, 0)
    end = states[state * kernels.STATE_FIELDS + kernels.RECENT]
    size = 0
    if state > 0 and end > 0:
        while size < draft.size and end + size < text.size and text[end + size] != kernels.SEPARATOR:
            draft[size] = text[end + size]
            size += 1
    return state, size
