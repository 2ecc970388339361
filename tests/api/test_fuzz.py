"""Requests made of the right names and any values: never a 5xx. And many clients, some of which leave."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from editor_api.apply_schemas import ApplyRequest
from editor_api.embedded import EmbeddedEngine
from editor_api.infill_schemas import FimRequest, InfillRequest
from editor_api.llama_schemas import DetokenizeRequest, TemplateRequest, TokenizeRequest
from editor_api.schemas import ChatRequest, CompletionRequest, EditRequest
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, chat_body, serving, until

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 3)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "role", "start", "line", "1"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
MARKED = "<|original_code|>a<|/original_code|><|update_snippet|>b<|/update_snippet|>"
MESSAGES = [{"role": "user", "content": "hi"}]
ENDPOINTS: list[tuple[str, Any, dict[str, Any]]] = [
    ("/v1/chat/completions", ChatRequest, {"messages": MESSAGES}),
    ("/v1/completions", CompletionRequest, {"prompt": "hi"}),
    ("/v1/edits", EditRequest, {"input": "a\n", "instruction": "b"}),
    ("/tokenize", TokenizeRequest, {"content": "a"}),
    ("/detokenize", DetokenizeRequest, {"tokens": [97]}),
    ("/apply-template", TemplateRequest, {"messages": MESSAGES}),
    ("/infill", InfillRequest, {"input_prefix": "a"}),
    ("/v1/fim/completions", FimRequest, {"prompt": "a"}),
    ("/v1/code/apply", ApplyRequest, {"initial_code": "a\n", "edit_snippet": "b"}),
    ("/v1/apply/completions", ChatRequest, {"messages": [{"role": "user", "content": MARKED}]}),
    ("/v1/edit/completions", ChatRequest, {"messages": [{"role": "user", "content": "<|code_to_edit|>"}]}),
]


@pytest.fixture(scope="module")
def lasting() -> Iterator[Served]:
    with serving(FakeEngine()) as running:
        yield running


@pytest.mark.parametrize(("path", "schema", "good"), ENDPOINTS, ids=[path for path, _, _ in ENDPOINTS])
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_values_are_answered(
    lasting: Served, path: str, schema: Any, good: dict[str, Any], data: Any
) -> None:
    names = [field.alias or name for name, field in schema.model_fields.items()]
    odd = data.draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=3))
    answer = lasting.client.post(
        path, content=json.dumps(good | odd), headers={"content-type": "application/json"}
    )
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(("path", "schema"), [(path, schema) for path, schema, _ in ENDPOINTS])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_answered(lasting: Served, path: str, schema: Any, body: bytes) -> None:
    answer = lasting.client.post(path, content=body, headers={"content-type": "application/json"})
    try:
        schema.model_validate_json(body)
    except ValidationError:
        assert 400 <= answer.status_code < 500, answer.text
    else:  # rare, such as {"content": ""} for /tokenize
        assert answer.status_code < 500, answer.text


def test_many_clients_of_which_some_leave(tiny_served: Served) -> None:
    """Every answer is that of its single run, and nothing stays behind."""
    engine = tiny_served.server._engine
    assert isinstance(engine, EmbeddedEngine)
    bodies = [
        chat_body(f"count {number}", max_tokens=20, temperature=number % 3 / 2, seed=number)
        for number in range(48)
    ]
    single = [_content(tiny_served, body) for body in bodies]
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    wrong: list[int] = []

    def client(own: int) -> None:
        chance = random.Random(own)
        for number in range(own, len(bodies), 8):
            if chance.random() < 1 / 3:
                with tiny_served.sent(bodies[number]) as connection:
                    connection.settimeout(chance.random() / 50)
                    try:
                        connection.recv(1)
                    except TimeoutError:
                        continue
            elif _content(tiny_served, bodies[number]) != single[number]:
                wrong.append(number)

    clients = [threading.Thread(target=client, args=(own,)) for own in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not wrong
    until(lambda: (engine.capacity.running, engine.capacity.waiting) == (0, 0))
    if descriptors:
        until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def _content(served: Served, body: bytes) -> str:
    return str(json.loads(served.raw(body)[1])["choices"][0]["message"]["content"])
