"""Numba kernels that remember what a copy replaced by what, and repeat it: a rename comes again and again.

``replaced``  [REPLACED_SIZE] int64   of one request, by the first token that was replaced (of two tokens with one
                                      slot the later): that token; where in the output its replacement begins;
                                      tokens of the replacement; tokens that it stands for; how often it came; how
                                      often the token was left as it is since

While a replacement is repeated, the cursor stands in the output, where it was written before.
"""

from __future__ import annotations

from numba import njit

from lookupdec._kernels import NONE, Int32Array
from lookupdec._survival import ANCHOR, CURSOR, MATCHED, PROMPT_STOP, REPEATED, RESUME, RUN, Int64Array

COMPILED_WITH = "1d128adeeb86"  # as in _survival

SLOTS = 512
TOKEN, PLACE, WRITTEN, SKIPPED, TIMES, KEPT = range(6)
SLOT_FIELDS = 6
REPLACED_SIZE = SLOTS * SLOT_FIELDS
LONGEST = 48  # tokens of a replacement, and of what it stands for

OFTEN, RARELY = 4, 5  # kinds by how often a replacement came, and how often not since
REPEATING = 1 + OFTEN * RARELY * 2


@njit(cache=True, nogil=True)
def slot_of(replaced: Int64Array, token: int) -> int:
    """Return where the slot of a token begins that was replaced before, or NONE."""
    at = (token & (SLOTS - 1)) * SLOT_FIELDS
    return at if token >= 0 and replaced[at + TIMES] > 0 and replaced[at + TOKEN] == token else NONE


@njit(cache=True, nogil=True)
def remember(
    replaced: Int64Array, text: Int32Array, anchor: int, skipped: int, place: int, written: int
) -> None:
    """Note that ``skipped`` tokens from ``anchor`` on were replaced by ``written`` ones, which begin at ``place``."""
    # Where nothing was replaced or nothing written, the tokens after it are taken as replaced by themselves.
    shared = max(0, 1 - min(skipped, written))
    skipped += shared
    written += shared
    token = text[anchor]
    if skipped > LONGEST or written > LONGEST or token < 0:
        return
    at = (token & (SLOTS - 1)) * SLOT_FIELDS
    is_known = slot_of(replaced, token) == at and replaced[at + WRITTEN] == written
    if is_known and text[replaced[at + PLACE]] == text[place]:
        replaced[at + TIMES] += 1
    else:
        replaced[at + TIMES] = 1
    replaced[at + TOKEN] = token
    replaced[at + PLACE] = place
    replaced[at + WRITTEN] = written
    replaced[at + SKIPPED] = skipped
    replaced[at + KEPT] = 0


@njit(cache=True, nogil=True)
def count_kept(replaced: Int64Array, slot: int) -> None:
    """Note that a token which was replaced before was left as it is."""
    replaced[slot + KEPT] += 1


@njit(cache=True, nogil=True)
def count_replaced(replaced: Int64Array, slot: int) -> None:
    """Note that a token was replaced as before."""
    replaced[slot + TIMES] += 1
    replaced[slot + KEPT] = 0


@njit(cache=True, nogil=True)
def kind_of_replacement(replaced: Int64Array, slot: int, text: Int32Array, previous: int) -> int:
    """Return 1 .. REPEATING - 1: how often it came, how often not since, and whether after the same token."""
    times, kept, place = replaced[slot + TIMES], replaced[slot + KEPT], replaced[slot + PLACE]
    often = min(times, 3) - 1 if times < 5 else 3
    rarely = kept if kept < 2 else (2 if kept < 4 else (3 if kept < 8 else 4))
    alike = 1 if place > 0 and text[place - 1] == previous else 0
    return 1 + (often * RARELY + rarely) * 2 + alike


@njit(cache=True, nogil=True)
def begin_replacement(now: Int64Array, replaced: Int64Array, slot: int) -> None:
    """Move the cursor past the first token of a replacement that is being repeated."""
    cursor = now[CURSOR]
    now[ANCHOR] = cursor
    now[RESUME] = cursor + replaced[slot + SKIPPED]
    if cursor <= now[PROMPT_STOP]:  # where the prompt ends, a copy of it does
        now[RESUME] = min(now[RESUME], now[PROMPT_STOP])
    now[REPEATED] = replaced[slot + WRITTEN] - 1
    now[CURSOR] = replaced[slot + PLACE] + 1 if now[REPEATED] > 0 else now[RESUME]


@njit(cache=True, nogil=True)
def copy_on(now: Int64Array) -> None:
    """Move the cursor on by a token that came as it stands there, and back where a replacement is over."""
    now[CURSOR] += 1
    now[MATCHED] += 1
    now[RUN] += 1
    if now[REPEATED] > 0:
        now[REPEATED] -= 1
        if now[REPEATED] == 0:
            now[CURSOR] = now[RESUME]
