"""Passes of fixed widths over a static cache: the tokens of ``model.generate`` and of dynamic passes."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, TemperatureLogitsWarper

import lookupdec.hf.fixed_width as fixed_width
from lookupdec.decode import PlainDrafter
from lookupdec.errors import ContextFullError, UnsupportedCacheError
from lookupdec.hf import LanguageModel, Settings, custom_generate, generate, stream
from lookupdec.hf.bitwise import prepare
from lookupdec.hf.fixed_width import Lane
from lookupdec.hf.pass_check import draft_dependence, static_difference
from lookupdec.hf.passes import ONE_WIDTH, FixedPasses, check_fixed
from lookupdec.hf.prefixes import PrefixCache
from tests.hf.drafters import DRAFTERS, Alternating, Garbage, Known, NaiveCopier
from tests.hf.tiny import FAMILIES, plain, random_prompt, tiny_model, wrap

PLAIN_ATTENTION = ("llama", "qwen2", "qwen3", "gpt2", "phi")


def fixed(model: Any, **options: Any) -> LanguageModel:
    return replace(wrap(model), passes=FixedPasses(model, **options))


def ids_of(model: LanguageModel, prompt: list[int], settings: Settings, drafter: Any = None) -> list[int]:
    return list(generate(model, prompt, settings, drafter=drafter).ids)


def counted(model: LanguageModel) -> list[int]:
    """Return the widths of the lane's passes from here on, as they come."""
    widths: list[int] = []
    assert model.passes is not None
    lane = model.passes._free[0]
    compute = lane._compute

    def count(function: Any, width: int, keys: int) -> Any:
        widths.append(width)
        return compute(function, width, keys)

    lane._compute = count  # type: ignore[method-assign]
    return widths


@pytest.mark.parametrize("family", PLAIN_ATTENTION)
def test_greedy_equals_generate_request_after_request_on_one_cache(family: str) -> None:
    model = tiny_model(family, 2)
    passes = fixed(model)
    for seed in range(6):
        prompt = random_prompt(seed)
        expected = plain(model, prompt, max_new_tokens=28, do_sample=False)
        for make in DRAFTERS:
            assert ids_of(passes, prompt, Settings(max_new_tokens=28), make()) == expected, make
        known = generate(passes, prompt, Settings(max_new_tokens=28), drafter=Known(expected, most=9))
        assert list(known.ids) == expected
        assert known.stats.acceptance_rate == 1.0


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_attentions_of_transformers_serve(attention: str) -> None:
    model, prompt = tiny_model("llama", 4), random_prompt(4)
    model.set_attn_implementation(attention)
    expected = plain(model, prompt, max_new_tokens=30, do_sample=False)
    assert ids_of(fixed(model), prompt, Settings(max_new_tokens=30), NaiveCopier()) == expected


@pytest.mark.parametrize("seed", range(8))
def test_one_seed_gives_one_sample_however_it_is_decoded(seed: int) -> None:
    model, prompt = tiny_model("llama", seed, initializer_range=0.15), random_prompt(seed)
    passes = fixed(model)
    torch.manual_seed(seed)
    expected = plain(model, prompt, max_new_tokens=40, do_sample=True, temperature=0.7, top_k=8, top_p=0.9)
    settings = Settings(max_new_tokens=40, temperature=0.7, top_k=8, top_p=0.9, seed=seed)
    for make in DRAFTERS:
        assert ids_of(passes, prompt, settings, make()) == expected
    assert ids_of(passes, prompt, settings, Known(expected)) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 1.2, "temperature": 0.9, "top_k": 5},
        {"no_repeat_ngram_size": 2},
        {"temperature": 0.8, "top_k": 0, "min_p": 0.1},
        {"temperature": 0.9, "top_k": 0, "typical_p": 0.8},
        {"min_new_tokens": 12, "eos_token_id": [4, 9, 11]},
        {"min_new_tokens": 12, "eos_token_id": [4, 9], "temperature": 1.0},
        {"suppress_tokens": [1, 2, 7], "frequency_penalty": 0.7},
        {"frequency_penalty": 0.7, "presence_penalty": -0.5, "temperature": 1.0},
        {"bad_words_ids": [[3], [5, 6]]},
        {"logit_bias": {3: 4.0}, "temperature": 1.0},
        {"logprobs": 2},
    ],
    ids=str,
)
def test_settings_mean_the_same_as_on_dynamic_passes(options: dict[str, Any]) -> None:
    for seed in range(4):
        model, prompt = tiny_model("llama", seed), random_prompt(seed)
        settings = Settings(max_new_tokens=30, seed=seed, **options)
        expected = generate(wrap(model), prompt, settings, drafter=PlainDrafter())
        passes = fixed(model)
        for drafter in (NaiveCopier(), Garbage(), Alternating(), Known(list(expected.ids)), None):
            result = generate(passes, prompt, settings, drafter=drafter)
            assert result.ids == expected.ids
            assert len(result.logprobs) == len(expected.logprobs)


