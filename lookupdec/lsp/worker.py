"""One thread that loads the model and generates, so that the server can listen meanwhile. Knows no protocol."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from lookupdec.edit.editor import Editor

Answer = TypeVar("Answer")


class Stopped(Exception):
    """Raised inside a generation to end it."""


class Job:
    """A request under way. ``reason`` says why it was stopped, None while it goes on.

    ``needs_same_text`` is whether it is in vain once the document changes, ``is_final`` whether its edit is with
    the editor already.
    """

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self._stopped = threading.Event()
        self.reason: str | None = None
        self.needs_same_text = True
        self.is_final = False

    def stop(self, reason: str) -> bool:
        """End the request, its generation within one pass, and return whether there was something to end."""
        if self.reason is not None or self.is_final:
            return False
        self.reason = reason
        self._task.cancel()
        self.abandon()
        return True

    def abandon(self) -> None:
        """End the generation alone."""
        self._stopped.set()

    def check(self) -> None:
        """Raise ``Stopped`` where the request has ended. Called by the generating thread, once a pass."""
        if self._stopped.is_set():
            raise Stopped


class Worker:
    """Runs one thing after the other; the model is loaded before the first."""

    def __init__(self, load: Callable[[], Editor]) -> None:
        self._load = load
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="generate")
        self._loading: Future[Editor] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded."""
        loading = self._loading
        return loading is not None and loading.done() and loading.exception() is None

    def load(self) -> Future[Editor]:
        """Begin to load the model, again where that has failed before."""
        failed = self._loading is not None and self._loading.done() and not self.is_ready
        if self._loading is None or failed:
            self._loading = self._executor.submit(self._load)
        return self._loading

    async def run(self, work: Callable[[Editor], Answer]) -> Answer:
        """Return what ``work`` gives, after all that was asked for before. Raises what it raises."""
        loading = self.load()
        return await asyncio.wrap_future(self._executor.submit(lambda: work(loading.result())))

    def close(self) -> None:
        """Begin nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)
