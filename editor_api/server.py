"""The server around the application: start, signals, the order of stopping."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from editor_api.app import create_app
from editor_api.engine import Engine
from editor_api.settings import Settings

_HEADER_BYTES = 64 << 10  # what is beyond it is no HTTP any more; the limit that is told is lower
_LAST_WORDS = 5  # seconds for clients to read why their stream ends
_POLL_SECONDS = 0.1
_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A server that lets running requests end before it stops, and tells those that take too long."""

    def __init__(self, settings: Settings, engine: Engine | None = None) -> None:
        app = create_app(settings, engine)
        self._engine: Engine = app.state.service.engine
        self._drain_seconds = settings.drain_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http="h11",
                h11_max_incomplete_event_size=_HEADER_BYTES,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(settings.drain_seconds) + _LAST_WORDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and watch for a model that cannot be loaded."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for server in self.servers if self.started else ():
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                _log.info("listening", extra={"host": host, "port": port})
        self._watch = asyncio.ensure_future(self._stop_without_model())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no new requests, and give those that run some time; a second signal ends them at once."""
        if self.should_exit:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._engine.abort)
            return
        super().handle_exit(sig, frame)
        self._engine.drain()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_seconds, self._engine.abort)

    @property
    def failure(self) -> str:
        """Why nothing could be served, "" where that is not so."""
        if not self.started:
            return f"cannot listen at {self.config.host}:{self.config.port}: see the log"
        capacity = self._engine.capacity
        return capacity.failure if capacity.state == "failed" else ""

    async def _stop_without_model(self) -> None:
        while (state := self._engine.capacity.state) == "loading":
            await asyncio.sleep(_POLL_SECONDS)
        if state == "failed":
            self.should_exit = True
        elif state == "ready":
            _log.info("ready", extra={"model": self._engine.model_name})
