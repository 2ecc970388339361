"""The drafter: guesses the next tokens by copying. Knows no tensor, no text and no model.

One drafter serves one request after the other and keeps what it has learnt. Its draft is what a small adaptive
model of copying thinks likeliest, token by token (``_survival``), for as long as that pays (``policy``).
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import numpy as np

from lookupdec import _copying as copying
from lookupdec import _drafting as drafting
from lookupdec import _kernels as kernels
from lookupdec import _survival as survival
from lookupdec._kernels import Automaton
from lookupdec.cache import RollingCache
from lookupdec.errors import DrafterError
from lookupdec.ids import Ids, Int32Array, Reference, as_ids
from lookupdec.index import SuffixIndex
from lookupdec.phrases import PhraseBook
from lookupdec.policy import MIN_COST, CostModel, SurvivalModel

SOURCES = ("reference", "prompt", "output", "past output", "phrase")
"""Where drafted tokens can come from, by the codes of ``_drafting``."""

OUTPUT_ROOM = 1024  # tokens beyond the prompt that a request's index has room for at first
DRAFT_ROOM = 1024  # tokens of a draft there is room for at first
REMATCHED = 64  # tokens of the text's end that are looked up again when a corpus was rebuilt
LOCATE_MARGIN = 2  # tokens at either end of a reference that may be cut differently inside the prompt

_NOTHING = np.empty(0, np.int32)
# Where tokens cost nothing, since the pass is as wide anyway: all that are not out of the question.
_FILLING_STOPS = np.full(drafting.STOP_BINS, 0.02, np.float32)


class CopyDrafter:
    """Drafts by copying from the reference, the prompt, the own output, past outputs and registered phrases.

    Parameters
    ----------
    cache
        Past outputs to copy from; this drafter's outputs are added to it. None: copy from no past output.
    phrases
        Phrases to copy from once their beginning has been written.
    cost
        What a drafted token costs.
    model
        What has been learnt so far; None starts from the prior. It goes on learning from every request.
    """

    def __init__(
        self,
        cache: RollingCache | None = None,
        phrases: PhraseBook | None = None,
        cost: CostModel | None = None,
        *,
        model: SurvivalModel | None = None,
    ) -> None:
        self.model = SurvivalModel.new() if model is None else model
        self._cost = CostModel() if cost is None else cost
        self._stops = self._cost.stops()
        self._cache = cache
        self._phrases = phrases
        self._guard = _OneAtATime()
        self._owner: int | None = None  # thread of the active request
        self._scratch = np.zeros(copying.SCRATCH_SIZE, np.int64)
        self._now = np.zeros(survival.POSITION_FIELDS, np.int64)
        self._kept: tuple[Any, ...] = (*self.model.arrays, self._now, self._scratch)
        self._draft = np.empty(DRAFT_ROOM, np.int32)
        self._sources = np.empty(DRAFT_ROOM, np.uint8)
        self._survivals = np.empty(DRAFT_ROOM, np.float32)
        self._drafted = 0
        self._past = _EMPTY

    @property
    def cost(self) -> CostModel:
        """What a drafted token costs; may be set between and during requests."""
        return self._cost

    @cost.setter
    def cost(self, cost: CostModel) -> None:
        self._cost = cost
        self._stops = cost.stops()

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each token of the last draft was copied from."""
        return tuple(SOURCES[code] for code in self._sources[: self._drafted].tolist())

    def begin(
        self,
        prompt: Ids,
        *,
        reference: Ids | slice | Reference | None = None,
        namespace: str | None = None,
    ) -> None:
        """Start a request.

        Parameters
        ----------
        prompt
            All ids that the target reads before its output.
        reference
            Text that is expected to come back: a span of the prompt, or ids. Ids that stand in the prompt are
            found there.
        namespace
            Whose past outputs may be copied; the output is added to the same.

        Raises
        ------
        DrafterError
            Bad ids, a bad span or namespace, or another thread's request is active.
        """
        with self._guard:
            if self._owner not in (None, threading.get_ident()):
                raise DrafterError("this drafter serves another thread's request: use one drafter a thread")
            self._owner = None
            if namespace is not None and not isinstance(namespace, str):
                raise DrafterError(f"a namespace is a string or None, got {type(namespace).__name__}")
            ids = _checked(prompt)
            index, first, stop, start = _indexed(ids, reference)
            self._index = index
            self._own = index.automaton
            self._namespace = namespace
            self._tracker = self._phrases.tracker() if self._phrases is not None else None
            self._drafted = 0
            self._place(first, stop, start)
            self._owner = threading.get_ident()

    def propose(self, limit: int) -> Int32Array:
        """Return at most ``limit`` ids that may come next, int32; empty where guessing does not pay.

        Raises
        ------
        DrafterError
            No request is active, the limit is negative or no whole number, or another thread is using this
            drafter.
        """
        with self._guard:
            self._check_active()
            if not isinstance(limit, int | np.integer) or limit < 0:
                raise DrafterError(f"limit must be a whole number and not negative, got {limit}")
            if self._cost.widths:
                limit = min(limit, self._cost.widths[-1][0] - 1)
            past, foretold = self._refreshed_past(), self._foretold()
            self._drafted = self._write(limit, self._stops, self._cost.per_token, past, foretold)
            while self._drafted == self._draft.size < limit:
                # By what drafts need, not by the limit: that may be any number.
                self._draft = np.empty(4 * self._draft.size, np.int32)
                self._sources = np.empty(self._draft.size, np.uint8)
                self._survivals = np.empty(self._draft.size, np.float32)
                self._drafted = self._write(limit, self._stops, self._cost.per_token, past, foretold)
            if self._cost.widths:
                self._drafted = self._cost.draft_length(self._survivals[: self._drafted])
                paid_for = min(limit, self._cost.width_for(1 + self._drafted) - 1)
                if self._drafted < paid_for:
                    self._drafted = self._write(paid_for, _FILLING_STOPS, MIN_COST, past, foretold)
            return self._draft[: self._drafted].copy()

    def _write(
        self,
        limit: int,
        stops: survival.Float32Array,
        per_token: float,
        past: Automaton,
        foretold: Int32Array,
    ) -> int:
        return int(
            drafting.propose(
                self._draft[:limit],
                self._sources,
                self._survivals,
                foretold,
                stops,
                per_token,
                *self._own,
                *past,
                *self._kept,
            )
        )

    def observe(self, ids: Ids) -> None:
        """Tell the tokens that were emitted since the last call.

        Raises
        ------
        DrafterError
            No request is active, bad ids, or another thread is using this drafter.
        """
        with self._guard:
            self._check_active()
            emitted = _checked(ids)
            past, foretold = self._refreshed_past(), self._foretold()
            done = 0
            while True:
                done += copying.observe(
                    emitted[done:] if done else emitted,
                    foretold[done:],
                    *self._own,
                    *past,
                    *self._kept,
                )
                if done == emitted.size:
                    break
                self._index.make_room(emitted.size - done)
                self._own = self._index.automaton
                if not np.array_equal(foretold[:done], emitted[: min(done, foretold.size)]):
                    foretold = _NOTHING
            if self._tracker is not None:
                self._tracker.observe(emitted)

    def end(self) -> None:
        """Finish the request: keep its output for later ones. Does nothing where no request is active."""
        with self._guard:
            if self._owner is None:
                return
            self._owner = None
            output = self._index.tokens[self._now[survival.PROMPT_STOP] :]
            if output.size:
                _note_end(self.model.arrays.ends, int(output[-1]))
                if self._cache is not None:
                    self._cache.add(output, namespace=self._namespace)

    def _check_active(self) -> None:
        if self._owner is None:
            raise DrafterError("no request is active: call begin() first")

    def _place(self, first: int, stop: int, start: int) -> None:
        """Set the position at the end of the prompt, the reference being in ``first`` .. ``stop``."""
        now, size = self._now, len(self._index)
        now[:] = 0
        self._scratch[copying.REPLACED_AT :] = 0
        now[survival.PREVIOUS] = self._index.tokens[-1] if size else 0
        now[survival.PROMPT_STOP] = now[survival.LEARNT] = size
        now[survival.REFERENCE_START], now[survival.REFERENCE_STOP] = first, stop
        now[survival.CURSOR] = kernels.NONE
        if stop > start:
            now[survival.CURSOR] = now[survival.ANCHOR] = start
            now[survival.MATCHED] = now[survival.RUN] = copying.REFERENCE_RUN
        now[survival.END_TOKEN] = _likeliest_end(self.model.arrays.ends)
        copying.set_own_match(self._own, now)
        self._past = _EMPTY

    def _refreshed_past(self) -> Automaton:
        """Return the past outputs' arrays as they are now; state numbers change only with the generation."""
        if self._cache is None:
            return _EMPTY
        corpus = self._cache.corpus(self._namespace)
        arrays = _EMPTY if corpus is None else corpus.arrays
        if arrays.meta is not self._past.meta or arrays.states is not self._past.states:
            moved = arrays.generation != int(self._past.meta[kernels.GENERATION])
            self._past = arrays
            if moved:
                self._now[survival.PAST] = self._now[survival.PAST_LENGTH] = 0
                output_start = max(int(self._now[survival.PROMPT_STOP]), len(self._index) - REMATCHED)
                for token in self._index.tokens[output_start:].tolist():
                    copying.follow_match(self._past, self._now, survival.PAST, token)
        return self._past

    def _foretold(self) -> Int32Array:
        if self._tracker is None:
            return _NOTHING
        remainder = self._tracker.candidate()
        return _NOTHING if remainder is None else remainder


