"""The embedded engine with a tiny model, behind HTTP: what comes out is what ``lookupdec.hf`` gives."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest

from editor_api.embedded import EmbeddedEngine
from editor_api.engine import EngineUnavailable, Piece, Request
from editor_api.runner import Run, Runner
from lookupdec.hf import LanguageModel, Settings, generate
from tests.api.conftest import TINY
from tests.api.serving import Served, chat_body, embedding, events, serving, until
from tests.hf.tiny import byte_tokenizer, tiny_model

ROOT = Path(__file__).parents[2]
TEXT = "def area(width, height):\n    return width * height\n"


def engine_of(served: Served) -> EmbeddedEngine:
    engine = served.server._engine
    assert isinstance(engine, EmbeddedEngine)
    return engine


def messages(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({}, {}),
        (
            {"temperature": 0.8, "seed": 5, "top_p": 0.9},
            {"temperature": 0.8, "seed": 5, "top_p": 0.9, "top_k": 0},
        ),
        ({"temperature": 1, "seed": 7}, {"temperature": 1.0, "seed": 7, "top_k": 0}),
        (
            {"frequency_penalty": 1.5, "presence_penalty": 1},
            {"frequency_penalty": 1.5, "presence_penalty": 1.0},
        ),
        ({"logit_bias": {"65": 60}}, {"logit_bias": {65: 60.0}}),
    ],
)
def test_answers_are_those_of_the_library(
    tiny_served: Served, tiny_language_model: LanguageModel, fields: dict[str, Any], settings: dict[str, Any]
) -> None:
    expected = generate(tiny_language_model, messages(TEXT), Settings(max_new_tokens=30, **settings)).text
    prediction = {"type": "content", "content": TEXT}
    whole = tiny_served.chat(TEXT, max_tokens=30, **fields).json()
    assert whole["choices"][0]["message"]["content"] == expected
    predicted = tiny_served.chat(TEXT, max_tokens=30, prediction=prediction, **fields).json()
    assert predicted["choices"][0]["message"]["content"] == expected
    streamed = events(tiny_served.raw(chat_body(TEXT, max_tokens=30, stream=True, **fields))[1])
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == expected


def test_samples_are_those_of_consecutive_seeds(
    tiny_served: Served, tiny_language_model: LanguageModel
) -> None:
    answer = tiny_served.chat("hi", max_tokens=12, temperature=1, seed=3, n=3).json()
    expected = [
        generate(
            tiny_language_model,
            messages("hi"),
            Settings(max_new_tokens=12, temperature=1.0, top_k=0, seed=seed),
        )
        for seed in (3, 4, 5)
    ]
    assert [choice["message"]["content"] for choice in answer["choices"]] == [one.text for one in expected]
    assert answer["usage"]["completion_tokens"] == 36
    assert answer["usage"]["prompt_tokens"] == expected[0].stats.prompt_tokens


def test_several_prompts_as_texts_and_ids(tiny_served: Served) -> None:
    by_text = tiny_served.client.post(
        "/v1/completions", json={"prompt": ["ab", "cd"], "max_tokens": 5}
    ).json()
    by_ids = [
        tiny_served.client.post(
            "/v1/completions",
            json={
                "prompt": tiny_served.client.post("/tokenize", json={"content": text}).json()["tokens"],
                "max_tokens": 5,
            },
        ).json()
        for text in ("ab", "cd")
    ]
    assert [choice["text"] for choice in by_text["choices"]] == [one["choices"][0]["text"] for one in by_ids]
    assert [choice["index"] for choice in by_text["choices"]] == [0, 1]


def test_logprobs_have_one_entry_a_token(tiny_served: Served) -> None:
    answer = tiny_served.chat("hi", max_tokens=6, logprobs=True, top_logprobs=2).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 6
    assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 2 for entry in content)
    assert content[0]["top_logprobs"][0]["logprob"] == content[0]["logprob"]
    plain = tiny_served.client.post(
        "/v1/completions", json={"prompt": "hi", "max_tokens": 4, "logprobs": 1}
    ).json()
    logprobs = plain["choices"][0]["logprobs"]
    assert {len(value) for value in logprobs.values()} == {4}


def test_stop_strings_end_the_answer_and_are_not_in_it(
    tiny_served: Served, tiny_language_model: LanguageModel
) -> None:
    text = generate(tiny_language_model, messages("hi"), Settings(max_new_tokens=40)).text
    stop = text[20:23]
    choice = tiny_served.chat("hi", max_tokens=40, stop=stop).json()["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_a_trailing_assistant_message_is_continued(
    tiny_served: Served, tiny_language_model: LanguageModel
) -> None:
    talk: list[dict[str, Any]] = [*messages("hi"), {"role": "assistant", "content": "```\n", "prefix": True}]
    answer = tiny_served.client.post("/v1/chat/completions", json={"messages": talk, "max_tokens": 8}).json()
    expected = generate(tiny_language_model, talk, Settings(max_new_tokens=8))
    assert answer["choices"][0]["message"]["content"] == expected.text


def test_timings_and_usage_add_up(tiny_served: Served) -> None:
    prediction = {
        "type": "content",
        "content": [{"type": "text", "text": TEXT[:20]}, {"type": "text", "text": TEXT[20:]}],
    }
    answer = tiny_served.chat(TEXT, max_tokens=40, prediction=prediction).json()
    usage, timings = answer["usage"], answer["timings"]
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] == len(TEXT)
    assert timings["predicted_n"] == usage["completion_tokens"] == 40
    assert timings["draft_n"] == sum(source["draft_n"] for source in timings["draft_sources"].values())
    assert timings["predicted_n"] == 1 + timings["passes"] + timings["draft_n_accepted"]


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("fields", [{}, {"temperature": 1, "seed": 1}, {"temperature": 1, "seed": 2}])
def test_answers_fit_a_schema_whatever_is_drafted(tiny_served: Served, fields: dict[str, Any]) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    texts = [
        tiny_served.chat(
            "hi", max_tokens=400, response_format=wanted, prediction=prediction, **fields
        ).json()["choices"][0]
        for prediction in (None, {"type": "content", "content": '{"n": 1, "ok": true}'})
    ]
    assert texts[0]["message"] == texts[1]["message"]
    answer = json.loads(texts[0]["message"]["content"])
    assert texts[0]["finish_reason"] == "stop"
    assert answer.keys() == {"n", "ok"}
    assert 0 <= answer["n"] <= 99


def test_any_object(tiny_served: Served) -> None:
    text = tiny_served.chat("hi", max_tokens=30, response_format={"type": "json_object"}).json()
    assert text["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "file:///etc/passwd"},
        {"minLength": "x", "type": "string"},
        {"\ud800": 1, "type": 5},
    ],
)
def test_schemas_that_are_none_are_refused_before_the_first_byte(tiny_served: Served, schema: Any) -> None:
    body = chat_body(response_format={"type": "json_schema", "json_schema": {"schema": schema}}, stream=True)
    head, answer = tiny_served.raw(body)
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(answer)["error"]["message"].startswith("response_format: ")


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 5e-324},
        {"temperature": 1e-5},
        {"temperature": 100},
        {"temperature": 1, "top_p": 5e-324},
        {"temperature": 1, "top_k": 1 << 30, "min_p": 1},
        {"temperature": 1, "logit_bias": {str(token): -100 for token in range(257)}},
        {"deadline": 1e300},
        {"max_tokens": 10**30, "stop": ["x" * 100_000], "content": "x" * 2000},
        {"content": ""},
    ],
)
def test_extreme_values_are_survived(tiny_served: Served, fields: dict[str, Any]) -> None:
    assert tiny_served.chat(**({"max_tokens": 3} | fields)).status_code == 200


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], [[1], []], [257], [-1], [1, "a"]])
def test_prompts_that_are_none_are_refused(tiny_served: Served, prompt: Any) -> None:
    answer = tiny_served.client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 3})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_a_deadline_ends_an_answer_as_a_limit_does(
    tiny_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second passes whenever the generation looks: once per token. Before it there is time enough.
    monkeypatch.setattr(sys.modules["lookupdec.hf.generate"], "monotonic", count().__next__)
    answer = tiny_served.chat("hi", deadline=300).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert 0 < answer["usage"]["completion_tokens"] <= 301


def test_a_prompt_too_long_is_refused_with_the_numbers(tiny_served: Served) -> None:
    error = tiny_served.chat("x" * 3000, stream=True).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "3018" in error["message"]
    assert "2047" in error["message"]


def test_unknown_tokens_in_a_bias_are_refused(tiny_served: Served) -> None:
    answer = tiny_served.chat("hi", logit_bias={"257": 1}, stream=True)
    assert answer.status_code == 400
    assert "0 to 256" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def endless() -> LanguageModel:
    """A tiny model whose context no answer fills while a test runs."""
    model = tiny_model("llama", 3, **TINY | {"max_position_embeddings": 1 << 17})
    return LanguageModel(model, byte_tokenizer(), "endless")


@pytest.fixture(scope="module")
def endless_served(endless: LanguageModel) -> Iterator[Served]:
    with embedding(endless) as running:
        yield running


@pytest.fixture
def narrow(endless: LanguageModel) -> Iterator[Served]:
    """A service with one place to run and one to wait."""
    engine = EmbeddedEngine(lambda: endless, max_running=1, max_queued=1)
    with serving(engine) as running:
        until(lambda: engine.capacity.state == "ready")
        yield running


def leave(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place_within_a_pass(narrow: Served, stream: bool) -> None:
    engine = engine_of(narrow)
    with (
        narrow.sent(chat_body(TEXT, stream=stream)) as running,
        narrow.sent(chat_body(TEXT, stream=stream)) as waiting,
    ):
        until(lambda: (engine.capacity.running, engine.capacity.waiting) == (1, 1))
        refused = narrow.chat()
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        edit = {"input": TEXT, "instruction": "Add type hints."}
        assert narrow.client.post("/v1/edits", json=edit).status_code == 429
        leave(waiting)
        until(lambda: (engine.capacity.running, engine.capacity.waiting) == (1, 0))
        leave(running)
        until(lambda: (engine.capacity.running, engine.capacity.waiting) == (0, 0))
    assert narrow.chat(max_tokens=2).status_code == 200


def test_cancelled_answers_do_not_run_on(narrow: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Run] = []
    next_piece = Run.next_piece

    def noted(run: Run) -> Piece:
        passes.append(run)
        return next_piece(run)

    monkeypatch.setattr(Run, "next_piece", noted)
    with narrow.sent(chat_body(TEXT, stream=True)) as connection:
        while b"content" not in connection.recv(4096):
            pass
        leave(connection)
    until(lambda: engine_of(narrow).capacity.running == 0)
    cancelled = passes[-1]
    passes.clear()
    assert narrow.chat(max_tokens=20).status_code == 200
    assert passes and cancelled not in passes


def test_a_newer_request_of_a_session_replaces_the_older_one(endless_served: Served) -> None:
    engine = engine_of(endless_served)
    answers: dict[str, Any] = {}

    def ask_whole() -> None:
        answers["whole"] = endless_served.raw(chat_body(TEXT, session="a"))

    def ask_streamed() -> None:
        answers["streamed"] = endless_served.raw(chat_body(TEXT, session="b", stream=True))

    threads = [threading.Thread(target=ask) for ask in (ask_whole, ask_streamed)]
    for thread in threads:
        thread.start()
    until(lambda: engine.capacity.running == 2)
    for session in ("a", "b"):
        assert endless_served.chat(session=session, max_tokens=2).status_code == 200
    for thread in threads:
        thread.join()
    assert answers["whole"][0].startswith(b"HTTP/1.1 409")
    assert b"x-should-retry: false" in answers["whole"][0].lower()
    assert events(answers["streamed"][1])[-1]["error"]["code"] == "request_replaced"


def test_a_short_request_does_not_wait_for_a_long_one(endless_served: Served) -> None:
    engine = engine_of(endless_served)
    with endless_served.sent(chat_body(TEXT, stream=True)) as long:
        until(lambda: engine.capacity.running == 1)
        assert endless_served.chat("hi", max_tokens=3).status_code == 200
        assert engine.capacity.running == 1
        leave(long)


@pytest.mark.parametrize("admitted", [True, False])
def test_nothing_begins_after_the_end_of_all(tiny_language_model: LanguageModel, admitted: bool) -> None:
    engine = EmbeddedEngine(lambda: tiny_language_model)
    engine.start()
    until(lambda: engine.capacity.state == "ready")
    request = Request(prompt=[1], settings={}, tenant="", namespace="", deadline=60, admitted=admitted)

    async def submit() -> None:
        engine.drain()
        if admitted:
            engine.submit(request).cancel()
        engine.abort()
        with pytest.raises(EngineUnavailable, match="stopping"):
            engine.submit(request)

    asyncio.run(submit())
    engine.stop()


def test_kv_memory_bounds_how_many_run_at_once(endless: LanguageModel) -> None:
    # 3 layers, 2 heads of 8, keys and values, 4 bytes: 384 bytes a token, 48 MiB a full context.
    engine = EmbeddedEngine(lambda: endless, kv_bytes=64 << 20)
    with serving(engine) as served:
        until(lambda: engine.capacity.state == "ready")
        with served.sent(chat_body(TEXT)), served.sent(chat_body(TEXT)):
            until(lambda: (engine.capacity.running, engine.capacity.waiting) == (1, 1))


def test_a_request_that_waits_past_its_deadline_is_told(narrow: Served) -> None:
    with narrow.sent(chat_body(TEXT)) as long:
        until(lambda: engine_of(narrow).capacity.running == 1)
        late = narrow.chat(deadline=0.05)
        assert late.status_code == 408
        assert late.json()["error"]["code"] == "deadline_exceeded"
        leave(long)


def test_concurrent_answers_equal_single_ones(tiny_served: Served) -> None:
    bodies = [
        chat_body(TEXT + str(number), max_tokens=25, temperature=number % 2, seed=number)
        for number in range(6)
    ]
    single = [tiny_served.raw(body)[1] for body in bodies]
    together: list[bytes] = [b""] * len(bodies)

    def ask(number: int) -> None:
        together[number] = tiny_served.raw(bodies[number])[1]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [_text(body) for body in together] == [_text(body) for body in single]


def test_the_counts_of_a_piece_stay_as_they_are(tiny_language_model: LanguageModel) -> None:
    runner = Runner(tiny_language_model, cache_bytes=0, prefix_bytes=0)
    prompt = tiny_language_model.encode_text(TEXT)
    request = Request(prompt=prompt, settings={"max_new_tokens": 9}, tenant="", namespace="", deadline=60)
    run = runner.begin(request, request.deadline)
    pieces = [run.next_piece()]
    while pieces[-1].finish_reason is None:
        pieces.append(run.next_piece())
    assert [piece.stats.tokens for piece in pieces] == list(
        accumulate(len(one.step.tokens) for one in pieces)
    )
    assert pieces[-1].stats.tokens == 9


@pytest.mark.parametrize("n", [1, 2])
def test_offsets_of_streamed_tokens_are_those_of_their_choice(tiny_served: Served, n: int) -> None:
    body = {"prompt": "hi", "max_tokens": 6, "logprobs": 1, "n": n}
    whole = tiny_served.client.post("/v1/completions", json=body).json()["choices"]
    raw = json.dumps({**body, "stream": True}).encode()
    told: dict[int, list[int]] = {}
    for chunk in events(tiny_served.raw(raw, "/v1/completions")[1]):
        for choice in chunk["choices"]:
            if choice["logprobs"] is not None:
                told.setdefault(choice["index"], []).append(choice["logprobs"]["text_offset"][0])
    for choice in whole:
        firsts = told[choice["index"]]
        assert firsts[0] == 0
        assert firsts == sorted(firsts)
        assert max(firsts) <= len(choice["text"])
    assert len({tuple(firsts) for firsts in told.values()}) == 1


@pytest.mark.parametrize(("held", "rest"), [((3, 6), "\x00"), ((10, 13), ""), ((2, 9), "\x00")])
def test_offsets_do_not_depend_on_when_text_is_told(
    tiny_served: Served, held: tuple[int, int], rest: str
) -> None:
    body: dict[str, Any] = {"prompt": "hello", "max_tokens": 24, "logprobs": 1}
    text = tiny_served.client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    body["stop"] = [text[slice(*held)] + rest]
    whole = tiny_served.client.post("/v1/completions", json=body).json()["choices"][0]
    told: dict[str, list[Any]] = {"tokens": [], "text_offset": []}
    for chunk in events(tiny_served.client.post("/v1/completions", json=body | {"stream": True}).content):
        for name in told:
            told[name] += (chunk["choices"][0]["logprobs"] or {}).get(name, [])
    assert told == {name: whole["logprobs"][name] for name in told}


def test_a_part_of_a_character_has_no_bytes(tiny_served: Served, tiny_language_model: LanguageModel) -> None:
    first, second = tiny_language_model.encode_text("é")
    fields = {"logit_bias": {str(first): 100}, "max_tokens": 1, "logprobs": True, "top_logprobs": 1}
    entry = tiny_served.chat("hi", **fields).json()["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["bytes"]) == ("\ufffd", None)
    fields["logit_bias"] = {str(tiny_language_model.encode_text("a")[0]): 100}
    entry = tiny_served.chat("hi", **fields).json()["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], entry["bytes"]) == ("a", [97])


def test_a_failing_pass_ends_its_request_alone(
    tiny_served: Served, monkeypatch: pytest.MonkeyPatch, tiny_language_model: LanguageModel
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no room for this pass")

    with monkeypatch.context() as patched:
        patched.setattr(type(tiny_language_model.model), "forward", fail)
        answer = tiny_served.chat("hi")
    assert answer.status_code == 500
    assert tiny_served.chat("hi", max_tokens=2).status_code == 200


def test_requests_are_refused_while_the_model_loads_and_when_it_cannot_be(
    tiny_language_model: LanguageModel,
) -> None:
    may_load = threading.Event()

    def load() -> LanguageModel:
        may_load.wait()
        raise ValueError("no such\nmodel")

    engine = EmbeddedEngine(load)
    with serving(engine) as served:
        answer = served.chat()
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert served.client.get("/health").status_code == 200
        assert served.client.get("/ready").status_code == 503
        may_load.set()
        until(lambda: engine.capacity.state == "failed")
        until(lambda: served.server.should_exit)
        assert served.server.failure == "no such model"


def _text(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


# In a process of its own: nothing has run before the service's own warm-up.
COMPILED = """
import gc, json
from numba.core.dispatcher import Dispatcher
from lookupdec.hf import LanguageModel
from tests.api.conftest import TINY
from tests.api.serving import embedding
from tests.hf.tiny import byte_tokenizer, tiny_model

def compiled():
    kernels = [kernel for kernel in gc.get_objects() if isinstance(kernel, Dispatcher)]
    return {(kernel.__name__, str(types)) for kernel in kernels for types in kernel.signatures}

text = "def area(width, height):\\n    return width * height\\n"
with embedding(LanguageModel(tiny_model("llama", 3, **TINY), byte_tokenizer(), "tiny")) as served:
    before = compiled()
    prediction = {"type": "content", "content": text}
    for fields in ({}, {"prediction": prediction}, {"temperature": 1, "seed": 1}):
        assert served.chat(text, max_tokens=60, **fields).json()["timings"]["draft_n"] > 0
    edit = {"input": text, "instruction": "x", "max_tokens": 60, "allow_incomplete": True}
    assert served.client.post("/v1/edits", json=edit).status_code == 200
    print(json.dumps([len(before), sorted(compiled() - before)]))
"""


def test_the_first_requests_compile_nothing() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    n_warm, new = json.loads(done.stdout)
    assert new == []
    assert n_warm > 5
