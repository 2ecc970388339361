"""Gaps in texts: Mistral's endpoint, which Continue calls, and llama.cpp's."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.filling import Gap, filling_events, whole_filling
from editor_api.generation import planned
from editor_api.infill import Infill
from editor_api.infill_schemas import FimRequest, InfillRequest
from editor_api.replies import ChatShape, answered
from editor_api.service import CallDep
from editor_api.wire import streamed, whole

router = APIRouter(tags=["Filling gaps"])


@router.post("/v1/fim/completions")
async def fim_completions(body: FimRequest, call: CallDep) -> Response:
    """Fill the gap between a prompt and a suffix; answered like a chat."""
    infill = Infill(prefix=body.prompt, suffix=body.suffix or "")
    generation = await planned(call, body, [infill], contents=[], logprobs=None, param="prompt")
    return await answered(call, body, generation, ChatShape())


@router.post("/infill")
async def infill(body: InfillRequest, call: CallDep) -> Response:
    """Fill the gap at the cursor, as llama.cpp's clients ask for it."""
    gap = await Gap.planned(body, call)
    if not body.stream:
        return await whole(call.http, whole_filling(gap, call))
    return await streamed(call.http, filling_events(gap, call), call.service.settings.keepalive_seconds)
