"""Numba kernels of the drafter: follow the text, offer and learn what may come next.

``own`` and ``past`` are automata as NamedTuples of arrays (states, edges, meta, text), see ``_kernels``; ``past`` may
be extended by another thread meanwhile: positions beyond its text, and states half written, must do no harm.
``model`` holds what is learnt (tables, seen, weights, ends), see ``_survival``.

``ends``     [N_ENDS * 3] int32      tokens that outputs ended with: id, outputs ended, times emitted since
``scratch``  [SCRATCH_SIZE] int64    working space of one drafter; its end remembers replacements
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from lookupdec._cursor import move_cursor
from lookupdec._kernels import (
    COUNT,
    EDGE_CHAIN,
    EDGE_TARGET,
    EDGE_TOKEN,
    LAST,
    LENGTH,
    LINK,
    MORE,
    N_STATES,
    N_TOKENS,
    NEXT,
    NONE,
    RECENT,
    SEPARATOR,
    STATE_FIELDS,
    TOKEN,
    Automaton,
    Int32Array,
    append,
    context_state,
    follow,
    mark,
    rejoin,
)
from lookupdec._replacements import (
    PLACE,
    REPEATING,
    REPLACED_SIZE,
    kind_of_replacement,
    slot_of,
)
from lookupdec._survival import (
    AFTER_SKIP,
    ANCHOR,
    AT_ANCHOR,
    AT_CURSOR,
    AT_RECENT,
    CURSOR,
    END_TOKEN,
    LEARNT,
    MISSES,
    N_CONTEXTS,
    N_INPUTS,
    OWN,
    OWN_LENGTH,
    PAST,
    PAST_LENGTH,
    POSITION_FIELDS,
    PREVIOUS,
    REFERENCE_STOP,
    REPEATED,
    REPLACED,
    REPLACING,
    Float32Array,
    Int64Array,
    UInt8Array,
    estimate,
    fill_contexts,
    learn,
)

COMPILED_WITH = "c2d852b1bda2"  # as in _survival

MAX_OPTIONS = 9
MAX_SIBLINGS = 12  # transitions of a context that are compared to find its most frequent one

N_ENDS = 8

# A reference is text that is expected to come back: its beginning counts as if this much of it had been copied.
REFERENCE_RUN = 64

_CELLS = N_INPUTS + 2
CONTEXTS_AT = 0
CELLS_AT = CONTEXTS_AT + N_CONTEXTS * 3
BEST_AT = CELLS_AT + _CELLS
OPTIONS_AT = BEST_AT + _CELLS
AHEAD_AT = OPTIONS_AT + 2 * MAX_OPTIONS
REPLACED_AT = AHEAD_AT + POSITION_FIELDS
SCRATCH_SIZE = REPLACED_AT + REPLACED_SIZE


class Model(NamedTuple):
    """What a drafter has learnt, as ``_survival`` describes it."""

    tables: Float32Array
    seen: UInt8Array
    weights: Float32Array
    ends: Int32Array
    phrase_rate: npt.NDArray[np.float32]  # [2]: tokens that a phrase foretold, and how many of them came


@njit(cache=True, nogil=True)
def recent_token(automaton: Automaton, state: int) -> int:
    """Return what came after the latest occurrence of a context, or NONE."""
    if state <= 0:
        return NONE
    end = automaton.states[state * STATE_FIELDS + RECENT]
    return automaton.text[end] if 0 <= end < automaton.text.size else NONE


@njit(cache=True, nogil=True)
def frequent_token(automaton: Automaton, state: int) -> int:
    """Return what came most often after a context, or NONE."""
    states, edges = automaton.states, automaton.edges
    at = state * STATE_FIELDS
    if state <= 0 or states[at + NEXT] == NONE:
        return NONE
    best = states[at + TOKEN]
    slot = states[at + MORE]
    if slot == NONE:
        return best
    most = states[states[at + NEXT] * STATE_FIELDS + COUNT]
    for _ in range(MAX_SIBLINGS):
        if slot == NONE:
            break
        target = edges[slot + EDGE_TARGET]
        if target != NONE and states[target * STATE_FIELDS + COUNT] > most:
            most = states[target * STATE_FIELDS + COUNT]
            best = edges[slot + EDGE_TOKEN]
        slot = edges[slot + EDGE_CHAIN]
    return best


@njit(cache=True, nogil=True)
def follow_match(automaton: Automaton, now: Int64Array, state_field: int, token: int) -> None:
    """Move the longest match (state and length, two fields of ``now``) on by one token."""
    states = automaton.states
    state, length = now[state_field], now[state_field + 1]
    # Another document may have split the state since: the match then belongs to a shorter one.
    while state > 0 and length <= states[max(states[state * STATE_FIELDS + LINK], 0) * STATE_FIELDS + LENGTH]:
        state = max(states[state * STATE_FIELDS + LINK], 0)
    target = follow(states, automaton.edges, state, token)
    while target == NONE and state > 0:
        state = max(states[state * STATE_FIELDS + LINK], 0)
        length = states[state * STATE_FIELDS + LENGTH]
        target = follow(states, automaton.edges, state, token)
    now[state_field] = target if target != NONE else 0
    now[state_field + 1] = length + 1 if target != NONE else 0


@njit(cache=True, nogil=True)
def set_own_match(own: Automaton, now: Int64Array) -> None:
    """Take the longest earlier occurrence of the text's end from the automaton's last state."""
    state = context_state(own.states, own.meta)
    now[OWN] = state
    now[OWN_LENGTH] = own.states[state * STATE_FIELDS + LENGTH]


@njit(cache=True, nogil=True)
def token_at(own: Automaton, draft: Int32Array, drafted: int, position: int) -> int:
    """Return the token at a position of the text with the draft appended, or NONE."""
    size = own.meta[N_TOKENS]
    if 0 <= position < size:
        return own.text[position]
    return draft[position - size] if 0 <= position - size < drafted else NONE


@njit(cache=True, nogil=True)
def add_option(scratch: Int64Array, options: int, token: int, flags: int) -> int:
    """Note that ``token`` may come next; return the number of options."""
    if token < 0 or token == SEPARATOR:
        return options
    for i in range(options):
        if scratch[OPTIONS_AT + 2 * i] == token:
            scratch[OPTIONS_AT + 2 * i + 1] |= flags
            return options
    scratch[OPTIONS_AT + 2 * options] = token
    scratch[OPTIONS_AT + 2 * options + 1] = flags
    return options + 1


@njit(cache=True, nogil=True)
def gather_options(
    own: Automaton, past: Automaton, now: Int64Array, draft: Int32Array, drafted: int, scratch: Int64Array
) -> int:
    """Write the tokens that some context offers, each once; return how many."""
    contexts = scratch[CONTEXTS_AT:CELLS_AT]
    cursor = now[CURSOR]
    at_cursor = token_at(own, draft, drafted, cursor)
    if at_cursor == SEPARATOR and cursor == now[REFERENCE_STOP]:
        at_cursor = now[END_TOKEN]
    options = add_option(scratch, 0, at_cursor, AT_CURSOR)
    now[REPLACED] = REPEATING if now[REPEATED] > 0 else 0
    if now[REPEATED] == 0 and now[MISSES] == 0 and 0 <= cursor < own.meta[N_TOKENS]:
        replaced = scratch[REPLACED_AT:]
        slot = slot_of(replaced, own.text[cursor])
        if slot != NONE:
            now[REPLACED] = kind_of_replacement(replaced, slot, own.text, now[PREVIOUS])
            options = add_option(scratch, options, own.text[replaced[slot + PLACE]], REPLACING)
    options = add_option(scratch, options, recent_token(own, contexts[0]), AT_RECENT)
    options = add_option(scratch, options, frequent_token(own, contexts[0]), 0)
    options = add_option(scratch, options, recent_token(past, contexts[9]), 0)
    options = add_option(scratch, options, frequent_token(past, contexts[9]), 0)
    options = add_option(scratch, options, frequent_token(own, contexts[3]), 0)
    # What is not an option by itself still says something about one that is.
    after_skip = token_at(own, draft, drafted, cursor + 1) if cursor >= 0 else NONE
    at_anchor = own.text[now[ANCHOR]] if now[MISSES] > 0 else NONE
    if now[MISSES] > 0:
        options = add_option(scratch, options, after_skip, 0)
        options = add_option(scratch, options, at_anchor, 0)
    for i in range(options):
        token = scratch[OPTIONS_AT + 2 * i]
        if token == after_skip:
            scratch[OPTIONS_AT + 2 * i + 1] |= AFTER_SKIP
        if token == at_anchor:
            scratch[OPTIONS_AT + 2 * i + 1] |= AT_ANCHOR
    return options


@njit(cache=True, nogil=True)
def best_option(
    own: Automaton,
    past: Automaton,
    model: Model,
    now: Int64Array,
    draft: Int32Array,
    drafted: int,
    scratch: Int64Array,
) -> tuple[int, int, float]:
    """Return the likeliest next token, its flags and its chance; (NONE, 0, 0.0) where nothing is offered."""
    contexts = scratch[CONTEXTS_AT:CELLS_AT]
    cells = scratch[CELLS_AT:BEST_AT]
    best = scratch[BEST_AT:OPTIONS_AT]
    fill_contexts(own.states, now[OWN], now[OWN_LENGTH], contexts, 0)
    fill_contexts(past.states, now[PAST], now[PAST_LENGTH], contexts, 3)
    options = gather_options(own, past, now, draft, drafted, scratch)
    token, token_flags, highest = NONE, 0, 0.0
    for i in range(options):
        option = scratch[OPTIONS_AT + 2 * i]
        flags = scratch[OPTIONS_AT + 2 * i + 1]
        chance = estimate(
            option, flags, now, contexts, own.states, own.edges, past.states, past.edges, model.tables,
            model.weights, cells,
        )  # fmt: skip
        if chance > highest:
            token, token_flags, highest = option, flags, chance
            best[:] = cells
    return token, token_flags, highest


@njit(cache=True, nogil=True)
def learn_options(
    own: Automaton, past: Automaton, model: Model, now: Int64Array, came: int, scratch: Int64Array
) -> None:
    """Learn from a token that comes next, which is not in the text yet, about everything that was offered.

    Not about the likeliest alone: what is wrongly thought unlikely would then never be put right.
    """
    contexts = scratch[CONTEXTS_AT:CELLS_AT]
    cells = scratch[CELLS_AT:BEST_AT]
    fill_contexts(own.states, now[OWN], now[OWN_LENGTH], contexts, 0)
    fill_contexts(past.states, now[PAST], now[PAST_LENGTH], contexts, 3)
    options = gather_options(own, past, now, own.text, 0, scratch)
    for i in range(options):
        option = scratch[OPTIONS_AT + 2 * i]
        flags = scratch[OPTIONS_AT + 2 * i + 1]
        chance = estimate(
            option, flags, now, contexts, own.states, own.edges, past.states, past.edges, model.tables,
            model.weights, cells,
        )  # fmt: skip
        learn(option == came, chance, model.tables, model.seen, model.weights, cells)


@njit(cache=True, nogil=True)
def count_emitted(ends: Int32Array, token: int) -> None:
    """Note that a token which has ended outputs was emitted."""
    for at in range(0, ends.size, 3):
        if ends[at] == token:
            ends[at + 2] += 1


@njit(cache=True, nogil=True)
def chance_to_go_on(ends: Int32Array, token: int) -> float:
    """Return the chance that anything comes after ``token``."""
    for at in range(0, ends.size, 3):
        if ends[at] == token:
            return 1.0 - (ends[at + 1] - 0.5) / max(ends[at + 2], ends[at + 1])
    return 1.0


@njit(cache=True, nogil=True)
def observe(
    ids: Int32Array,
    phrase: Int32Array,
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
    """Learn from emitted tokens and append them, as many as there is room for; return how many.

    ``phrase`` is what a phrase foretold for these tokens, empty without one. The arrays come one by one since
    handing over tuples of arrays costs three times as much.
    """
    own = Automaton(states, edges, meta, text)
    past = Automaton(past_states, past_edges, past_meta, past_text)
    model = Model(tables, seen, weights, ends, phrase_rate)
    done = 0
    foretold = True
    while done < ids.size:
        token = ids[done]
        size = meta[N_TOKENS]
        last = meta[LAST]
        if (meta[N_STATES] + 2) * STATE_FIELDS > states.size or size >= text.size:
            break
        if size >= now[LEARNT]:  # the edges may turn out to have no room: then this token comes again
            learn_options(own, past, model, now, token, scratch)
            now[LEARNT] = size + 1
        known = follow(states, edges, last, token) != NONE
        if not (rejoin(states, edges, meta, token) if known else append(states, edges, meta, token)):
            break
        text[size] = token
        meta[N_TOKENS] = size + 1
        mark(states, last, size)
        if foretold and done < phrase.size:
            foretold = phrase[done] == token
            model.phrase_rate[0] += 1
            model.phrase_rate[1] += foretold
        count_emitted(model.ends, token)
        set_own_match(own, now)
        follow_match(past, now, PAST, token)
        move_cursor(own, now, token, scratch[REPLACED_AT:])
        now[PREVIOUS] = token
        done += 1
    return done
