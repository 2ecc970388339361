"""Models whose passes over drafts are wrong are refused by name; those of families never tried are tried first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from lookupdec.errors import UnsupportedCacheError
from lookupdec.hf import Settings, custom_generate, draft_check, generate
from lookupdec.hf.families import TESTED
from lookupdec.hf.passes import FixedPasses
from tests.hf.drafters import DRAFTERS, Garbage, NaiveCopier
from tests.hf.tiny import FAMILIES, plain, random_prompt, tiny_model, wrap

UNTRIED: dict[str, dict[str, Any]] = {
    "doge": {},
    "exaone4": {
        "head_dim": 8,
        "sliding_window": 32,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
    },
    "mixtral": {"num_local_experts": 4},
    "llama": {},
}


class Untouched(NaiveCopier):
    """Fails the test where work starts."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("work has started")


def refusal(model: Any, limit: int = 30) -> str:
    with pytest.raises(UnsupportedCacheError) as caught:
        generate(wrap(model), [1, 2, 3], Settings(max_new_tokens=limit), drafter=Untouched())
    with pytest.raises(UnsupportedCacheError) as dropped:
        options = {"max_new_tokens": limit, "do_sample": False, "drafter": Untouched()}
        plain(model, [1, 2, 3], **options, custom_generate=custom_generate)
    assert str(caught.value) == str(dropped.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_cache_that_claims_too_much_is_refused() -> None:
    model = tiny_model("deepseek_v4", sliding_window=128)
    message = refusal(model)
    # Some versions of transformers say themselves that it cannot be cut.
    assert "DeepseekV4ForCausalLM cannot" in message or "DeepseekV4HCACache" in message
    assert message == refusal(model)
    assert model.config.sliding_window == 128  # narrowed for the trial only


def test_a_model_that_takes_one_token_at_a_time_is_refused() -> None:
    assert "CpmAntForCausalLM cannot check drafts" in refusal(tiny_model("cpmant"))


def test_a_model_that_ranks_keys_is_refused_in_texts_long_enough_for_that() -> None:
    model = tiny_model("doge", keep_window_size=24)
    message = refusal(model, 22)
    assert "DogeForCausalLM chooses the keys it attends to in texts of more than 24 tokens" in message
    assert "max_new_tokens (25)" in message
    expected = plain(model, [1, 2, 3], max_new_tokens=21, do_sample=False)
    for drafter in (NaiveCopier(), Garbage(), None):
        result = generate(wrap(model), [1, 2, 3], Settings(max_new_tokens=21), drafter=drafter)
        assert list(result.ids) == expected


class LooksAhead(LlamaForCausalLM):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """What it makes of a token depends on those read after it in the same pass."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + output.logits.mean(dim=1, keepdim=True)
        return output


def test_a_model_of_ones_own_that_looks_ahead_is_refused() -> None:
    model = tiny_model()
    model.__class__ = LooksAhead
    assert "LooksAhead cannot check drafts (logits after one differ by" in refusal(model)
    with pytest.raises(UnsupportedCacheError, match="LooksAhead"):
        FixedPasses(model)


@pytest.mark.parametrize("family", UNTRIED)
def test_models_that_pass_the_trial_run(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_check, "TESTED", frozenset())
    model, prompt = tiny_model(family, 3, **UNTRIED[family]), random_prompt(3)
    passes: list[int] = []
    hook = model.register_forward_pre_hook(lambda *_: passes.append(1))
    expected = plain(model, prompt, max_new_tokens=25, do_sample=False)
    for make in DRAFTERS:
        result = generate(wrap(model), prompt, Settings(max_new_tokens=25), drafter=make())
        assert list(result.ids) == expected
    passes.clear()
    generate(wrap(model), prompt, Settings(max_new_tokens=1))
    assert len(passes) == 1  # tried once
    hook.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_known_families_are_not_tried(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_check, "_fault", lambda _: "tried")
    draft_check.check_drafts(tiny_model(family), length=30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_trial_finds_no_fault_in_what_works(
    family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_check, "TESTED", frozenset())
    for seed in range(3):
        draft_check.check_drafts(tiny_model(family, seed).to(dtype), length=30)


def test_what_is_refused_is_not_listed_as_tested() -> None:
    assert not TESTED & {"doge", "deepseek_v4", "cpmant", "mamba", "jamba", "minimax", "lfm3"}
    assert set(FAMILIES) <= TESTED