class Watching(LogitsProcessor):
    """Remembers every prefix it was shown."""

    def __init__(self) -> None:
        self.prefixes: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.prefixes.append(input_ids[0].tolist())
        return scores


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_processor_of_ones_own_is_called_once_per_emitted_token(temperature: float) -> None:
    model, prompt = fixed(tiny_model("llama", 4)), random_prompt(4)
    for drafter in (NaiveCopier(), Garbage(), None):
        watching = Watching()
        settings = Settings(
            max_new_tokens=25, temperature=temperature, seed=1, logits_processor=[watching], eos_token_id=3
        )
        emitted = ids_of(model, prompt, settings, drafter)
        assert watching.prefixes == [prompt + emitted[:length] for length in range(len(emitted))]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_end_token_inside_a_draft_ends_the_output(temperature: float) -> None:
    for seed in range(3):
        model, prompt = tiny_model("llama", seed), random_prompt(seed)
        settings = Settings(max_new_tokens=30, temperature=temperature, seed=seed)
        unending = ids_of(wrap(model), prompt, settings, PlainDrafter())
        for end in set(unending[5:20]):
            expected = unending[: unending.index(end) + 1]
            ended = replace(settings, eos_token_id=end)
            passes = fixed(model)
            for drafter in (Known(unending), Known(unending, most=3), Garbage(), None):
                result = generate(passes, prompt, ended, drafter=drafter)
                assert list(result.ids) == expected
                assert result.finish_reason == "stop"


def test_draws_go_on_where_plain_decoding_would_leave_the_random_numbers() -> None:
    model, prompt = tiny_model("llama", 3, initializer_range=0.1), random_prompt(3)
    settings = Settings(max_new_tokens=40, temperature=1.0, seed=7)
    expected = ids_of(wrap(model), prompt, settings, PlainDrafter())
    # Drafts that fail at every place: after each the draws must go on from there.
    for wrong in range(1, 12):
        draft = [token if (place + 1) % wrong else (token + 1) % 24 for place, token in enumerate(expected)]
        assert ids_of(fixed(model), prompt, settings, Known(draft)) == expected


def test_a_full_context_ends_the_output() -> None:
    model, prompt = tiny_model("llama", 7, max_position_embeddings=64), random_prompt(7)
    expected = plain(model, prompt, max_new_tokens=64 - len(prompt), do_sample=False)
    passes = fixed(model)
    for drafter in (Known(expected + [1] * 9), Known(expected, most=200), NaiveCopier(), None):
        result = generate(passes, prompt, Settings(), drafter=drafter)
        assert list(result.ids) == expected
        assert result.finish_reason == "length"
    with pytest.raises(ContextFullError, match="at most 63 fit"):
        generate(passes, [1] * 64, Settings())


