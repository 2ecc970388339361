"""Answers in OpenAI's shapes: whole or in chunks, chat or plain."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.responses import Response

from editor_api.engine import Piece, TokenScore
from editor_api.generation import Answer
from editor_api.schemas import GenerationRequest
from editor_api.service import Call
from editor_api.wire import DONE, event, streamed, whole
from lookupdec.stats import SourceStats, Stats, add_sources

_LOWEST = -9999.0  # what OpenAI writes for "never"; JSON has no infinity
_UNREADABLE = "\ufffd"

Json = dict[str, Any]


class Answers(Protocol):
    """What there is to answer with, such as a ``Generation``."""

    def run(self) -> AsyncGenerator[tuple[Answer, Piece], None]:
        """Yield every piece with the answer it was added to."""
        ...

    def usage(self, answers: Sequence[Answer]) -> Json:
        """Return the token counts, once all has been yielded."""
        ...


class Shape(Protocol):
    """How one endpoint writes its answers."""

    prefix: str
    whole_object: str
    chunk_object: str

    def first(self, answer: Answer) -> Json | None:
        """What a choice in a stream begins with, None for nothing."""
        ...

    def more(self, answer: Answer, piece: Piece) -> Json:
        """A choice's next text."""
        ...

    def last(self) -> Json:
        """A choice's end, without text."""
        ...

    def choice(self, answer: Answer) -> Json:
        """A whole choice."""
        ...


class ChatShape:
    """``/v1/chat/completions``."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def first(self, answer: Answer) -> Json | None:  # noqa: ARG002
        """Tell the role."""
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def more(self, answer: Answer, piece: Piece) -> Json:  # noqa: ARG002
        """Give text."""
        return {"delta": {"content": piece.text}, "logprobs": _chat_logprobs(piece.scores)}

    def last(self) -> Json:
        """Give nothing."""
        return {"delta": {}, "logprobs": None}

    def choice(self, answer: Answer) -> Json:
        """Give a message."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return {"message": message, "logprobs": _chat_logprobs(answer.scores)}


@dataclass(slots=True)
class TextShape:
    """``/v1/completions``. Remembers how far the tokens of every choice have come.

    ``echoes`` are what every choice repeats before its answer, by its index.
    """

    echoes: Sequence[str] = ()
    prefix: str = "cmpl"
    whole_object: str = "text_completion"
    chunk_object: str = "text_completion"
    _offsets: dict[int, int] = field(default_factory=dict)

    def first(self, answer: Answer) -> Json | None:
        """Begin without a chunk, or with what is repeated."""
        return {"text": self._echo(answer), "logprobs": None} if self.echoes else None

    def more(self, answer: Answer, piece: Piece) -> Json:
        """Give text."""
        offset = self._offsets.get(answer.index, 0)
        # By the tokens, as in a whole answer: their text may be held back, or never told.
        self._offsets[answer.index] = offset + sum(len(score.text) for score in piece.scores)
        return {"text": piece.text, "logprobs": _text_logprobs(piece.scores, offset)}

    def last(self) -> Json:
        """Give nothing."""
        return {"text": "", "logprobs": None}

    def choice(self, answer: Answer) -> Json:
        """Give the text."""
        return {"text": self._echo(answer) + answer.text, "logprobs": _text_logprobs(answer.scores, 0)}

    def _echo(self, answer: Answer) -> str:
        return self.echoes[answer.index] if self.echoes else ""


async def answered(call: Call, body: GenerationRequest, generation: Answers, shape: Shape) -> Response:
    """Answer in a shape, whole or streamed as the request wants it."""
    if not body.stream:
        return await whole(call.http, whole_reply(call, generation, shape))
    usage = bool(body.stream_options and body.stream_options.include_usage)
    events = reply_events(call, generation, shape, include_usage=usage)
    return await streamed(call.http, events, call.service.settings.keepalive_seconds)


async def whole_reply(call: Call, generation: Answers, shape: Shape) -> Json:
    """Return the whole answer."""
    answers = await _answers(generation)
    choices = [
        {"index": answer.index, **shape.choice(answer), "finish_reason": answer.finish_reason}
        for answer in answers
    ]
    return {
        **_head(call, shape.prefix, shape.whole_object),
        "choices": choices,
        "usage": generation.usage(answers),
        "timings": timings(_each_once(answers)),
    }


