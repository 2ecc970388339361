"""Numba kernels of the edit cursor: where in the own text a copy goes on, also after a difference.

Arrays are those of ``_copying`` and ``_replacements``.
"""

from __future__ import annotations

from numba import njit

from lookupdec._kernels import N_TOKENS, NONE, RECENT, SEPARATOR, STATE_FIELDS, Automaton, Int32Array
from lookupdec._replacements import (
    PLACE,
    begin_replacement,
    copy_on,
    count_kept,
    count_replaced,
    remember,
    slot_of,
)
from lookupdec._survival import (
    ANCHOR,
    CHANGED_AT,
    CURSOR,
    MATCHED,
    MISSES,
    OWN,
    OWN_LENGTH,
    REFERENCE_START,
    REFERENCE_STOP,
    REPEATED,
    RUN,
    Int64Array,
)

COMPILED_WITH = "0bc3fa0a31fe"  # as in _survival

# How the edit cursor is found again: the text around the last difference is searched for the newest tokens.
SEARCH_BACK, SEARCH_AHEAD = 64, 512
MAX_COMPARED = 24
MAX_MATCHED = 600
# Differences in a row during which a substitution of one token is still the best guess.
MAX_MISSES_ALIGNED = 8
JUMP_LENGTH = 16  # a match this long, and twice the cursor's, moves the cursor wherever it is


@njit(cache=True, nogil=True)
def common_suffix(text: Int32Array, first: int, second: int, limit: int) -> int:
    """Return how many tokens before two positions are equal, at most ``limit``."""
    length = 0
    while length < limit and length < first and length < second:
        if text[first - 1 - length] != text[second - 1 - length]:
            break
        length += 1
    return length


@njit(cache=True, nogil=True)
def in_reach(now: Int64Array, position: int) -> bool:
    """Return whether the cursor may go to a position: with a reference, only into it."""
    if now[REFERENCE_STOP] <= now[REFERENCE_START]:
        return True
    return bool(now[REFERENCE_START] <= position < now[REFERENCE_STOP])


@njit(cache=True, nogil=True)
def search_near(text: Int32Array, size: int, anchor: int, stop: int) -> tuple[int, int]:
    """Return (end, worth) of the best match of the text's end near ``anchor``, (NONE, 0) without one.

    Worth is the matched length, less one at each of 16, 64 and 256 tokens of distance; ties go to the nearest.
    """
    found, best, nearest = NONE, 0, 1 << 30
    last = text[size - 1]
    for end in range(max(1, anchor - SEARCH_BACK), min(anchor + SEARCH_AHEAD, stop)):
        if text[end - 1] != last:
            continue
        distance = abs(end - anchor - 1)
        worth = common_suffix(text, end, size, MAX_COMPARED)
        worth -= (distance > 16) + (distance > 64) + (distance > 256)
        if worth > best or (worth == best and distance < nearest):
            found, best, nearest = end, worth, distance
    return found, best


@njit(cache=True, nogil=True)
def find_cursor(own: Automaton, now: Int64Array, match_end: int) -> None:
    """Place the cursor after a difference: near the place of the difference, else at the longest match."""
    size = own.meta[N_TOKENS]
    cursor = NONE
    worth = 0
    if now[CURSOR] >= 0:
        cursor, worth = search_near(own.text, size, now[ANCHOR], size - 1)
    length = now[OWN_LENGTH]
    if in_reach(now, match_end) and (length > worth + 2 or (cursor == NONE and length > 0)):
        cursor = match_end
        if length >= 3:
            now[ANCHOR] = cursor
    if cursor != NONE:
        now[CURSOR] = cursor
    elif now[CURSOR] >= 0 and now[MISSES] <= MAX_MISSES_ALIGNED and own.text[now[ANCHOR]] != SEPARATOR:
        now[CURSOR] = min(now[ANCHOR] + 1, size - 2)


@njit(cache=True, nogil=True)
def move_cursor(own: Automaton, now: Int64Array, token: int, replaced: Int64Array) -> None:
    """Bring the cursor up to date with ``token``, which has just been appended."""
    size = own.meta[N_TOKENS]
    cursor = now[CURSOR]
    match_end = own.states[now[OWN] * STATE_FIELDS + RECENT] if now[OWN] > 0 else NONE
    slot = NONE
    if 0 <= cursor < size - 1 and now[MISSES] == 0 and now[REPEATED] == 0:
        slot = slot_of(replaced, own.text[cursor])
    if 0 <= cursor < size - 1 and own.text[cursor] == token:
        if slot != NONE:
            count_kept(replaced, slot)
        copy_on(now)
        now[MATCHED] = min(now[MATCHED], MAX_MATCHED)
        if now[MATCHED] >= 2 and now[MISSES] > 0:
            now[MISSES] = 0
            skipped, written = now[CURSOR] - now[MATCHED] - now[ANCHOR], size - now[MATCHED] - now[CHANGED_AT]
            remember(replaced, own.text, now[ANCHOR], skipped, now[CHANGED_AT], written)
    elif slot != NONE and own.text[replaced[slot + PLACE]] == token:
        count_replaced(replaced, slot)
        begin_replacement(now, replaced, slot)
        now[CHANGED_AT] = size - 1
    else:
        if cursor >= 0:
            if now[MISSES] == 0 and now[REPEATED] == 0:
                now[ANCHOR] = cursor
                now[CHANGED_AT] = size - 1
            now[MISSES] += 1
        now[REPEATED] = 0
        now[RUN] = 0
        now[MATCHED] = NONE  # to be counted
        find_cursor(own, now, match_end)
    length = now[OWN_LENGTH]
    matched = common_suffix(own.text, now[CURSOR], size, MAX_MATCHED) if now[MATCHED] < 0 else now[MATCHED]
    far = now[CURSOR] >= 0 and length >= JUMP_LENGTH and length > 2 * matched and in_reach(now, match_end)
    if (far and match_end != now[CURSOR]) or (now[CURSOR] < 0 and length >= 4):
        now[CURSOR] = now[ANCHOR] = match_end
        now[MISSES] = now[REPEATED] = 0
        matched = common_suffix(own.text, match_end, size, MAX_MATCHED)
    now[MATCHED] = max(matched, 0)
