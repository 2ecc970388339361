"""Lookup decoding against ``model.generate`` of transformers, in float32: the same tokens, every time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lookupdec.hf import LanguageModel, Settings, custom_generate, generate
from lookupdec.stats import Stats
from tests.hf.drafters import DRAFTERS, Known, NaiveCopier
from tests.hf.tiny import FAMILIES, plain, random_prompt, tiny_model, wrap


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate_on_every_family(family: str, seed: int) -> None:
    model, prompt = tiny_model(family, seed), random_prompt(seed)
    expected = plain(model, prompt, max_new_tokens=28, do_sample=False)
    for make in DRAFTERS:
        result = generate(wrap(model), prompt, Settings(max_new_tokens=28), drafter=make())
        assert list(result.ids) == expected, make
    exact = generate(wrap(model), prompt, Settings(max_new_tokens=28), drafter=Known(expected, most=9))
    assert list(exact.ids) == expected
    assert exact.stats.acceptance_rate == 1.0
    assert exact.stats.passes < 10


@pytest.mark.parametrize("length", [1, 4, 6, 7, 8, 9, 12, 32])
@pytest.mark.parametrize(
    ("family", "attention"),
    [("mistral", "eager"), ("mistral", "sdpa"), ("gemma2", "eager"), ("gemma3_text", "sdpa")],
)
def test_sliding_windows_before_at_and_after_they_fill(family: str, length: int, attention: str) -> None:
    model = tiny_model(family, 5)
    model.set_attn_implementation(attention)
    prompt = (random_prompt(length) * 3)[:length]
    expected = plain(model, prompt, max_new_tokens=30, do_sample=False)
    for drafter in (*(make() for make in DRAFTERS), Known(expected, most=13)):
        result = generate(wrap(model), prompt, Settings(max_new_tokens=30), drafter=drafter)
        assert list(result.ids) == expected


@pytest.mark.parametrize("seed", range(20))
def test_one_seed_gives_one_sample_however_it_is_decoded(seed: int) -> None:
    model, prompt = tiny_model("llama", seed, initializer_range=0.15), random_prompt(seed)
    torch.manual_seed(seed)
    expected = plain(model, prompt, max_new_tokens=40, do_sample=True, temperature=0.7, top_k=8, top_p=0.9)
    settings = Settings(max_new_tokens=40, temperature=0.7, top_k=8, top_p=0.9, seed=seed)
    for make in DRAFTERS:
        assert list(generate(wrap(model), prompt, settings, drafter=make()).ids) == expected
    assert list(generate(wrap(model), prompt, settings, drafter=Known(expected)).ids) == expected


def test_another_seed_gives_another_sample_and_other_draws_do_not_matter() -> None:
    model = wrap(tiny_model("llama", 1, initializer_range=0.1))
    samples: dict[int, tuple[int, ...]] = {}
    for seed in (1, 2, 1):
        torch.rand(seed)  # the global random numbers move
        settings = Settings(max_new_tokens=30, temperature=1.0, seed=seed)
        ids = generate(model, [1, 2, 3], settings, drafter=NaiveCopier()).ids
        assert samples.setdefault(seed, ids) == ids
    assert samples[1] != samples[2]
    settings = Settings(max_new_tokens=30, temperature=1.0)
    unseeded = {generate(model, [1, 2, 3], settings, drafter=NaiveCopier()).ids for _ in range(3)}
    assert len(unseeded) == 3


SAME_SETTINGS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 2},
    {"temperature": 1.0, "no_repeat_ngram_size": 3, "bad_words_ids": [[4], [7, 8]], "suppress_tokens": [2]},
    {"bad_words_ids": [[3], [5, 6]]},
    {"suppress_tokens": [1, 2, 7]},
    {"min_new_tokens": 12, "eos_token_id": [4, 9, 11]},
    {"temperature": 1.3},
    {"temperature": 0.8, "top_k": 0, "min_p": 0.1},
    {"temperature": 0.9, "top_k": 0, "typical_p": 0.8},
    {"temperature": 0.9, "top_k": 5, "repetition_penalty": 1.2, "eos_token_id": 9},
]


@pytest.mark.parametrize("chosen", SAME_SETTINGS, ids=lambda chosen: "-".join(chosen))
@pytest.mark.parametrize("seed", range(4))
def test_the_same_settings_mean_the_same(chosen: dict[str, Any], seed: int) -> None:
    model, prompt = tiny_model("qwen2", seed, initializer_range=0.2), random_prompt(seed)
    torch.manual_seed(seed)
    expected = plain(model, prompt, max_new_tokens=40, do_sample="temperature" in chosen, **chosen)
    for make in DRAFTERS:
        settings = Settings(max_new_tokens=40, seed=seed, **chosen)
        assert list(generate(wrap(model), prompt, settings, drafter=make()).ids) == expected


def test_logit_bias_is_a_sequence_bias_of_single_tokens() -> None:
    model, prompt = tiny_model("llama", 2), random_prompt(2)
    bias = {3: 4.0, 5: -100.0}
    expected = plain(
        model, prompt, max_new_tokens=30, do_sample=False, sequence_bias={(k,): v for k, v in bias.items()}
    )
    for make in DRAFTERS:
        result = generate(wrap(model), prompt, Settings(max_new_tokens=30, logit_bias=bias), drafter=make())
        assert list(result.ids) == expected
        assert 5 not in result.ids


def test_the_generation_config_of_the_model_counts() -> None:
    model, prompt = tiny_model("llama", 4), random_prompt(4)
    model.generation_config.repetition_penalty = 1.5
    model.generation_config.eos_token_id = [8, 3]
    expected = plain(model, prompt, max_new_tokens=40, do_sample=False)
    for make in DRAFTERS:
        result = generate(wrap(model), prompt, Settings(max_new_tokens=40), drafter=make())
        assert list(result.ids) == expected


def test_eos_at_every_position_of_an_accepted_block() -> None:
    model, prompt = tiny_model("llama", 11), random_prompt(11)
    free = plain(model, prompt, max_new_tokens=24, do_sample=False)
    assert len(set(free)) > 5
    for eos in sorted(set(free)):
        for declared in (eos, [23, eos]):
            expected = plain(model, prompt, max_new_tokens=24, do_sample=False, eos_token_id=declared)
            settings = Settings(max_new_tokens=24, eos_token_id=declared)
            for drafter in (Known(free), None):
                result = generate(wrap(model), prompt, settings, drafter=drafter)
                assert list(result.ids) == expected
                assert result.finish_reason == "stop"


def test_no_eos_runs_to_the_limit() -> None:
    model, prompt = tiny_model("llama", 11), random_prompt(11)
    model.generation_config.eos_token_id = plain(model, prompt, max_new_tokens=5, do_sample=False)[3]
    result = generate(wrap(model), prompt, Settings(max_new_tokens=9, eos_token_id=()), drafter=NaiveCopier())
    assert (len(result.ids), result.finish_reason) == (9, "length")


@pytest.mark.parametrize("limit", range(1, 9))
def test_max_new_tokens_with_longer_drafts(limit: int) -> None:
    model, prompt = tiny_model("llama", 7), random_prompt(7)
    expected = plain(model, prompt, max_new_tokens=limit, do_sample=False)
    assert len(expected) == limit
    for drafter in (Known(expected + [1] * 9), None):
        result = generate(wrap(model), prompt, Settings(max_new_tokens=limit), drafter=drafter)
        assert list(result.ids) == expected


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_drop_in_equals_generate_with_scores_and_logits(family: str) -> None:
    model = tiny_model(family, 6, initializer_range=0.2)
    for seed in range(5):
        ids = torch.tensor([random_prompt(seed)])
        for sample, drafter in ((False, NaiveCopier()), (True, NaiveCopier()), (False, None), (True, None)):
            options: dict[str, Any] = {
                "attention_mask": torch.ones_like(ids),
                "max_new_tokens": 25,
                "do_sample": sample,
                "repetition_penalty": 1.1,
                "return_dict_in_generate": True,
                "output_scores": True,
                "output_logits": True,
            }
            torch.manual_seed(seed)
            expected = model.generate(ids, **options)
            torch.manual_seed(seed)
            stats = Stats()
            output = model.generate(
                ids, **options, custom_generate=custom_generate, drafter=drafter, stats=stats
            )
            assert output.sequences.equal(expected.sequences)
            assert type(output) is type(expected)
            assert len(output.scores) == len(output.logits) == stats.tokens
            for mine, theirs in zip(
                output.scores + output.logits, expected.scores + expected.logits, strict=True
            ):
                torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
            assert output.keys() == expected.keys()
            # `cache`, or `past_key_values` in older versions of transformers.
            (kept, kept_by_plain) = (list(out.values())[-1].layers for out in (output, expected))
            assert [layer.keys.shape for layer in kept] == [layer.keys.shape for layer in kept_by_plain]


@pytest.mark.model
@pytest.mark.parametrize("number", range(12))
def test_real_prompts_on_the_default_model(
    default_model: LanguageModel, trace_prompts: list[list[dict[str, str]]], number: int
) -> None:
    prompt = default_model.encode_prompt(trace_prompts[number])
    expected = plain(default_model.model, prompt, max_new_tokens=40, do_sample=False)
    for drafter in (NaiveCopier(20), None):
        result = generate(default_model, trace_prompts[number], Settings(max_new_tokens=40), drafter=drafter)
        assert list(result.ids) == expected
        # A stop string may not end it: the text is that of the ids.
        assert result.text == default_model.tokenizer.decode(expected, skip_special_tokens=True)