def test_positions_are_learnt_ones_up_to_the_last() -> None:
    model, prompt = tiny_model("gpt2", 7, n_positions=48, max_position_embeddings=48), [1, 2, 3, 1, 2, 3, 1]
    expected = plain(model, prompt, max_new_tokens=41, do_sample=False)
    assert ids_of(fixed(model), prompt, Settings(), Known(expected)) == expected


@pytest.mark.parametrize("chunk", [1, 3, 16, 31, 200])
def test_a_prompt_longer_than_a_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_width, "PREFILL_CHUNK", chunk)
    model, prompt = tiny_model("qwen3", 5), random_prompt(5) * 3
    expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
    assert ids_of(fixed(model), prompt, Settings(max_new_tokens=20), NaiveCopier()) == expected


def test_more_keys_are_seen_as_the_text_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_width, "SHORTEST_KEYS", 16)
    model, prompt = tiny_model("llama", 8), random_prompt(8)
    passes = fixed(model)
    assert passes.passes is not None
    assert passes.passes._free[0].key_counts == (16, 32, 64, 128, 256)
    expected = plain(model, prompt, max_new_tokens=150, do_sample=False)
    for drafter in (NaiveCopier(), Known(expected), PlainDrafter()):
        assert ids_of(passes, prompt, Settings(max_new_tokens=150), drafter) == expected


def test_passes_are_as_wide_as_the_next_width() -> None:
    model, prompt = tiny_model("llama", 6), random_prompt(6)
    expected = plain(model, prompt, max_new_tokens=60, do_sample=False)
    passes = fixed(model)
    widths = counted(passes)
    assert ids_of(passes, prompt, Settings(max_new_tokens=60), Known(expected, most=10)) == expected
    assert set(widths[:5]) == {16}
    widths.clear()
    ids_of(passes, prompt, Settings(max_new_tokens=10), PlainDrafter())
    assert widths == [1] * 9


class Slow:
    """Stands for the event of a device that reads its inputs only when it is waited for."""

    def __init__(self, buffers: Any) -> None:
        self.buffers = buffers
        self.sent: list[int] | None = None
        self.read: list[list[int]] = []

    def record(self, stream: Any) -> None:
        self.sent = self.buffers.view.tolist()

    def synchronize(self) -> None:
        if self.sent is not None:
            assert self.buffers.view.tolist() == self.sent
            self.read.append(self.sent)


def test_inputs_are_written_over_only_when_the_device_has_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    lane = Lane(tiny_model("llama", 1), room=64)
    buffers = lane._buffers[2]
    slow = Slow(buffers)
    buffers.copied = slow  # type: ignore[assignment]
    for position in range(3):
        lane.run(position, [position + 1, 7])
    assert slow.read == [[0, 1, 7], [1, 2, 7]]


def test_a_draft_wider_than_the_widest_pass_is_read_in_several_and_no_further_than_accepted() -> None:
    model, prompt = tiny_model("llama", 6, max_position_embeddings=512), random_prompt(6)
    expected = plain(model, prompt, max_new_tokens=300, do_sample=False)
    passes = fixed(model)
    widths = counted(passes)
    result = generate(passes, prompt, Settings(max_new_tokens=300), drafter=Known(expected, most=400))
    assert list(result.ids) == expected
    assert widths == [128, 128, 64]
    assert result.stats.passes == 1
    widths.clear()
    wrong = [*expected[:40], (expected[40] + 1) % 24, *expected[41:]]
    result = generate(passes, prompt, Settings(max_new_tokens=60), drafter=Known(wrong, most=400))
    assert list(result.ids) == expected[:60]
    assert widths[0] == 64
    assert ids_of(passes, prompt, Settings(max_new_tokens=290), Known(wrong, most=280)) == expected[:290]


