"""The service on a loopback port, and raw bytes to and from it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from editor_api.embedded import EmbeddedEngine
from editor_api.engine import Engine
from editor_api.server import Server
from editor_api.settings import Settings
from editor_api.wire import KEEPALIVE
from lookupdec.hf import LanguageModel
from tests.api.fakes import FakeEngine

PATIENCE = 300.0  # seconds: a slow machine may compile kernels first


@dataclass
class Served:
    """A running service."""

    client: httpx2.Client
    server: Server
    port: int

    def chat(self, content: Any = "hi", **fields: Any) -> httpx2.Response:
        messages = [{"role": "user", "content": content}]
        return self.client.post("/v1/chat/completions", json={"messages": messages, **fields})

    def raw(
        self, body: bytes, path: str = "/v1/chat/completions", *, headers: str = ""
    ) -> tuple[bytes, bytes]:
        """Return head and body of an answer as they came, chunks joined."""
        with self.sent(body, path, headers=headers) as connection:
            return _parted(b"".join(_received(connection)))

    @contextmanager
    def sent(
        self, body: bytes, path: str = "/v1/chat/completions", *, headers: str = ""
    ) -> Iterator[socket.socket]:
        """Send a request and give the connection; leaving closes it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            head = (
                f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
            )
            connection.sendall(f"{head}{headers}content-length: {len(body)}\r\n\r\n".encode() + body)
            yield connection


@contextmanager
def serving(engine: Engine | None, **settings: Any) -> Iterator[Served]:
    """Serve with an engine until left."""
    server = Server(Settings(port=0, **settings), engine)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            yield Served(client, server, port)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def embedding(model: LanguageModel, **settings: Any) -> Iterator[Served]:
    """Serve with a model in this process until left."""
    engine = EmbeddedEngine(lambda: model)
    with serving(engine, **settings) as served:
        until(lambda: engine.capacity.state == "ready")
        yield served


def stream_kept_alive(fake: FakeEngine, request: bytes) -> bytes:
    """Return a stream that begins with at least two keep-alives: so long the engine waits."""
    fake.pause_after = 0
    received = b""
    with serving(fake, keepalive_seconds=0.05) as served, served.sent(request) as connection:
        for part in _received(connection):
            received += part
            if received.count(KEEPALIVE) >= 2:
                fake.jobs[0].pause_after = None
    return _parted(received)[1]


def until(condition: Callable[[], object]) -> None:
    """Wait for something to become true."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.005)


def chat_body(content: str = "hi", **fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}], **fields}).encode()


def events(body: bytes) -> list[Any]:
    """Return the events of a stream, strictly read: nothing but single data lines, the last of them [DONE]."""
    frames = body.replace(KEEPALIVE, b"").split(b"\n\n")
    assert frames[-2:] == [b"data: [DONE]", b""]
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames[:-1])
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-2]]


def _received(connection: socket.socket) -> Iterator[bytes]:
    return iter(lambda: connection.recv(65536), b"")


def _parted(answer: bytes) -> tuple[bytes, bytes]:
    head, _, rest = answer.partition(b"\r\n\r\n")
    return head, _dechunked(rest) if b"chunked" in head.lower() else rest


def _dechunked(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        parts.append(data[:length])
        data = data[length + 2 :]
    return b"".join(parts)
