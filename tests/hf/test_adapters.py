"""Adapters of peft: those that change weights work, those that put tokens before the prompt are refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from lookupdec.errors import UnsupportedCacheError
from lookupdec.hf import Settings, custom_generate, generate
from tests.hf.drafters import DRAFTERS
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap

peft = pytest.importorskip("peft")


def adapted(family: str, config: Any) -> Any:
    with warnings.catch_warnings():
        # peft asks transformers for an attribute by its old name.
        warnings.simplefilter("ignore", FutureWarning)
        return peft.get_peft_model(tiny_model(family, 3), config).eval()


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_lora_adapter_switched_on_and_off(family: str) -> None:
    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    model, prompt = adapted(family, config), random_prompt(3)
    expected = plain(model, prompt, max_new_tokens=30, do_sample=False)
    with model.disable_adapter():
        without = plain(model, prompt, max_new_tokens=30, do_sample=False)
        assert list(generate(wrap(model), prompt, Settings(max_new_tokens=30)).ids) == without
    assert without != expected
    for make in DRAFTERS:
        result = generate(wrap(model), prompt, Settings(max_new_tokens=30), drafter=make())
        assert list(result.ids) == expected
    drop_in = plain(model, prompt, max_new_tokens=30, do_sample=False, custom_generate=custom_generate)
    assert drop_in == expected


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_adapters_with_virtual_tokens_are_refused_by_name(kind: str) -> None:
    model = adapted("llama", getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=4))
    with pytest.raises(UnsupportedCacheError, match=rf"{kind} of peft .* such as LoRA"):
        generate(wrap(model), [1, 2, 3], Settings(max_new_tokens=4))
    with warnings.catch_warnings(), pytest.raises(UnsupportedCacheError, match=rf"{kind} of peft"):
        # peft warns that it ignores the positions that transformers counts.
        warnings.simplefilter("ignore", UserWarning)
        plain(model, [1, 2, 3], max_new_tokens=4, do_sample=False, custom_generate=custom_generate)
