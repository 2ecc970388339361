"""Numba kernels of the drafter: write a draft and say where its tokens come from. The policy is a table to them.

Arrays are those of ``_copying``; ``ahead`` is a copy of the position that moves on with the draft.

``stops``    [STOP_BINS] float32     survival below which a draft ends, by the logarithm of hazard over cost
"""

from __future__ import annotations

import math

from numba import njit

from lookupdec._copying import (
    AHEAD_AT,
    BEST_AT,
    CONTEXTS_AT,
    OPTIONS_AT,
    REPLACED_AT,
    Model,
    best_option,
    chance_to_go_on,
    follow_match,
)
from lookupdec._kernels import (
    COUNT,
    MORE,
    N_TOKENS,
    NEXT,
    NONE,
    RECENT,
    SEPARATOR,
    STATE_FIELDS,
    TOKEN,
    Automaton,
    Int32Array,
    follow,
)
from lookupdec._replacements import PLACE, begin_replacement, copy_on, slot_of
from lookupdec._survival import (
    AFTER_SKIP,
    ANCHOR,
    AT_ANCHOR,
    AT_CURSOR,
    CURSOR,
    MATCHED,
    MISSES,
    OWN,
    OWN_LENGTH,
    PAST,
    PAST_LENGTH,
    PREVIOUS,
    PROMPT_STOP,
    REFERENCE_START,
    REFERENCE_STOP,
    REPEATED,
    REPLACING,
    RUN,
    Float32Array,
    Int64Array,
    UInt8Array,
    chance_of,
    count_bucket,
    length_bucket,
    vocabulary_logit,
)

COMPILED_WITH = "37cee87dc271"  # as in _survival

# Where everything has agreed for STEADY_RUN tokens, most of an estimate is used again for STEADY_TOKENS.
STEADY_RUN, STEADY_TOKENS = 16, 16

FROM_REFERENCE, FROM_PROMPT, FROM_OUTPUT, FROM_PAST, FROM_PHRASE = range(5)

STOP_BINS_PER_OCTAVE, STOP_OCTAVES_BELOW, STOP_BINS = 4, 20, 160
EXPECTED = 0.9  # the chance that an output begins as its reference does
HAZARD_MEMORY = 0.8  # of the smoothed hazard along a draft
# The least survival, in costs of a token. Where little is known the best of several estimates is too high, and
# a guess worth hardly more than it costs is not worth a wider pass: 1.5 drafts twice as much for 0.1 % less.
LEAST_GAIN = 2.5
# Below this no estimate is good enough to say that a guess is worth anything, however little a token costs.
LEAST_CHANCE = 0.015


@njit(cache=True, nogil=True)
def source_at(now: Int64Array, position: int) -> int:
    """Return what a position of the own text is part of."""
    if now[REFERENCE_START] <= position <= now[REFERENCE_STOP] and now[REFERENCE_STOP] > now[REFERENCE_START]:
        return FROM_REFERENCE
    return FROM_PROMPT if position < now[PROMPT_STOP] else FROM_OUTPUT


@njit(cache=True, nogil=True)
def source_of(own: Automaton, now: Int64Array, flags: int, scratch: Int64Array, token: int) -> int:
    """Return where a drafted token was copied from, one of FROM_REFERENCE .. FROM_PAST."""
    position = NONE
    if flags & AT_CURSOR:
        position = now[CURSOR]
    elif flags & REPLACING:
        replaced = scratch[REPLACED_AT:]
        position = replaced[slot_of(replaced, own.text[now[CURSOR]]) + PLACE]
    elif flags & AFTER_SKIP:
        position = now[CURSOR] + 1
    elif flags & AT_ANCHOR:
        position = now[ANCHOR]
    else:
        for context in range(2):
            target = follow(own.states, own.edges, scratch[CONTEXTS_AT + context * 3], token)
            if target != NONE and scratch[CONTEXTS_AT + context * 3] > 0:
                end = own.states[target * STATE_FIELDS + RECENT]
                position = (end if end != NONE else own.meta[N_TOKENS]) - 1  # none: only at the text's end
                break
        if position < 0:
            return FROM_PAST
    return source_at(now, position)


