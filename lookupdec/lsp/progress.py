"""Work-done progress: what the editor shows while a request runs, and its cancel button."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from lookupdec.edit.engine import Chunk
from lookupdec.stats import Stats

_SECONDS_BETWEEN = 0.1


class Progress:
    """One progress bar. ``token`` is the editor's, None where the server asks for one of its own."""

    def __init__(self, server: LanguageServer, token: types.ProgressToken | None = None) -> None:
        self._server = server
        self._token = token
        self._is_shown = False

    async def begin(self, title: str, message: str, *, on_cancel: Callable[[], object] | None = None) -> None:
        """Show the bar, where the editor has one."""
        if self._token is None and not await self._create():
            return
        assert self._token is not None
        begin = types.WorkDoneProgressBegin(
            title=title, message=message, cancellable=on_cancel is not None, percentage=0
        )
        self._server.work_done_progress.begin(self._token, begin)
        self._is_shown = True
        if on_cancel is not None:
            self._server.work_done_progress.tokens[self._token].add_done_callback(_if_cancelled(on_cancel))

    def report(self, message: str, percentage: int) -> None:
        """Show how far it is. Called in the server's own thread."""
        if self._is_shown and self._token is not None:
            report = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._server.work_done_progress.report(self._token, report)

    def end(self, message: str) -> None:
        """Take the bar away. The second time, nothing happens."""
        if self._is_shown and self._token is not None:
            self._is_shown = False
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd(message=message))
            self._server.work_done_progress.tokens.pop(self._token, None)

    async def _create(self) -> bool:
        window = self._server.client_capabilities.window
        if window is None or not window.work_done_progress:
            return False
        token = str(uuid.uuid4())
        try:
            await asyncio.shield(self._server.work_done_progress.create_async(token))
        except JsonRpcException:  # the editor may refuse
            return False
        self._token = token
        return True


class Meter:
    """Called with every chunk of an answer, in the generating thread; reports ten times a second."""

    def __init__(self, progress: Progress, expected: int) -> None:
        self._progress = progress
        self._expected = max(1, expected)
        self._loop = asyncio.get_running_loop()
        self._written = 0
        self._last = 0.0

    def __call__(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self._written += len(chunk.text)
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        percentage = min(99, 100 * self._written // self._expected)
        self._loop.call_soon_threadsafe(self._progress.report, figures(chunk.stats), percentage)


def figures(stats: Stats) -> str:
    """Return the speed of a generation in words."""
    rate = f", {stats.tokens_per_second:.0f} tokens/s" if stats.seconds else ""
    return f"{stats.tokens} tokens{rate}, {stats.tokens_per_pass:.1f} tokens per pass"


def _if_cancelled(on_cancel: Callable[[], object]) -> Callable[[Future[Any]], None]:
    def done(future: Future[Any]) -> None:
        if future.cancelled():
            on_cancel()

    return done
