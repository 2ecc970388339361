"""All that one HTTP request has the engine do, as one thing that can be stopped or replaced."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from time import monotonic
from weakref import WeakValueDictionary

from editor_api.engine import Engine, EngineError, Job, Piece, Request, RequestReplaced, RequestTimedOut
from editor_api.metrics import Metrics
from lookupdec.stats import Stats, Step

_OUT_OF_TIME = Piece("", Step((), 0, 0, ()), Stats(), "deadline")


class Work:
    """Runs generations one after the other until it is stopped.

    Deadlines count from ``arrived``, a time of ``time.monotonic``: what one generation took, the next has not.
    """

    def __init__(self, engine: Engine, metrics: Metrics, *, arrived: float) -> None:
        self._engine = engine
        self._metrics = metrics
        self.arrived = arrived
        self._job: Job | None = None
        self._error: EngineError | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more will come."""
        return self._error is not None

    def check(self) -> None:
        """Raise what it was stopped with; from any thread."""
        if self._error is not None:
            raise self._error

    async def pieces(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of one generation. A reader that stops early must close this.

        One that is closed early has ended, by its reader's judgement, unless the work was stopped.
        One that is the continuation of others and has no time left is empty and ends with "deadline". Raises
        ``EngineError``, also where there is no time for the first.
        """
        self.check()
        submitted = monotonic()
        seconds_left = self.arrived + request.deadline - submitted
        if seconds_left <= 0:
            if not request.admitted:
                raise RequestTimedOut("the deadline passed before the request had its first turn")
            yield _OUT_OF_TIME
            return
        job = self._job = self._engine.submit(replace(request, deadline=seconds_left))
        try:
            async for piece in job:
                if not piece.step.tokens and piece.finish_reason is None:
                    continue  # a part of the prompt was read
                self._count(piece, request, submitted)
                yield piece
        except GeneratorExit:
            if piece.finish_reason is None and not self.is_stopped:
                self._metrics.saw_end("stop")
            raise
        except RequestTimedOut:
            if not request.admitted:
                raise
            yield _OUT_OF_TIME
        finally:
            job.cancel()

    def _count(self, piece: Piece, request: Request, submitted: float) -> None:
        tokens = len(piece.step.tokens)
        if not tokens and piece.finish_reason is not None:  # time was over before the first token
            self._metrics.saw_end(piece.finish_reason)
            return
        if piece.stats.tokens == tokens:
            seconds = monotonic() - submitted
            self._metrics.saw_start(len(request.prompt), piece.stats.cached_tokens, seconds)
        self._metrics.saw_piece(piece)

    def stop(self, error: EngineError) -> None:
        """End what runs, and let nothing begin."""
        self._error = self._error or error
        if self._job is not None:
            self._job.cancel(error)


class Sessions:
    """The newest work of every session: with each keystroke, what was asked before is void."""

    def __init__(self) -> None:
        self._newest: WeakValueDictionary[tuple[str, str], Work] = WeakValueDictionary()

    def begin(self, tenant: str, session: str | None, work: Work) -> None:
        """Give a session's place to ``work`` for as long as that exists, and stop who has it.

        Raises ``RequestReplaced`` where that one arrived later: to read a long body takes its time.
        """
        if session is None:
            return
        replaced = RequestReplaced("a newer request of the same session took this one's place")
        other = self._newest.get((tenant, session))
        if other is not None and other.arrived > work.arrived:
            raise replaced
        if other is not None:
            other.stop(replaced)
        self._newest[tenant, session] = work