@njit(cache=True, nogil=True)
def look_ahead(
    own: Automaton, past: Automaton, ahead: Int64Array, token: int, flags: int, replaced: Int64Array
) -> None:
    """Move a copy of the position on by a drafted token, which is not in the text."""
    follow_match(own, ahead, OWN, token)
    follow_match(past, ahead, PAST, token)
    if flags & AT_CURSOR:
        copy_on(ahead)
        if ahead[MATCHED] >= 2:
            ahead[MISSES] = 0
    elif flags & REPLACING:
        begin_replacement(ahead, replaced, slot_of(replaced, own.text[ahead[CURSOR]]))
    elif ahead[MISSES] > 0 and flags & (AFTER_SKIP | AT_ANCHOR):
        ahead[CURSOR] = ahead[CURSOR] + 2 if flags & AFTER_SKIP else ahead[ANCHOR] + 1
        ahead[MATCHED] = ahead[RUN] = 1
        ahead[MISSES] = 0
    else:
        end = own.states[ahead[OWN] * STATE_FIELDS + RECENT] if ahead[OWN] > 0 else NONE
        ahead[CURSOR] = end
        ahead[MATCHED] = ahead[OWN_LENGTH] if end >= 0 else 0
        ahead[RUN] = ahead[REPEATED] = 0
    ahead[PREVIOUS] = token


@njit(cache=True, nogil=True)
def stop_below(stops: Float32Array, hazard_over_cost: float) -> float:
    """Return the survival below which a draft ends."""
    octaves = math.log2(max(hazard_over_cost, 1e-9)) + STOP_OCTAVES_BELOW
    return stops[min(max(int(octaves * STOP_BINS_PER_OCTAVE), 0), STOP_BINS - 1)]


@njit(cache=True, nogil=True)
def steady_place(states: Int32Array, past_states: Int32Array, ahead: Int64Array, at_cursor: int) -> int:
    """Return a number for the kind of place where everything agrees on one token, NONE where it does not.

    Everything: a copy that has gone on for a while, and longest matches that have never gone on otherwise. Where
    the number stays the same, so does nearly all that an estimate is made from.
    """
    at, past_at = ahead[OWN] * STATE_FIELDS, ahead[PAST] * STATE_FIELDS
    if ahead[RUN] < STEADY_RUN or at == 0 or states[at + NEXT] == NONE or states[at + MORE] != NONE:
        return NONE
    if states[at + TOKEN] != at_cursor or ahead[CURSOR] == ahead[PROMPT_STOP]:
        return NONE
    past_counts = 0
    if past_at > 0:
        if past_states[past_at + NEXT] == NONE or past_states[past_at + MORE] != NONE:
            return NONE
        if past_states[past_at + TOKEN] != at_cursor:
            return NONE
        past_counts = 1 + count_bucket(past_states[past_at + COUNT])
    lengths = length_bucket(ahead[RUN]) * 256 + length_bucket(ahead[OWN_LENGTH]) * 16
    lengths += length_bucket(ahead[PAST_LENGTH])
    inside = 1 if ahead[REFERENCE_START] <= ahead[CURSOR] < ahead[REFERENCE_STOP] else 0
    return ((count_bucket(states[at + COUNT]) * 8 + past_counts) * 2 + inside) * 4096 + lengths


@njit(cache=True, nogil=True)
def step_steadily(states: Int32Array, past_states: Int32Array, ahead: Int64Array, token: int) -> None:
    """Do what ``look_ahead`` does, in a steady place."""
    ahead[OWN] = states[ahead[OWN] * STATE_FIELDS + NEXT]
    ahead[OWN_LENGTH] += 1
    if ahead[PAST] > 0:
        ahead[PAST] = past_states[ahead[PAST] * STATE_FIELDS + NEXT]
        ahead[PAST_LENGTH] += 1
    ahead[CURSOR] += 1
    ahead[MATCHED] += 1
    ahead[RUN] += 1
    ahead[MISSES] = 0
    ahead[PREVIOUS] = token


@njit(cache=True, nogil=True)
def is_expected(now: Int64Array) -> bool:
    """Return whether there is a reference, which an output begins with, whatever the prompt ends with."""
    return now[REFERENCE_STOP] > now[REFERENCE_START]


