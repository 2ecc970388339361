"""Numba kernels that estimate how likely a token comes next, and learn it from what came. Knows no index upkeep.

A token is offered by one or several contexts: the longest matches in the request's own text and in past outputs,
their next shorter and their shortest contexts, the edit cursor. Each of ``N_INPUTS`` tables holds, for one small
description of what these say (how much has matched, how often, how unanimous, how close to the last difference),
the rate at which such tokens did come. The rates are mixed in the logistic domain with weights that depend on the
kind of place, and both rates and weights follow what is observed. Source: Mahoney 2005, "Adaptive weighing of
context models for lossless data compression" (logistic mixing); Cleary and Witten 1984 (prediction by partial match).

Arrays:

``tables``    [TABLE_SIZE] float32   rates, as logits
``seen``      [TABLE_SIZE] uint8     observations behind each rate, up to SEEN_LIMIT
``weights``   [WEIGHTS_SIZE] float32 one row of N_INPUTS + 1 for each kind of place
``now``       [POSITION_FIELDS] int64 where the text stands, fields ``OWN`` .. ``LEARNT``
``contexts``  [N_CONTEXTS * 3] int64 state, length and occurrences of each context
``cells``     [N_INPUTS + 2] int64   the rates and the two weight rows that one estimate used
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from lookupdec._kernels import COUNT, LENGTH, LINK, NONE, STATE_FIELDS, Int32Array, follow

# Numba keeps compiled kernels until their own file changes. This names the contents of the files that are compiled
# into these, so that a change there changes this file; a test says what to write.
COMPILED_WITH = "cf4b1d16d713"

Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
UInt8Array = npt.NDArray[np.uint8]

# Where the text stands. OWN, PAST: automaton states of the longest match in the request's own text and in past
# outputs, with their lengths. CURSOR: the position of the own text that the copy would go on from, NONE without
# one. MATCHED: how many tokens before it equal the text's end. RUN: tokens since the last difference. MISSES:
# differences in a row; ANCHOR: where the first of them was. PREVIOUS: the last token. REFERENCE_START, _STOP: the
# reference's span of the own text, empty without one. PROMPT_STOP: where the output begins. END_TOKEN: what outputs
# end with, or NONE. LEARNT: tokens of the text that were learnt from, or came before the output. CHANGED_AT: where
# in the output the last difference began. REPEATED: tokens left of a replacement that is being repeated, and
# RESUME where the copy goes on after it. REPLACED: how the token at the cursor was replaced before, see
# ``_replacements``.
(
    OWN,
    OWN_LENGTH,
    PAST,
    PAST_LENGTH,
    CURSOR,
    MATCHED,
    RUN,
    MISSES,
    ANCHOR,
    PREVIOUS,
    REFERENCE_START,
    REFERENCE_STOP,
    PROMPT_STOP,
    END_TOKEN,
    LEARNT,
    CHANGED_AT,
    REPEATED,
    RESUME,
    REPLACED,
) = range(19)
POSITION_FIELDS = 19

N_CONTEXTS = 6  # own: longest, next shorter, shortest; past outputs: the same
LONGEST, SHORTER, SHORTEST = range(3)
SHORTEST_STEPS = 12

# What the cursor and the latest occurrence offer: flags of an option.
AT_CURSOR, AFTER_SKIP, AT_ANCHOR, AT_RECENT, REPLACING = 1, 2, 4, 8, 16

LENGTHS, COUNTS, SHARES, GAPS, DEPTHS = 13, 7, 8, 8, 4
REPLACEMENTS = 42  # kinds of ``_replacements``, 0 where there is none
TOKEN_SLOTS = 4096
PAIR_SLOTS = 65536

_LENGTH_COUNT_SHARE = LENGTHS * COUNTS * SHARES
RUN_AND_FLAGS = 0
OWN_LONGEST = RUN_AND_FLAGS + LENGTHS * LENGTHS * 8
OWN_SHORTER = OWN_LONGEST + _LENGTH_COUNT_SHARE
OWN_SHORTEST = OWN_SHORTER + _LENGTH_COUNT_SHARE
PAST_LONGEST = OWN_SHORTEST + _LENGTH_COUNT_SHARE
PAST_SHORTER = PAST_LONGEST + _LENGTH_COUNT_SHARE
PAST_SHORTEST = PAST_SHORTER + _LENGTH_COUNT_SHARE
DIFFERENCE = PAST_SHORTEST + _LENGTH_COUNT_SHARE
BOTH_LENGTHS = DIFFERENCE + GAPS * 8 * 4 * 2 * 16
BOTH_SHARES = BOTH_LENGTHS + LENGTHS * LENGTHS * 16
RUN_AND_SHARE = BOTH_SHARES + SHARES * SHARES * COUNTS * COUNTS * 2
REPLACEMENT = RUN_AND_SHARE + LENGTHS * LENGTHS * SHARES * 4
SHAPE_SIZE = REPLACEMENT + REPLACEMENTS * 3  # up to here nothing depends on the vocabulary
LAST_TOKEN = SHAPE_SIZE
NEXT_TOKEN = LAST_TOKEN + TOKEN_SLOTS * DEPTHS
TOKEN_PAIR = NEXT_TOKEN + TOKEN_SLOTS * DEPTHS
TABLE_SIZE = TOKEN_PAIR + PAIR_SLOTS

N_INPUTS = 15
VOCABULARY_CELLS = 12  # the last three depend on the tokens themselves
FIRST_ROW, SECOND_ROW = N_INPUTS, N_INPUTS + 1  # in cells
ROW = N_INPUTS + 1
PLACES = LENGTHS * 4
WEIGHT_ROWS = PLACES + LENGTHS * 4 * 2
WEIGHTS_SIZE = WEIGHT_ROWS * ROW

SEEN_LIMIT = 127
LEARNING_RATE = 0.002
MAX_LOGIT = 9.0  # of a rate: one in 8,000
MAX_SUM = 12.0


@njit(cache=True, nogil=True)
def length_bucket(length: int) -> int:
    """Return 0 .. 12, about logarithmic in a number of tokens."""
    if length < 5:
        return max(length, 0)
    if length < 16:
        return 5 if length < 7 else (6 if length < 11 else 7)
    if length < 64:
        return 8 if length < 32 else 9
    if length < 256:
        return 10 if length < 128 else 11
    return 12


@njit(cache=True, nogil=True)
def count_bucket(count: int) -> int:
    """Return 0 .. 6, about logarithmic in a number of occurrences."""
    if count < 4:
        return count
    return 4 if count < 8 else (5 if count < 16 else 6)


@njit(cache=True, nogil=True)
def share_bucket(count: int, total: int) -> int:
    """Return 0 (never) .. 7 (always): how often a context went on with the token."""
    if count <= 0:
        return 0
    if count >= total:
        return 7
    hundredths = count * 100 // total
    if hundredths < 50:
        return 1 if hundredths < 10 else (2 if hundredths < 25 else 3)
    return 4 if hundredths < 75 else (5 if hundredths < 90 else 6)


@njit(cache=True, nogil=True)
def gap_bucket(gap: int) -> int:
    """Return 0 .. 7 for the tokens since the last difference."""
    if gap < 4:
        return gap
    return 4 if gap < 8 else (5 if gap < 16 else (6 if gap < 32 else 7))


@njit(cache=True, nogil=True)
def fill_contexts(states: Int32Array, longest: int, length: int, contexts: Int64Array, first: int) -> None:
    """Write state, length and occurrences of the longest, the next shorter and the shortest context."""
    state = longest
    for i in range(3):
        at = (first + i) * 3
        if state <= 0:
            contexts[at] = 0
            contexts[at + 1] = 0
            contexts[at + 2] = 0
            continue
        contexts[at] = state
        contexts[at + 1] = length if i == LONGEST else states[state * STATE_FIELDS + LENGTH]
        contexts[at + 2] = states[state * STATE_FIELDS + COUNT]
        if i == LONGEST:
            state = states[state * STATE_FIELDS + LINK]
        else:
            for _ in range(SHORTEST_STEPS):
                shorter = states[state * STATE_FIELDS + LINK]
                if shorter <= 0:
                    break
                state = shorter
    if contexts[(first + SHORTER) * 3] == 0:  # the longest is the shortest
        for field in range(3):
            contexts[(first + SHORTEST) * 3 + field] = contexts[(first + LONGEST) * 3 + field]


@njit(cache=True, nogil=True)
def occurrences(states: Int32Array, edges: Int32Array, state: int, token: int) -> int:
    """Return how often a context went on with ``token``."""
    if state <= 0:
        return 0
    target = follow(states, edges, state, token)
    return 0 if target == NONE else states[target * STATE_FIELDS + COUNT]


@njit(cache=True, nogil=True)
def cell_of_context(table: int, contexts: Int64Array, context: int, count: int) -> int:
    """Return the rate for a token that came ``count`` times after this context."""
    at = context * 3
    lengths = length_bucket(contexts[at + 1])
    return table + (lengths * COUNTS + count_bucket(count)) * SHARES + share_bucket(count, contexts[at + 2])


@njit(cache=True, nogil=True)
def depth_bucket(run: int) -> int:
    """Return 0 .. 3 for the tokens since the last difference."""
    return 0 if run < 4 else (1 if run < 16 else (2 if run < 64 else 3))


@njit(cache=True, nogil=True)
def vocabulary_cell(i: int, previous: int, token: int, depth: int) -> int:
    """Return the rate of the last token, of the next one, or of the pair, for i = 0, 1, 2."""
    if i == 0:
        return LAST_TOKEN + (previous & (TOKEN_SLOTS - 1)) * DEPTHS + depth
    if i == 1:
        return NEXT_TOKEN + (token & (TOKEN_SLOTS - 1)) * DEPTHS + depth
    return TOKEN_PAIR + ((previous * 31337 + token * 7919) & (PAIR_SLOTS - 1))


@njit(cache=True, nogil=True)
def vocabulary_logit(
    token: int, now: Int64Array, tables: Float32Array, weights: Float32Array, cells: Int64Array
) -> float:
    """Return what the tokens themselves add to the estimate of a copy's next token, with the rows of ``cells``."""
    logit = 0.0
    depth = depth_bucket(now[RUN])
    for i in range(3):
        cell = vocabulary_cell(i, now[PREVIOUS], token, depth)
        at = VOCABULARY_CELLS + i
        logit += (weights[cells[FIRST_ROW] + at] + weights[cells[SECOND_ROW] + at]) * tables[cell]
    return logit