async def reply_events(
    call: Call, generation: Answers, shape: Shape, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a streamed answer."""
    head = _head(call, shape.prefix, shape.chunk_object)
    # Some clients lose the text of chunks that have a usage, some fail where none was asked for.
    rest: Json = {"usage": None} if include_usage else {}
    answers: dict[int, Answer] = {}

    def chunk(answer: Answer, choice: Json, **more: object) -> bytes:
        written = {"index": answer.index, **choice, "finish_reason": None, **more}
        timing = {} if written["finish_reason"] is None else {"timings": timings([answer.stats])}
        return event({**head, "choices": [written], **rest, **timing})

    async with aclosing(generation.run()) as pieces:
        async for answer, piece in pieces:
            if answer.index not in answers:
                answers[answer.index] = answer
                if (first := shape.first(answer)) is not None:
                    yield chunk(answer, first)
            if piece.text or piece.scores:
                yield chunk(answer, shape.more(answer, piece))
            if answer.finish_reason is not None:
                yield chunk(answer, shape.last(), finish_reason=answer.finish_reason)
    if include_usage:
        every = list(answers.values())
        yield event(
            {**head, "choices": [], "usage": generation.usage(every), "timings": timings(_each_once(every))}
        )
    yield DONE


def timings(all_stats: Iterable[Stats]) -> Json:
    """Return what generations cost together, by the names of llama.cpp where it has one."""
    every = list(all_stats)
    sources: dict[str, SourceStats] = {}
    for stats in every:
        add_sources(sources, stats.by_source)
    predicted = sum(stats.tokens for stats in every)
    decode_seconds = sum(stats.drafting_seconds + stats.verifying_seconds for stats in every)
    return {
        "cache_n": sum(stats.cached_tokens for stats in every),
        "prompt_n": sum(stats.prompt_tokens - stats.cached_tokens for stats in every),
        "prompt_ms": _milliseconds(sum(stats.prefill_seconds for stats in every)),
        "predicted_n": predicted,
        "predicted_ms": _milliseconds(decode_seconds),
        "predicted_per_second": round(predicted / decode_seconds, 2) if decode_seconds > 0 else None,
        "drafting_ms": _milliseconds(sum(stats.drafting_seconds for stats in every)),
        "passes": sum(stats.passes for stats in every),
        "draft_n": sum(stats.drafted for stats in every),
        "draft_n_accepted": sum(stats.accepted for stats in every),
        "draft_sources": {
            name: {"draft_n": source.drafted, "draft_n_accepted": source.accepted}
            for name, source in sorted(sources.items())
        },
    }


async def _answers(generation: Answers) -> Sequence[Answer]:
    answers: dict[int, Answer] = {}
    async with aclosing(generation.run()) as pieces:
        async for answer, _ in pieces:
            answers[answer.index] = answer
    return list(answers.values())


def _each_once(answers: Iterable[Answer]) -> Iterable[Stats]:
    # Answers that are copies of one generation cost once.
    return {id(answer.stats): answer.stats for answer in answers}.values()


def _head(call: Call, prefix: str, kind: str) -> Json:
    return {
        "id": f"{prefix}-{call.identity}",
        "object": kind,
        "created": call.created,
        "model": call.service.engine.model_name,
    }


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _chat_logprobs(scores: Sequence[TokenScore]) -> Json | None:
    if not scores:
        return None
    content = [
        {
            **_chat_logprob(score.text, score.logprob),
            "top_logprobs": [_chat_logprob(text, logprob) for text, logprob in score.top],
        }
        for score in scores
    ]
    return {"content": content, "refusal": None}


def _chat_logprob(text: str, logprob: float) -> Json:
    # A part of a character has no text of its own: the sign that stands for it has other bytes than it.
    own = None if _UNREADABLE in text else list(text.encode())
    return {"token": text, "logprob": max(logprob, _LOWEST), "bytes": own}


def _text_logprobs(scores: Sequence[TokenScore], offset: int) -> Json | None:
    if not scores:
        return None
    offsets = []
    for score in scores:
        offsets.append(offset)
        offset += len(score.text)
    return {
        "tokens": [score.text for score in scores],
        "token_logprobs": [max(score.logprob, _LOWEST) for score in scores],
        "top_logprobs": [{text: max(value, _LOWEST) for text, value in score.top} for score in scores],
        "text_offset": offsets,
    }