def test_ids_that_are_no_tokens_are_never_accepted() -> None:
    model, prompt = tiny_model("llama", 6), random_prompt(6)
    expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
    for strange in (-1, 24, 10**6, -(2**40)):
        draft = [*expected[:3], strange, *expected[4:]]
        for settings in (Settings(max_new_tokens=20), Settings(max_new_tokens=20, repetition_penalty=1.0001)):
            assert ids_of(fixed(model), prompt, settings, Known(draft))[:20] == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_runs_and_agrees_while_it_can(dtype: torch.dtype) -> None:
    model = tiny_model("llama", 3).to(dtype)
    prompt = random_prompt(3)
    passes = fixed(model)
    result = ids_of(passes, prompt, Settings(max_new_tokens=20), NaiveCopier())
    assert len(result) == 20
    with torch.no_grad():
        logits = model(torch.tensor([prompt + result])).logits[0, len(prompt) - 1 : -1].float()
    chosen = logits.gather(1, torch.tensor(result)[:, None])[:, 0]
    # Near-ties may go the other way, nothing else.
    assert (logits.max(dim=-1).values - chosen).max() < 0.1 * logits.std()


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(PLAIN_ATTENTION)))
def test_what_cannot_use_a_static_cache_is_refused_by_name(family: str) -> None:
    model = tiny_model(family)
    with pytest.raises(UnsupportedCacheError, match=rf"{type(model).__name__}.*passes='dynamic'") as caught:
        FixedPasses(model)
    assert "\n" not in str(caught.value)


def test_a_model_spread_over_devices_is_refused_by_name() -> None:
    model = tiny_model()
    model.hf_device_map = {"model.layers.0": "cuda:0", "model.layers.1": "cuda:1"}
    with pytest.raises(UnsupportedCacheError, match=r"several devices \(cuda:0, cuda:1\).*passes='dynamic'"):
        check_fixed(model)
    del model.hf_device_map
    check_fixed(model)


def test_an_attention_that_takes_no_mask_is_refused() -> None:
    model = tiny_model()
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(UnsupportedCacheError, match="flash_attention_2.*attn_implementation='sdpa'"):
        check_fixed(model)


def test_a_model_that_computes_something_else_over_a_static_cache_is_found_out() -> None:
    model = tiny_model("llama")
    forward = model.forward

    def odd(*args: Any, **named: Any) -> Any:
        if named.get("position_ids") is not None:
            named["position_ids"] = named["position_ids"] * 2
        return forward(*args, **named)

    odd.__signature__ = __import__("inspect").signature(forward)  # type: ignore[attr-defined]
    model.forward = odd
    with pytest.raises(UnsupportedCacheError, match=r"LlamaForCausalLM gives other results .*logits differ"):
        FixedPasses(model)


def test_a_second_request_at_the_same_time_runs_on_dynamic_passes() -> None:
    model = tiny_model("llama", 5)
    passes = fixed(model)
    prompts = [random_prompt(seed) for seed in (5, 6)]
    expected = [plain(model, prompt, max_new_tokens=20, do_sample=False) for prompt in prompts]
    streams = [
        stream(passes, prompt, Settings(max_new_tokens=20), drafter=NaiveCopier()) for prompt in prompts
    ]
    found: list[list[int]] = [[], []]
    for number in [0, 1] * 20:
        chunk = next(streams[number], None)
        found[number] += chunk.ids if chunk else ()
    assert found == expected
    streams.clear()
    assert passes.passes is not None
    assert len(passes.passes._free) == 1


def test_a_stream_that_is_dropped_gives_its_lane_back() -> None:
    passes = fixed(tiny_model("llama", 5))
    assert passes.passes is not None
    for _ in range(3):
        chunks = stream(passes, [1, 2, 3], Settings(max_new_tokens=20), drafter=NaiveCopier())
        next(chunks)
        assert passes.passes._free == []
        chunks.close()
        del chunks
        assert len(passes.passes._free) == 1


