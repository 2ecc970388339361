"""What operators and clients ask about the service itself."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from editor_api.schemas import TokenizeRequest, joined
from editor_api.service import CallDep, Service
from editor_api.wire import JsonResponse

router = APIRouter(tags=["Service"])


@router.get("/health")
async def health(request: Request) -> Response:
    """Tell that the process serves, whether or not its model is ready."""
    return JsonResponse({"status": "ok", "model": _service(request).engine.capacity.state})


@router.get("/ready")
async def ready(request: Request) -> Response:
    """Tell whether requests are taken: 200, or 503 while the model loads and while the service stops."""
    state = _service(request).engine.capacity.state
    return JsonResponse({"status": state}, 200 if state == "ready" else 503)


@router.get("/metrics")
async def metrics(call: CallDep) -> Response:
    """Give the metrics as Prometheus reads them."""
    return Response(call.service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, call: CallDep) -> Response:
    """Give the token ids of a text, or of messages as the model reads them."""
    engine = call.service.engine
    if body.messages is not None:
        messages = [{"role": item.role, "content": joined(item.content)} for item in body.messages]
        ids = await asyncio.to_thread(engine.encode_prompt, messages)
    else:
        ids = await asyncio.to_thread(engine.encode_text, body.content or body.prompt or "")
    return JsonResponse({"tokens": ids, "count": len(ids), "context_length": engine.context_length})


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
