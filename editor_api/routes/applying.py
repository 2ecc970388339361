"""Snippets merged into texts, and next edits: the endpoints of Relace and Mercury."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from editor_api.apply_schemas import ApplyRequest
from editor_api.applying import answer_change, marked_change, relace_events, relace_reply, tagged_change
from editor_api.errors import bad_value
from editor_api.routes.openai import chat_completions
from editor_api.schemas import ChatMessage, ChatRequest, joined
from editor_api.service import CallDep
from editor_api.wire import streamed, whole

router = APIRouter(tags=["Applying edits"])

_NEXT_EDIT = (
    "You predict a programmer's next edit. Rewrite the code between <|code_to_edit|> and <|/code_to_edit|> as it "
    "will be after that edit. Answer with this code alone, in a code block, without the marks."
)


@router.post("/v1/code/apply")
async def code_apply(body: ApplyRequest, call: CallDep) -> Response:
    """Merge a snippet into a text, as Relace does."""
    if not body.stream:
        return await whole(call.http, relace_reply(body, call))
    return await streamed(call.http, relace_events(body, call), call.service.settings.keepalive_seconds)


@router.post("/v1/apply/completions")
async def apply_completions(body: ChatRequest, call: CallDep) -> Response:
    """Merge a snippet into a text, as Mercury does: both stand in a message, in marks."""
    content = joined(body.messages[-1].content)
    change = marked_change(content) or tagged_change(content)
    if change is None:
        raise bad_value(
            "the last message must hold <|original_code|>...<|/original_code|> and "
            "<|update_snippet|>...<|/update_snippet|>",
            "messages",
        )
    return await answer_change(body, change, call)


@router.post("/v1/edit/completions")
async def edit_completions(body: ChatRequest, call: CallDep) -> Response:
    """Rewrite the part of a file around the cursor, as Mercury predicts next edits."""
    if not any("<|code_to_edit|>" in joined(message.content) for message in body.messages):
        raise bad_value("a message must hold <|code_to_edit|>...<|/code_to_edit|>", "messages")
    if all(message.role not in ("system", "developer") for message in body.messages):
        body.messages.insert(0, ChatMessage(role="system", content=_NEXT_EDIT))
    return await chat_completions(body, call)
