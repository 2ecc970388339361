"""From a request to its answers: prompts are counted, limits are checked, and pieces are collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rapidfuzz.distance import LCSseq

from editor_api.engine import Engine, Piece, Prompt, Request, RequestCancelled, TokenScore
from editor_api.errors import ApiError, bad_value, context_exceeded
from editor_api.infill import Infill
from editor_api.prompting import ReadPrompt, read
from editor_api.references import encoded, longest_reference
from editor_api.schemas import GenerationRequest, Prediction, joined
from editor_api.service import Call
from editor_api.work import Work
from lookupdec.edit import other_forms
from lookupdec.limits import SEEDS
from lookupdec.stats import Stats


@dataclass(slots=True)
class Answer:
    """One choice, as far as it has come. ``is_cut`` is for the reader to set, who wants no more of it."""

    index: int
    prompt_tokens: int
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    finish_reason: str | None = None
    is_cut: bool = False

    def add(self, piece: Piece) -> None:
        """Take in what one pass added."""
        self.texts.append(piece.text)
        self.ids += piece.step.tokens
        self.scores += piece.scores
        self.stats = piece.stats
        if piece.finish_reason is not None:
            # Out of time is told as out of room: clients know no third reason.
            self.finish_reason = "stop" if piece.finish_reason == "stop" else "length"

    @property
    def text(self) -> str:
        """What has been said."""
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction as far as an answer can repeat it, and how many tokens it has in all."""

    ids: Sequence[int]
    tokens: int

    @classmethod
    def read(cls, prediction: Prediction | None, engine: Engine) -> Predicted:
        """Read what a request predicts. Takes time for long texts."""
        ids = engine.encode_text(joined(prediction.content) if prediction else "")
        return cls(ids[: longest_reference(engine)], len(ids))

    def details(self, answers: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the details of answers' token counts.

        Tokens are accepted where an answer has them in the same order, whether or not they were drafted from the
        prediction: a property of the texts, not of the drafter.
        """
        accepted = sum(int(LCSseq.similarity(self.ids, answer)) for answer in answers)
        return {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": self.tokens * len(answers) - accepted,
            "reasoning_tokens": 0,
            "audio_tokens": 0,
        }


@dataclass(frozen=True, slots=True)
class Generation:
    """A checked request: what the engine is asked for, one after the other, and for how many answers each."""

    work: Work
    prompts: Sequence[ReadPrompt]
    requests: Sequence[Request]
    copies: int
    prediction: Predicted

    async def run(self) -> AsyncGenerator[tuple[Answer, Piece], None]:
        """Yield every piece with the answer it was added to, which it is the last of where that has ended."""
        for number, request in enumerate(self.requests):
            answers = [
                Answer(number * self.copies + copy, len(request.prompt)) for copy in range(self.copies)
            ]
            async with aclosing(self.work.pieces(request)) as pieces:
                async for piece in pieces:
                    for answer in answers:
                        answer.add(piece)
                        try:
                            yield answer, piece
                        except GeneratorExit:
                            if not answer.is_cut:
                                self.work.stop(RequestCancelled("the client is gone"))
                            raise

    def usage(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Return the token counts. Prompts count once, however many answers they have."""
        prompts = {id(request.prompt): request.prompt for request in self.requests}
        prompt = sum(map(len, prompts.values()))
        completion = sum(len(answer.ids) for answer in answers)
        cached = {
            id(self.requests[answer.index // self.copies].prompt): answer.stats.cached_tokens
            for answer in reversed(answers)  # of several answers to one prompt, the first has read it
        }
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(cached.values()), "audio_tokens": 0},
            "completion_tokens_details": self.prediction.details([answer.ids for answer in answers]),
        }


async def planned(  # noqa: PLR0913
    call: Call,
    body: GenerationRequest,
    prompts: Sequence[Prompt | Infill],
    *,
    contents: Sequence[str],
    logprobs: int | None,
    json_schema: str | None = None,
    param: str,
) -> Generation:
    """Check a request against model and limits, before anything is queued. Raises ``ApiError``.

    ``contents`` are the texts to find the reference in where no prediction names it.
    """
    settings, engine = call.service.settings, call.service.engine
    call.check_model(body.model)
    n = body.n or 1
    if not prompts:
        raise bad_value("the prompt is empty", param)
    if n * len(prompts) > settings.max_n:
        raise bad_value(f"n: at most {settings.max_n} answers at once, not {n * len(prompts)}", "n")
    if len(body.stop) > settings.max_stop:
        raise bad_value(f"stop: at most {settings.max_stop} strings, not {len(body.stop)}", "stop")
    chosen = _settings(body, logprobs)
    # Before anything is waited for: what comes later is newer.
    work = call.work(body.session)
    await asyncio.to_thread(engine.check, chosen, json_schema)
    prediction_text = joined(body.prediction.content) if body.prediction else ""
    asked = "json" if json_schema is not None else "\n".join(contents)

    def encode() -> tuple[list[ReadPrompt], Predicted, tuple[list[int], ...]]:
        read_prompts = [read(engine, prompt, param) for prompt in prompts]
        for prompt in read_prompts:
            check_length(call, len(prompt.ids), param)
        expected = prediction_text or call.text_to_edit(contents)
        texts = (expected, *other_forms(expected, asked)) if expected and settings.drafting else ()
        return read_prompts, Predicted.read(body.prediction, engine), encoded(engine, texts)

    read_prompts, prediction, reference = await asyncio.to_thread(encode)
    work.check()
    samples = bool(chosen["temperature"])
    wanted = [(prompt, number) for prompt in read_prompts for number in range(n if samples else 1)]
    requests = [
        Request(
            prompt=prompt.ids,
            settings=_with_seed(prompt.settings(chosen), number),
            tenant=call.tenant,
            namespace=call.namespace(body.session, body.prompt_cache_key),
            deadline=min(body.deadline or settings.deadline, settings.deadline),
            reference=reference,
            drafting=settings.drafting,
            json_schema=json_schema,
            admitted=place > 0,
        )
        for place, (prompt, number) in enumerate(wanted)
    ]
    # Greedy answers are all the same: one is made and stands for all.
    return Generation(
        work,
        read_prompts,
        requests,
        copies=1 if samples else n,
        prediction=prediction,
    )


def check_length(call: Call, prompt_tokens: int, param: str) -> None:
    """Raise ``ApiError`` for a prompt that is too long."""
    context, longest = call.service.engine.context_length, call.service.settings.max_prompt_tokens
    most = min(
        limit for limit in (longest, context - 1 if context else None, prompt_tokens) if limit is not None
    )
    if prompt_tokens > most:
        error: ApiError = context_exceeded(prompt_tokens, most)
        error.param = param
        raise error


def _settings(body: GenerationRequest, logprobs: int | None) -> dict[str, Any]:
    return {
        "max_new_tokens": body.limit,
        "temperature": body.temperature or 0.0,
        "top_p": body.top_p,
        # Left out, OpenAI's clients expect all tokens to be drawn from, not transformers' default of 50.
        "top_k": max(0, body.top_k or 0),
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "logit_bias": body.logit_bias or None,
        "seed": body.seed,
        "stop": tuple(body.stop),
        "logprobs": logprobs,
    }


def _with_seed(settings: dict[str, Any], number: int) -> dict[str, Any]:
    seed = settings["seed"]
    return settings if seed is None else {**settings, "seed": (seed + number) % SEEDS}
