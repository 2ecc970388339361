"""The service with the default model, end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import openai
import pytest

from editor_api.detect import text_to_edit
from lookupdec import CopyDrafter
from lookupdec.decode import decode
from lookupdec.hf import LanguageModel, generate, load
from lookupdec.hf import Settings as Generation
from tests.api.serving import Served, embedding
from tests.fakes import ScriptedTarget

pytestmark = pytest.mark.model

CODE = "def area(width, height):\n    return width * height\n"
ASKED: Any = [
    {
        "role": "user",
        "content": f"```\n{CODE}```\n\nCopy the text above, line by line, with this change: none.",
    }
]
TOKENS = 24
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load()


@pytest.fixture
def sdk(model_served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{model_served.port}/v1", api_key="none") as client:
        yield client


# The first test: nothing but the service's own warm-up has run before. That all is compiled then is tested, without
# a clock, in test_embedded.
@pytest.mark.slow
def test_the_first_request_costs_no_more_than_later_ones(sdk: openai.OpenAI) -> None:
    seconds = []
    for number in range(10):
        began = process_time()  # the service is in this process; what others compute does not count
        # A session of its own: nothing of the prompt has been read before.
        sdk.chat.completions.create(
            model="any", messages=ASKED, max_tokens=4, extra_body={"session": str(number)}
        )
        seconds.append(process_time() - began)
    # The dearest of the others, since a busy computer has slow moments; compiling a kernel takes seconds.
    assert seconds[0] < 1.5 * max(seconds[1:])


def test_the_answer_is_the_models_own(sdk: openai.OpenAI, model: LanguageModel) -> None:
    expected = generate(model, ASKED, Generation(max_new_tokens=TOKENS)).text
    prediction: Any = {"type": "content", "content": CODE}
    whole = sdk.chat.completions.create(model="any", messages=ASKED, max_tokens=TOKENS, prediction=prediction)
    assert whole.choices[0].message.content == expected
    chunks = sdk.chat.completions.create(model="any", messages=ASKED, max_tokens=TOKENS, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected


def test_predictions_save_passes(sdk: openai.OpenAI) -> None:
    prediction: Any = {"type": "content", "content": CODE}
    fresh = {"prompt_cache_key": "apart from what was answered before"}
    answer = sdk.chat.completions.create(
        model="any", messages=ASKED, max_tokens=TOKENS, prediction=prediction, extra_body=fresh
    )
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert (answer.usage.completion_tokens_details.accepted_prediction_tokens or 0) > 8
    assert answer.model_extra is not None
    timings = answer.model_extra["timings"]
    assert timings["draft_sources"]["reference"]["draft_n_accepted"] > 8
    assert timings["passes"] < TOKENS / 2


def test_an_answer_in_json(sdk: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"language": {"enum": ["python", "lua"]}},
        "required": ["language"],
        "additionalProperties": False,
    }
    answer = sdk.chat.completions.create(
        model="any",
        messages=ASKED,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "language", "schema": schema}},
    )
    assert answer.choices[0].finish_reason == "stop"
    assert json.loads(answer.choices[0].message.content or "")["language"] in ("python", "lua")


def test_code_inside_json_takes_fewer_passes_with_the_reference_that_is_found(model: LanguageModel) -> None:
    """An answer as codecompanion wants it, recited: how many passes it takes with each reference."""
    code = (ROOT / "datasets" / "demo" / "unique_digits.js").read_text().rstrip("\n")
    asked = 'Output only valid JSON: {"code": "...", "language": "..."}'
    contents = [asked, f"Selected:\n<code>\n```javascript\n{code}\n```\n</code>"]
    found = text_to_edit(contents)
    assert found is not None
    answer = [*model.encode_text(found.replace("unique", "distinct")), 0]
    prompt = np.array(model.encode_text("\n".join(contents)), np.int32)

    def passes(reference: str) -> int:
        ids = np.array(model.encode_text(reference), np.int32)
        target = ScriptedTarget(answer)
        list(
            decode(target, CopyDrafter(), prompt, limit=5000, is_last=lambda token: token == 0, reference=ids)
        )
        return target.passes

    assert passes(found) < 0.25 * passes(code)


def test_an_edit(model_served: Served) -> None:
    body = {"input": CODE, "instruction": "Rename width to w.", "max_tokens": TOKENS, "path": "a.py"}
    result = model_served.client.post("/v1/edits", json=body).json()
    assert result["usage"]["completion_tokens"] <= TOKENS
    assert result["timings"]["draft_n_accepted"] > 0


def test_models_tell_the_context(sdk: openai.OpenAI) -> None:
    assert sdk.models.list().data[0].model_extra == {"context_length": 8192, "max_model_len": 8192}


# What is read and found for whom is tested, without a clock, in test_tenants.
@pytest.mark.slow
def test_time_does_not_tell_what_another_tenant_has_read(model: LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("alice\nbob\n")

    def seconds(key: str, text: str) -> float:
        served.client.headers["authorization"] = f"Bearer {key}"
        began = perf_counter()
        assert served.chat(text, max_tokens=1).status_code == 200
        return perf_counter() - began

    with embedding(model, api_keys_file=file) as served:
        texts = [f"Chapter {number}. " + "It was a dark and stormy night. " * 80 for number in range(9)]
        times = [[seconds(key, text) for key in ("alice", "alice", "bob")] for text in texts]
    # Of pairs one after the other: a computer that is busy for a while is so for both. Her own second question shows
    # that a leak would be seen.
    assert median(again / first for first, again, _ in times) < 0.5
    assert median(other / first for first, _, other in times) > 0.7
