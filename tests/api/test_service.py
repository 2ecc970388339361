"""Models, health, metrics, tokens, and the document that describes the endpoints."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from editor_api.engine import Piece, State
from lookupdec.stats import Stats, Step
from tests.api.fakes import FakeEngine, FakeJob
from tests.api.serving import PATIENCE, Served, chat_body, events, serving, until


def test_models_tell_their_context(served: Served) -> None:
    models = served.client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == ["fake", "fake-Fast-Apply"]
    assert models["data"][0]["context_length"] == 1000
    assert "meta" not in models["data"][0]  # by this some clients take a server for llama.cpp
    assert served.client.get("/v1/models/fake").json() == models["data"][0]


@pytest.mark.parametrize(("state", "status"), [("ready", 200), ("loading", 503), ("stopping", 503)])
def test_health_and_readiness(fake: FakeEngine, served: Served, state: State, status: int) -> None:
    fake.state = state
    assert served.client.get("/health").json() == {"status": "ok", "model": state}
    assert served.client.get("/ready").status_code == status
    fake.state = "ready"


def test_nothing_is_taken_while_the_service_stops(fake: FakeEngine, served: Served) -> None:
    fake.drain()
    for stream in (False, True):
        answer = served.chat(stream=stream)
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "server_error"


def test_what_runs_may_end_while_the_service_stops(fake: FakeEngine, served: Served) -> None:
    fake.pause_after = 1
    answers: list[bytes] = []
    asking = threading.Thread(target=lambda: answers.append(served.raw(chat_body(stream=True))[1]))
    asking.start()
    until(lambda: fake.jobs)
    served.server.handle_exit(signal.SIGTERM, None)
    assert fake.state == "stopping"
    fake.jobs[0].pause_after = None
    asking.join()
    assert events(answers[0])[-1]["choices"][0]["finish_reason"] == "stop"
    until(lambda: not served.server.servers[0].is_serving())


def test_what_runs_too_long_is_told(fake: FakeEngine) -> None:
    fake.pause_after = 0
    with serving(fake, drain_seconds=0.05) as served:
        answers: list[tuple[bytes, bytes]] = []
        asking = threading.Thread(target=lambda: answers.append(served.raw(chat_body())))
        asking.start()
        until(lambda: fake.jobs)
        served.server.handle_exit(signal.SIGTERM, None)
        asking.join()
    assert answers[0][0].startswith(b"HTTP/1.1 503")


def test_an_edit_that_plans_its_next_part_is_told_that_the_service_stops(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, plans, aborted = fake.encode_prompt, threading.Event(), threading.Event()

    def encode_prompt(prompt: Any) -> list[int]:
        if fake.jobs:
            plans.set()
            assert aborted.wait(PATIENCE)
        return encode(prompt)

    monkeypatch.setattr(fake, "encode_prompt", encode_prompt)
    text = "".join(f"line_{number} = {number}\n" for number in range(150))
    body = json.dumps({"input": text, "instruction": "x", "stream": True}).encode()
    answers: list[bytes] = []
    asking = threading.Thread(target=lambda: answers.append(served.raw(body, "/v1/edits")[1]))
    asking.start()
    assert plans.wait(PATIENCE)
    fake.drain()
    fake.abort()
    aborted.set()
    asking.join()
    assert events(answers[0])[-1]["error"]["code"] == "unavailable"
    assert all(job.finished for job in fake.jobs)


PLANNED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "old"}]},
    "/v1/completions": {"prompt": "old"},
    "/v1/edits": {"input": "old\n", "instruction": "x"},
    "/infill": {"input_prefix": "old"},
}


@pytest.mark.parametrize("path", PLANNED)
def test_a_request_that_is_slow_to_read_does_not_replace_a_newer_one(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    encode, reads, may_go_on = fake.encode_text, threading.Event(), threading.Event()

    def encode_text(text: str) -> list[int]:
        if "old" in text:
            reads.set()
            assert may_go_on.wait(PATIENCE)
        return encode(text)

    monkeypatch.setattr(fake, "encode_text", encode_text)
    fake.pause_after = 1
    old: list[int] = []
    body = {**PLANNED[path], "session": "s"}
    asking = threading.Thread(target=lambda: old.append(served.client.post(path, json=body).status_code))
    asking.start()
    assert reads.wait(PATIENCE)
    with served.sent(chat_body("new", session="s")) as newer:
        until(lambda: fake.jobs)
        may_go_on.set()
        asking.join()
        fake.jobs[0].pause_after = None
        assert newer.recv(65536).startswith(b"HTTP/1.1 200")
    assert old == [409]
    assert len(fake.jobs) == 1


def test_a_request_that_is_slow_to_come_does_not_replace_a_newer_one(
    fake: FakeEngine, served: Served
) -> None:
    fake.pause_after = 1
    body = chat_body("old", session="s")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as older:
        older.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body[:5])
        time.sleep(0.2)  # until the service waits for the rest
        with served.sent(chat_body("new", session="s")) as newer:
            until(lambda: fake.jobs)
            older.sendall(body[5:])
            assert older.recv(65536).startswith(b"HTTP/1.1 409")
            fake.jobs[0].pause_after = None
            assert newer.recv(65536).startswith(b"HTTP/1.1 200")


def test_metrics_count_drafts_requests_and_ends(served: Served) -> None:
    served.chat()
    served.client.get("/no/such/page")
    text = served.client.get("/metrics").text
    for line in (
        "lookupdec_spec_decode_num_drafts_total 4.0",
        "lookupdec_spec_decode_num_draft_tokens_total 8.0",
        "lookupdec_spec_decode_num_accepted_tokens_total 4.0",
        'lookupdec_spec_decode_num_accepted_tokens_per_pos_total{position="0"} 4.0',
        'lookupdec_accepted_tokens_total{source="reference"} 4.0',
        "lookupdec_prompt_tokens_total 2.0",
        "lookupdec_generation_tokens_total 12.0",
        'lookupdec_request_success_total{finished_reason="stop"} 1.0',
        'lookupdec_http_requests_total{path="/v1/chat/completions",status="200"} 1.0',
        'lookupdec_http_requests_total{path="other",status="404"} 1.0',
        "lookupdec_num_requests_running 0.0",
        "lookupdec_num_requests_waiting 0.0",
        "lookupdec_time_to_first_token_seconds_count 1.0",
    ):
        assert line in text.splitlines()


def test_latencies_are_those_of_generated_answers(fake: FakeEngine, served: Served) -> None:
    for path in ("/health", "/nothing", "/v1/models"):
        served.client.get(path)
    served.client.post("/tokenize", json={"content": "a"})
    served.chat(temperature=-1)
    served.chat("x" * 2000)
    count = "lookupdec_e2e_request_latency_seconds_count"
    assert f"{count} 0.0" in served.client.get("/metrics").text.splitlines()
    served.chat()
    served.client.post("/v1/edits", json={"input": "a\n", "instruction": "x"})
    served.client.post("/infill", json={"input_prefix": "a"})
    until(lambda: f"{count} 3.0" in served.client.get("/metrics").text.splitlines())


def test_time_that_is_over_before_the_first_token_is_no_first_token(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pieces(_: FakeJob) -> AsyncIterator[Piece]:
        yield Piece("", Step((), 0, 0, ()), Stats(), None)
        yield Piece("", Step((), 0, 0, ()), Stats(), "deadline")

    monkeypatch.setattr(FakeJob, "_pieces", pieces)
    assert served.chat().json()["choices"][0]["finish_reason"] == "length"
    lines = served.client.get("/metrics").text.splitlines()
    assert 'lookupdec_request_success_total{finished_reason="deadline"} 1.0' in lines
    for name in ("time_to_first_token_seconds_count", "passes_total", "prompt_tokens_total"):
        assert f"lookupdec_{name} 0.0" in lines


SUCCESS = 'lookupdec_request_success_total{finished_reason="stop"} 1.0'
CACHED = "lookupdec_cached_prompt_tokens_total 5.0"


@pytest.mark.parametrize("path", ["/v1/edits", "/infill"])
def test_metrics_count_what_the_service_itself_ends(path: str) -> None:
    block = "```python\ncolor = 1\nend = 2\n```\n" + "And that is what I have changed. " * 20
    fake = FakeEngine(answer=block if path == "/v1/edits" else "    a\nb\n" + "c" * 300, cached=5)
    body = {
        "/v1/edits": {"input": "colour = 1\nend = 2\n", "instruction": "x", "path": "a.py"},
        "/infill": {"input_prefix": "a\n", "input_suffix": "z\n", "n_indent": 4},
    }
    with serving(fake) as served:
        assert served.client.post(path, json=body[path]).status_code == 200
        assert not fake.jobs[0].finished
        until(lambda: SUCCESS in served.client.get("/metrics").text.splitlines())
        assert CACHED in served.client.get("/metrics").text.splitlines()


@pytest.mark.parametrize("stream", [True, False])
def test_metrics_count_no_end_of_what_a_client_left(
    fake: FakeEngine, served: Served, *, stream: bool
) -> None:
    fake.pause_after, fake.cached = 1, 5
    with served.sent(chat_body(stream=stream)):
        until(lambda: CACHED in served.client.get("/metrics").text.splitlines())
    until(lambda: fake.jobs[0].stopped)
    assert "request_success_total{" not in served.client.get("/metrics").text


def test_tokens_of_texts_and_messages(served: Served) -> None:
    assert served.client.post("/tokenize", json={"content": "ab"}).json()["tokens"] == [97, 98]
    assert served.client.post("/v1/tokenize", json={"prompt": ""}).json()["count"] == 0
    messages = [{"role": "user", "content": "abc"}]
    assert served.client.post("/tokenize", json={"messages": messages}).json()["count"] == 3
    assert served.client.post("/tokenize", json={}).status_code == 422


def test_greedy_copies_are_made_once(fake: FakeEngine, served: Served) -> None:
    answer = served.chat(n=3).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len(fake.jobs) == 1
    assert answer["usage"]["completion_tokens"] == 36
    assert answer["timings"]["predicted_n"] == 12


def test_predictions_are_counted_by_what_came_back(fake: FakeEngine, served: Served) -> None:
    answer = served.chat(prediction={"type": "content", "content": "Hello, moon"}).json()
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 8  # "Hello, " and one "o"
    assert details["rejected_prediction_tokens"] == 3
    assert fake.jobs[0].expected == ("Hello, moon",)


def test_a_long_prediction_is_cut_where_no_answer_can_reach(fake: FakeEngine, served: Served) -> None:
    long = "  a tab\n" * 50_000
    answer = served.chat(prediction={"type": "content", "content": long}).json()
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] == len(long)
    edit = {"input": "a\n", "instruction": "x", "prediction": long}
    assert served.client.post("/v1/edits", json=edit).status_code == 200
    for job in fake.jobs:
        assert [len(text) for text in job.expected] == [fake.context_length, fake.context_length]
        assert long.startswith(job.expected[0])
        assert job.expected[1].startswith("a tab\n")


def test_texts_are_read_on_no_thread_that_others_wait_for(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, loops = fake.encode_text, []

    def encode_text(text: str) -> list[int]:
        with suppress(RuntimeError):
            loops.append(asyncio.get_running_loop())
        return encode(text)

    monkeypatch.setattr(fake, "encode_text", encode_text)
    assert (
        served.chat(n=4, temperature=1, prediction={"type": "content", "content": "\ta"}).status_code == 200
    )
    assert not loops
    assert [job.expected for job in fake.jobs] == [("\ta", "a", "    a")] * 4
    assert len({id(job.request.reference) for job in fake.jobs}) == 1


def test_answers_share_the_deadline_of_their_request(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editor_api.work.monotonic", fake.clock(20))  # four passes for each answer
    first, *_, last = served.chat(n=8, temperature=1, deadline=230).json()["choices"]
    assert first["finish_reason"] == "stop"
    assert last["finish_reason"] == "length"
    assert last["message"]["content"] == ""
    left = [job.request.deadline for job in fake.jobs]
    assert len(left) == 3
    assert all(later < earlier - 4 * 20 for earlier, later in zip(left, left[1:], strict=False))


def test_a_request_without_time_is_told(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = fake.encode_prompt

    def encode_prompt(prompt: Any) -> list[int]:
        time.sleep(0.1)
        return encode(prompt)

    monkeypatch.setattr(fake, "encode_prompt", encode_prompt)
    answer = served.chat(deadline=0.05)
    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    assert not fake.jobs


def test_the_description_is_complete(served: Served) -> None:
    paths = served.client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/edits",
        "/v1/models",
        "/v1/models/{name}",
        "/health",
        "/ready",
        "/metrics",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/props",
        "/infill",
        "/v1/fim/completions",
        "/v1/code/apply",
        "/v1/apply/completions",
        "/v1/edit/completions",
    }
    assert served.client.get("/docs").status_code == 200
