"""The embedded engine: one thread that owns the model, where requests take turns pass by pass.

A request is a generator of ``lookupdec.hf.stream`` with a KV cache and a drafter of its own; one ``next()`` is one
forward pass. The turn is that of whoever has used the least time, so a short edit does not wait behind a long
rewrite. A newcomer begins at the time that each of those before it should have had by then: however many come,
those that run get their share. Nothing is batched.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from editor_api.engine import (
    Capacity,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    Piece,
    Prompt,
    Request,
    RequestCancelled,
    RequestTimedOut,
    State,
)
from editor_api.infill import Infill, InfillPrompt
from editor_api.runner import Run, Runner
from lookupdec import LookupDecError
from lookupdec.limits import PAST_BYTES, PREFIX_BYTES

if TYPE_CHECKING:
    from lookupdec.hf import LanguageModel

_log = logging.getLogger(__name__)

_LONGEST_WAIT = 60  # seconds a refused client is told to wait at most
_LONGEST_STOP = 60  # seconds for what cannot be interrupted: loading, a long prefill


class EmbeddedJob:
    """A request on its way through the engine. Its fields belong to the engine's lock and thread."""

    def __init__(self, request: Request, stop: Callable[[EmbeddedJob, EngineError], None]) -> None:
        self.request = request
        self.submitted = monotonic()
        self.run: Run | None = None
        self.cancelled = False
        self.used = 0.0  # seconds of the engine's thread, counted from the engine's clock at the first turn
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        self._is_read = False

    @property
    def seconds_left(self) -> float:
        """Time until the deadline."""
        return self.submitted + self.request.deadline - monotonic()

    def cancel(self, error: EngineError | None = None) -> None:
        """Stop within one pass."""
        self._stop(self, error or RequestCancelled("the request was cancelled"))

    def deliver(self, item: Piece | Exception) -> None:
        """Hand a piece, or what ended the request, to the reader; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the reader's loop is closed: nobody is left to tell
            _log.debug("a request outlived its reader")

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        """Return the next piece."""
        if self._is_read:
            raise StopAsyncIteration
        item = await self._items.get()
        if isinstance(item, Exception):
            self._is_read = True
            raise item
        self._is_read = item.finish_reason is not None
        return item


class EmbeddedEngine:
    """An engine with a transformers model in this process.

    Parameters
    ----------
    load
        Returns the model; called on the engine's own thread.
    max_running, max_queued
        How many requests take turns, and how many may wait.
    kv_bytes
        Budget for the KV caches of running requests; one request always runs.
    cache_bytes
        Budget for past outputs.
    prefix_bytes
        Budget for kept prefixes; 0 keeps none.
    phrases
        Texts that often come, for the drafts of every request.
    """

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        *,
        max_running: int = 4,
        max_queued: int = 32,
        kv_bytes: int = 2 << 30,
        cache_bytes: int = PAST_BYTES,
        prefix_bytes: int = PREFIX_BYTES,
        phrases: Sequence[str] = (),
    ) -> None:
        self._load = load
        self._max_running = max_running
        self._max_queued = max_queued
        self._kv_bytes = kv_bytes
        self._cache_bytes = cache_bytes
        self._prefix_bytes = prefix_bytes
        self._phrases = phrases
        self._runner: Runner | None = None
        self._failure = ""
        self._state: State = "loading"
        self._waiting: deque[EmbeddedJob] = deque()
        self._running: deque[EmbeddedJob] = deque()
        self._clock = 0.0  # seconds that one who had always been running would have had, at equal shares
        self._usual_seconds = 1.0  # of one request, a moving average
        self._changed = threading.Condition()
        self._is_aborted = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def model_name(self) -> str:
        """The model's name."""
        return self._ready_runner().model.name

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together."""
        return self._ready_runner().model.context_length

    @property
    def dtype(self) -> str:
        """The numbers the model computes with."""
        return str(self._ready_runner().model.dtype).removeprefix("torch.")

    @property
    def chat_template(self) -> str | None:
        """How the model reads messages; None where it only continues text."""
        return self._ready_runner().chat_template

    @property
    def capacity(self) -> Capacity:
        """How busy the engine is."""
        runner = self._runner
        with self._changed:
            return Capacity(
                self._state,
                running=len(self._running),
                waiting=len(self._waiting),
                cache_bytes=runner.cache.nbytes if runner else 0,
                prefix_bytes=runner.prefixes.nbytes if runner else 0,
                failure=self._failure,
            )

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt."""
        return self._ready_runner().model.encode_prompt(prompt)

    def encode_infill(self, infill: Infill) -> InfillPrompt:
        """Return the prompt for a gap. Raises ``InputError`` where the model has no tokens for it."""
        return self._ready_runner().encode_infill(infill)

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text inside a text."""
        return self._ready_runner().model.encode_text(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens."""
        return self._ready_runner().decode(ids)

    def check(self, settings: Mapping[str, Any], json_schema: str | None = None) -> None:
        """Raise ``TypeError`` for unknown settings, ``InputError`` for impossible values and schemas."""
        self._ready_runner().check(settings, json_schema)

    def start(self) -> None:
        """Start the thread, which loads the model first."""
        self._thread.start()

    def check_room(self) -> None:
        """Raise ``EngineBusy`` or ``EngineUnavailable`` where a new request would be refused now."""
        with self._changed:
            self._check_room()

    def submit(self, request: Request) -> EmbeddedJob:
        """Queue a request."""
        job = EmbeddedJob(request, self._stop)
        with self._changed:
            goes_on = request.admitted and not self._is_aborted and self._state in ("ready", "stopping")
            if not goes_on:
                self._check_room()
            self._waiting.append(job)
            self._changed.notify()
        return job

    def drain(self) -> None:
        """Take no new requests from now on."""
        with self._changed:
            if self._state != "failed":
                self._state = "stopping"

    def abort(self) -> None:
        """End all requests, those between two generations, too: they are refused the next one."""
        self.drain()
        with self._changed:
            self._is_aborted = True
            jobs = [*self._running, *self._waiting]
        for job in jobs:
            job.cancel(EngineUnavailable("the service is stopping"))

    def stop(self) -> None:
        """End everything and wait until nothing runs."""
        self.abort()
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_LONGEST_STOP)

    def _ready_runner(self) -> Runner:
        if self._runner is None:
            raise EngineUnavailable(self._why_unavailable())
        return self._runner

    def _check_room(self) -> None:
        if self._state != "ready":
            raise EngineUnavailable(self._why_unavailable())
        if len(self._running) + len(self._waiting) >= self._max_running + self._max_queued:
            raise EngineBusy(self._retry_after())

    def _why_unavailable(self) -> str:
        if self._state == "failed":
            return f"the model could not be loaded: {self._failure}"
        return "the service is stopping" if self._state == "stopping" else "the model is being loaded"

    def _retry_after(self) -> int:
        ahead = (len(self._running) + len(self._waiting)) / self._max_running
        return max(1, min(_LONGEST_WAIT, math.ceil(self._usual_seconds * ahead)))

    def _stop(self, job: EmbeddedJob, error: EngineError) -> None:
        with self._changed:
            if job.cancelled or (job not in self._waiting and job not in self._running):
                return
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
            self._changed.notify()
        job.deliver(error)

    # What follows runs on the engine's thread.

    def _work(self) -> None:
        try:
            runner = Runner(
                self._load(),
                cache_bytes=self._cache_bytes,
                prefix_bytes=self._prefix_bytes,
                phrases=self._phrases,
            )
            runner.warm_up()
        except Exception as error:
            if not isinstance(error, LookupDecError):
                _log.exception("the model could not be loaded")
            with self._changed:
                self._failure, self._state = " ".join(str(error).split()) or type(error).__name__, "failed"
            return
        with self._changed:
            self._runner = runner
            if self._state == "loading":
                self._state = "ready"
        while (job := self._whose_turn()) is not None:
            self._take_turn(runner, job)

    def _whose_turn(self) -> EmbeddedJob | None:
        """Return the job whose turn it is, waiting for one; None where the engine was closed."""
        with self._changed:
            while True:
                self._let_in()
                for job in self._running:
                    if job.cancelled:  # its place is free at once, whoever is next
                        return job
                if self._running:
                    # Fair by time, not by passes: one over a long draft takes as long as several short ones.
                    return min(self._running, key=lambda job: job.used)
                if self._is_closed:
                    return None
                self._changed.wait()

    def _let_in(self) -> None:
        """Move waiting jobs to the running ones, in order, while there is room."""
        runner = self._runner
        assert runner is not None
        for job in [job for job in self._waiting if job.seconds_left <= 0]:
            self._waiting.remove(job)
            job.deliver(RequestTimedOut("the deadline passed while the request was waiting for its turn"))
        taken = sum(runner.kv_bytes(job.request) for job in self._running)
        while self._waiting and len(self._running) < self._max_running:
            taken += runner.kv_bytes(self._waiting[0].request)
            if taken > self._kv_bytes and self._running:
                return
            job = self._waiting.popleft()
            job.used = max(self._clock, min((other.used for other in self._running), default=0.0))
            self._running.append(job)

    def _take_turn(self, runner: Runner, job: EmbeddedJob) -> None:
        item: Piece | Exception | None = None
        began = monotonic()
        if not job.cancelled:
            try:
                if job.run is None:
                    job.run = runner.begin(job.request, max(0.001, job.seconds_left))
                item = job.run.next_piece()
            except Exception as error:  # whatever a model raises ends its request, never this thread
                item = error
        spent = monotonic() - began
        self._clock = max(self._clock, job.used) + spent / len(self._running)
        job.used += spent
        is_last = not isinstance(item, Piece) or item.finish_reason is not None
        if is_last:
            self._leave(job)
        # A place is free again before the client hears so.
        if item is not None and not job.cancelled:
            job.deliver(item)

    def _leave(self, job: EmbeddedJob) -> None:
        if job.run is not None:
            try:
                job.run.close()
            except Exception:
                _log.exception("a request could not be closed")
            job.run = None
        with self._changed:
            self._running.remove(job)
            self._usual_seconds += 0.1 * (monotonic() - job.submitted - self._usual_seconds)
