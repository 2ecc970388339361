"""``/v1/edits``: a text and an instruction in, the new text and the edits that lead to it out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.editing import edit_usage, edited
from editor_api.engine import Piece
from editor_api.replies import timings
from editor_api.schemas import EditRequest
from editor_api.service import Call, CallDep
from editor_api.wire import DONE, event, streamed, whole
from lookupdec.edit import EditResult

router = APIRouter(tags=["Edits"])


@router.post("/v1/edits")
async def edits(body: EditRequest, call: CallDep) -> Response:
    """Change a text as an instruction says, and keep the rest of it to the byte."""
    call.check_model(body.model)
    if body.stream:
        return await streamed(call.http, _events(body, call), call.service.settings.keepalive_seconds)
    return await whole(call.http, _whole(body, call))


async def _whole(body: EditRequest, call: Call) -> dict[str, Any]:
    async with aclosing(edited(body, call)) as parts:
        async for part in parts:
            if isinstance(part, EditResult):
                return _told(body, call, part)
    raise AssertionError("an edit ends with its result")


async def _events(body: EditRequest, call: Call) -> AsyncGenerator[bytes, None]:
    head = {"id": _identity(call), "object": "edit.chunk", "created": call.created}
    with_sources = body.stream_options is not None and body.stream_options.include_sources
    async with aclosing(edited(body, call)) as parts:
        async for part in parts:
            if isinstance(part, EditResult):
                yield event(_told(body, call, part))
            elif with_sources:
                yield event({**head, "delta": {"text": part.text, **_sources(part)}})
            elif part.text:
                yield event({**head, "delta": {"text": part.text}})
    yield DONE


def _sources(piece: Piece) -> dict[str, Any]:
    """Return what one pass drafted, and its text in spans of tokens from one source.

    A token of the model's own has the source "model". What is held back has tokens but no text yet.
    """
    step = piece.step
    spans: list[dict[str, Any]] = []
    for position, text in enumerate(piece.pieces):
        source = step.sources[position] if position < step.accepted else "model"
        if not spans or spans[-1]["source"] != source:
            spans.append({"source": source, "text": "", "tokens": 0})
        spans[-1]["text"] += text
        spans[-1]["tokens"] += 1
    return {"spans": spans, "draft_n": step.drafted, "draft_n_accepted": step.accepted}


def _told(body: EditRequest, call: Call, result: EditResult) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "text": result.text,
        "edits": [edit.as_lsp() for edit in result.edits],
        "diff": result.diff,
    }
    return {
        "id": _identity(call),
        "object": "edit",
        "created": call.created,
        "model": call.service.engine.model_name,
        **{name: value for name, value in fields.items() if name in body.wanted},
        "changed": result.changed,
        "complete": result.complete,
        "warnings": list(result.warnings),
        "base_sha256": result.base_sha256,
        "position_encoding": body.position_encoding,
        "usage": edit_usage(result),
        "timings": timings([result.stats]),
    }


def _identity(call: Call) -> str:
    return f"edit-{call.identity}"
