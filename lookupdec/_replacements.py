"""Numba kernels that remember what was replaced by what in a copy, as a rename does again and again. Of one request.

``replaced``  [SLOTS * SLOT_FIELDS] int64   by the first token of what was replaced (a later one with the same slot
                                            takes its place): that token; where in the output its replacement
                                            begins; tokens of the replacement; tokens that it replaced; how often
                                            it came; how often the token was left as it is since
"""

from __future__ import annotations

from numba import njit

from lookupdec._kernels import NONE, Int32Array
from lookupdec._survival import REPLACEMENTS, Int64Array

COMPILED_WITH = "4d366b8ca907"  # as in _survival

SLOTS = 512
TOKEN, PLACE, WRITTEN, SKIPPED, TIMES, KEPT = range(6)
SLOT_FIELDS = 6
REPLACED_SIZE = SLOTS * SLOT_FIELDS
LONGEST = 48  # tokens of a replacement, and of what it replaces


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
    # Where nothing was replaced or nothing written, the token after it is taken as replaced by itself.
    shared = max(0, 1 - min(skipped, written))
    skipped += shared
    written += shared
    if skipped > LONGEST or written > LONGEST:
        return
    token = text[anchor]
    at = (token & (SLOTS - 1)) * SLOT_FIELDS
    known = slot_of(replaced, token) == at and replaced[at + WRITTEN] == written
    same = known and text[replaced[at + PLACE]] == text[place]
    replaced[at + TIMES] = replaced[at + TIMES] + 1 if same else 1
    replaced[at + TOKEN] = token
    replaced[at + PLACE] = place
    replaced[at + WRITTEN] = written
    replaced[at + SKIPPED] = skipped
    replaced[at + KEPT] = 0


@njit(cache=True, nogil=True)
def kind_of_replacement(replaced: Int64Array, at: int, text: Int32Array, previous: int) -> int:
    """Return 1 .. 40: how often the slot's replacement came, how often not since, and whether after the same token."""
    times, kept = replaced[at + TIMES], replaced[at + KEPT]
    often = min(times, 3) - 1 if times < 5 else 3
    rarely = kept if kept < 2 else (2 if kept < 4 else (3 if kept < 8 else 4))
    place = replaced[at + PLACE]
    alike = 1 if place > 0 and text[place - 1] == previous else 0
    return 1 + (often * 5 + rarely) * 2 + alike
