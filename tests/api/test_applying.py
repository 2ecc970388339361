"""Snippets merged into texts: Relace's endpoint, Morph's tags, Mercury's endpoints."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from editor_api.applying import Change, marked_change, tagged_change
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, chat_body, events

CODE = "def f(x):\n    return x\n\n\ndef g():\n    pass\n"
SNIPPET = "def f(x: int) -> int:\n    return x\n\n# ... existing code ..."
MERGED = CODE.replace("f(x)", "f(x: int) -> int")
TAGS = f"<instruction>Add types.</instruction>\n<code>{CODE}</code>\n<update>{SNIPPET}</update>"
MARKS = f"<|original_code|>\n{CODE}\n<|/original_code|>\n\n<|update_snippet|>\n{SNIPPET}\n<|/update_snippet|>"


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(answer=f"```\n{MERGED}```\n")


def asked(fake: FakeEngine) -> str:
    return fake.decode(fake.jobs[-1].request.prompt)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<code>a</code><update>b</update>", Change("a", "b")),
        ("<code>a</code>\n\n<update>b</update>\n", Change("a", "b")),
        ("<instruction>i</instruction>\n<code>a\n</code>\n<update>b</update>", Change("a\n", "b", "i")),
        ("<instructions>i</instructions><code>a</code><update>b</update>", Change("a", "b", "i")),
        ("<code></code></code>\n<update><update></update>", Change("</code>", "<update>")),
        ("Look: <code>a</code><update>b</update>", None),
        ("<code>a</code><update>b</update> and more", None),
        ("<code>a<update>b</update>", None),
        ("<instruction>i<code>a</code><update>b</update>", None),
        ("", None),
    ],
)
def test_morphs_tags_are_read(content: str, expected: Change | None) -> None:
    assert tagged_change(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (MARKS, Change(CODE, SNIPPET)),
        ("<|original_code|>a<|/original_code|><|update_snippet|>b<|/update_snippet|>", Change("a", "b")),
        ("<|original_code|>a<|/original_code|>", None),
        ("<|original_code|>a<|update_snippet|>b<|/update_snippet|>", None),
    ],
)
def test_mercurys_marks_are_read(content: str, expected: Change | None) -> None:
    assert marked_change(content) == expected


def test_a_snippet_with_code_blocks_gets_a_longer_fence() -> None:
    assert Change("a", "```\nx\n```\n").as_instruction.endswith("\n````\n```\nx\n```\n````")


@pytest.mark.parametrize(
    "body",
    [
        {"initialCode": CODE, "editSnippet": SNIPPET},
        {
            "model": "relace-apply-3",
            "initial_code": CODE,
            "edit_snippet": SNIPPET,
            "instruction": "Add types.",
            "stream": False,
        },
    ],
)
def test_relaces_old_and_new_shape(fake: FakeEngine, served: Served, body: dict[str, Any]) -> None:
    answer = served.client.post("/v1/code/apply", json=body).json()
    assert answer["mergedCode"] == MERGED
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + len(fake.answer)
    assert fake.jobs[0].expected[0] == CODE
    assert SNIPPET in asked(fake)
    assert ("Add types." in asked(fake)) == ("instruction" in body)


def test_relaces_stream_is_one_event(served: Served) -> None:
    body = {"initialCode": CODE, "editSnippet": SNIPPET, "stream": True}
    (told,) = events(served.raw(json.dumps(body).encode(), "/code/apply")[1])
    assert told["mergedCode"] == MERGED


@pytest.mark.parametrize(
    "content", [TAGS, TAGS.replace("instruction>", "instructions>"), TAGS[TAGS.find("<code>") :]]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/apply/chat/completions"])
def test_morphs_tags_in_a_chat_give_the_merged_file(
    fake: FakeEngine, served: Served, content: str, path: str
) -> None:
    body = {"model": "morph-v3-fast", "messages": [{"role": "user", "content": content}]}
    answer = served.client.post(path, json=body).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == MERGED
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "<code>" not in asked(fake)


def test_a_streamed_merge_has_the_chunks_of_a_chat(served: Served) -> None:
    raw = chat_body(TAGS, stream=True, stream_options={"include_usage": True})
    chunks = events(served.raw(raw)[1])
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == MERGED
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    "fields", [{"n": 2}, {"stop": "x"}, {"response_format": {"type": "json_object"}}, {"logprobs": True}]
)
def test_a_chat_that_asks_for_more_than_an_edit_is_a_chat(
    fake: FakeEngine, served: Served, fields: dict[str, Any]
) -> None:
    served.chat(TAGS, **fields)
    assert asked(fake) == TAGS
    assert fake.jobs[0].expected[0] == CODE


def test_tags_in_a_longer_conversation_are_a_chat(fake: FakeEngine, served: Served) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": TAGS}]
    served.client.post("/v1/chat/completions", json={"messages": messages})
    assert asked(fake) == "s" + TAGS


@pytest.mark.parametrize("stream", [False, True])
def test_mercurys_apply_endpoint(fake: FakeEngine, served: Served, stream: bool) -> None:
    body = {"model": "mercury-coder", "messages": [{"role": "user", "content": MARKS}], "stream": stream}
    if stream:
        chunks = events(served.raw(json.dumps(body).encode(), "/v1/apply/completions")[1])
        content = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    else:
        answer = served.client.post("/v1/apply/completions", json=body).json()
        content = answer["choices"][0]["message"]["content"]
    assert content == MERGED


def test_mercurys_next_edit_endpoint(fake: FakeEngine, served: Served) -> None:
    content = "current_file_path: a.py\n<|code_to_edit|>\nx = <|cursor|>1\n<|/code_to_edit|>"
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 64}
    answer = served.client.post("/v1/edit/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == fake.answer
    assert fake.jobs[0].expected[0] == "x = 1\n"
    assert asked(fake).startswith("You predict a programmer's next edit.")
    own = [{"role": "system", "content": "mine"}, *body["messages"]]  # type: ignore[misc]
    served.client.post("/v1/edit/completions", json={"messages": own})
    assert asked(fake) == "mine" + content


def post(served: Served, path: str, body: dict[str, Any]) -> httpx2.Response:
    return served.client.post(path, json=body)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/code/apply", {"initialCode": "", "editSnippet": SNIPPET}, "initial_code"),
        ("/v1/code/apply", {"initial_code": CODE, "edit_snippet": " \n"}, "initial_code"),
        ("/v1/chat/completions", {"content": "<code></code><update>x</update>"}, "messages"),
        ("/v1/apply/completions", {"content": "hi"}, "messages"),
        ("/v1/edit/completions", {"content": "hi"}, "messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_without_what_it_takes_is_told(
    fake: FakeEngine, served: Served, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    if "content" in body:
        body = {"messages": [{"role": "user", **body}]}
    answer = post(served, path, body | {"stream": stream})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not fake.jobs


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_leaves_text_out_is_never_given_as_the_file(
    fake: FakeEngine, served: Served, stream: bool
) -> None:
    fake.answer = SNIPPET
    for path, body in (
        ("/v1/code/apply", {"initialCode": CODE, "editSnippet": SNIPPET}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": TAGS}]}),
    ):
        answer = post(served, path, body | {"stream": stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (500, "incomplete_answer")
        assert "left text out" in error["message"]
        assert answer.headers["x-should-retry"] == "false"


def test_settings_reach_the_model(fake: FakeEngine, served: Served) -> None:
    fields = {"max_tokens": 500, "temperature": 0.5, "seed": 9, "prompt_cache_key": "k"}
    post(served, "/v1/code/apply", {"initialCode": CODE, "editSnippet": SNIPPET} | fields)
    served.chat(TAGS, **fields)
    for job in fake.jobs:
        settings = job.request.settings
        assert (settings["max_new_tokens"], settings["temperature"], settings["seed"]) == (500, 0.5, 9)
        assert job.request.namespace.endswith('/[null, "k"]')


@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "text"}}, {"response_format": None}, {"logprobs": False}, {"n": 1}],
)
def test_fields_that_ask_for_nothing_special_change_nothing(served: Served, fields: dict[str, Any]) -> None:
    assert served.chat(TAGS, **fields).json()["choices"][0]["message"]["content"] == MERGED


def test_a_schema_makes_an_ordinary_chat_of_it(fake: FakeEngine, served: Served) -> None:
    served.chat(TAGS, response_format={"type": "json_object"})
    assert asked(fake) == TAGS


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/apply/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_predictions_are_counted(fake: FakeEngine, served: Served, path: str, stream: bool) -> None:
    prediction = {"type": "content", "content": MERGED + "\x00"}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": TAGS}], "prediction": prediction}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        usage = events(served.client.post(path, json=body).content)[-1]["usage"]
    else:
        usage = served.client.post(path, json=body).json()["usage"]
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == len(MERGED)
    assert details["rejected_prediction_tokens"] == 1
    assert usage["completion_tokens"] >= len(MERGED)
    plain = served.chat(TAGS).json()["usage"]["completion_tokens_details"]
    assert plain["accepted_prediction_tokens"] == plain["rejected_prediction_tokens"] == 0
