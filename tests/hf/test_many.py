"""Several prompts and several samples in one call: each is what it would be alone."""

from __future__ import annotations

import pytest

from lookupdec.errors import ContextFullError, InputError
from lookupdec.hf import Settings, generate, generate_many
from tests.hf.drafters import DRAFTERS
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap

PROMPTS = [random_prompt(seed)[:length] for seed, length in ((1, 30), (2, 1), (3, 17), (4, 5))]


@pytest.mark.parametrize("make", DRAFTERS)
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_prompts_of_different_lengths_equal_their_own_single_runs(family: str, make: type) -> None:
    model = tiny_model(family, 5)
    expected = [plain(model, prompt, max_new_tokens=25, do_sample=False) for prompt in PROMPTS]
    results = generate_many(wrap(model), PROMPTS, Settings(max_new_tokens=25), drafter=make())
    assert [list(row.ids) for (row,) in results] == expected


def test_sample_i_is_that_of_a_single_run_with_the_seed_plus_i() -> None:
    model = wrap(tiny_model("llama", 5, initializer_range=0.15))
    settings = Settings(max_new_tokens=20, temperature=0.9, seed=40)
    results = generate_many(model, PROMPTS, settings, n=3)
    for prompt, samples in zip(PROMPTS, results, strict=True):
        alone = [
            generate(model, prompt, Settings(max_new_tokens=20, temperature=0.9, seed=40 + number)).ids
            for number in range(3)
        ]
        assert [sample.ids for sample in samples] == alone
        assert len(set(alone)) == 3


def test_the_largest_seed_wraps_around() -> None:
    model = wrap(tiny_model())
    settings = Settings(max_new_tokens=9, temperature=1.0, seed=2**63 - 1)
    second = generate_many(model, [[1, 2]], settings, n=2)[0][1]
    assert second.ids == generate(model, [1, 2], Settings(max_new_tokens=9, temperature=1.0, seed=0)).ids


def test_unseeded_samples_differ_and_greedy_ones_are_equal() -> None:
    model = wrap(tiny_model("llama", 1, initializer_range=0.1))
    (drawn,) = generate_many(model, [[1, 2, 3]], Settings(max_new_tokens=30, temperature=1.0), n=3)
    assert len({sample.ids for sample in drawn}) == 3
    (greedy,) = generate_many(model, [[1, 2, 3]], Settings(max_new_tokens=9), n=3)
    assert [one.ids for one in greedy] == [greedy[0].ids] * 3


def test_a_bad_prompt_among_others_costs_no_work() -> None:
    model = tiny_model()
    model.register_forward_pre_hook(lambda *_: pytest.fail("a forward pass has run"))
    with pytest.raises(InputError, match="the prompt is empty"):
        generate_many(wrap(model), [[1, 2], []], Settings(max_new_tokens=2))
    with pytest.raises(ContextFullError, match="has 256 tokens"):
        generate_many(wrap(model), [[1, 2], [3] * 256], Settings(max_new_tokens=2))
    with pytest.raises(InputError, match="n must be at least 1"):
        generate_many(wrap(model), [[1, 2]], n=0)
    assert generate_many(wrap(model), []) == []
