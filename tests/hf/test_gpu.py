"""What only a CUDA device can show: graphs give the text of plain decoding, wait once a pass and allocate nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from lookupdec.decode import PlainDrafter
from lookupdec.draft import CopyDrafter
from lookupdec.errors import ModelError
from lookupdec.hf import LanguageModel, Settings, generate
from lookupdec.hf.choose import Chooser
from lookupdec.hf.cost import measured
from lookupdec.hf.passes import FixedPasses
from tests.hf.drafters import Alternating, Garbage, Known, NaiveCopier
from tests.hf.tiny import byte_tokenizer, random_prompt, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),  # kernels are compiled
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    # Compilers and drivers have their own to say.
    pytest.mark.filterwarnings("default"),
]
# Heads of 64 and multiples of 8, as kernels of attention want them.
SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
    "initializer_range": 0.15,
}
DRAFTERS = (CopyDrafter, NaiveCopier, Garbage, Alternating, PlainDrafter)


def on_gpu(family: str = "llama", seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    shape = SHAPE | ({"n_embd": 256, "n_positions": 2048} if family == "gpt2" else {})
    return tiny_model(family, seed, **shape).to("cuda", dtype)


def recorded(model: Any, *, fuse: bool = False, **options: Any) -> LanguageModel:
    passes = FixedPasses(model, fuse=fuse, **({"context": 1500} | options))
    return LanguageModel(model, byte_tokenizer(), "tiny", passes=passes)


def plain(model: Any, prompt: list[int], **settings: Any) -> list[int]:
    ids = torch.tensor([prompt], device="cuda")
    output = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    return output[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def full_float32() -> Iterator[None]:
    """TF32 would round differently for one row and for several."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Raise where anything but the wait for an answer's event waits for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("fuse", [False, True], ids=["graphs", "compiled"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_greedy_in_float32_equals_generate(family: str, fuse: bool) -> None:
    model = on_gpu(family)
    fixed = recorded(model, fuse=fuse)
    for seed in range(4):
        prompt = random_prompt(seed, vocabulary=64)
        expected = plain(model, prompt, max_new_tokens=100, do_sample=False)
        for make in DRAFTERS:
            found = generate(fixed, prompt, Settings(max_new_tokens=100), drafter=make())
            assert list(found.ids) == expected, make
        assert (
            list(generate(fixed, prompt, Settings(max_new_tokens=100), drafter=Known(expected, 200)).ids)
            == expected
        )


def test_one_seed_gives_one_sample_in_float32() -> None:
    model = on_gpu(seed=1)
    fixed = recorded(model)
    dynamic = replace(fixed, passes=None)
    for seed in range(4):
        settings = Settings(max_new_tokens=100, temperature=0.8, top_p=0.9, seed=seed)
        prompt = random_prompt(seed, vocabulary=64)
        expected = generate(dynamic, prompt, settings, drafter=PlainDrafter()).ids
        for make in DRAFTERS:
            assert generate(fixed, prompt, settings, drafter=make()).ids == expected, make


def test_a_long_prompt_crosses_every_number_of_visible_keys() -> None:
    model = on_gpu(seed=2)
    fixed = recorded(model)
    prompt = (random_prompt(2, vocabulary=64) * 80)[:1000]
    expected = plain(model, prompt, max_new_tokens=100, do_sample=False)
    for drafter in (NaiveCopier(), PlainDrafter()):
        assert list(generate(fixed, prompt, Settings(max_new_tokens=100), drafter=drafter).ids) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs(dtype: torch.dtype) -> None:
    fixed = recorded(on_gpu(dtype=dtype))
    assert len(generate(fixed, random_prompt(1, vocabulary=64), Settings(max_new_tokens=50)).ids) == 50


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_passes_of_one_width_give_one_text_whatever_is_drafted(dtype: torch.dtype) -> None:
    fixed = recorded(on_gpu(dtype=dtype), one_width=True)
    assert fixed.passes is not None
    if fixed.passes.dependence:
        pytest.skip(f"not so on this device: {fixed.passes.dependence}")
    for seed in range(3):
        prompt = random_prompt(seed, vocabulary=64)
        texts = {
            generate(fixed, prompt, Settings(max_new_tokens=200), drafter=make()).ids for make in DRAFTERS
        }
        assert len(texts) == 1


def chooser(ids: list[int], *, sample: bool) -> Chooser:
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.8), TopPLogitsWarper(0.9)] if sample else [])
    generator = torch.Generator("cuda").manual_seed(0)
    return Chooser(
        torch.tensor([ids], device="cuda"), processors, limit=400, sample=sample, generator=generator
    )


@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
def test_a_pass_waits_for_nothing_but_its_answer(sample: bool) -> None:
    fixed = recorded(on_gpu())
    assert fixed.passes is not None
    prompt = random_prompt(3, vocabulary=64)
    target = fixed.passes.target(chooser(prompt, sample=sample), needed=500)
    assert target is not None
    last = target.start(prompt)
    list(target.step([last, 1, 2]))  # the first one may allocate pinned memory
    target.rewind(2)
    with no_waiting():
        for draft in ([], [1], [1, 2, 3], list(range(40)), [5] * 127):
            emitted = list(target.step([last, *draft]))
            target.rewind(1 + len(draft) - len(emitted))
            last = emitted[-1]


def test_the_check_for_waiting_finds_a_wait() -> None:
    values = torch.ones(3, device="cuda")
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        values.sum().item()


def test_two_hundred_passes_allocate_nothing() -> None:
    fixed = recorded(on_gpu())
    assert fixed.passes is not None
    prompt = random_prompt(4, vocabulary=64)
    target = fixed.passes.target(chooser(prompt, sample=False), needed=1200)
    assert target is not None
    last = target.start(prompt)

    def run(number: int) -> None:
        nonlocal last
        draft = [number % 64] * (number * 7 % 128)
        last = next(iter(target.step([last, *draft])))
        target.rewind(len(draft))

    for number in range(20):
        run(number)
    torch.cuda.synchronize()
    before = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    for number in range(200):
        run(number)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_requests_one_after_the_other_allocate_nothing() -> None:
    fixed = recorded(on_gpu())
    prompt = random_prompt(5, vocabulary=64)
    for _ in range(3):
        generate(fixed, prompt, Settings(max_new_tokens=50))
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        generate(fixed, prompt, Settings(max_new_tokens=50))
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    model = tiny_model(**(SHAPE | {"max_position_embeddings": 2**30})).to("cuda")
    with pytest.raises(ModelError, match=r"does not fit cuda.*weights .* MB, KV cache of .* GB, free"):
        FixedPasses(model, context=2**29)


def test_the_cost_of_every_width_is_measured() -> None:
    fixed = measured(recorded(on_gpu()))
    assert fixed.cost is not None
    assert [width for width, _ in fixed.cost.widths] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert generate(fixed, random_prompt(6, vocabulary=64), Settings(max_new_tokens=50)).stats.tokens == 50


def test_dynamic_passes_run_on_the_device_too() -> None:
    model = on_gpu()
    dynamic = LanguageModel(model, byte_tokenizer(), "tiny")
    prompt = random_prompt(7, vocabulary=64)
    expected = plain(model, prompt, max_new_tokens=60, do_sample=False)
    for make in DRAFTERS:
        assert list(generate(dynamic, prompt, Settings(max_new_tokens=60), drafter=make()).ids) == expected
