"""Errors as OpenAI's API writes them. Every way to fail ends here, so that clients meet one shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from editor_api.engine import EngineBusy, EngineError, EngineUnavailable, RequestReplaced, RequestTimedOut
from lookupdec.errors import ContextFullError, InputError, LookupDecError

_CODES = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}
_NO_FIELDS = ("body", "str", "int", "float", "bool")  # pydantic names the kinds of a union like fields
_RETRY_SECONDS = 5
_LONGEST_ECHO = 200
_NO_OBJECT = "the body must be a JSON object, sent as application/json"
_EMPTY = "the body is empty: send a JSON object, as application/json"
_NOT_READ = "the body is no JSON: it must be UTF-8, and not nested thousands of times"


class ApiError(Exception):
    """An answer that is an error. ``retry`` tells OpenAI's SDKs whether to try again; None leaves it to them."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry: bool | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers: dict[str, str] = {}
        if retry is not None:
            self.headers["x-should-retry"] = "true" if retry else "false"
        if retry_after is not None:
            self.headers["retry-after"] = str(retry_after)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object that tells it."""
        return {
            "error": {"message": self.message, "type": self._type, "param": self.param, "code": self.code}
        }

    @property
    def _type(self) -> str:
        names = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        return names.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")


def context_exceeded(prompt_tokens: int, most: int) -> ApiError:
    """Return the error for a prompt that leaves no room for an answer."""
    message = (
        f"the prompt has {prompt_tokens} tokens, but at most {most} leave room for an answer: shorten it"
    )
    return ApiError(400, message, "context_length_exceeded", param="messages")


def bad_value(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """Return the error for a request that cannot be carried out as given."""
    return ApiError(400, message, code, param=param)


def no_route(error: HTTPException, method: str, path: str) -> ApiError:
    """Return the error for a path that does not exist (404) or does not take a method (405)."""
    shown = path.encode("ascii", "backslashreplace").decode()[:_LONGEST_ECHO]
    what = f"there is nothing at {shown}" if error.status_code == 404 else f"{shown} does not take {method}"
    told = ApiError(error.status_code, f"{what}: /docs shows what there is", _CODES[error.status_code])
    told.headers |= error.headers or {}
    return told


def as_api_error(error: Exception) -> ApiError:
    """Return how a failure is told. What nobody foresaw is told without its details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        if error.status_code == 400:  # FastAPI's, where reading the body failed otherwise than by its grammar
            return bad_value(_NOT_READ, code="invalid_json")
        code = _CODES.get(error.status_code, "invalid_request")
        told = ApiError(error.status_code, str(error.detail), code)
        told.headers |= error.headers or {}
        return told
    if isinstance(error, EngineError):
        return _of_engine(error)
    if isinstance(error, ContextFullError):
        return bad_value(str(error), code="context_length_exceeded")
    if isinstance(error, InputError):
        return bad_value(str(error))
    if isinstance(error, LookupDecError):
        return ApiError(500, str(error), "model_error", retry=False)
    # Repeating a request that took minutes to fail helps nobody.
    return ApiError(500, "something went wrong: see the service's log", "internal_error", retry=False)


def _of_engine(error: EngineError) -> ApiError:
    message = str(error)
    if isinstance(error, EngineBusy):
        return ApiError(429, message, "queue_full", retry_after=error.retry_after)
    if isinstance(error, EngineUnavailable):
        return ApiError(503, message, "unavailable", retry_after=_RETRY_SECONDS)
    if isinstance(error, RequestReplaced):
        return ApiError(409, message, "request_replaced", retry=False)
    if isinstance(error, RequestTimedOut):
        return ApiError(408, message, "deadline_exceeded", retry=False)
    return ApiError(499, message, "request_cancelled", retry=False)


def _invalid(error: RequestValidationError) -> ApiError:
    first: Mapping[str, Any] = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in _NO_FIELDS and "[" not in str(part)]
    if first["type"] == "json_invalid":
        return bad_value(f"the body is no JSON: {first.get('ctx', {}).get('error', '')}", code="invalid_json")
    if first["loc"] == ("body",) and first["type"] == "missing":
        return bad_value(_EMPTY, code="invalid_json")
    name = ".".join(place)
    told = str(first["msg"]).removeprefix("Value error, ")
    message = f"{name}: {told}" if name else _NO_OBJECT
    # A name may be anything that was sent; UTF-8 has no lone surrogates.
    return ApiError(422, message[:_LONGEST_ECHO], "invalid_value", param=name[:_LONGEST_ECHO] or None)
