"""OpenAI's endpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.errors import bad_value
from editor_api.generation import planned
from editor_api.replies import ChatShape, TextShape, reply_events, whole_reply
from editor_api.schemas import ChatRequest, CompletionRequest, joined
from editor_api.service import CallDep
from editor_api.wire import JsonResponse, streamed, whole

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatRequest, call: CallDep) -> Response:
    """Go on with a conversation, streamed or not."""
    messages = [{"role": item.role, "content": joined(item.content)} for item in body.messages]
    generation = await planned(
        call,
        body,
        [messages],
        contents=[message["content"] for message in messages],
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        json_schema=body.response_format.schema_text if body.response_format else None,
        param="messages",
    )
    if not body.stream:
        return await whole(call.http, whole_reply(call, generation, body.session, ChatShape()))
    usage = bool(body.stream_options and body.stream_options.include_usage)
    events = reply_events(call, generation, body.session, ChatShape(), include_usage=usage)
    return await streamed(call.http, events, call.service.settings.keepalive_seconds)


@router.post("/v1/completions")
async def completions(body: CompletionRequest, call: CallDep) -> Response:
    """Continue texts, streamed or not."""
    if body.suffix:
        raise bad_value("suffix: filling in the middle is not supported", "suffix", "unsupported_value")
    if body.echo:
        raise bad_value(
            "echo: prompts are not repeated, put them before the answer", "echo", "unsupported_value"
        )
    generation = await planned(
        call,
        body,
        body.prompts,
        contents=[prompt for prompt in body.prompts if isinstance(prompt, str)],
        logprobs=body.logprobs,
        param="prompt",
    )
    if not body.stream:
        return await whole(call.http, whole_reply(call, generation, body.session, TextShape()))
    usage = bool(body.stream_options and body.stream_options.include_usage)
    events = reply_events(call, generation, body.session, TextShape(), include_usage=usage)
    return await streamed(call.http, events, call.service.settings.keepalive_seconds)


@router.get("/v1/models")
async def models(call: CallDep) -> Response:
    """List the model by its names."""
    return JsonResponse({"object": "list", "data": [_model(call, name) for name in call.service.model_names]})


@router.get("/v1/models/{name:path}")
async def model(name: str, call: CallDep) -> Response:
    """Describe the model, by whichever name."""
    call.check_model(name)
    return JsonResponse(_model(call, name))


def _model(call: CallDep, name: str) -> dict[str, Any]:
    context = call.service.engine.context_length
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "lookupdec",
        "context_length": context,
        "max_model_len": context,
    }