@njit(cache=True, nogil=True)
def propose(
    draft: Int32Array,
    sources: UInt8Array,
    survivals: Float32Array,
    phrase: Int32Array,
    stops: Float32Array,
    per_token: float,
    states: Int32Array,
    edges: Int32Array,
    meta: Int32Array,
    text: Int32Array,
    past_states: Int32Array,
    past_edges: Int32Array,
    past_meta: Int32Array,
    past_text: Int32Array,
    tables: Float32Array,
    seen: UInt8Array,
    weights: Float32Array,
    ends: Int32Array,
    phrase_rate: Float32Array,
    now: Int64Array,
    scratch: Int64Array,
) -> int:
    """Write the likeliest continuation into ``draft`` for as long as it pays; return its length.

    ``survivals`` gets the chance that a token and all before it come. The draft goes on while the chance that all
    of it comes (``survival``) is above what ``stops`` asks for at the present chance of a difference (``hazard``):
    in text that goes on safely little is gained by drafting past a doubt, since the next pass copies it as
    cheaply. Derived in docs/architecture.md.
    """
    own = Automaton(states, edges, meta, text)
    past = Automaton(past_states, past_edges, past_meta, past_text)
    model = Model(tables, seen, weights, ends, phrase_rate)
    best = scratch[BEST_AT:OPTIONS_AT]
    ahead = scratch[AHEAD_AT:REPLACED_AT]
    replaced = scratch[REPLACED_AT:]
    ahead[:] = now
    survival = 1.0
    hazard = -1.0
    phrase_size = phrase.size
    size = meta[N_TOKENS]
    least = min(max(LEAST_GAIN * per_token, LEAST_CHANCE), max(0.9, per_token))
    highest_stop = max(stops[0], least)
    drafted = 0
    estimated_place, estimated_logit, age = NONE, 0.0, 0
    while drafted < draft.size:
        place = NONE
        if (
            0 <= ahead[CURSOR] < size
            and ahead[REPEATED] == 0
            and slot_of(replaced, text[ahead[CURSOR]]) == NONE
        ):
            place = steady_place(states, past_states, ahead, text[ahead[CURSOR]])
        steady = place != NONE and place == estimated_place and age < STEADY_TOKENS and phrase_size == 0
        source = FROM_PAST
        if steady:
            age += 1
            token, flags = states[ahead[OWN] * STATE_FIELDS + TOKEN], AT_CURSOR
            chance = chance_of(estimated_logit + vocabulary_logit(token, ahead, tables, weights, best))
        else:
            token, flags, chance = best_option(own, past, model, ahead, draft, drafted, scratch)
            if drafted == 0 and size == now[PROMPT_STOP] and chance < EXPECTED and is_expected(now):
                token, flags, chance = text[now[CURSOR]], AT_CURSOR, EXPECTED
            if drafted < phrase_size:
                rate = (phrase_rate[1] + 9.0) / (phrase_rate[0] + 10.0)
                if token == NONE or rate > chance:
                    token, flags, chance, source = phrase[drafted], 0, rate, FROM_PHRASE
            if token == NONE or (flags & AT_CURSOR and ahead[CURSOR] == now[PROMPT_STOP]):
                break
            estimated_place, age = place, 0
            if place != NONE and source != FROM_PHRASE:
                logit = math.log(chance / (1.0 - chance))
                estimated_logit = logit - vocabulary_logit(token, ahead, tables, weights, best)
        survival *= chance
        hazard = (
            1.0 - chance if hazard < 0 else HAZARD_MEMORY * hazard + (1.0 - HAZARD_MEMORY) * (1.0 - chance)
        )
        if survival < highest_stop and survival < max(stop_below(stops, hazard / per_token), least):
            break
        if drafted < phrase_size and phrase[drafted] != token:
            phrase_size = 0
        if source != FROM_PHRASE:
            source = source_at(now, ahead[CURSOR]) if steady else source_of(own, ahead, flags, scratch, token)
        sources[drafted] = source
        draft[drafted] = token
        survivals[drafted] = survival
        drafted += 1
        if not steady and flags & AT_CURSOR and ahead[CURSOR] < size and text[ahead[CURSOR]] == SEPARATOR:
            break  # that was the end of a reference outside the prompt
        survival *= chance_to_go_on(ends, token)
        if steady:
            step_steadily(states, past_states, ahead, token)
            if ahead[PAST] == 0 and past_states.size > STATE_FIELDS:
                follow_match(past, ahead, PAST, token)
        else:
            look_ahead(own, past, ahead, token, flags, replaced)
    return drafted