def test_a_lane_comes_back_from_a_generation_that_fails_though_its_error_is_kept() -> None:
    model = tiny_model("llama", 5)
    loaded = fixed(model)
    passes = loaded.passes
    assert passes is not None

    def fail(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of order")

    settings = Settings(max_new_tokens=20, logits_processor=[fail])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="out of order") as kept:
        generate(loaded, [1, 2, 3], settings)
    assert len(passes._free) == 1
    ids = torch.tensor([[1, 2, 3]])
    with pytest.raises(RuntimeError, match="out of order") as other:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=9,
            logits_processor=LogitsProcessorList([fail]),
            custom_generate=custom_generate,
            passes=passes,
        )
    assert len(passes._free) == 1
    assert kept.traceback
    assert other.traceback


def test_a_lane_is_given_back_once_and_after_a_failed_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = fixed(tiny_model("llama", 5))
    assert loaded.passes is not None
    chunks = stream(loaded, [1, 2, 3], Settings(max_new_tokens=5))
    list(chunks)
    assert len(loaded.passes._free) == 1
    del chunks
    gc.collect()
    assert len(loaded.passes._free) == 1
    monkeypatch.setattr(Lane, "fetch", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loaded.passes.watched()
    assert len(loaded.passes._free) == 1


def test_a_request_too_long_for_the_static_cache_runs_on_dynamic_passes() -> None:
    model, prompt = tiny_model("llama", 5), random_prompt(5)
    passes = fixed(model, context=len(prompt) + 20)
    widths = counted(passes)
    for count in (20, 21, 22, 60):
        expected = plain(model, prompt, max_new_tokens=count, do_sample=False)
        widths.clear()
        assert ids_of(passes, prompt, Settings(max_new_tokens=count), NaiveCopier()) == expected
        assert bool(widths) == (count <= 21)


@pytest.mark.parametrize("order", [("fixed", "fixed"), ("fixed", "dynamic"), ("dynamic", "fixed")])
def test_a_kept_prefix_is_not_read_again_whichever_passes_had_read_it(
    order: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed_width, "PREFILL_CHUNK", 7)
    model = tiny_model("llama", 5)
    ways = {"fixed": fixed(model), "dynamic": wrap(model)}
    prefixes = PrefixCache()
    first = [chance % 24 for chance in range(5, 90, 3)]
    for number, way in enumerate(order * 2):
        prompt = [*first, number + 1, 3]
        expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
        result = generate(
            ways[way], prompt, Settings(max_new_tokens=20), drafter=NaiveCopier(), prefixes=prefixes
        )
        assert list(result.ids) == expected
        assert (result.stats.cached_tokens >= len(first)) == (number > 0)


def test_a_request_that_is_given_up_while_it_reads_leaves_what_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixed_width, "PREFILL_CHUNK", 20)
    model, prefixes = tiny_model("llama", 5), PrefixCache()
    passes = fixed(model)
    prompt = [chance % 24 for chance in range(5, 200, 3)]
    chunks = stream(passes, prompt, Settings(max_new_tokens=5), prefixes=prefixes)
    for _ in range(2):
        assert next(chunks).ids == ()
    chunks.close()
    result = generate(passes, prompt, Settings(max_new_tokens=5), drafter=NaiveCopier(), prefixes=prefixes)
    assert result.stats.cached_tokens == 40
    assert list(result.ids) == plain(model, prompt, max_new_tokens=5, do_sample=False)


