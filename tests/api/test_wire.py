"""The wire contract, byte by byte."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

from editor_api.apply_schemas import ApplyRequest
from editor_api.infill_schemas import FimRequest, InfillRequest
from editor_api.llama_schemas import TokenizeRequest
from editor_api.schemas import ChatRequest, CompletionRequest, EditRequest
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, chat_body, events, stream_kept_alive


def test_a_stream_has_the_headers_that_proxies_and_parsers_need(served: Served) -> None:
    head, _ = served.raw(chat_body(stream=True))
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 200 ok"
    assert b"content-type: text/event-stream; charset=utf-8" in lines
    assert b"cache-control: no-cache" in lines
    assert b"x-accel-buffering: no" in lines
    assert b"content-encoding" not in head.lower()


def test_every_event_is_one_data_line_of_ascii_json(fake: FakeEngine, served: Served) -> None:
    fake.answer = "a\u2028b\u2029c\u0085\x0c\x0b\n\r\U0001f600é"
    _, body = served.raw(chat_body(stream=True))
    assert body.isascii()
    assert b"\r" not in body
    assert body.endswith(b"data: [DONE]\n\n")
    chunks = events(body)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == fake.answer
    assert b": " not in body.split(b"\n\n")[1].removeprefix(b"data: ")


def test_the_order_of_chunks(served: Served) -> None:
    chunks = events(served.raw(chat_body(stream=True))[1])
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert choices[-1]["delta"] == {}
    assert all("usage" not in chunk for chunk in chunks)
    assert {(chunk["id"], chunk["created"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        (chunks[0]["id"], chunks[0]["created"], "chat.completion.chunk", "fake")
    }


def test_usage_is_told_in_one_chunk_of_its_own_and_only_when_asked_for(served: Served) -> None:
    chunks = events(served.raw(chat_body(stream=True, stream_options={"include_usage": True}))[1])
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert chunks[-1]["usage"]["total_tokens"] == 14


def test_legacy_completions_stream_text(served: Served) -> None:
    chunks = events(served.raw(b'{"prompt":"hi","stream":true}', "/v1/completions")[1])
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello, world"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]
    assert all(chunk["choices"] for chunk in chunks)


def test_keep_alives_are_comments_that_end_no_event(fake: FakeEngine) -> None:
    body = stream_kept_alive(fake, chat_body(stream=True))
    assert re.match(rb"(: keepalive\n){2,}data: ", body)
    assert b": keepalive\n\n" not in body
    assert len(events(body)) == 6


def test_an_error_after_the_headers_is_an_event_and_then_done(fake: FakeEngine, served: Served) -> None:
    fake.error = RuntimeError("secret")
    head, body = served.raw(chat_body(stream=True))
    assert head.startswith(b"HTTP/1.1 200")
    chunks = events(body)
    assert chunks[-1]["error"] == {
        "message": "something went wrong: see the service's log",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert b"secret" not in body


def test_an_error_before_the_first_event_is_a_status(fake: FakeEngine, served: Served) -> None:
    fake.answer, fake.error = "x", RuntimeError("secret")
    answer = served.chat(stream=True)
    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["code"] == "internal_error"


def test_a_whole_answer_is_one_compact_line_with_a_length_and_usage(fake: FakeEngine, served: Served) -> None:
    fake.answer = "é\u2028"
    head, body = served.raw(chat_body())
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert body.isascii()
    assert b"\n" not in body
    answer = json.loads(body)
    assert body == json.dumps(answer, separators=(",", ":")).encode()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "é\u2028"
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0


def test_an_empty_answer_is_a_string(fake: FakeEngine, served: Served) -> None:
    fake.answer = ""
    assert served.chat().json()["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize(
    "path",
    [
        *("/chat/completions", "/chat/completions/", "/v1/chat/completions/"),
        *("//v1/chat/completions", "/v1//chat/completions", "//chat//completions//"),
    ],
)
def test_paths_with_and_without_version_and_slash(served: Served, path: str) -> None:
    assert served.raw(chat_body(), path)[0].startswith(b"HTTP/1.1 200")


def test_a_model_is_found_with_and_without_version(served: Served) -> None:
    model = served.client.get("/v1/models/fake").json()
    assert model["id"] == "fake"
    assert served.client.get("/models/fake").json() == model


def test_fields_of_other_servers_are_let_pass(served: Served) -> None:
    odd = {
        "id_slot": 0,
        "samplers": ["top_k"],
        "cache_prompt": True,
        "metadata": {"a": 1},
        "store": False,
        "user": "me",
        "service_tier": "auto",
        "model": "gpt-4o",
        "tools": [],
        "reasoning_effort": "low",
        "stop": None,
        "n": None,
        "max_tokens": -1,
        "seed": -1,
    }
    assert served.chat(**odd).status_code == 200


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_every_role_and_parts_for_content(fake: FakeEngine, served: Served, role: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answer = served.client.post("/v1/chat/completions", json={"messages": [{"role": role, "content": parts}]})
    assert answer.status_code == 200
    assert fake.jobs[-1].request.prompt == [97, 98]


def test_a_warm_up_costs_one_token(fake: FakeEngine, served: Served) -> None:
    assert served.chat(n_predict=0).json()["usage"]["completion_tokens"] == 1
    assert served.chat(n_predict=-1).json()["choices"][0]["finish_reason"] == "stop"
    assert served.chat(max_completion_tokens=5).json()["choices"][0]["finish_reason"] == "length"


def test_text_comes_as_it_is_made(fake: FakeEngine, served: Served) -> None:
    fake.pause_after = 1
    with served.sent(chat_body(stream=True)) as connection:
        while b"Hel" not in connection.recv(4096):
            pass
        assert fake.jobs[0].passes == 1


OPTIONAL: dict[tuple[str, type[BaseModel]], dict[str, Any]] = {
    ("/v1/chat/completions", ChatRequest): {"messages": [{"role": "user", "content": "a"}]},
    ("/v1/completions", CompletionRequest): {"prompt": "a"},
    ("/v1/edits", EditRequest): {"input": "a\n", "instruction": "b"},
    ("/v1/code/apply", ApplyRequest): {"initial_code": "a\n", "edit_snippet": "b"},
    ("/v1/fim/completions", FimRequest): {"prompt": "a"},
    ("/infill", InfillRequest): {},
    ("/tokenize", TokenizeRequest): {"content": "a"},
}


@pytest.mark.parametrize(("path", "schema"), OPTIONAL)
def test_null_is_as_good_as_nothing(served: Served, path: str, schema: type[BaseModel]) -> None:
    body = dict(OPTIONAL[path, schema])
    for name, field in schema.model_fields.items():
        if not field.is_required():
            body.setdefault(field.alias or name, None)
    assert served.client.post(path, json=body).status_code == 200


def test_null_is_as_good_as_nothing_further_down(served: Served) -> None:
    content = [{"type": None, "text": "a"}]
    for options in ({"include_usage": None}, {}, None):
        answer = served.chat(content, stream=True, stream_options=options)
        assert all("usage" not in chunk for chunk in events(answer.content))
    edit = {"input": "a\n", "instruction": "b", "stream_options": {"include_sources": None}}
    assert served.client.post("/v1/edits", json=edit).status_code == 200


def test_null_is_no_value_for_what_is_needed(served: Served) -> None:
    answer = served.client.post("/v1/edits", json={"input": None, "instruction": "b"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "input")


@pytest.mark.parametrize("tools", [{}, [], "x", [{"type": "function"}], None])
def test_tools_are_let_pass_whatever_they_are(served: Served, tools: object) -> None:
    assert served.chat(tools=tools).status_code == 200


def test_false_asks_for_no_logprobs(fake: FakeEngine, served: Served) -> None:
    answer = served.client.post("/v1/completions", json={"prompt": "a", "logprobs": False})
    assert answer.json()["choices"][0]["logprobs"] is None
    assert fake.jobs[0].request.settings["logprobs"] is None
