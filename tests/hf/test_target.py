"""The KV cache: what can be rolled back, what is refused, and what it holds afterwards."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from transformers import Cache, DynamicCache, LogitsProcessor
from transformers.cache_utils import QuantizedLayer

from lookupdec.errors import InputError, UnsupportedCacheError
from lookupdec.hf import LanguageModel, Settings, custom_generate, generate
from lookupdec.hf.network import read_with_cache
from lookupdec.hf.passes import FixedPasses
from tests.hf.drafters import Alternating, Garbage, Known, NaiveCopier
from tests.hf.tiny import FAMILIES, byte_tokenizer, plain, random_prompt, tiny_model

STATEFUL: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 4},
    "jamba": {"num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4},
    "qwen3_next": {
        "head_dim": 8,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_hidden_layers": 4,
    },
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
    "rwkv": {},
}


class Untouched(NaiveCopier):
    """Fails the test where work starts."""

    def begin(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("work has started")


def never_run(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("a forward pass has run")


@pytest.mark.parametrize("family", STATEFUL)
def test_what_cannot_be_rolled_back_is_refused_by_name_before_work_starts(family: str) -> None:
    model = tiny_model(family, 0, **STATEFUL[family])
    model.register_forward_pre_hook(never_run)
    with pytest.raises(UnsupportedCacheError, match=rf"{type(model).__name__}.*use a model with") as caught:
        generate(
            LanguageModel(model, byte_tokenizer()), [1, 2, 3], Settings(max_new_tokens=4), drafter=Untouched()
        )
    assert "\n" not in str(caught.value)


def drop_in(model: Any, ids: torch.Tensor, **options: Any) -> Any:
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False} | options
    return model.generate(
        ids, **options, custom_generate=custom_generate, drafter=options.get("x", NaiveCopier())
    )


def cache_keyword(model: Any) -> str:
    parameters = inspect.signature(model.prepare_inputs_for_generation).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def test_a_static_cache_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedCacheError, match="Static.* cannot be rolled back"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), cache_implementation="static")


def test_generate_uses_a_dynamic_cache_whatever_the_generation_config_says() -> None:
    model = tiny_model()
    model.generation_config.cache_implementation = "static"
    result = generate(
        LanguageModel(model, byte_tokenizer()), [1, 2], Settings(max_new_tokens=4), drafter=Garbage()
    )
    assert len(result.ids) == 4


def test_an_encoder_decoder_model_is_refused_by_name() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=24)
    model: Any = T5ForConditionalGeneration(config)
    model.generation_config.decoder_start_token_id = 0
    with pytest.raises(UnsupportedCacheError, match="T5ForConditionalGeneration is an encoder-decoder"):
        generate(
            LanguageModel(model, byte_tokenizer()), [1, 2], Settings(max_new_tokens=4), drafter=Untouched()
        )
    with pytest.raises(UnsupportedCacheError, match="T5ForConditionalGeneration is an encoder-decoder"):
        drop_in(model, torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_cache": False}, "needs the KV cache: pass use_cache=True"),
        ({"num_beams": 2}, "not for beam search"),
        ({"prompt_lookup_num_tokens": 3}, "not for assisted generation"),
        ({"num_return_sequences": 2, "do_sample": True}, "one sequence at a time, not 2"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "leave out output_attentions"),
    ],
)
def test_the_drop_in_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"output_attentions": True},
        {"output_hidden_states": True, "output_scores": True},
        {"max_new_tokens": torch.tensor(9)},
        {"max_new_tokens": torch.tensor(9), "prefill_chunk_size": 2},
    ],
    ids=str,
)
def test_the_drop_in_takes_what_plain_decoding_takes(options: dict[str, Any]) -> None:
    model, ids = tiny_model(), torch.tensor([random_prompt(2)])
    passes = FixedPasses(model)
    for own in (False, True):
        given = dict(options)
        if own and "max_new_tokens" not in options:
            # As the model's own config says it.
            for name, value in options.items():
                setattr(model.generation_config, name, value)
            given = {}
        usual: dict[str, Any] = {
            "attention_mask": torch.ones_like(ids),
            "max_new_tokens": 12,
            "do_sample": False,
        }
        expected = model.generate(ids, **(usual | given))
        for extra in ({"drafter": NaiveCopier()}, {}, {"passes": passes}):
            assert model.generate(ids, **(usual | given), custom_generate=custom_generate, **extra).equal(
                expected
            )


def test_a_model_whose_config_switches_the_cache_off_runs_with_it() -> None:
    model = tiny_model("mpt", 0, d_model=32, n_heads=4, n_layers=3)
    assert model.config.use_cache is False
    with pytest.raises(InputError, match="pass use_cache=True"):
        drop_in(model, torch.tensor([[1, 2, 3]]))
    prompt = random_prompt(2)
    expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
    options = {"max_new_tokens": 20, "do_sample": False, "use_cache": True}
    assert plain(model, prompt, **options, custom_generate=custom_generate) == expected
    assert (
        list(generate(LanguageModel(model, byte_tokenizer()), prompt, Settings(max_new_tokens=20)).ids)
        == expected
    )


def test_the_drop_in_refuses_a_batch_and_a_misspelt_option() -> None:
    with pytest.raises(InputError, match="one sequence at a time, not 2"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3], [1, 2, 3]]))
    with pytest.raises(ValueError, match="drafter_"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), drafter_=NaiveCopier())


def test_the_drop_in_refuses_embeddings() -> None:
    with pytest.raises(InputError, match="leave out inputs_embeds"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), inputs_embeds=torch.zeros(1, 3, 32))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "bloom"])
def test_a_left_padded_prompt_equals_generate(family: str) -> None:
    model = tiny_model(family, 3, pad_token_id=0)
    ids = torch.tensor([[0] * 5 + random_prompt(3)])
    mask = torch.ones_like(ids)
    mask[:, :5] = 0
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=25, do_sample=False)
    known = Known(expected[0, ids.shape[1] :].tolist())
    for drafter in (NaiveCopier(), Garbage(), Alternating(), known, None):
        output = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=25,
            do_sample=False,
            custom_generate=custom_generate,
            drafter=drafter,
        )
        assert output.equal(expected)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_mask_with_holes_equals_generate(family: str) -> None:
    model = tiny_model(family, 3, pad_token_id=0)
    ids = torch.tensor([random_prompt(3)])
    for hidden in ([0], [2, 5], [ids.shape[1] - 1]):
        mask = torch.ones_like(ids)
        mask[:, hidden] = 0
        options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 25, "do_sample": False}
        expected = model.generate(ids, **options)
        for drafter in (NaiveCopier(), Alternating(), None):
            assert model.generate(ids, **options, custom_generate=custom_generate, drafter=drafter).equal(
                expected
            )


def test_a_prompt_that_is_all_padding_is_refused_with_the_remedy() -> None:
    ids = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(InputError, match="hides the whole prompt: give a prompt of at least one token"):
        drop_in(tiny_model(pad_token_id=0), ids, attention_mask=torch.zeros_like(ids))
    with pytest.raises(InputError, match="one sequence at a time, not 2: .* lookupdec.hf.generate_many"):
        drop_in(tiny_model(pad_token_id=0), ids.repeat(2, 1), attention_mask=torch.zeros(2, 4))


@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_a_prompt_read_in_chunks_equals_generate(family: str, chunk: int) -> None:
    model, prompt = tiny_model(family, 3, pad_token_id=0), random_prompt(3)
    ids = torch.tensor([[0, 0, *prompt]])
    mask = torch.ones_like(ids)
    mask[:, :2] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 25, "do_sample": False}
    options["prefill_chunk_size"] = chunk
    lengths: list[int] = []
    expected = model.generate(ids, **options)
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    for drafter in (NaiveCopier(), None):
        lengths.clear()
        output = model.generate(ids, **options, custom_generate=custom_generate, drafter=drafter)
        assert output.equal(expected)
        assert lengths[0] == min(chunk, ids.shape[1])
    hook.remove()
    model.generation_config.prefill_chunk_size = chunk
    result = generate(LanguageModel(model, byte_tokenizer()), prompt, Settings(max_new_tokens=25))
    assert list(result.ids) == plain(model, prompt, max_new_tokens=25, do_sample=False)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_prompts_equal_generate(length: int) -> None:
    for family in FAMILIES:
        model, prompt = tiny_model(family, 2), [5, 6, 5][:length]
        expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
        result = generate(LanguageModel(model, byte_tokenizer()), prompt, Settings(max_new_tokens=20))
        assert list(result.ids) == expected


def test_a_quantised_cache_is_refused_by_name() -> None:
    class Rounded(QuantizedLayer):  # type: ignore[misc, no-untyped-call, unused-ignore]
        def _quantize(self, tensor: torch.Tensor, axis: int = 0) -> torch.Tensor:
            return tensor

        def _dequantize(self, q_tensor: torch.Tensor) -> torch.Tensor:
            return q_tensor

    cache = Cache(layers=[Rounded() for _ in range(3)])
    with pytest.raises(UnsupportedCacheError, match="Rounded in the cache of LlamaForCausalLM cannot be"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), **{cache_keyword(tiny_model()): cache})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_an_offloaded_cache_without_a_cuda_device_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedCacheError, match="offloaded DynamicCache needs a CUDA device"):
        drop_in(tiny_model(), torch.tensor([[1, 2, 3]]), cache_implementation="offloaded")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_an_offloaded_cache_equals_generate(family: str) -> None:
    model, ids = tiny_model(family, 3).cuda(), torch.tensor([random_prompt(3)], device="cuda")
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 30}
    options |= {"do_sample": False, "cache_implementation": "offloaded"}
    expected = model.generate(ids, **options)
    for drafter in (NaiveCopier(), Alternating(), None):
        output = model.generate(ids, **options, custom_generate=custom_generate, drafter=drafter)
        assert output.equal(expected)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_cache_of_the_callers_own_is_continued(family: str) -> None:
    model, prompt = tiny_model(family, 8), random_prompt(8)
    name = cache_keyword(model)
    outputs = []
    for extra in ({}, {"custom_generate": custom_generate, "drafter": NaiveCopier()}):
        cache: Any = DynamicCache(config=model.config)
        ids = torch.tensor([prompt])
        for _ in range(3):
            options: dict[str, Any] = {
                "max_new_tokens": 9,
                "do_sample": False,
                "return_dict_in_generate": True,
            }
            result = model.generate(
                ids, attention_mask=torch.ones_like(ids), **{name: cache}, **options, **extra
            )
            ids = torch.cat([result.sequences, torch.tensor([[5, 6, 7]])], dim=-1)
        outputs.append((ids.tolist(), [layer.keys.shape for layer in cache.layers], cache.get_seq_length()))
    assert outputs[0] == outputs[1]


class Broken(Exception):
    """What a callback raises."""


class BreaksOff(LogitsProcessor):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """Serves as a logits processor or as a stopping criterion, and raises at its n-th call."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.ids = torch.empty(0)

    def __call__(self, input_ids: torch.Tensor, scores: Any) -> Any:
        self.left -= 1
        if not self.left:
            self.ids = input_ids.clone()
            raise Broken
        return scores

    def as_criterion(self, input_ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
        self(input_ids, None)
        return torch.tensor([False])


@pytest.mark.parametrize("where", ["stopping_criteria", "logits_processor"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
def test_a_cache_is_left_as_plain_decoding_does_where_a_callback_raises(family: str, where: str) -> None:
    model, prompt = tiny_model(family, 3), (random_prompt(5) * 2)[:20]
    text = plain(model, prompt, max_new_tokens=30, do_sample=False)
    for calls in (1, 2, 5, 9):
        left = []
        for extra in ({}, {"custom_generate": custom_generate, "drafter": Known(text, most=9)}):
            cache: Any = DynamicCache(config=model.config)
            callback, keyword = BreaksOff(calls), {cache_keyword(model): cache}
            given = callback if where == "logits_processor" else callback.as_criterion
            options: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False}
            with pytest.raises(Broken):
                plain(model, prompt, **options, **keyword, **{where: [given]}, **extra)
            layers = [(layer.keys.shape, getattr(layer, "record_past", False)) for layer in cache.layers]
            left.append((cache.get_seq_length(), layers, callback.ids.tolist()))
            # It can be continued.
            options["max_new_tokens"] = 50 - callback.ids.shape[1]
            if cache.get_seq_length() < callback.ids.shape[1]:
                continued = plain(model, callback.ids[0].tolist(), **options, **keyword)
                assert callback.ids[0, 20:].tolist() + continued == text
        assert left[0] == left[1]


@pytest.mark.parametrize(("cached", "new"), [(5, 8), (16, 3), (4, 4)])
@pytest.mark.parametrize("family", ["llama", "mistral", "bloom", "gpt2"])
def test_a_cache_is_continued_with_the_new_ids_alone_or_with_all(family: str, cached: int, new: int) -> None:
    model = tiny_model(family, 3)
    ids = torch.tensor([[(7 * place + place // 3) % 24 for place in range(cached + new)]])
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 20,
        "do_sample": False,
    }
    for given in (ids[:, cached:], ids):
        outputs = []
        for extra in ({}, {"custom_generate": custom_generate, "drafter": NaiveCopier()}):
            cache = read_with_cache(model, ids[:, :cached], DynamicCache(config=model.config))[1]
            outputs.append(model.generate(given, **{cache_keyword(model): cache}, **options, **extra))
        assert outputs[1].equal(outputs[0])


def test_drafts_of_ids_that_are_no_tokens_change_nothing() -> None:
    model, prompt = LanguageModel(tiny_model("llama", 3), byte_tokenizer()), random_prompt(3)
    expected = generate(model, prompt, Settings(max_new_tokens=20), drafter=NaiveCopier()).ids
    for strange in (24, 10**7, -1):
        mixed = [token if place % 3 else strange for place, token in enumerate(expected)]
        result = generate(model, prompt, Settings(max_new_tokens=20), drafter=Known(mixed))
        assert result.ids == expected


def test_a_sliding_window_keeps_its_memory_small_in_plain_passes() -> None:
    from lookupdec.decode import PlainDrafter

    model = tiny_model("mistral", 8)
    sizes = []

    def watch(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        sizes.append(max(layer.keys.shape[-2] for layer in cache.layers))

    model.register_forward_hook(watch, with_kwargs=True)
    settings = Settings(max_new_tokens=60)
    generate(LanguageModel(model, byte_tokenizer()), random_prompt(8), settings, drafter=PlainDrafter())
    assert max(sizes[1:]) <= 8


def test_the_prompt_is_read_in_one_pass_and_projected_at_its_end_only() -> None:
    model, prompt = tiny_model("llama", 1), random_prompt(1)
    rows = []

    def watch(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        rows.append((kwargs["input_ids"].shape[1], output.logits.shape[1]))

    model.register_forward_hook(watch, with_kwargs=True)
    wrapped = LanguageModel(model, byte_tokenizer())
    generate(wrapped, prompt, Settings(max_new_tokens=6), drafter=Known([1, 2, 3, 4, 5, 6]))
    assert rows[0] == (len(prompt), 1)
    assert all(read == projected for read, projected in rows[1:])
