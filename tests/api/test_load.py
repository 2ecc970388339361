"""Many clients at once, a third of them gone before their answer: the rest get theirs, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from editor_api.embedded import EmbeddedEngine
from editor_api.engine import Piece, Request
from editor_api.runner import Runner
from lookupdec.hf import LanguageModel, Settings, generate
from lookupdec.stats import Stats, Step
from tests.api.serving import PATIENCE, Served, chat_body, serving, until

REQUESTS, CLIENTS = 300, 16
MOST_GROWTH = 20 << 20  # bytes
TEXTS = [f"def f{number}(a, b):\n    return a * b + {number}\n" for number in range(12)]


@pytest.fixture
def busy(tiny_language_model: LanguageModel) -> Iterator[tuple[Served, EmbeddedEngine]]:
    engine = EmbeddedEngine(
        lambda: tiny_language_model, max_queued=REQUESTS, cache_bytes=1 << 20, prefix_bytes=1 << 20
    )
    with serving(engine) as served:
        until(lambda: engine.capacity.state == "ready")
        yield served, engine


def body_of(number: int) -> dict[str, Any]:
    return {
        "max_tokens": 10 + number % 25,
        "temperature": number % 2,
        "seed": number,
        "stream": number % 3 == 0,
        "session": None if number % 5 else f"s{number}",
    }


def text_of(answer: bytes, *, streamed: bool) -> str:
    if not streamed:
        return str(json.loads(answer)["choices"][0]["message"]["content"])
    events = [line.removeprefix(b"data: ") for line in answer.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    return "".join(delta.get("content", "") for delta in deltas)


def ask(served: Served, number: int, patience: float | None) -> str | None:
    """Return the answer; with ``patience`` in seconds, hang up after that."""
    fields = body_of(number)
    body = chat_body(TEXTS[number % len(TEXTS)], **fields)
    if patience is None:
        return text_of(served.raw(body)[1], streamed=fields["stream"])
    with served.sent(body):
        time.sleep(patience)
    return None


def test_hundreds_of_requests_a_third_of_them_cancelled(
    busy: tuple[Served, EmbeddedEngine], tiny_language_model: LanguageModel
) -> None:
    served, engine = busy
    chance = random.Random(0)
    patience = [chance.uniform(0, 0.2) if chance.random() < 1 / 3 else None for _ in range(REQUESTS)]
    process = psutil.Process()
    with ThreadPoolExecutor(CLIENTS) as clients:
        warm_up = REQUESTS // 3
        answers = list(clients.map(lambda n: ask(served, n, patience[n]), range(warm_up)))
        until(lambda: engine.capacity.running + engine.capacity.waiting == 0)
        memory, descriptors = process.memory_info().rss, process.num_fds()
        answers += clients.map(lambda n: ask(served, n, patience[n]), range(warm_up, REQUESTS))
        until(lambda: engine.capacity.running + engine.capacity.waiting == 0)
    assert 70 < answers.count(None) < 130
    for number, answer in enumerate(answers):
        if answer is None:
            continue
        fields = body_of(number)
        settings = Settings(
            max_new_tokens=fields["max_tokens"], temperature=fields["temperature"], top_k=0, seed=number
        )
        messages = [{"role": "user", "content": TEXTS[number % len(TEXTS)]}]
        assert answer == generate(tiny_language_model, messages, settings).text, number
    assert process.memory_info().rss - memory < MOST_GROWTH
    until(lambda: process.num_fds() <= descriptors + 2)
    assert threading.active_count() < 60 + (os.cpu_count() or 1)


@dataclass
class Pace:
    """A clock for the engine, which stands still but for the passes, and who had them."""

    now: float = 0.0
    log: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now


@pytest.fixture
def pace(busy: tuple[Served, EmbeddedEngine], monkeypatch: pytest.MonkeyPatch) -> Pace:
    made = Pace()
    monkeypatch.setattr("editor_api.embedded.monotonic", made.clock)
    return made


@dataclass
class Paced:
    """A request whose passes take a given time on the engine's clock; each begins when ``may_begin``."""

    name: str
    seconds: float
    left: int
    pace: Pace
    may_begin: Callable[[], object] = lambda: True

    def next_piece(self) -> Piece:
        until(self.may_begin)
        self.pace.now += self.seconds
        self.pace.log.append(self.name)
        self.left -= 1
        return Piece("x", Step((1,), 0, 0, ()), Stats(tokens=1), None if self.left else "stop")

    def close(self) -> None:
        pass


def test_turns_are_fair_by_time(
    busy: tuple[Served, EmbeddedEngine], pace: Pace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a request with long passes, one with short ones gets as much time, not as many passes."""
    served, engine = busy
    log = pace.log

    def begin(_runner: Runner, request: Request, _seconds: float) -> Paced:
        if request.settings["max_new_tokens"] != 7:
            return Paced("quick", 0.004, 60, pace)
        # After the second pass it waits for the other one to come.
        return Paced("slow", 0.08, 12, pace, lambda: len(log) != 2 or engine.capacity.waiting)

    monkeypatch.setattr(Runner, "begin", begin)
    with ThreadPoolExecutor(2) as clients:
        slow = clients.submit(served.raw, chat_body(max_tokens=7))
        until(lambda: len(log) >= 2)
        quick = clients.submit(served.raw, chat_body(max_tokens=8))
        slow.result()
        quick.result()
    between = log[log.index("quick") : len(log) - log[::-1].index("quick")]
    assert between.count("quick") == 60
    assert 2 <= between.count("slow") <= 4  # by passes it would have been all that were left


def test_a_long_request_gets_its_share_of_a_stream_of_short_ones(
    busy: tuple[Served, EmbeddedEngine], pace: Pace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four run at once: one pass in four is the long one's, however many one-pass requests come and go."""
    _, engine = busy
    log = pace.log

    def all_have_asked() -> bool:
        capacity = engine.capacity
        return len(log) >= 400 or capacity.running + capacity.waiting == 9

    def begin(_runner: Runner, request: Request, _seconds: float) -> Paced:
        name = request.tenant
        return Paced(name, 0.002, 10_000 if name == "long" else 1, pace, all_have_asked)

    async def ask(tenant: str) -> None:
        request = Request(prompt=[1], settings={}, tenant=tenant, namespace="", deadline=PATIENCE)
        job = engine.submit(request)
        async for _ in job:
            if len(log) >= 400:
                job.cancel()
                return

    async def ask_again_and_again() -> None:
        while len(log) < 400:
            await ask("short")

    async def ask_all() -> None:
        await asyncio.gather(ask("long"), *(ask_again_and_again() for _ in range(8)))

    monkeypatch.setattr(Runner, "begin", begin)
    asyncio.run(asyncio.wait_for(ask_all(), PATIENCE))
    assert log[:400].count("long") >= 80
