"""The page for people, and the description of the endpoints: files of this package, nothing from elsewhere."""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES = Path(__file__).parents[1] / "static"
router = APIRouter(include_in_schema=False)

_HEADERS = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_METHODS = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NONCE = "{{nonce}}"  # in the page: under it, the editor may add its styles


class StaticPages(StaticFiles):
    """The page's files. Browsers ask each time whether they have changed, so that none outlives an upgrade."""

    def __init__(self) -> None:
        super().__init__(directory=FILES)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file. Raises ``HTTPException``."""
        if scope["method"] not in _METHODS:
            raise HTTPException(405, headers={"Allow": ", ".join(_METHODS)})
        return await super().get_response(path, scope)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return a file, or that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


@router.get("/")
async def page() -> Response:
    """Give the page."""
    nonce = secrets.token_urlsafe(16)
    policy = {"content-security-policy": _POLICY.format(nonce=nonce)}
    return HTMLResponse(_page().replace(_NONCE, nonce), headers=_HEADERS | policy)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Describe the endpoints."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title=request.app.title,
        swagger_js_url="static/vendor/swagger-ui-bundle.js",
        swagger_css_url="static/vendor/swagger-ui.css",
        swagger_favicon_url="static/icon.svg",
        swagger_ui_parameters={"validatorUrl": None},  # else a description is sent to another server
    )


@cache
def _page() -> str:
    return (FILES / "index.html").read_text(encoding="utf-8")
