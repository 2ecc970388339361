"""Real clients against the running service: OpenAI's Python SDK, and the parsers of editors as they are written."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.api.fakes import FakeEngine
from tests.api.serving import PATIENCE, Served, chat_body, serving, stream_kept_alive

HERE = Path(__file__).parent
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def sdk(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{served.port}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def test_sdk_whole_chat(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model="any",
        messages=HI,
        prediction={"type": "content", "content": "Hello, moon"},
        max_completion_tokens=100,
    )
    assert answer.choices[0].message.content == "Hello, world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens == 8
    assert answer.id.removeprefix("chatcmpl-") == answer._request_id


def test_sdk_streamed_chat(sdk: openai.OpenAI) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model="any", messages=HI, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello, world"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 14


def test_sdk_stream_helper(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(model="any", messages=HI) as stream:
        assert stream.get_final_completion().choices[0].message.content == "Hello, world"


def test_sdk_completions(sdk: openai.OpenAI) -> None:
    assert sdk.completions.create(model="any", prompt="hi").choices[0].text == "Hello, world"
    chunks = list(sdk.completions.create(model="any", prompt="hi", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello, world"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_sdk_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["fake", "fake-Fast-Apply"]
    assert sdk.models.retrieve("fake").id == "fake"


def test_sdk_errors(sdk: openai.OpenAI, fake: FakeEngine) -> None:
    with pytest.raises(openai.BadRequestError) as too_long:
        sdk.chat.completions.create(model="any", messages=[{"role": "user", "content": "x" * 1000}])
    assert too_long.value.code == "context_length_exceeded"
    assert too_long.value.request_id
    with pytest.raises(openai.UnprocessableEntityError):
        sdk.chat.completions.create(model="any", messages=HI, temperature=-1)
    fake.room = 0
    with pytest.raises(openai.RateLimitError):
        sdk.chat.completions.create(model="any", messages=HI)
    fake.room, fake.error = 9, RuntimeError()
    with pytest.raises(openai.APIError, match="something went wrong"):
        list(sdk.chat.completions.create(model="any", messages=HI, stream=True))


def test_sdk_retries_a_full_queue_and_no_failed_generation(fake: FakeEngine) -> None:
    fake.answer, fake.error = "x", RuntimeError()
    with (
        serving(fake) as served,
        openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}", api_key="none", max_retries=2) as sdk,
        pytest.raises(openai.InternalServerError),
    ):
        sdk.chat.completions.create(model="any", messages=HI)
    assert len(fake.jobs) == 1


def test_sdk_sends_the_key(fake: FakeEngine, tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("key-of-mine\n")
    with serving(fake, api_keys_file=file) as served:
        base = f"http://127.0.0.1:{served.port}/v1"
        with openai.OpenAI(base_url=base, api_key="key-of-mine") as good:
            assert good.chat.completions.create(model="any", messages=HI).choices
        with openai.OpenAI(base_url=base, api_key="other") as bad, pytest.raises(openai.AuthenticationError):
            bad.models.list()


def node_with_sdk() -> bool:
    """Whether Node.js is here and finds the ``openai`` package, in NODE_PATH or in a folder above."""
    if shutil.which("node") is None:
        return False
    return (
        subprocess.run(["node", "-e", "require.resolve('openai')"], cwd=HERE, capture_output=True).returncode
        == 0
    )


@pytest.mark.skipif(not node_with_sdk(), reason="needs node and its package openai: npm install openai")
def test_node_sdk(served: Served, fake: FakeEngine) -> None:
    script, base = str(HERE / "node_sdk.mjs"), f"http://127.0.0.1:{served.port}/v1"
    done = subprocess.run(["node", script, base], capture_output=True, text=True, cwd=HERE, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "whole": "Hello, world",
        "streamed": "Hello, world",
        "total_tokens": 14,
        "first_piece": "Hel",
        "error": {"status": 422, "code": "invalid_value", "has_id": True},
        "models": ["fake", "fake-Fast-Apply"],
    }


@pytest.fixture(scope="module")
def stream() -> str:
    """A stream with keep-alives and a usage chunk, as text."""
    return stream_kept_alive(
        FakeEngine(), chat_body(stream=True, stream_options={"include_usage": True})
    ).decode()


def test_continues_parser(stream: str) -> None:
    """Takes lines with or without a space after "data:", stops at ": ping", keeps text of usage chunks back."""
    text = ""
    for line in stream.split("\n"):
        assert not line.startswith(": ping")
        if not line.startswith("data:") or line[5:].strip() == "[DONE]":
            continue
        chunk = json.loads(line[5:])
        if chunk.get("usage"):
            assert not chunk["choices"]
        else:
            text += chunk["choices"][0]["delta"].get("content") or ""
    assert text == "Hello, world"


def test_zeds_parser(stream: str) -> None:
    """Wants an index that is a whole number, a role in lower case, and the whole chunk typed."""
    text = ""
    for line in stream.split("\n"):
        rest = line.removeprefix("data: ") if line.startswith("data: ") else ""
        if not rest or rest == "[DONE]":
            continue
        for choice in json.loads(rest)["choices"]:
            assert isinstance(choice["index"], int)
            assert choice["delta"].get("role", "assistant") == "assistant"
            text += choice["delta"].get("content") or ""
    assert text == "Hello, world"


def test_llama_vims_and_gp_nvims_parser(stream: str) -> None:
    """Take lines that begin with "data: ", and of those the ones with content."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: ")]
    contents = [
        json.loads(line) for line in lines if "choices" in line and "delta" in line and "content" in line
    ]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in contents) == "Hello, world"


def test_avantes_parser(stream: str) -> None:
    """Joins lines that are no data and tries them as JSON; ends with a finish reason or [DONE]."""
    assert "".join(line for line in stream.split("\n") if not line.startswith(("data:", ":"))) == ""
    finished = [line for line in stream.split("\n") if '"finish_reason":"stop"' in line]
    assert len(finished) == 1


def test_an_old_event_source_parser(stream: str) -> None:
    """An event ends at a blank line; a comment alone makes no event."""
    data: list[str] = []
    events: list[str] = []
    for line in stream.split("\n"):
        if line.startswith("data: "):
            data.append(line[6:])
        elif not line and data:
            events.append("\n".join(data))
            data.clear()
        elif not line:
            assert len(events) and events[-1] == "[DONE]"
    assert [json.loads(event) for event in events[:-1]]


def test_zeds_edit_predictions_are_whole_and_typed(served: Served) -> None:
    body = {
        "model": "zeta2",
        "prompt": "hi",
        "max_tokens": 64,
        "stop": ["<|a|>", "<|b|>", "<|c|>", "<|d|>", "<|e|>"],
    }
    answer = served.client.post("/v1/completions", json=body).json()
    assert {"id", "object", "created", "model", "choices", "usage"} <= answer.keys()
    assert isinstance(answer["choices"][0]["text"], str)
    assert {"prompt_tokens", "completion_tokens", "total_tokens"} <= answer["usage"].keys()
