"""Answers that fit a schema: how they end, and what is told where they cannot go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from editor_api.grammar import Grammars
from lookupdec.errors import InputError
from lookupdec.hf import LanguageModel
from tests.api.conftest import TINY
from tests.api.serving import embedding
from tests.hf.tiny import byte_tokenizer, tiny_model


@pytest.mark.parametrize("ends", [5, [5, 7], None, 280])
def test_an_answer_that_fits_ends_whatever_ends_the_models_answers(ends: Any) -> None:
    model = tiny_model("llama", 3, **{**TINY, "vocab_size": 300, "eos_token_id": ends})
    schema = {"type": "string", "maxLength": 4}
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    with embedding(LanguageModel(model, byte_tokenizer(), "tiny")) as served:
        for seed in range(4):
            answer = served.chat("hi", max_tokens=60, response_format=wanted, temperature=1, seed=seed)
            choice = answer.json()["choices"][0]
            assert isinstance(json.loads(choice["message"]["content"]), str)
            assert choice["finish_reason"] == "stop"


def test_a_schema_that_fails_on_the_way_is_told_without_its_innards() -> None:
    grammars = Grammars(byte_tokenizer(), 257, [256])
    mask = grammars.mask('{"type":"string"}', 0)
    with pytest.raises(InputError) as raised:
        mask(torch.tensor([[ord("x")]]), torch.zeros(1, 257))
    assert str(raised.value) == "response_format: no answer of this model fits the schema: simplify it"
