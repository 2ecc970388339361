"""Bodies with millions of wrong items: one error is told, and nobody waits for the others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from editor_api.infill_schemas import InfillRequest
from editor_api.llama_schemas import DetokenizeRequest, TokenizeRequest
from editor_api.schemas import ChatRequest, CompletionRequest, EditRequest
from tests.api.serving import Served
from tests.api.test_rules import SCHEMAS

MANY = 10_000
MESSAGE = {"role": "user", "content": "a"}
EDIT = {"input": "a", "instruction": "b"}
WRONG: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (ChatRequest, {"messages": [0] * MANY}),
    (ChatRequest, {"messages": [MESSAGE, {"role": "user", "content": [{}] * MANY}]}),
    (ChatRequest, {"messages": [{"role": "user", "content": [{}] * 9}] * MANY}),
    (ChatRequest, {"messages": [MESSAGE], "stop": [{}] * MANY}),
    (ChatRequest, {"messages": [MESSAGE], "logit_bias": {f"k{number}": "v" for number in range(MANY)}}),
    (ChatRequest, {"messages": [MESSAGE], "prediction": {"type": "content", "content": [0] * MANY}}),
    (CompletionRequest, {"prompt": [{}] * MANY}),
    (CompletionRequest, {"prompt": ["a", *[0] * MANY]}),
    (CompletionRequest, {"prompt": [[1], *["a"] * MANY]}),
    (CompletionRequest, {"prompt": [["a"] * MANY] * 9}),
    (EditRequest, {**EDIT, "context": [0] * MANY}),
    (EditRequest, {**EDIT, "selection": ["a"] * MANY}),
    (EditRequest, {**EDIT, "prediction": [0] * MANY}),
    (EditRequest, {**EDIT, "return": [0] * MANY}),
    (InfillRequest, {"input_extra": [0] * MANY}),
    (InfillRequest, {"response_fields": [0] * MANY}),
    (TokenizeRequest, {"messages": [0] * MANY}),
    (DetokenizeRequest, {"tokens": ["a"] * MANY}),
]


def collections(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all that may hold any number of items in what pydantic made of a request."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "dict", "set", "tuple"):
            yield schema
        for name, value in schema.items():
            if name != "metadata":
                yield from collections(value)
    elif isinstance(schema, list | tuple):
        for item in schema:
            yield from collections(item)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_no_list_of_a_request_collects_errors(schema: type[BaseModel]) -> None:
    for found in collections(schema.__pydantic_core_schema__):
        items = found.get("items_schema") or found.get("values_schema", {})
        fixed = found["type"] == "tuple" and "variadic_item_index" not in found
        assert fixed or found.get("fail_fast") or items.get("type") == "any"


@pytest.mark.parametrize(("schema", "body"), WRONG)
def test_few_errors_are_made_of_many_wrong_items(schema: type[BaseModel], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        schema.model_validate(body)
    assert raised.value.error_count() <= 4  # a union has some for each of its kinds


@pytest.mark.parametrize(
    ("path", "begin", "item"),
    [
        ("/v1/chat/completions", b'{"messages":[', b"0,"),
        ("/v1/chat/completions", b'{"messages":[', b'{"role":"tool"},'),
        ("/v1/completions", b'{"prompt":[', b"{},"),
        ("/v1/completions", b'{"prompt":[', b'"",'),
        ("/v1/edits", b'{"input":"a","instruction":"b","context":[', b"0,"),
    ],
)
def test_a_large_body_takes_about_the_time_to_read_it(
    served: Served, path: str, begin: bytes, item: bytes
) -> None:
    body = begin + item * ((8_000_000 - len(begin)) // len(item)) + item[:-1] + b"]}"
    began = time.process_time()
    json.loads(body)
    reading = time.process_time() - began
    began = time.process_time()
    head, _ = served.raw(body, path)
    assert time.process_time() - began < 1.0 + 10 * reading
    assert head.startswith((b"HTTP/1.1 422", b"HTTP/1.1 400"))
