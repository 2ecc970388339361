"""OpenAI's endpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.applying import answer_change, change_in_chat
from editor_api.errors import bad_value
from editor_api.generation import planned
from editor_api.infill import Infill
from editor_api.replies import ChatShape, TextShape, answered
from editor_api.schemas import ChatRequest, CompletionRequest, joined
from editor_api.service import Call, CallDep
from editor_api.wire import JsonResponse

router = APIRouter(tags=["OpenAI"])


@router.post("/v1/chat/completions")
@router.post("/v1/apply/chat/completions", include_in_schema=False)
async def chat_completions(body: ChatRequest, call: CallDep) -> Response:
    """Go on with a conversation, streamed or not. One that is nothing but Morph's tags asks for an edit."""
    if body.forces_tool:
        raise bad_value(
            "tool_choice: tools are not called here, leave it out", "tool_choice", "unsupported_value"
        )
    if (change := change_in_chat(body)) is not None:
        return await answer_change(body, change, call)
    messages = [{"role": item.role, "content": joined(item.content)} for item in body.messages]
    generation = await planned(
        call,
        body,
        [messages],
        contents=[message["content"] for message in messages],
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        json_schema=body.json_schema,
        param="messages",
    )
    return await answered(call, body, generation, ChatShape())


@router.post("/v1/completions")
async def completions(body: CompletionRequest, call: CallDep) -> Response:
    """Continue texts, streamed or not."""
    generation = await planned(
        call,
        body,
        _with_suffix(body),
        contents=[prompt for prompt in body.prompts if isinstance(prompt, str)],
        logprobs=body.logprobs,
        param="suffix" if body.suffix else "prompt",
    )
    return await answered(call, body, generation, TextShape(_echoes(body, call)))


@router.get("/v1/models")
async def models(call: CallDep) -> Response:
    """List the model by its names."""
    return JsonResponse({"object": "list", "data": [_model(call, name) for name in call.service.model_names]})


@router.get("/v1/models/{name:path}")
async def model(name: str, call: CallDep) -> Response:
    """Describe the model, by whichever name."""
    call.check_model(name)
    return JsonResponse(_model(call, name))


def _with_suffix(body: CompletionRequest) -> list[str | list[int] | Infill]:
    """Return the prompts, as gaps where a suffix is given. Raises ``ApiError``."""
    if not body.suffix:
        return [*body.prompts]
    texts = [prompt for prompt in body.prompts if isinstance(prompt, str)]
    if len(texts) < len(body.prompts):
        raise bad_value("suffix: give the prompt as text, not as token ids", "suffix")
    return [Infill(prefix=text, suffix=body.suffix) for text in texts]


def _echoes(body: CompletionRequest, call: Call) -> list[str]:
    """Return what every answer repeats. Raises ``ApiError``."""
    if not body.echo:
        return []
    if body.logprobs is not None:
        raise bad_value(
            "echo: log-probabilities are those of the answer alone, leave one of the two out",
            "echo",
            "unsupported_value",
        )
    decode = call.service.engine.decode
    texts = [prompt if isinstance(prompt, str) else decode(prompt) for prompt in body.prompts]
    return [text for text in texts for _ in range(body.n or 1)]


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
