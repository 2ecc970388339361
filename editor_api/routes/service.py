"""What operators and clients ask about the service itself."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

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


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
