"""An engine that recites given answers, for tests of what stands around the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lookupdec.edit.prompts import Messages
from lookupdec.errors import InputError
from lookupdec.stats import Stats, Step

KNOWN_SETTINGS = {"temperature", "seed", "max_new_tokens", "stop"}


@dataclass(frozen=True)
class ScriptedChunk:
    text: str
    step: Step
    stats: Stats
    finish_reason: str | None
    pieces: tuple[str, ...] = ()


@dataclass
class ScriptedEngine:
    """Answers with ``answer``, or with what it makes of the reference; a token is a word or a space.

    Every pass emits ``accepted`` copied tokens and one more. Texts that were asked for are kept.
    """

    answer: str | Callable[[str], str] = str
    finish_reason: str = "stop"
    context_length: int | None = None
    accepted: int = 3
    interrupt_after: int | None = None
    name: str = "scripted"
    dtype: str = "float32"
    arithmetic: str = "fast"
    prompts: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    other_forms: list[list[str]] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)
    namespaces: list[str | None] = field(default_factory=list)
    remembered: list[tuple[str, str]] = field(default_factory=list)
    closed: int = 0
    _words: list[str] = field(default_factory=list)

    def count(self, messages: Messages) -> int:
        return sum(self.count_text(message["content"]) for message in messages)

    def count_text(self, text: str) -> int:
        return len(_tokens(text))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._words[token] for token in ids)

    def check(self, settings: Mapping[str, Any]) -> None:
        if unknown := settings.keys() - KNOWN_SETTINGS:
            raise TypeError(f"unknown setting {unknown.pop()}")
        if (settings.get("temperature") or 0) < 0:
            raise InputError("temperature must be at least 0")

    def remember(self, text: str, namespace: str) -> None:
        self.remembered.append((text, namespace))

    def stream(
        self,
        messages: Messages,
        reference: str | Sequence[str],
        settings: Mapping[str, Any],
        *,
        plain: bool = False,
        namespace: str | None = None,
    ) -> Generator[ScriptedChunk, None, None]:
        self.prompts.append(messages[-1]["content"])
        expected, *others = [reference] if isinstance(reference, str) else reference
        self.references.append(expected)
        self.other_forms.append(others)
        self.settings.append(dict(settings))
        self.plain.append(plain)
        self.namespaces.append(namespace)
        answer = self.answer if isinstance(self.answer, str) else self.answer(expected)
        try:
            yield from self._chunks(answer, self.count(messages), 0 if plain else self.accepted)
        finally:
            self.closed += 1

    def _chunks(self, answer: str, prompt: int, accepted: int) -> Generator[ScriptedChunk, None, None]:
        self._words = [*_tokens(answer), ""]
        stats = Stats(prompt_tokens=prompt, prefill_seconds=0.01)
        ends = range(1, len(self._words) + accepted + 1, accepted + 1)
        start = 0
        for end in ends:
            if self.interrupt_after is not None and start >= self.interrupt_after:
                raise KeyboardInterrupt
            ids = tuple(range(start, min(end, len(self._words))))
            step = Step(ids, len(ids) - 1, len(ids) - 1, ("reference",) * (len(ids) - 1))
            if start:
                stats.add(step)
            else:
                stats.tokens = 1
            start = ids[-1] + 1
            reason = self.finish_reason if start == len(self._words) else None
            yield ScriptedChunk(self.decode(ids), step, stats, reason, tuple(self._words[i] for i in ids))
            if reason:
                return


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s|\S+", text)
