"""The application: parts put together. Loads nothing until it is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from editor_api.auth import ApiKeys
from editor_api.embedded import EmbeddedEngine
from editor_api.engine import Engine, EngineError
from editor_api.errors import ApiError, no_route
from editor_api.metrics import Metrics
from editor_api.middleware import LOCAL_ORIGINS, Bodies, Failures, Guard, Observe, Paths
from editor_api.routes import applying, edits, filling, llama, openai, page, service
from editor_api.service import Service
from editor_api.settings import Settings
from editor_api.wire import error_response
from editor_api.work import Sessions
from lookupdec import LookupDecError
from lookupdec.installed import own_version
from lookupdec.phrases import read_phrases

if TYPE_CHECKING:
    from lookupdec.hf import LanguageModel

DESCRIPTION = (
    "Edits and OpenAI's endpoints over lookup decoding. Errors have OpenAI's shape, and so have streams."
)
_TOLD = (ApiError, EngineError, LookupDecError, HTTPException, RequestValidationError)


def create_app(settings: Settings, engine: Engine | None = None) -> FastAPI:
    """Return the service; without an engine it gets the embedded one. Raises ``ValueError`` for a bad key file.

    Raises ``FileError`` for a file of phrases that cannot be used.
    """
    engine = embedded_engine(settings) if engine is None else engine
    metrics = Metrics(engine)
    app = FastAPI(
        title="lookupdec",
        version=own_version(),
        description=DESCRIPTION,
        docs_url=None,  # page serves it without an outside resource
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(Observe, metrics=metrics),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_origin_regex=LOCAL_ORIGINS,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],  # answered with the list that was asked for
                expose_headers=["x-request-id", "retry-after"],
            ),
            Middleware(Failures),  # inside of CORS: pages may read these errors, too
            Middleware(Paths),
            Middleware(Guard, keys=ApiKeys.read(settings.api_keys_file), origins=settings.cors_origins),
            Middleware(Bodies, limit=settings.max_body_bytes, log=settings.log_bodies),
        ],
    )
    app.state.service = Service(settings, engine, metrics, Sessions())
    for kind in _TOLD:
        app.add_exception_handler(kind, _tell)
    for module in (openai, edits, applying, filling, llama, service, page):
        _answer_head(app, module.router)
        app.include_router(module.router)
    app.mount("/static", page.StaticPages())
    return app


def _answer_head(app: FastAPI, router: APIRouter) -> None:
    """Add the routes for GET to those that answer HEAD as well, which would be described twice otherwise."""
    for route in router.routes:
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            app.add_api_route(route.path, route.endpoint, methods=["GET", "HEAD"], include_in_schema=False)


def embedded_engine(settings: Settings) -> EmbeddedEngine:
    """Return the engine that a service has by default; nothing is loaded yet."""

    def load_model() -> LanguageModel:
        # Not before it is needed: with it comes torch.
        from lookupdec.hf import load

        return load(settings.model, dtype=settings.dtype, device=settings.device, exact=settings.exact)

    return EmbeddedEngine(
        load_model,
        max_running=settings.max_running,
        max_queued=settings.max_queued,
        kv_bytes=settings.kv_megabytes << 20,
        cache_bytes=settings.cache_megabytes << 20,
        prefix_bytes=settings.prefix_megabytes << 20,
        phrases=[] if settings.phrases is None else read_phrases(settings.phrases),
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    engine: Engine = app.state.service.engine
    engine.start()
    yield
    await asyncio.to_thread(engine.stop)


async def _tell(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        error = no_route(error, request.method, request.scope["path"])
    return error_response(error)