class _OneAtATime:
    """A guard that refuses a second thread instead of letting it wait: sharing a drafter is a mistake."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise DrafterError("this drafter is in use by another thread: use one drafter a thread")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def _checked(ids: Ids) -> Int32Array:
    """Return ids that the kernels take: int32 and writable."""
    array = as_ids(ids)
    return array if array.flags.writeable else array.copy()


def _indexed(
    prompt: Int32Array, reference: Ids | slice | Reference | None
) -> tuple[SuffixIndex, int, int, int]:
    """Index the reference's variants, itself where it does not stand in the prompt, and the prompt.

    Returns the span of all that is expected to come back, and where in it the reference begins.
    """
    documents: list[Int32Array] = []
    if isinstance(reference, Reference):
        documents = [_checked(variant) for variant in reference.variants]
        reference = reference.ids
    start = stop = 0
    if isinstance(reference, slice):
        try:
            start, stop, step = reference.indices(prompt.size)
        except (TypeError, ValueError) as error:
            raise DrafterError(f"a reference is a span of the prompt, not {reference}: {error}") from error
        if step != 1:
            raise DrafterError("a reference is a contiguous span: give a slice without a step")
    elif reference is not None:
        wanted = _checked(reference)
        start, stop = locate(prompt, wanted)
        if stop == start and wanted.size:
            documents.append(wanted)
            # Counted from the prompt's beginning, a separator between them.
            start, stop = -1 - wanted.size, -1
    before = sum(document.size + 1 for document in documents)
    index = SuffixIndex(prompt.size + before + OUTPUT_ROOM)
    for document in documents:
        index.add_document(document)
    index.extend(prompt)
    start, stop = before + start, before + max(start, stop)
    return index, 0 if documents else start, stop, start


def locate(prompt: Int32Array, reference: Int32Array) -> tuple[int, int]:
    """Return the span of the prompt that holds the reference, (0, 0) where none does.

    The first and the last tokens may differ: a tokenizer cuts a text's ends by what stands beside it.
    """
    margin = LOCATE_MARGIN if reference.size > 4 * LOCATE_MARGIN else 0
    inner = reference[margin : reference.size - margin]
    at = _last_place(prompt, inner) if inner.size else -1
    return (max(0, at - margin), min(prompt.size, at + inner.size + margin)) if at >= 0 else (0, 0)


def _last_place(text: Int32Array, wanted: Int32Array) -> int:
    """Return where ``wanted`` last begins in ``text``, -1 without; the last is what stands nearest to the output.

    As bytes from end to start: ``bytes.find`` takes linear time whatever the text, ``bytes.rfind`` does not.
    """
    backwards, sought = text[::-1].tobytes(), wanted[::-1].tobytes()
    found = backwards.find(sought)
    while found % text.itemsize and found >= 0:  # it began inside an id
        found = backwards.find(sought, found + 1)
    return text.size - wanted.size - found // text.itemsize if found >= 0 else -1


def _note_end(ends: Int32Array, token: int) -> None:
    """Remember that an output ended with ``token``, forgetting the rarest such token where there is no room."""
    entries = ends.reshape(-1, 3)
    known = np.flatnonzero(entries[:, 0] == token)
    if known.size:
        entries[known[0], 1] += 1
    else:
        entries[int(np.argmin(entries[:, 1]))] = (token, 1, 1)


def _likeliest_end(ends: Int32Array) -> int:
    entries = ends.reshape(-1, 3)
    best = int(np.argmax(entries[:, 1]))
    return int(entries[best, 0]) if entries[best, 1] > 0 else kernels.NONE


def _empty_automaton() -> Automaton:
    states = np.empty(kernels.STATE_FIELDS, np.int32)
    meta = np.zeros(kernels.META_FIELDS, np.int32)
    kernels.new_state(states, meta, 0)
    edges = np.full(kernels.EDGE_FIELDS, kernels.NONE, np.int32)
    return Automaton(states, edges, meta, np.full(1, kernels.SEPARATOR, np.int32))


_EMPTY = _empty_automaton()
