"""An engine that recites a given answer, for tests of what stands around engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from editor_api.engine import (
    Capacity,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    Piece,
    Prompt,
    Request,
    RequestCancelled,
    State,
)
from editor_api.infill import Infill, InfillPrompt
from lookupdec.errors import InputError
from lookupdec.stats import Stats, Step

SECONDS = 0.125  # a pass of the fake engine takes, as it says
PASS = 3  # characters a pass of the fake engine gives; each is a token


@dataclass
class FakeJob:
    """One recital, with ``error`` in the place of its last pass.

    After ``pause_after`` passes it waits until it is stopped or that is None.
    """

    engine: FakeEngine
    request: Request
    pause_after: int | None = None
    stopped: EngineError | None = None
    finished: bool = False
    passes: int = 0

    @property
    def expected(self) -> tuple[str, ...]:
        """The texts of the request's reference."""
        return tuple(map(self.engine.decode, self.request.reference))

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces()

    def cancel(self, error: EngineError | None = None) -> None:
        if not self.finished and self.stopped is None:
            self.stopped = error or RequestCancelled("cancelled")

    async def _pieces(self) -> AsyncIterator[Piece]:
        limit = self.request.settings.get("max_new_tokens") or len(self.engine.answer) + 1
        text = self.engine.answer[:limit]
        prompt = len(self.request.prompt)
        stats = Stats(prompt_tokens=prompt, cached_tokens=self.engine.cached, prefill_seconds=0.25)
        size = PASS if self.request.drafting else 1
        cuts = list(range(0, max(1, len(text)), size))
        for start in cuts:
            while self.passes == self.pause_after and self.stopped is None:
                await asyncio.sleep(0.005)
            if self.stopped is not None:
                raise self.stopped
            is_last = start == cuts[-1]
            if is_last and self.engine.error is not None:
                raise self.engine.error
            part = text[start : start + size]
            drafted = ("reference", "prompt") if self.request.drafting else ()
            step = Step(tuple(map(ord, part)), len(drafted), len(drafted[:1]), drafted)
            stats.add(step)
            stats.verifying_seconds += SECONDS
            self.passes += 1
            self.finished = is_last
            reason = ("length" if limit <= len(self.engine.answer) else "stop") if is_last else None
            yield Piece(part, step, deepcopy(stats), reason, pieces=tuple(part))  # type: ignore[arg-type]


@dataclass
class FakeEngine:
    """Recites ``answer``; a token is a character. Jobs to come have its ``pause_after``."""

    answer: str = "Hello, world"
    pause_after: int | None = None
    error: Exception | None = None
    room: int = 1000
    cached: int = 0
    state: State = "ready"
    context_length: int | None = 1000
    model_name: str = "fake"
    dtype: str = "float32"
    chat_template: str | None = "{{ messages }}"
    fills: bool = True
    aborted: bool = False
    jobs: list[FakeJob] = field(default_factory=list)

    def clock(self, pass_seconds: float) -> Callable[[], float]:
        """Return a ``monotonic`` on which every pass takes so long, and nobody waits for it."""
        return lambda: monotonic() + pass_seconds * sum(job.passes for job in self.jobs)

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.state, sum(not (job.finished or job.stopped) for job in self.jobs))

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.encode_text(prompt)
        if any(isinstance(item, int) and not 0 <= item < 0x110000 for item in prompt):
            raise InputError("a prompt id lies outside of the model's vocabulary")
        return [
            code
            for item in prompt
            for code in ([item] if isinstance(item, int) else self.encode_text(str(item["content"])))
        ]

    def encode_infill(self, infill: Infill) -> InfillPrompt:
        if not self.fills:
            raise InputError("fake has no fill-in-the-middle tokens")
        others = "".join(f"({other.name}:{other.text})" for other in infill.others)
        text = f"{others}<{infill.prefix}|{infill.suffix}>"
        most = len(text) if infill.most is None else infill.most
        return InfillPrompt(self.encode_text(text[:most]), (7,), most < len(text))

    def encode_text(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def check(self, settings: Mapping[str, Any], json_schema: str | None = None) -> None:
        if settings.get("seed") == 13:
            raise InputError("13 is no seed")

    def check_room(self) -> None:
        if self.state != "ready":
            raise EngineUnavailable("the model is being loaded")
        if self.capacity.running >= self.room:
            raise EngineBusy(7)

    def submit(self, request: Request) -> FakeJob:
        if self.aborted:
            raise EngineUnavailable("the service is stopping")
        if not request.admitted:
            self.check_room()
        self.jobs.append(FakeJob(self, request, self.pause_after))
        return self.jobs[-1]

    def drain(self) -> None:
        self.state = "stopping"

    def abort(self) -> None:
        self.aborted = True
        for job in self.jobs:
            job.cancel(EngineUnavailable("the service is stopping"))

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.abort()
