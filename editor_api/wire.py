"""Bytes on the wire: JSON bodies and server-sent events, as strictly as the strictest client reads them.

JSON is ASCII on one line: no character in it can end a line, split a UTF-8 sequence or fail to be encoded. Events
have no id, name or retry time, for those break parsers. The keep-alive comment ends with one newline: a second
would end an event that is empty.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from editor_api.engine import EngineError
from editor_api.errors import ApiError, as_api_error
from lookupdec import LookupDecError

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n"
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_log = logging.getLogger(__name__)
T = TypeVar("T")


def compact(value: object) -> bytes:
    """Return JSON on one line of ASCII."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def event(value: object) -> bytes:
    """Return one server-sent event."""
    return b"data: " + compact(value) + b"\n\n"


class JsonResponse(Response):
    """A whole answer."""

    media_type = "application/json"

    def __init__(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(compact(value), status, headers)


def error_response(error: Exception) -> JsonResponse:
    """Return the answer that tells an error."""
    told = as_api_error(error)
    return JsonResponse(told.body, told.status, told.headers)


class ClientGone(Exception):
    """The client closed its connection: nobody waits for the answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or cancel it and raise ``ClientGone`` when the client closes first."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def whole(request: HttpRequest, work: Coroutine[Any, Any, object]) -> Response:
    """Answer with what ``work`` returns; it stops when the client goes."""
    try:
        return JsonResponse(await unless_gone(request.receive, work))
    except ClientGone:
        return Response(status_code=499)


async def streamed(request: HttpRequest, events: AsyncGenerator[bytes, None], keepalive: float) -> Response:
    """Answer with events; they stop when the client goes.

    The headers wait for the first event or the first keep-alive, whichever comes first, so that what is wrong
    with a request is told by the HTTP status.
    """
    paced = _paced(events, keepalive)
    try:
        first = await unless_gone(request.receive, _first(paced))
    except ClientGone:
        await paced.aclose()
        return Response(status_code=499)
    except BaseException:
        await paced.aclose()
        raise
    return _EventResponse(first, paced)


async def _first(events: AsyncIterator[bytes]) -> bytes:
    return await anext(events)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _paced(events: AsyncGenerator[bytes, None], seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the events, and a keep-alive whenever none came for some time."""
    upcoming = asyncio.ensure_future(_first(events))
    try:
        while True:
            await asyncio.wait({upcoming}, timeout=seconds)
            if not upcoming.done():
                yield KEEPALIVE
                continue
            try:
                item = upcoming.result()
            except StopAsyncIteration:
                return
            yield item
            upcoming = asyncio.ensure_future(_first(events))
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await events.aclose()


class _EventResponse(Response):
    """The events of a stream that has begun."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        async with aclosing(self._rest):
            try:
                await unless_gone(receive, self._send_all(send))
            except ClientGone:
                _log.debug("the client closed a stream")

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await _send(send, self._first)
            async for item in self._rest:
                await _send(send, item)
        except Exception as error:  # whatever it is: a stream without an end is worse
            if not isinstance(error, ApiError | EngineError | LookupDecError):
                _log.exception("a stream failed")
            await _send(send, event(as_api_error(error).body) + DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