@njit(cache=True, nogil=True)
def chance_of(logit: float) -> float:
    """Return the logistic function, kept away from 0 and 1."""
    return 1.0 / (1.0 + math.exp(-min(max(logit, -MAX_SUM), MAX_SUM)))


@njit(cache=True, nogil=True)
def estimate(
    token: int,
    flags: int,
    now: Int64Array,
    contexts: Int64Array,
    own_states: Int32Array,
    own_edges: Int32Array,
    past_states: Int32Array,
    past_edges: Int32Array,
    tables: Float32Array,
    weights: Float32Array,
    cells: Int64Array,
) -> float:
    """Return the chance that ``token`` comes next; ``cells`` receives what the estimate was made from."""
    own = occurrences(own_states, own_edges, contexts[0], token)
    past = occurrences(past_states, past_edges, contexts[9], token)
    at_cursor = flags & AT_CURSOR
    run = length_bucket(now[RUN]) if at_cursor else 0
    own_length = length_bucket(now[OWN_LENGTH])
    own_share = share_bucket(own, contexts[2])
    past_share = share_bucket(past, contexts[11])
    known = 1 if own > 0 else 0
    recent = 1 if flags & AT_RECENT else 0
    known_past = 1 if past > 0 else 0
    in_reference = 1 if now[REFERENCE_START] <= now[CURSOR] < now[REFERENCE_STOP] else 0
    misses = min(now[MISSES], 3)
    depth = depth_bucket(now[RUN]) if at_cursor else 0

    cells[0] = RUN_AND_FLAGS + (run * LENGTHS + own_length) * 8 + at_cursor * 4 + recent * 2 + known
    cells[1] = cell_of_context(OWN_LONGEST, contexts, 0, own)
    cells[2] = cell_of_context(
        OWN_SHORTER, contexts, 1, occurrences(own_states, own_edges, contexts[3], token)
    )
    cells[3] = cell_of_context(
        OWN_SHORTEST, contexts, 2, occurrences(own_states, own_edges, contexts[6], token)
    )
    cells[4] = cell_of_context(PAST_LONGEST, contexts, 3, past)
    cells[5] = cell_of_context(
        PAST_SHORTER, contexts, 4, occurrences(past_states, past_edges, contexts[12], token)
    )
    cells[6] = cell_of_context(
        PAST_SHORTEST, contexts, 5, occurrences(past_states, past_edges, contexts[15], token)
    )
    place = (gap_bucket(now[RUN]) * 8 + min(length_bucket(now[MATCHED]), 7)) * 4 + misses
    cells[7] = DIFFERENCE + (place * 2 + in_reference) * 16 + (flags & 15)
    unanimous = 1 if past_share == 7 else 0
    cells[8] = (
        BOTH_LENGTHS
        + (own_length * LENGTHS + length_bucket(now[PAST_LENGTH])) * 16
        + known_past * 8
        + known * 4
        + at_cursor * 2
        + unanimous
    )
    counts = count_bucket(contexts[2]) * COUNTS + count_bucket(contexts[11])
    cells[9] = BOTH_SHARES + ((own_share * SHARES + past_share) * COUNTS * COUNTS + counts) * 2 + at_cursor
    cells[10] = (
        RUN_AND_SHARE
        + ((run * LENGTHS + own_length) * SHARES + own_share) * 4
        + min(count_bucket(contexts[2]), 3)
    )
    cells[11] = REPLACEMENT + now[REPLACED] * 3 + (1 if at_cursor else (2 if flags & REPLACING else 0))
    for i in range(3):
        cells[VOCABULARY_CELLS + i] = vocabulary_cell(i, now[PREVIOUS], token, depth)
    cells[FIRST_ROW] = ((run * 2 + known_past) * 2 + known) * ROW
    cells[SECOND_ROW] = (PLACES + (own_length * 4 + misses) * 2 + in_reference) * ROW

    first, second = cells[FIRST_ROW], cells[SECOND_ROW]
    logit = weights[first + N_INPUTS] + weights[second + N_INPUTS]
    for i in range(N_INPUTS):
        logit += (weights[first + i] + weights[second + i]) * tables[cells[i]]
    return chance_of(logit)


@njit(cache=True, nogil=True)
def learn(
    came: bool,
    chance: float,
    tables: Float32Array,
    seen: UInt8Array,
    weights: Float32Array,
    cells: Int64Array,
) -> None:
    """Move the rates and weights that gave ``chance`` towards what happened."""
    outcome = 1.0 if came else 0.0
    step = LEARNING_RATE * (outcome - chance)
    first, second = cells[FIRST_ROW], cells[SECOND_ROW]
    for i in range(N_INPUTS):
        cell = cells[i]
        weights[first + i] += step * tables[cell]
        weights[second + i] += step * tables[cell]
        rate = 1.0 / (1.0 + math.exp(-tables[cell]))
        rate += (outcome - rate) / (seen[cell] + 1.6)
        if seen[cell] < SEEN_LIMIT:
            seen[cell] += 1
        logit = math.log(max(rate, 1e-9) / max(1.0 - rate, 1e-9))
        tables[cell] = min(max(logit, -MAX_LOGIT), MAX_LOGIT)
    weights[first + N_INPUTS] += 0.3 * step
    weights[second + N_INPUTS] += 0.3 * step
