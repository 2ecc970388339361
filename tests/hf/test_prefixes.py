"""Kept prefixes: the same output as without them, less to read, nothing of another namespace, never over budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec.decode import PlainDrafter
from lookupdec.errors import InputError
from lookupdec.hf import Generation, PrefixCache, Settings, generate, stream
from tests.hf.tiny import FAMILIES, plain, random_prompt, tiny_model, wrap

SETTINGS = Settings(max_new_tokens=20, eos_token_id=())
SLIDING = {"mistral", "gemma2", "gemma3_text"}


def prompt(seed: int, length: int = 60) -> list[int]:
    chance = np.random.default_rng(seed)
    return [int(token) for token in chance.integers(0, 24, length)]


def states(length: int, value: float = 0.0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.full((1, 2, length, 4), value), torch.full((1, 2, length, 4), value)) for _ in range(3)]


BYTES_PER_TOKEN = 3 * 2 * 2 * 4 * 4 + 4


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_second_request_gives_what_it_gives_alone(family: str) -> None:
    model = wrap(tiny_model(family))
    text, prefixes = prompt(1), PrefixCache()
    for ending in ([1, 2, 3], [4, 5], [1, 2, 3, 4, 5, 6], [], [1, 2, 3]):
        ids = [*text, *ending]
        result = generate(model, ids, SETTINGS, prefixes=prefixes)
        assert list(result.ids) == plain(model.model, ids, max_new_tokens=20, do_sample=False)
    # Layers that keep only a window cannot be cut back to any length.
    assert (result.stats.cached_tokens == 0) == (family in SLIDING)


def test_only_what_differs_is_read_again() -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(2), PrefixCache()
    read: list[int] = []
    model.model.register_forward_pre_hook(
        lambda _model, _args, inputs: read.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    first = generate(model, [*text, 1, 2, 3], SETTINGS, prefixes=prefixes)
    assert (read[0], first.stats.cached_tokens) == (63, 0)
    read.clear()
    second = generate(model, [*text, 4, 5], SETTINGS, prefixes=prefixes)
    assert (read[0], second.stats.cached_tokens) == (2, 60)


def test_a_prompt_that_was_read_whole_still_reads_its_last_token() -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(3), PrefixCache()
    first = generate(model, text, SETTINGS, prefixes=prefixes)
    second = generate(model, text, SETTINGS, prefixes=prefixes)
    assert second.ids == first.ids
    assert second.stats.cached_tokens == 59


def test_a_conversation_goes_on_after_its_own_answer() -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(4), PrefixCache()
    answer = generate(model, text, SETTINGS, prefixes=prefixes).ids
    longer = [*text, *answer, 7, 8]
    result = generate(model, longer, SETTINGS, prefixes=prefixes)
    assert result.stats.cached_tokens == len(text) + len(answer) - 1
    assert list(result.ids) == plain(model.model, longer, max_new_tokens=20, do_sample=False)
    assert len(prefixes) == 1, "the shorter one is part of the longer one"


def test_a_request_of_another_namespace_finds_nothing() -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(5), PrefixCache()
    generate(model, text, SETTINGS, prefixes=prefixes, namespace="a")
    assert generate(model, text, SETTINGS, prefixes=prefixes, namespace="b").stats.cached_tokens == 0
    assert generate(model, text, SETTINGS, prefixes=prefixes, namespace="a").stats.cached_tokens == 59


def test_no_namespace_is_one_of_its_own() -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(5), PrefixCache()
    generate(model, text, SETTINGS, prefixes=prefixes)
    assert generate(model, text, SETTINGS, prefixes=prefixes, namespace="").stats.cached_tokens == 0
    assert generate(model, text, SETTINGS, prefixes=prefixes).stats.cached_tokens == 59


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_a_consumer_that_stops_early_leaves_a_right_prefix(passes: int) -> None:
    model, text, prefixes = wrap(tiny_model()), prompt(6), PrefixCache()
    chunked = replace(SETTINGS, prefill_chunk_size=25)
    chunks = stream(model, text, chunked, prefixes=prefixes)
    for _ in range(passes + 1):
        next(chunks)
    chunks.close()
    assert len(prefixes) == 1
    result = generate(model, [*text, 9], SETTINGS, prefixes=prefixes)
    assert result.stats.cached_tokens == (25, 50, 60, 60)[passes]
    assert list(result.ids) == plain(model.model, [*text, 9], max_new_tokens=20, do_sample=False)


def test_a_failed_pass_keeps_nothing() -> None:
    model, prefixes = wrap(tiny_model()), PrefixCache()
    chunks = stream(model, prompt(7), SETTINGS, prefixes=prefixes)
    next(chunks)

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    model.model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        next(chunks)
    assert len(prefixes) == 0


def test_a_model_with_bitwise_passes_reads_its_prompts_whole() -> None:
    model, prefixes = replace(wrap(tiny_model()), is_bitwise=True), PrefixCache()
    for _ in range(2):
        result = generate(model, prompt(8), SETTINGS, prefixes=prefixes, drafter=PlainDrafter())
        assert result.stats.cached_tokens == 0
    assert len(prefixes) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), requests=st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_any_sequence_of_requests_equals_plain_decoding(seed: int, requests: list[int]) -> None:
    model, prefixes = wrap(tiny_model()), PrefixCache(60_000)
    text = prompt(seed, 40)
    for number, kept in enumerate(requests):
        ids = text[:kept] + random_prompt(seed + number)
        sampled = replace(SETTINGS, temperature=0.9, seed=seed, prefill_chunk_size=1 + seed % 30)
        result = generate(model, ids, sampled, prefixes=prefixes)
        assert result.ids == alone(model, ids, seed).ids
        assert prefixes.nbytes <= 60_000


def alone(model: Any, ids: list[int], seed: int) -> Generation:
    return generate(model, ids, replace(SETTINGS, temperature=0.9, seed=seed), drafter=PlainDrafter())


def test_the_budget_holds_and_the_least_recently_used_goes_first() -> None:
    prefixes = PrefixCache(100 * BYTES_PER_TOKEN)
    texts = [prompt(seed, 40) for seed in range(3)]
    prefixes.add(texts[0], states(40))
    prefixes.add(texts[1], states(40))
    assert prefixes.find(texts[0])
    prefixes.add(texts[2], states(40))
    assert prefixes.nbytes <= prefixes.max_bytes
    assert [bool(prefixes.find(text)) for text in texts] == [True, False, True]


def test_what_is_larger_than_the_budget_is_not_kept_and_drives_nothing_out() -> None:
    prefixes = PrefixCache(50 * BYTES_PER_TOKEN)
    prefixes.add(prompt(1, 40), states(40))
    prefixes.add(prompt(2, 60), states(60))
    assert len(prefixes) == 1
    assert prefixes.find(prompt(1, 40))


def test_a_view_counts_what_it_keeps_alive() -> None:
    prefixes = PrefixCache(50 * BYTES_PER_TOKEN)
    prefixes.add(prompt(1, 40), [(keys[:, :, :40], values[:, :, :40]) for keys, values in states(400)])
    assert len(prefixes) == 0


def test_the_longest_common_beginning_wins_and_short_ones_are_not_worth_it() -> None:
    prefixes, text = PrefixCache(), prompt(1, 60)
    prefixes.add(text[:30] + prompt(2, 40), states(70, 1.0))
    prefixes.add(text[:50] + prompt(3, 40), states(90, 2.0))
    prefixes.add(text[:40] + prompt(4, 40), states(80, 3.0))
    found = prefixes.find(text)
    assert found[0][0].shape[2] >= 50
    assert float(found[0][0].mean()) == 2.0
    assert not prefixes.find(text[:15] + prompt(9, 40))


def test_clearing_and_bad_budgets() -> None:
    prefixes = PrefixCache()
    prefixes.add(prompt(1), states(60))
    prefixes.clear()
    assert (len(prefixes), prefixes.nbytes) == (0, 0)
    with pytest.raises(InputError, match="at least 0 bytes, not -1"):
        PrefixCache(-1)
    off = PrefixCache(0)
    off.add(prompt(1), states(60))
    assert len(off) == 0


def test_a_deadline_ends_a_long_prefill_between_its_chunks() -> None:
    model = wrap(tiny_model())
    hurried = replace(SETTINGS, prefill_chunk_size=4, deadline=0.0)
    chunks = list(stream(model, prompt(1), hurried))
    assert [(chunk.ids, chunk.finish_reason) for chunk in chunks] == [((), "deadline")]


def test_a_prompt_in_chunks_gives_the_same_output_and_empty_chunks_between() -> None:
    model, ids = wrap(tiny_model()), prompt(1)
    chunks = list(stream(model, ids, replace(SETTINGS, prefill_chunk_size=16)))
    assert [chunk.ids for chunk in chunks[:3]] == [(), (), ()]
    assert len(chunks[3].ids) == 1
    emitted = [token for chunk in chunks for token in chunk.ids]
    assert emitted == plain(model.model, ids, max_new_tokens=20, do_sample=False)
    assert chunks[-1].stats.passes == len(chunks) - 4
