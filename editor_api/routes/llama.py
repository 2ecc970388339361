"""What llama.cpp's clients ask before they generate: properties, templates and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.engine import USUAL_CONTEXT, Engine
from editor_api.errors import bad_value
from editor_api.llama_schemas import DetokenizeRequest, TemplateRequest, TokenizeRequest
from editor_api.prompting import read
from editor_api.schemas import ChatMessage, joined
from editor_api.service import Call, CallDep
from editor_api.wire import JsonResponse

_CONTEXTS_IN_PIECES = 4  # a text that is so many times too long has been told to be so

router = APIRouter(tags=["Like llama.cpp"])


@router.get("/props")
async def props(call: CallDep, model: str | None = None) -> Response:
    """Tell what the model is and what a request gets that says nothing."""
    call.check_model(model)
    engine, settings = call.service.engine, call.service.settings
    context = engine.context_length
    defaults = {"n_predict": -1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "stream": False}
    return JsonResponse(
        {
            "default_generation_settings": {"n_ctx": context, "params": defaults},
            "n_ctx": context,
            "total_slots": settings.max_running,
            "model_alias": engine.model_name,
            "model_path": engine.model_name,
            "chat_template": engine.chat_template or "",
            "modalities": {"vision": False, "audio": False},
            "build_info": "lookupdec",
        }
    )


@router.post("/apply-template")
async def apply_template(body: TemplateRequest, call: CallDep) -> Response:
    """Write messages as the model reads them."""

    def written() -> str:
        return call.service.engine.decode(_read(call, body.messages))

    return JsonResponse({"prompt": await asyncio.to_thread(written)})


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, call: CallDep) -> Response:
    """Give the token ids of a text, or of messages as the model reads them."""
    engine = call.service.engine
    if body.messages is not None:
        ids = await asyncio.to_thread(_read, call, body.messages)
    else:
        text = body.content or body.prompt or ""
        encode = engine.encode_prompt if body.add_special and text else engine.encode_text
        ids = await asyncio.to_thread(encode, text)
    tokens: Sequence[object] = ids
    if body.with_pieces:
        most = _CONTEXTS_IN_PIECES * (engine.context_length or USUAL_CONTEXT)
        if len(ids) > most:
            raise bad_value(f"with_pieces: at most {most} tokens, not {len(ids)}: send less", "with_pieces")
        tokens = await asyncio.to_thread(_with_pieces, engine, ids)
    return JsonResponse({"tokens": tokens, "count": len(ids), "context_length": engine.context_length})


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, call: CallDep) -> Response:
    """Give the text of tokens."""
    engine = call.service.engine

    def content() -> str:
        return engine.decode(engine.encode_prompt(body.tokens)) if body.tokens else ""

    return JsonResponse({"content": await asyncio.to_thread(content)})


def _with_pieces(engine: Engine, ids: Sequence[int]) -> list[dict[str, object]]:
    return [{"id": token, "piece": engine.decode([token])} for token in ids]


def _read(call: Call, messages: Sequence[ChatMessage]) -> list[int]:
    return read(
        call.service.engine, [{"role": item.role, "content": joined(item.content)} for item in messages]
    ).ids
