"""Answers that fill a gap, as llama.cpp's clients read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from editor_api.generation import Answer, Generation, planned
from editor_api.infill import Infill, OtherText
from editor_api.infill_schemas import InfillRequest
from editor_api.prompting import ReadPrompt
from editor_api.replies import Json, timings
from editor_api.service import Call
from editor_api.wire import event

_MOST_FOR_ANSWER = 2  # of the context, an answer gets at most one token in so many when prompts are cut


@dataclass(frozen=True, slots=True)
class Gap:
    """A request to fill a gap, checked."""

    body: InfillRequest
    generation: Generation

    @classmethod
    async def planned(cls, body: InfillRequest, call: Call) -> Gap:
        """Check a request. Raises ``ApiError``."""
        infill = Infill(
            prefix=body.input_prefix + body.prompt,
            suffix=body.input_suffix,
            others=[OtherText(extra.text, extra.filename or "") for extra in body.input_extra],
            most=_most(body, call),
        )
        generation = await planned(call, body, [infill], contents=[], logprobs=None, param="input_prefix")
        return cls(body, generation)

    @property
    def prompt(self) -> ReadPrompt:
        """What the model goes on from."""
        return self.generation.prompts[0]

    def visible(self, text: str) -> str:
        """Return what of an unfinished answer is sure to stay."""
        return text.rstrip() if self.body.n_indent else text

    def cut(self, text: str) -> str | None:
        """Return the answer where it ends before a line that is indented too little, None where it goes on."""
        start = text.find("\n") + 1
        while self.body.n_indent and start > 0:
            end = text.find("\n", start)
            line = text[start:] if end < 0 else text[start:end]
            body = line.lstrip(" \t")
            if body.strip() and len(line) - len(body) < self.body.n_indent:
                return text[: start - 1]
            start = end + 1
        return None

    def takes_too_long(self, text: str, seconds: float) -> bool:
        """Whether an answer has taken its time, and has a line that can be used."""
        return 0 < (self.body.t_max_predict_ms or 0) < 1000 * seconds and "\n" in text


@dataclass(slots=True)
class Filling:
    """One answer under way."""

    gap: Gap
    answer: Answer
    began: float
    first: float
    text: str = ""
    is_cut: bool = False

    def add(self) -> str:
        """Take in what the answer has become; return what can be told now and was not told before."""
        whole = self.answer.text
        gap, told = self.gap, self.text
        if gap.body.warms_up:
            return ""
        cut = gap.cut(whole)
        if cut is not None:
            self.text, self.is_cut = cut, True
        elif self.answer.finish_reason is None and not gap.takes_too_long(whole, monotonic() - self.first):
            self.text = gap.visible(whole)
        else:
            self.text, self.is_cut = whole, self.answer.finish_reason is None
        return self.text[len(told) :]

    def told(self, call: Call) -> Json:
        """Return the whole answer."""
        answer, body = self.answer, self.gap.body
        reply: Json = {
            "index": answer.index,
            "content": self.text,
            "id_slot": body.id_slot or 0,
            "stop": True,
            "model": call.service.engine.model_name,
            "tokens_predicted": len(answer.ids),
            "tokens_evaluated": answer.prompt_tokens,
            "tokens_cached": answer.prompt_tokens + len(answer.ids),
            "generation_settings": self._settings(call),
            "has_new_line": "\n" in self.text,
            "truncated": self.gap.prompt.is_cut,
            "stop_type": self._stop_type(),
            "timings": self._timings(),
        }
        return reply if body.response_fields is None else _picked(reply, body.response_fields)

    def _settings(self, call: Call) -> Json:
        body = self.gap.body
        return {
            "n_ctx": call.service.engine.context_length,
            "n_predict": -1 if body.limit is None else body.limit,
            "temperature": body.temperature or 0.0,
            "top_k": body.top_k,
            "top_p": body.top_p,
            "min_p": body.min_p,
            "seed": body.seed,
            "stop": body.stop,
            "n_indent": body.n_indent or 0,
        }

    def _stop_type(self) -> str:
        if self.is_cut or self.answer.finish_reason != "stop":
            return "limit"
        return "eos" if self.answer.ids and self.answer.ids[-1] in self.gap.prompt.ends else "word"

    def _timings(self) -> Json:
        # An answer that was cut short has no counts of its own.
        predicted_ms = 1000 * (monotonic() - self.first)
        told: Json = {
            "prompt_n": self.answer.prompt_tokens,
            "prompt_ms": round(1000 * (self.first - self.began), 3),
            "predicted_n": len(self.answer.ids),
            "predicted_ms": round(predicted_ms, 3),
        }
        if self.answer.finish_reason is not None:
            told |= timings([self.answer.stats])
        for part in ("prompt", "predicted"):
            count, milliseconds = told[f"{part}_n"], told[f"{part}_ms"]
            told[f"{part}_per_token_ms"] = round(milliseconds / count, 3) if count else 0.0
            told[f"{part}_per_second"] = round(1000 * count / milliseconds, 2) if milliseconds else 0.0
        return told


async def fillings(gap: Gap) -> AsyncGenerator[tuple[Filling, str, bool], None]:
    """Yield every answer as it grows: with what was added to it, and whether that was all."""
    for number, request in enumerate(gap.generation.requests):
        filling: Filling | None = None
        began = monotonic()
        async with aclosing(replace(gap.generation, requests=[request]).run()) as pieces:
            async for answer, _ in pieces:
                if filling is None:
                    answer.index = number
                    filling = Filling(gap, answer, began, monotonic())
                added = filling.add()
                yield filling, added, filling.is_cut or answer.finish_reason is not None
                if filling.is_cut:
                    answer.is_cut = True
                    break


async def whole_filling(gap: Gap, call: Call) -> Json | list[Json]:
    """Return the answer, or a list where several were asked for."""
    replies = []
    async with aclosing(fillings(gap)) as parts:
        async for filling, _, is_last in parts:
            if is_last:
                replies.append(filling.told(call))
    return replies[0] if len(replies) == 1 else replies


async def filling_events(gap: Gap, call: Call) -> AsyncGenerator[bytes, None]:
    """Yield the events of a streamed answer; as with llama.cpp, the last one says ``stop`` and nothing follows."""
    async with aclosing(fillings(gap)) as parts:
        async for filling, added, is_last in parts:
            if added:
                yield event({"index": filling.answer.index, "content": added, "stop": False})
            if is_last:
                yield event({**filling.told(call), "content": ""})


def _most(body: InfillRequest, call: Call) -> int | None:
    """Return how long the prompt may be; the rest of the context is left to the answer."""
    context, longest = call.service.engine.context_length, call.service.settings.max_prompt_tokens
    limits = [longest] if longest is not None else []
    if context is not None:
        limits.append(context - min(body.limit or context, context // _MOST_FOR_ANSWER))
    return min(limits, default=None)


def _picked(reply: Json, paths: Sequence[str]) -> Json:
    """Return the fields at ``paths``, each under its path; what is not there is left out."""
    found = {}
    for path in paths:
        value: Any = reply
        for name in path.split("/"):
            value = value.get(name, _picked) if isinstance(value, dict) else _picked
        if value is not _picked:
            found[path] = value
    return found
