"""What llama.cpp's clients ask before they generate, and models that have no chat template."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from lookupdec.hf import LanguageModel, Settings, generate
from tests.api.conftest import TINY
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, embedding, serving
from tests.hf.tiny import byte_tokenizer, tiny_model

HI = [{"role": "user", "content": "hi"}]


def test_properties_tell_context_and_template(fake: FakeEngine, served: Served) -> None:
    fake.chat_template = "{{ messages }}"
    told = served.client.get("/props", params={"model": "fake", "autoload": "false"}).json()
    assert told["default_generation_settings"]["n_ctx"] == 1000
    assert told["chat_template"] == "{{ messages }}"
    assert (told["total_slots"], told["model_alias"]) == (4, "fake")
    fake.chat_template = None
    assert served.client.get("/v1/props").json()["chat_template"] == ""


def test_properties_of_another_model_where_names_matter(fake: FakeEngine) -> None:
    with serving(fake, strict_model=True) as served:
        assert served.client.get("/props?model=other").status_code == 404


def test_messages_are_written_as_the_model_reads_them(tiny_served: Served) -> None:
    answer = tiny_served.client.post("/apply-template", json={"messages": HI})
    assert answer.json() == {"prompt": "[user]hi\n[assistant]"}
    begun = [*HI, {"role": "assistant", "content": "yes"}]
    written = tiny_served.client.post("/apply-template", json={"messages": begun}).json()["prompt"]
    assert written == "[user]hi\n[assistant]yes"


def test_tokens_with_their_texts_and_back(tiny_served: Served) -> None:
    post = tiny_served.client.post
    told = post("/tokenize", json={"content": "hi", "with_pieces": True, "add_special": True}).json()
    assert [token["piece"] for token in told["tokens"]] == ["h", "i"]
    ids = post("/tokenize", json={"content": "hé"}).json()["tokens"]
    assert post("/detokenize", json={"tokens": ids}).json() == {"content": "hé"}
    assert post("/detokenize", json={"tokens": []}).json() == {"content": ""}
    assert post("/tokenize", json={"content": "", "add_special": True}).json()["tokens"] == []
    assert post("/detokenize", json={"tokens": [99999]}).status_code == 400


def test_texts_are_read_and_written_on_no_thread_that_others_wait_for(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, threads = fake.decode, set()

    def decoded(ids: Sequence[int]) -> str:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            threads.add("the event loop's")
        return decode(ids)

    monkeypatch.setattr(fake, "decode", decoded)
    post = served.client.post
    assert post("/tokenize", json={"content": "ab", "with_pieces": True}).json()["tokens"] == [
        {"id": 97, "piece": "a"},
        {"id": 98, "piece": "b"},
    ]
    assert post("/detokenize", json={"tokens": [97]}).json() == {"content": "a"}
    assert post("/apply-template", json={"messages": HI}).json() == {"prompt": "hi"}
    assert not threads


def test_the_texts_of_tokens_are_told_for_a_few_contexts(served: Served) -> None:
    def tokenized(length: int, **fields: Any) -> Any:
        return served.client.post("/tokenize", json={"content": "x" * length, **fields})

    assert tokenized(4000, with_pieces=True).status_code == 200
    refused = tokenized(4001, with_pieces=True)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "with_pieces"
    assert tokenized(4001).json()["count"] == 4001


def test_health_under_both_paths(served: Served) -> None:
    for path in ("/health", "/v1/health"):
        assert served.client.get(path).json()["status"] == "ok"


@pytest.fixture(scope="module")
def base_model() -> LanguageModel:
    """A tiny model that only continues text."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    return LanguageModel(tiny_model("llama", 3, **TINY), tokenizer, "base")


@pytest.fixture(scope="module")
def base(base_model: LanguageModel) -> Iterator[Served]:
    with embedding(base_model) as running:
        yield running


def test_a_model_without_template_continues_a_code_block(base: Served, base_model: LanguageModel) -> None:
    expected = generate(
        base_model, "hi\n\nThe result:\n\n```\n", Settings(max_new_tokens=30, stop="\n```")
    ).text
    assert base.chat("hi", max_tokens=30).json()["choices"][0]["message"]["content"] == expected
    prompt = base.client.post("/apply-template", json={"messages": HI}).json()["prompt"]
    assert prompt == "hi\n\nThe result:\n\n```\n"
    assert base.client.post("/tokenize", json={"messages": HI}).json()["count"] == len(prompt)
    assert base.client.get("/props").json()["chat_template"] == ""


def test_a_model_without_template_continues_the_assistants_message(
    base: Served, base_model: LanguageModel
) -> None:
    expected = generate(base_model, "hi\n\nThe result:\n\n```py\nab", Settings(max_new_tokens=20)).text
    begun = [*HI, {"role": "assistant", "content": "```py\nab"}]
    answer = base.client.post("/v1/chat/completions", json={"messages": begun, "max_tokens": 20}).json()
    assert answer["choices"][0]["message"]["content"] == expected


def test_a_model_without_template_edits(base: Served) -> None:
    body: dict[str, Any] = {"input": "a = 1\n", "instruction": "Rename a.", "max_tokens": 20}
    answer = base.client.post("/v1/edits", json=body | {"allow_incomplete": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] <= 20


def test_a_model_without_template_streams_a_chat(base: Served) -> None:
    body = {"messages": HI, "max_tokens": 5, "stream": True}
    head, data = base.raw(json.dumps(body).encode())
    assert head.startswith(b"HTTP/1.1 200") and data.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        "any",
        {"type": "function", "function": {"name": "edit"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
        {"name": "edit"},
    ],
)
def test_a_forced_tool_is_refused(fake: FakeEngine, served: Served, choice: object) -> None:
    answer = served.chat(tools=[{"type": "function", "function": {"name": "edit"}}], tool_choice=choice)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "tool_choice", "unsupported_value")
    assert not fake.jobs


@pytest.mark.parametrize(
    "choice",
    ["auto", "none", None, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}],
)
def test_tools_that_need_not_be_called_are_let_pass(served: Served, choice: object) -> None:
    tools = [{"type": "function", "function": {"name": "edit", "parameters": {"type": "object"}}}]
    assert served.chat(tools=tools, tool_choice=choice, parallel_tool_calls=True).status_code == 200
