"""Snippets merged into texts: what "apply" endpoints are asked, in the words of several services.

All of it is an edit of the whole text. An answer that leaves text out is an error here, since none of these
services has another way to say so, and their clients write the answer over the file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response

from editor_api.apply_schemas import ApplyRequest
from editor_api.editing import edit_usage, edited
from editor_api.engine import Piece
from editor_api.errors import ApiError, bad_value
from editor_api.generation import Answer, Predicted
from editor_api.replies import ChatShape, Json, answered, timings
from editor_api.schemas import ChatRequest, EditRequest, joined
from editor_api.service import Call
from editor_api.wire import DONE, event
from lookupdec.edit import EditResult, fence_around
from lookupdec.stats import Step

_SHOWN_BY = (
    "The snippet below shows the new text of the changed places. Comments in it such as "
    '"... existing code ..." stand for lines that stay: write those lines out.'
)
_BETWEEN = re.compile(r"</code>\s*<update>")


@dataclass(frozen=True, slots=True)
class Change:
    """A text, a snippet that shows its change, and what the change is in words, "" where nobody said."""

    original: str
    snippet: str
    instruction: str = ""

    @property
    def as_instruction(self) -> str:
        """What an editor is asked."""
        fence = fence_around(self.snippet)
        snippet = self.snippet if self.snippet.endswith("\n") else self.snippet + "\n"
        asked = self.instruction.strip() or "make the change that a snippet shows."
        return f"{asked}\n\n{_SHOWN_BY}\n\n{fence}\n{snippet}{fence}"


def tagged_change(content: str) -> Change | None:
    """Read a message in Morph's tags, and nothing besides them; None for any other."""
    rest, instruction = content.strip(), ""
    for tag in ("instruction", "instructions"):
        if rest.startswith(f"<{tag}>"):
            instruction, closed, rest = rest.removeprefix(f"<{tag}>").partition(f"</{tag}>")
            rest = rest.lstrip() if closed else ""
            break
    if not rest.startswith("<code>") or not rest.endswith("</update>"):
        return None
    borders = list(_BETWEEN.finditer(rest))
    if not borders:
        return None
    # The last border: the text may hold such tags itself.
    original = rest[len("<code>") : borders[-1].start()]
    return Change(original, rest[borders[-1].end() : -len("</update>")], instruction)


def marked_change(content: str) -> Change | None:
    """Read a message in Mercury's marks; None for any other."""
    original = _marked(content, "original_code")
    snippet = _marked(content, "update_snippet")
    return None if original is None or snippet is None else Change(original, snippet)


def change_in_chat(body: ChatRequest) -> Change | None:
    """Return the change that a conversation is nothing but a request for, None for any other conversation."""
    unusual = (body.n or 1) > 1 or body.logprobs or body.json_schema or body.stop
    if unusual or len(body.messages) != 1 or body.messages[0].role != "user":
        return None
    return tagged_change(joined(body.messages[0].content))


async def applied(
    body: ApplyRequest | ChatRequest, change: Change, call: Call, param: str
) -> tuple[EditResult, list[int]]:
    """Return the text with the change, and the ids of the model's answers.

    Raises ``ApiError``, also where the answer leaves text out.
    """
    call.check_model(body.model)
    if not change.original.strip():
        raise bad_value("the code to change is empty: send the whole file, or write the snippet to it", param)
    if not change.snippet.strip():
        raise bad_value("the snippet is empty: there is no change to apply", param)
    fields = {
        "input": change.original,
        "instruction": change.as_instruction,
        "prediction": body.prediction if isinstance(body, ChatRequest) else None,
        "max_tokens": body.limit if isinstance(body, ChatRequest) else body.max_tokens,
        "temperature": body.temperature,
        "seed": body.seed,
        "session": body.session,
        "prompt_cache_key": body.prompt_cache_key,
        "deadline": body.deadline,
    }
    request = EditRequest.model_validate(fields)
    ids: list[int] = []
    async with aclosing(edited(request, call)) as parts:
        async for part in parts:
            if isinstance(part, Piece):
                ids += part.step.tokens
                continue
            if not part.complete:
                reasons = "; ".join(part.warnings)
                raise ApiError(500, f"not applied: {reasons}", "incomplete_answer", retry=False)
            return part, ids
    raise AssertionError("an edit ends with its result")


async def relace_reply(body: ApplyRequest, call: Call) -> Json:
    """Return the merged text in Relace's shape."""
    change = Change(body.initial_code, body.edit_snippet, body.instruction or "")
    result, _ = await applied(body, change, call, "initial_code")
    return {"mergedCode": result.text, "usage": edit_usage(result), "timings": timings([result.stats])}


async def relace_events(body: ApplyRequest, call: Call) -> AsyncGenerator[bytes, None]:
    """Yield the same as events: one, once all is known."""
    yield event(await relace_reply(body, call))
    yield DONE


async def answer_change(body: ChatRequest, change: Change, call: Call) -> Response:
    """Answer a request for a change as a chat, streamed or not."""
    return await answered(call, body, _Applying(body, change, call), ChatShape())


class _Applying:
    """A change as the one answer of a chat. The text comes in one piece, once it is known that none is missing."""

    def __init__(self, body: ChatRequest, change: Change, call: Call) -> None:
        self._body = body
        self._change = change
        self._call = call
        self._usage: Json = {}

    async def run(self) -> AsyncGenerator[tuple[Answer, Piece], None]:
        """Apply the change, then yield the text."""
        done, ids = await applied(self._body, self._change, self._call, "messages")
        engine = self._call.service.engine
        prediction = await asyncio.to_thread(Predicted.read, self._body.prediction, engine)
        self._usage = {**edit_usage(done), "completion_tokens_details": prediction.details([ids])}
        answer = Answer(0, done.usage.prompt_tokens)
        piece = Piece(done.text, Step((), 0, 0, ()), done.stats, "stop")
        answer.add(piece)
        yield answer, piece

    def usage(self, answers: Sequence[Answer]) -> Json:  # noqa: ARG002
        """Return the token counts of the edit."""
        return self._usage


def _marked(content: str, name: str) -> str | None:
    """Return what stands between two marks, without the line breaks that belong to these."""
    _, opened, rest = content.partition(f"<|{name}|>")
    text, closed, _ = rest.rpartition(f"<|/{name}|>")
    return text.removeprefix("\n").removesuffix("\n") if opened and closed else None
