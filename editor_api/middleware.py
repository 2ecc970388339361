"""What happens to every request before a route sees it: id, log, path, key, body. Knows no endpoint."""

from __future__ import annotations

import logging
import re
import uuid
from time import monotonic

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editor_api.auth import ApiKeys
from editor_api.errors import ApiError
from editor_api.logs import request_id
from editor_api.metrics import Metrics
from editor_api.settings import ANY_ORIGIN
from editor_api.wire import error_response

LOCAL_ORIGINS = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
PUBLIC = frozenset({"/", "/health", "/ready", "/docs", "/openapi.json"})
"""Paths that need no key, besides the page's own files."""

STATIC = "/static/"

_UNVERSIONED = PUBLIC | {"/metrics", "/props", "/apply-template", "/tokenize", "/detokenize", "/infill"}
_VERSIONED = frozenset(
    {"/chat/completions", "/completions", "/edits", "/models"}
    | {
        "/fim/completions",
        "/code/apply",
        "/apply/completions",
        "/apply/chat/completions",
        "/edit/completions",
    }
)
_PROBES = frozenset({"/health", "/ready", "/metrics"})
_SLASHES = re.compile("/{2,}")
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_HEADER_BYTES = 32 << 10
_DRAINED = 4  # bodies are read up to this many times the limit, so that the client gets to read the answer
_log = logging.getLogger(__name__)


class Observe:
    """Gives every request an id, logs and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent_id = Headers(scope=scope).get("x-request-id", "")
        identity = sent_id if _ID.fullmatch(sent_id) else uuid.uuid4().hex
        token = request_id.set(identity)
        state = scope.setdefault("state", {})
        state["request_id"] = identity
        state["arrived"] = began = monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = identity
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            seconds = monotonic() - began
            self._metrics.saw_request(scope, status, seconds)
            fields = {"method": scope["method"], "path": scope["path"], "status": status}
            fields |= {"seconds": round(seconds, 4), "tenant": state.get("tenant")}
            # Probes come every few seconds, the page's files by the dozen, and neither tells anything.
            is_noise = scope["path"] in _PROBES or scope["path"].startswith(STATIC)
            _log.log(logging.DEBUG if is_noise else logging.INFO, "request", extra=fields)
            request_id.reset(token)


class Failures:
    """Tells what nobody foresaw as an error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or tell that it failed."""
        has_begun = False

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            _log.exception("a request failed")
            if not has_begun:
                await error_response(error)(scope, receive, send)


class Paths:
    """Takes the spellings of a path that clients build from their base address.

    Without /v1, with a final slash, with two slashes where there should be one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request under the path that a route has."""
        if scope["type"] == "http":
            path = _SLASHES.sub("/", scope["path"]).rstrip("/") or "/"
            if path in _VERSIONED or path.startswith("/models/"):
                path = "/v1" + path
            elif path.startswith("/v1/") and path.removeprefix("/v1") in _UNVERSIONED:
                path = path.removeprefix("/v1")
            # In place: whoever counts the request looks here for its route afterwards.
            scope["path"], scope["raw_path"] = path, path.encode("utf-8", "surrogatepass")
        await self._app(scope, receive, send)


class Guard:
    """Lets in who has a key, and no web page from elsewhere."""

    def __init__(self, app: ASGIApp, keys: ApiKeys, origins: list[str]) -> None:
        self._app = app
        self._keys = keys
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PUBLIC or scope["path"].startswith(STATIC):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            _check_size(headers)
            self._check_origin(headers)
            scope["state"]["tenant"] = self._keys.tenant(headers)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_origin(self, headers: Headers) -> None:
        # CORS keeps a page from reading answers, not from asking: that alone would cost an open service time.
        origin = headers.get("origin")
        if origin is None or {origin, ANY_ORIGIN} & self._origins or re.fullmatch(LOCAL_ORIGINS, origin):
            return
        # The service's own page, by whatever name it was reached. Without keys that name proves nothing: any name
        # can be made to lead to this computer.
        if self._keys.are_needed and origin.partition("://")[2] == headers.get("host"):
            return
        raise ApiError(403, "web pages of this origin may not call: see --cors-origins", "origin_not_allowed")


def _check_size(headers: Headers) -> None:
    if sum(len(name) + len(value) for name, value in headers.raw) > _HEADER_BYTES:
        raise ApiError(431, f"the headers have more than {_HEADER_BYTES} bytes", "headers_too_large")


class Bodies:
    """Reads request bodies up to a limit, before anything is done with them."""

    def __init__(self, app: ASGIApp, limit: int, *, log: bool = False) -> None:
        self._app = app
        self._limit = limit
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is not too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= self._limit * _DRAINED:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body = message.get("body", b"")
            size += len(body)
            more = message.get("more_body", False)
            if size <= self._limit:
                parts.append(body)
        if size > self._limit:
            text = f"the body has more than the {self._limit} bytes that are taken: send less"
            await error_response(ApiError(413, text, "request_too_large"))(scope, receive, send)
            return
        whole = b"".join(parts)
        if self._log and whole:
            _log.info("body", extra={"body": whole.decode("utf-8", "replace")})
        await self._app(scope, _replay(whole, receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body first, then what comes after it: the client's leaving."""
    unread = True

    async def replayed() -> Message:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed
