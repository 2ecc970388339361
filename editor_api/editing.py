"""Edits on the engine: ``lookupdec.edit`` runs in a thread of its own and takes its turns like any request."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from typing import Any, TypeVar

from editor_api.engine import Piece, Request, RequestCancelled
from editor_api.errors import bad_value
from editor_api.generation import check_length
from editor_api.prompting import read
from editor_api.references import encoded
from editor_api.schemas import EditRequest, Prediction, Selection, joined
from editor_api.service import Call
from editor_api.work import Work
from lookupdec.edit import Editor, EditResult, Positions

T = TypeVar("T")
_log = logging.getLogger(__name__)


class TurnTakingModel:
    """The model as an ``Editor`` sees it: every question becomes a request to the engine.

    Called on the editor's thread; what belongs to the event loop is done there. Once the work is stopped, the next
    question raises why: nobody waits for the rest of the editor's plan.
    """

    def __init__(self, call: Call, work: Work, request: Mapping[str, Any]) -> None:
        self._call = call
        self._engine = call.service.engine
        self._work = work
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._asked = 0

    @property
    def name(self) -> str:
        """The model's name."""
        return self._engine.model_name

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together."""
        return self._engine.context_length

    @property
    def dtype(self) -> str:
        """The numbers the model computes with."""
        return self._engine.dtype

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a prompt."""
        self._work.check()
        return len(read(self._engine, list(messages)).ids)

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text."""
        self._work.check()
        return len(self._engine.encode_text(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens."""
        return self._engine.decode(ids)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ``InputError`` for impossible values."""
        self._work.check()
        self._engine.check(settings)

    def stream(
        self,
        messages: Sequence[Mapping[str, str]],
        reference: str | Sequence[str],
        settings: Mapping[str, Any],
        *,
        plain: bool = False,
        namespace: str | None = None,
    ) -> Generator[Piece, None, None]:
        """Answer, a piece per pass."""
        self._work.check()
        prompt = read(self._engine, list(messages))
        check_length(self._call, len(prompt.ids), "input")
        texts = (reference,) if isinstance(reference, str) else reference
        request = Request(
            prompt=prompt.ids,
            settings=prompt.settings(settings),
            namespace=namespace or "",
            reference=() if plain else encoded(self._engine, texts),
            drafting=not plain,
            admitted=self._asked > 0,
            **self._request,
        )
        self._asked += 1
        pieces = self._work.pieces(request)
        try:
            while (piece := self._wait(_next_or_none(pieces))) is not None:
                yield piece
        finally:
            self._wait(pieces.aclose())

    def _wait(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()


async def edited(body: EditRequest, call: Call) -> AsyncGenerator[Piece | EditResult, None]:
    """Yield the model's answer as it comes, then the result."""
    service = call.service
    service.engine.check_room()  # a long text takes time to plan, and many threads would do so at once
    selection = _selection(body)
    work = call.work(body.session)
    deadline = min(body.deadline or service.settings.deadline, service.settings.deadline)
    model = TurnTakingModel(call, work, {"tenant": call.tenant, "deadline": deadline})
    prediction = body.prediction.content if isinstance(body.prediction, Prediction) else body.prediction

    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[Piece | EditResult | BaseException] = asyncio.Queue()

    def tell(part: Piece | EditResult | BaseException) -> None:
        try:
            loop.call_soon_threadsafe(parts.put_nowait, part)
        except RuntimeError:  # the reader's loop is closed: nobody is left to tell
            _log.debug("an edit outlived its reader")

    def tell_chunk(chunk: object) -> None:
        assert isinstance(chunk, Piece)  # TurnTakingModel yields nothing else
        tell(chunk)

    def edit() -> None:
        try:
            result = Editor(model).edit(
                body.input,
                body.instruction,
                lines=body.lines,
                selection=selection,
                language=body.language,
                path=body.path,
                context=body.context,
                prediction=joined(prediction) or None,
                namespace=call.namespace(body.session, body.prompt_cache_key),
                plain=not (service.settings.drafting and body.drafting),
                allow_incomplete=body.allow_incomplete,
                position_encoding=body.position_encoding,
                on_token=tell_chunk,
                max_new_tokens=body.max_tokens,
                temperature=body.temperature or 0.0,
                top_k=0,
                seed=body.seed,
            )
        except BaseException as error:  # told to the reader, who raises it
            tell(error)
        else:
            tell(result)

    threading.Thread(target=edit, name="edit", daemon=True).start()
    try:
        while isinstance(part := await parts.get(), Piece):
            yield part
        if isinstance(part, BaseException):
            raise part
        yield part
    finally:
        work.stop(RequestCancelled("the request was cancelled"))


def edit_usage(result: EditResult) -> dict[str, Any]:
    """Return the token counts of an edit."""
    usage = result.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _selection(body: EditRequest) -> tuple[int, int] | None:
    """Return the offsets of what is selected. Raises ``InputError``."""
    if body.selection is not None and body.lines is not None:
        raise bad_value("give either lines or a selection, not both", "lines")
    if not isinstance(body.selection, Selection):
        return body.selection
    positions = Positions(body.input, body.position_encoding)
    return positions.offset(body.selection.start), positions.offset(body.selection.end)


async def _next_or_none(pieces: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(pieces, None)
