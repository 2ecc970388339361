"""Random tiny model, prompt, settings and drafter against ``generate`` of transformers."""

from __future__ import annotations

import functools
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec.hf import Settings, generate
from tests.hf.drafters import DRAFTERS, Known
from tests.hf.tiny import FAMILIES, plain, tiny_model, wrap

VOCABULARY = 24
TOKENS = st.integers(0, VOCABULARY - 1)


@functools.cache
def model_of(family: str, seed: int, spread: float) -> Any:
    return tiny_model(family, seed, initializer_range=spread)


PROMPTS = st.builds(
    lambda piece, times, rest: (piece * times + rest)[:60],
    st.lists(TOKENS, min_size=1, max_size=20),
    st.integers(1, 3),
    st.lists(TOKENS, max_size=6),
)
GREEDY = st.fixed_dictionaries(
    {},
    optional={
        "eos_token_id": st.one_of(TOKENS, st.lists(TOKENS, min_size=2, max_size=3, unique=True)),
        "min_new_tokens": st.integers(0, 6),
        "repetition_penalty": st.sampled_from([0.8, 1.2, 2.0]),
        "no_repeat_ngram_size": st.integers(1, 3),
        "suppress_tokens": st.lists(TOKENS, min_size=1, max_size=4, unique=True),
        "bad_words_ids": st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=3),
    },
)
SAMPLED = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.5, 1.0, 1.5])},
    optional={
        "top_k": st.integers(0, 12),
        "top_p": st.sampled_from([0.5, 0.9]),
        "min_p": st.sampled_from([0.02, 0.2]),
        "typical_p": st.sampled_from([0.5, 0.95]),
        "repetition_penalty": st.sampled_from([0.8, 1.2]),
        "eos_token_id": TOKENS,
    },
)


@settings(max_examples=60, derandomize=True)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(0, 3),
    spread=st.sampled_from([0.12, 0.35]),
    prompt=PROMPTS,
    chosen=st.one_of(GREEDY, SAMPLED),
    limit=st.integers(6, 24),
)
def test_every_drafter_gives_what_generate_gives(
    family: str, seed: int, spread: float, prompt: list[int], chosen: dict[str, Any], limit: int
) -> None:
    model = model_of(family, seed, spread)
    torch.manual_seed(seed)
    expected = plain(model, prompt, max_new_tokens=limit, do_sample="temperature" in chosen, **chosen)
    asked = Settings(max_new_tokens=limit, seed=seed, **chosen)
    for drafter in (*(make() for make in DRAFTERS), Known(expected), Known(expected, most=3)):
        assert list(generate(wrap(model), prompt, asked, drafter=drafter).ids) == expected
