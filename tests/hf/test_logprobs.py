"""Log-probabilities of emitted tokens: those of plain decoding, from the model's own logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

from lookupdec.errors import InputError
from lookupdec.hf import Settings, generate, stream
from tests.hf.drafters import DRAFTERS, Known
from tests.hf.tiny import random_prompt, tiny_model, wrap

TOLERANCE = 1e-4


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logprobs_are_those_of_plain_decoding_whatever_the_settings(temperature: float) -> None:
    model, prompt = tiny_model("llama", 6, initializer_range=0.2), random_prompt(6)
    chosen: dict[str, Any] = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
    if temperature:
        chosen |= {"temperature": temperature, "top_k": 6}
    torch.manual_seed(3)
    ids = torch.tensor([prompt])
    expected = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=25,
        do_sample=temperature > 0,
        return_dict_in_generate=True,
        output_logits=True,
        **chosen,
    )
    emitted = expected.sequences[0, len(prompt) :].tolist()
    logprobs = torch.cat(expected.logits).log_softmax(dim=-1)
    for drafter in (*(make() for make in DRAFTERS), Known(emitted)):
        settings = Settings(max_new_tokens=25, seed=3, logprobs=4, **chosen)
        result = generate(wrap(model), prompt, settings, drafter=drafter)
        assert [entry.token for entry in result.logprobs] == list(result.ids) == emitted
        for row, entry in zip(logprobs, result.logprobs, strict=True):
            assert entry.logprob == pytest.approx(float(row[entry.token]), abs=TOLERANCE)
            values = [value for _, value in entry.top]
            assert values == pytest.approx(row.topk(4).values.tolist(), abs=TOLERANCE)
            assert values == pytest.approx([float(row[token]) for token, _ in entry.top], abs=TOLERANCE)


def test_every_chunk_has_the_logprobs_of_its_own_tokens() -> None:
    model, prompt = wrap(tiny_model("llama", 6)), random_prompt(6)
    chunks = list(stream(model, prompt, Settings(max_new_tokens=30, logprobs=0)))
    assert any(len(chunk.ids) > 1 for chunk in chunks)
    for chunk in chunks:
        assert tuple(entry.token for entry in chunk.logprobs) == chunk.ids
        assert all(entry.top == () for entry in chunk.logprobs)


def test_asking_for_logprobs_changes_no_token_and_more_than_there_are_gives_all() -> None:
    model, prompt = wrap(tiny_model("llama", 6)), random_prompt(6)
    result = generate(model, prompt, Settings(max_new_tokens=12, logprobs=1000))
    assert result.ids == generate(model, prompt, Settings(max_new_tokens=12)).ids
    assert all(len(entry.top) == 24 for entry in result.logprobs)
    assert generate(model, prompt, Settings(max_new_tokens=3)).logprobs == ()


def test_a_processor_that_works_in_place_does_not_change_them() -> None:
    class Spoil(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores.mul_(-1)

    model, prompt = wrap(tiny_model("llama", 6)), random_prompt(6)
    spoilt = generate(model, prompt, Settings(max_new_tokens=1, logprobs=0, logits_processor=[Spoil()]))
    everything = generate(model, prompt, Settings(max_new_tokens=1, logprobs=24)).logprobs[0]
    assert spoilt.logprobs[0].logprob == pytest.approx(dict(everything.top)[spoilt.ids[0]], abs=TOLERANCE)
    assert spoilt.ids[0] == everything.top[-1][0]


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(InputError, match="logprobs must be at least 0"):
        Settings(logprobs=-1)
