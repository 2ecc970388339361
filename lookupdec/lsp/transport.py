"""How the server is reached: standard input and output, or one connection on this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from lookupdec.edit.editor import Editor
from lookupdec.errors import InputError
from lookupdec.lsp.server import LookupServer

_SECONDS_TO_SPEAK = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """A port of this machine; 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, value: str) -> Address:
        """Read ``HOST:PORT``. Raises ``InputError``: whoever connects reads what is open in the editor."""
        host, _, port = value.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise InputError(f"{value!r} is no address: give HOST:PORT, such as 127.0.0.1:7998")
        if host == "localhost":
            host = "127.0.0.1"
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise InputError(f"{host} is not of this machine alone: use 127.0.0.1, ::1 or localhost")
        return cls(host, int(port))


def serve(
    load: Callable[[], Editor], address: Address | None = None, *, max_new_tokens: int | None = None
) -> NoReturn:
    """Serve one editor until it leaves, and end the process: with 0 where it asked for that, else with 1.

    ``max_new_tokens`` is the longest answer, None for what suits the text: see ``Editor.edit``.

    Raises ``InputError`` where the address cannot be used.
    """
    # Messages go to the editor; a log on standard error would show tracebacks there.
    logging.getLogger().addHandler(logging.NullHandler())
    server = LookupServer(load, max_new_tokens=max_new_tokens)
    with _standard_streams() if address is None else _connection(address) as (reader, writer):
        with contextlib.suppress(OSError, ValueError):  # the connection broke while something was sent
            server.start_io(reader, writer)
        # A model that is loading and a thread that reads cannot be interrupted; nothing is left to be saved.
        os._exit(0 if server.has_shut_down else 1)


@contextlib.contextmanager
def _standard_streams() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Give the streams, and let what libraries print go to standard error."""
    with os.fdopen(os.dup(1), "wb") as writer:
        os.dup2(2, 1)
        yield sys.stdin.buffer, writer


@contextlib.contextmanager
def _connection(address: Address) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Wait for an editor. Others that knock, such as a page in a browser, are turned away."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{address.host}:{address.port} cannot be used: {reason}") from error
    with listener:
        sys.stderr.write(f"listening on {address.host}:{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        while True:
            connection, _ = listener.accept()
            if _speaks_the_protocol(connection):
                break
            connection.close()
    with connection, connection.makefile("rb") as reader, connection.makefile("wb") as writer:
        yield reader, writer


def _speaks_the_protocol(connection: socket.socket) -> bool:
    connection.settimeout(_SECONDS_TO_SPEAK)
    try:
        first = connection.recv(len(b"Content-"), socket.MSG_PEEK)
    except OSError:
        return False
    connection.settimeout(None)
    return bool(first) and b"Content-".startswith(first)