class TestOneWidth:
    def test_nothing_is_kept_from_one_request_to_the_next(self) -> None:
        passes, prefixes = fixed(tiny_model("llama", 5), one_width=True), PrefixCache()
        for _ in range(2):
            generate(passes, [1] * 40, Settings(max_new_tokens=5), prefixes=prefixes)
        assert len(prefixes) == 0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_the_text_does_not_depend_on_the_drafts(self, dtype: torch.dtype) -> None:
        for seed in range(2):
            model, prompt = tiny_model("llama", seed).to(dtype), random_prompt(seed)
            passes = fixed(model, one_width=True)
            assert passes.passes is not None
            assert passes.passes.dependence == ""
            for settings in (
                Settings(max_new_tokens=60),
                Settings(max_new_tokens=60, temperature=1.0, seed=seed),
            ):
                expected = ids_of(passes, prompt, settings, PlainDrafter())
                for drafter in (NaiveCopier(), Garbage(), Alternating(), Known(expected), None):
                    assert ids_of(passes, prompt, settings, drafter) == expected

    def test_every_pass_is_equally_wide(self) -> None:
        passes = fixed(tiny_model("llama", 1), one_width=True)
        widths = counted(passes)
        for drafter in (PlainDrafter(), NaiveCopier()):
            ids_of(passes, random_prompt(1), Settings(max_new_tokens=20), drafter)
        assert set(widths) == {ONE_WIDTH}

    def test_what_is_done_with_logits_is_equally_wide_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, prompt = fixed(tiny_model("llama", 3), one_width=True), random_prompt(3)
        settings = Settings(max_new_tokens=20, temperature=0.9, seed=4)
        rows: list[int] = []
        process = TemperatureLogitsWarper.__call__

        def count(self: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            rows.append(len(scores))
            return process(self, input_ids, scores)  # type: ignore[no-any-return]

        monkeypatch.setattr(TemperatureLogitsWarper, "__call__", count)
        texts = []
        for drafter in (PlainDrafter(), NaiveCopier(), Garbage()):
            texts.append(ids_of(model, prompt, settings, drafter))
            assert rows[0] == 1  # after the prompt, of which one row is computed
            assert set(rows[1:]) == {ONE_WIDTH}
            rows.clear()
        assert texts[0] == texts[1] == texts[2]

    def test_every_request_has_such_passes(self) -> None:
        model = fixed(tiny_model("llama", 5), one_width=True, context=100)
        assert model.context_length == 100
        first = stream(model, [1, 2, 3], Settings(max_new_tokens=20), drafter=NaiveCopier())
        second = stream(model, [1, 2, 3], Settings(max_new_tokens=20), drafter=PlainDrafter())
        assert [i for chunk in first for i in chunk.ids] == [i for chunk in second for i in chunk.ids]
        with pytest.raises(ContextFullError, match="context of 100"):
            stream(model, [1] * 100)

    def test_a_model_whose_rows_depend_on_each_other_is_found_out(self) -> None:
        model = tiny_model("llama", 1)
        lane = Lane(model, room=128, widths=(ONE_WIDTH,), one_key_count=True)
        assert draft_dependence(lane) == ""
        head = model.lm_head.forward
        model.lm_head.forward = lambda states: head(states) + 1e-3 * states.mean()
        assert draft_dependence(lane) == "a draft that is right gives other results than tokens read alone"


def test_bitwise_models_can_have_fixed_passes_too() -> None:
    model, prompt = tiny_model("llama", 2, head_dim=64), random_prompt(2)
    expected = plain(model, prompt, max_new_tokens=20, do_sample=False)
    prepare(model)
    assert ids_of(fixed(model), prompt, Settings(max_new_tokens=20), NaiveCopier()) == expected


def test_two_programs_of_a_compiler_serve_all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_width, "SHORTEST_KEYS", 64)
    model = tiny_model("llama", 2, num_hidden_layers=1)
    lane = Lane(model, room=256)
    assert static_difference(model, lane) == ""
    compiled = 0

    def backend(graph: Any, _: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    torch._dynamo.reset()
    function = torch.compile(lane.forward, dynamic=True, backend=backend)
    with torch.no_grad():
        for keys in reversed(lane.key_counts):
            for width in reversed(lane.widths):
                buffers = lane._buffers[width]
                buffers.view[:] = [30, *((7 * number) % 24 for number in range(width))]
                buffers.inputs.copy_(buffers.host_inputs)
                found = lane._compute(function, width, keys)
                answer = found.answer.clone()
                assert answer.equal(lane._compute(lane.forward, width, keys).answer)
    assert len(lane.key_counts) == 3
    assert compiled == 2
