"""Models whose rotary positions turn otherwise once a text gets long: no pass reaches from one set into the next."""

from __future__ import annotations

import inspect
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Phi3ForCausalLM

from lookupdec.errors import InputError
from lookupdec.hf import PrefixCache, Settings, custom_generate, fixed_width, generate
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.rope import Rope, rope_of
from lookupdec.stats import Stats
from tests.hf.drafters import DRAFTERS, Known
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap

SHORT = 32
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [8.0] * 4,
    "original_max_position_embeddings": SHORT,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
MSCALE = {"short_mscale": 1.0, "long_mscale": 1.3}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "longrope": ("llama", {"rope_parameters": LONGROPE}),
    "reads anew": ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": SHORT}),
    "mscale": (
        "phimoe",
        {
            "rope_parameters": LONGROPE | MSCALE,
            "original_max_position_embeddings": SHORT,
            "num_local_experts": 2,
        },
    ),
    "dynamic": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": SHORT}),
}


# Up to 5.19, plain decoding drops the cache where these models change and goes on with the last token alone.
LOSES_TEXT = "next_sequence_length" not in inspect.getsource(Phi3ForCausalLM.prepare_inputs_for_generation)


def turning(kind: str, seed: int = 0) -> Any:
    if LOSES_TEXT and kind in ("reads anew", "mscale"):
        pytest.skip("this version of transformers loses the text of such models")
    family, options = MODELS[kind]
    return tiny_model(family, seed, **options)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return (random_prompt(seed) * 20)[:length]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("length", [20, SHORT - 1, SHORT, SHORT + 1, 40])
def test_texts_that_grow_past_the_length_equal_generate(kind: str, length: int) -> None:
    prompt, options = prompt_of(length), {"max_new_tokens": 24, "do_sample": False}
    expected = plain(turning(kind), prompt, **options)
    for drafter in (*(make() for make in DRAFTERS), Known(expected, most=30), Known(expected, most=3)):
        # A new model each time: with `dynamic`, plain decoding itself goes by the longest text that came before.
        found = plain(turning(kind), prompt, **options, custom_generate=custom_generate, drafter=drafter)
        assert found == expected, drafter


@pytest.mark.parametrize("kind", ["longrope", "reads anew", "mscale"])
def test_padding_and_chunks_equal_generate(kind: str) -> None:
    model, prompt = turning(kind), prompt_of(24)
    ids = torch.tensor([[0] * 5 + prompt])
    mask = torch.ones_like(ids)
    mask[:, :5] = 0
    for chunk in (None, 7, 64):
        options = {"max_new_tokens": 30, "do_sample": False, "prefill_chunk_size": chunk, "pad_token_id": 0}
        expected = model.generate(ids, attention_mask=mask, **options)
        known = Known(expected[0, ids.shape[1] :].tolist(), most=20)
        found = model.generate(
            ids, attention_mask=mask, **options, custom_generate=custom_generate, drafter=known
        )
        assert found.equal(expected)
        assert list(generate(wrap(model), prompt_of(40), Settings(prefill_chunk_size=chunk)).ids) == plain(
            model, prompt_of(40), max_length=256, do_sample=False, prefill_chunk_size=chunk
        )


def test_drafts_are_cut_at_the_length_only() -> None:
    model, prompt = turning("longrope"), prompt_of(20)
    expected = plain(model, prompt, max_new_tokens=60, do_sample=False)
    stats, widths = Stats(), []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    known = Known(expected, most=10)
    plain(
        model, prompt, max_new_tokens=60, do_sample=False,
        custom_generate=custom_generate, drafter=known, stats=stats,
    )  # fmt: skip
    assert widths == [
        20,
        11,
        1,
        1,
        9,
        11,
        11,
        11,
        4,
    ]  # the length ends the second draft, and then a token alone
    assert stats.accepted == stats.drafted == 53


def test_kept_prefixes_are_not_read_with_other_positions() -> None:
    for kind in ("longrope", "reads anew"):
        model, prefixes = wrap(turning(kind)), PrefixCache()
        short, long = prompt_of(24), [*prompt_of(24), *([3, 5, 1] * 8)]
        settings = Settings(max_new_tokens=6)
        for prompt in (short, long, long, short, [*short, 3], long[:20]):
            result = generate(model, prompt, settings, prefixes=prefixes)
            assert list(result.ids) == plain(model.model, prompt, max_new_tokens=6, do_sample=False)
            cached = result.stats.cached_tokens
        assert cached  # short ones are
        # A text that has grown past the length is kept by nobody.
        prefixes.clear()
        generate(model, short, Settings(max_new_tokens=20), prefixes=prefixes)
        assert len(prefixes) == 0


@pytest.mark.parametrize("kind", ["longrope", "reads anew"])
def test_fixed_passes_end_at_the_length(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_width, "SHORTEST_KEYS", 32)
    model, prompt = turning(kind), prompt_of(12)
    passes = FixedPasses(model)
    assert passes.room == SHORT
    wrapped = replace(wrap(model), passes=passes)
    for limit in (10, 20, 40):  # the longest on dynamic passes
        expected = plain(model, prompt, max_new_tokens=limit, do_sample=False)
        result = generate(wrapped, prompt, Settings(max_new_tokens=limit), drafter=Known(expected))
        assert list(result.ids) == expected
    one = replace(wrap(model), passes=FixedPasses(model, one_width=True))
    assert (
        generate(one, prompt, Settings()).ids
        == generate(one, prompt, Settings(), drafter=Known([1] * 99)).ids
    )
    with pytest.raises(InputError, match="fit the model's context"):
        generate(one, prompt_of(40), Settings())


def test_threads_on_both_sides_of_the_length_do_not_mix() -> None:
    model = wrap(turning("longrope"))
    prompts = [prompt_of(10), prompt_of(60)]
    expected = [plain(model.model, prompt, max_new_tokens=15, do_sample=False) for prompt in prompts]
    wrong: list[int] = []

    def work(number: int) -> None:
        torch.set_num_threads(1)
        for _ in range(15):
            if list(generate(model, prompts[number], Settings(max_new_tokens=15)).ids) != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_where_frequencies_change_is_read_from_the_config() -> None:
    assert rope_of(tiny_model()) is None
    assert rope_of(tiny_model("gpt2")) is None
    assert rope_of(tiny_model("bloom")) is None
    assert rope_of(turning("longrope")) == Rope((SHORT,))
    assert rope_of(turning("reads anew")) == Rope((SHORT,))
    assert rope_of(turning("dynamic")) == Rope((), SHORT)
    by_layer = tiny_model(
        "gemma3_text",
        rope_parameters={
            "full_attention": LONGROPE,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    )
    assert rope_of(by_layer) == Rope((SHORT,))


def test_the_width_of_a_pass() -> None:
    rope = Rope((4, 8))
    assert [rope.width(read, 9) for read in (0, 3, 4, 7, 8)] == [4, 1, 4, 1, 9]
    assert [Rope((), 4).width(read, 9) for read in (0, 3, 4, 5)] == [4, 1, 1, 1]
    assert Rope((), 4).shortest == Rope((8,), 4).shortest == 4
