"""Filling gaps over HTTP: Mistral's endpoint, llama.cpp's, and suffixes of completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lookupdec.hf import LanguageModel, Settings, generate
from tests.api.conftest import TINY
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, embedding, events, until
from tests.api.test_infill import QWEN, tokenizer_with
from tests.hf.tiny import tiny_model

GAP: dict[str, Any] = {"input_prefix": "a\n", "input_suffix": "\nz\n", "prompt": "b"}


def infill(served: Served, **fields: Any) -> Any:
    answer = served.client.post("/infill", json=GAP | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def prompts(fake: FakeEngine) -> list[str]:
    return [fake.decode(job.request.prompt) for job in fake.jobs]


def test_mistrals_shape(fake: FakeEngine, served: Served) -> None:
    body = {"model": "codestral", "prompt": "ab", "suffix": "yz", "random_seed": 4, "temperature": 0.5}
    answer = served.client.post("/v1/fim/completions", json=body).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "Hello, world"
    assert prompts(fake) == ["<ab|yz>"]
    assert fake.jobs[0].request.settings["seed"] == 4
    assert fake.jobs[0].request.settings["eos_token_id"] == (7,)


def test_mistrals_stream_has_deltas(served: Served) -> None:
    raw = json.dumps({"prompt": "ab", "suffix": "yz", "stream": True}).encode()
    chunks = events(served.raw(raw, "/fim/completions")[1])
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello, world"


def test_llama_cpps_shape(fake: FakeEngine, served: Served) -> None:
    extra = [{"filename": "o.py", "text": "o", "time": [1, 2]}]
    answer = infill(served, input_extra=extra, n_predict=64, id_slot=2, cache_prompt=True, samplers=["top_k"])
    assert prompts(fake) == ["(o.py:o)<a\nb|\nz\n>"]
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("Hello, world", True, "word")
    assert (answer["tokens_predicted"], answer["truncated"], answer["id_slot"]) == (12, False, 2)
    assert answer["tokens_evaluated"] == len(prompts(fake)[0])
    assert answer["generation_settings"]["n_predict"] == 64
    assert {"prompt_per_second", "predicted_per_token_ms", "draft_n"} <= answer["timings"].keys()


def test_the_fields_asked_for_are_told_under_their_paths(served: Served) -> None:
    wanted = ["content", "timings/prompt_n", "timings/nothing", "tokens_cached", "content/x"]
    answer = infill(served, response_fields=wanted)
    assert answer == {"content": "Hello, world", "timings/prompt_n": 9, "tokens_cached": 21}
    assert infill(served, response_fields=[""]) == {}


def test_a_warm_up_says_nothing_and_costs_one_token(fake: FakeEngine, served: Served) -> None:
    answer = infill(served, n_predict=0, samplers=[], t_max_predict_ms=1)
    assert answer["content"] == ""
    assert fake.jobs[0].request.settings["max_new_tokens"] == 1


def test_a_streamed_answer_ends_with_its_counts(served: Served) -> None:
    _, body = served.raw(json.dumps(GAP | {"stream": True}).encode(), "/infill")
    told = [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n")[:-1]]
    assert "".join(part["content"] for part in told) == "Hello, world"
    assert [part["stop"] for part in told] == [False] * (len(told) - 1) + [True]
    assert told[-1]["tokens_predicted"] == 12


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("if x:\n        y\n    z\nq", "if x:\n        y\n    z"),
        ("a\n\n    b\n\nc", "a\n\n    b\n"),
        ("a\n\tb", "a"),
        ("a\n    b\n  ", "a\n    b\n  "),
        ("a", "a"),
    ],
)
def test_an_answer_ends_before_a_line_that_is_indented_less(
    fake: FakeEngine, served: Served, answer: str, expected: str, stream: bool
) -> None:
    fake.answer = answer
    if not stream:
        assert infill(served, n_indent=4)["content"] == expected
        return
    _, body = served.raw(json.dumps(GAP | {"n_indent": 4, "stream": True}).encode(), "/infill")
    told = [json.loads(line.removeprefix(b"data: "))["content"] for line in body.split(b"\n\n")[:-1]]
    assert "".join(told) == expected


def test_an_answer_ends_in_time_once_it_has_a_line(
    fake: FakeEngine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editor_api.filling.monotonic", fake.clock(0.02))
    fake.answer = "one\ntwo" * 40
    answer = infill(served, t_max_predict_ms=100)
    assert 4 < len(answer["content"]) < 200
    assert (answer["stop_type"], answer["timings"]["predicted_n"]) == ("limit", len(answer["content"]))
    until(lambda: fake.capacity.running == 0)
    fake.answer = "no line"
    assert infill(served, t_max_predict_ms=1)["content"] == "no line"


def test_several_answers_come_as_a_list_of_different_draws(fake: FakeEngine, served: Served) -> None:
    answers = infill(served, n_cmpl=2, seed=5)
    assert [answer["index"] for answer in answers] == [0, 1]
    assert [job.request.settings["seed"] for job in fake.jobs] == [5, 6]
    assert {job.request.settings["temperature"] for job in fake.jobs} == {0.8}


def test_a_long_prompt_is_cut_and_the_answer_says_so(fake: FakeEngine, served: Served) -> None:
    answer = infill(served, input_prefix="x" * 5000, n_predict=100)
    assert answer["truncated"]
    assert len(fake.jobs[0].request.prompt) == 900


def test_completions_take_a_suffix(fake: FakeEngine, served: Served) -> None:
    body = {"prompt": ["ab", "cd"], "suffix": "yz"}
    answer = served.client.post("/v1/completions", json=body).json()
    assert prompts(fake) == ["<ab|yz>", "<cd|yz>"]
    assert [choice["text"] for choice in answer["choices"]] == ["Hello, world"] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_completions_echo_their_prompts(fake: FakeEngine, served: Served, stream: bool) -> None:
    body = {"prompt": ["ab", "cd"], "echo": True, "n": 2, "stream": stream}
    if stream:
        choices = [
            chunk["choices"][0]
            for chunk in events(served.raw(json.dumps(body).encode(), "/v1/completions")[1])
        ]
    else:
        choices = served.client.post("/v1/completions", json=body).json()["choices"]
    texts = ["".join(one["text"] for one in choices if one["index"] == index) for index in range(4)]
    assert texts == ["abHello, world"] * 2 + ["cdHello, world"] * 2


def test_ids_are_echoed_as_text(served: Served) -> None:
    body = {"prompt": [97, 98], "echo": True}
    assert served.client.post("/v1/completions", json=body).json()["choices"][0]["text"] == "abHello, world"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/infill", GAP, "input_prefix"),
        ("/v1/fim/completions", {"prompt": "a"}, "prompt"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
    ],
)
def test_a_model_without_tokens_for_gaps_is_told(
    fake: FakeEngine, served: Served, path: str, body: dict[str, Any], param: str
) -> None:
    fake.fills = False
    answer = served.client.post(path, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_value", param)
    assert "no fill-in-the-middle tokens" in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [97], "suffix": "b"}, "suffix"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
    ],
)
def test_what_completions_cannot_do_is_told(served: Served, body: dict[str, Any], param: str) -> None:
    answer = served.client.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.fixture(scope="module")
def filler() -> LanguageModel:
    """A tiny model whose tokenizer has the tokens for gaps."""
    return LanguageModel(
        tiny_model("llama", 4, **TINY | {"vocab_size": 260}), tokenizer_with(*QWEN), "filler"
    )


@pytest.fixture(scope="module")
def filling(filler: LanguageModel) -> Iterator[Served]:
    with embedding(filler) as running:
        yield running


def test_the_answer_is_the_models_own(filling: Served, filler: LanguageModel) -> None:
    prefix, suffix, middle = (filler.tokenizer.get_vocab()[token] for token in QWEN)
    ids = [prefix, *filler.encode_text("ab = 1\n"), suffix, *filler.encode_text("\nc"), middle]
    settings = Settings(max_new_tokens=40, eos_token_id=(256, prefix, suffix, middle))
    expected = generate(filler, ids, settings).text
    body = {"input_prefix": "ab = ", "prompt": "1\n", "input_suffix": "\nc", "n_predict": 40}
    assert filling.client.post("/infill", json=body).json()["content"] == expected
    completion = {"prompt": "ab = 1\n", "suffix": "\nc", "max_tokens": 40}
    assert filling.client.post("/v1/completions", json=completion).json()["choices"][0]["text"] == expected
    fim = filling.client.post("/v1/fim/completions", json=completion).json()
    assert fim["choices"][0]["message"]["content"] == expected
