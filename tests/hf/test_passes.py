"""Choosing passes at load, timing them, and what does not fit into memory."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

import lookupdec.hf.loading as loading_module
import lookupdec.hf.memory as memory
from lookupdec.decode import PlainDrafter
from lookupdec.errors import ContextFullError, InputError, ModelError, UnsupportedCacheError
from lookupdec.hf import Settings, custom_generate, generate, load, stream
from lookupdec.hf.network import read_with_cache
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.watch import (
    CPU_COST,
    CPU_HALF_COST,
    DRIFT,
    FEWEST_PASSES,
    STALE_AFTER,
    CostWatch,
    WatchedTarget,
    WidthWatch,
    usual_cost,
)
from lookupdec.policy import CostModel
from tests.hf.drafters import Known, NaiveCopier
from tests.hf.tiny import byte_tokenizer, tiny_model, wrap

SECONDS = {1: 0.010, 2: 0.010, 4: 0.011, 8: 0.012, 16: 0.013, 32: 0.015, 64: 0.02, 128: 0.03}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model("llama", 1, vocab_size=257, eos_token_id=256).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def refusal(*args: Any, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="auto means fixed passes on CUDA")
def test_a_cpu_has_dynamic_passes_and_begins_with_what_is_usual(folder: Path) -> None:
    model = load(folder)
    assert (model.passes, model.cost) == (None, CostModel(per_token=CPU_COST))
    half = load(folder, dtype="bfloat16", exact="fast")
    assert half.cost == CostModel(per_token=CPU_HALF_COST)
    assert load(folder, measure_cost=False).cost is None


@pytest.mark.parametrize("passes", ["fixed", "graphs"])
def test_fixed_passes_give_the_text_of_dynamic_ones(folder: Path, passes: Any) -> None:
    dynamic, fixed = (
        load(folder, device="cpu", passes="dynamic"),
        load(folder, device="cpu", passes=passes, context=128),
    )
    assert fixed.passes is not None
    assert fixed.passes.room == 128
    for drafter in (None, NaiveCopier()):
        texts = {
            generate(model, "abc abc abc", Settings(max_new_tokens=40), drafter=drafter).text
            for model in (dynamic, fixed)
        }
        assert len(texts) == 1


def test_one_width_is_loaded_by_name(folder: Path) -> None:
    model = load(folder, device="cpu", exact="fixed", dtype="bfloat16", context=100)
    assert model.context_length == 100
    assert model.passes is not None
    assert model.passes.one_width
    assert not model.is_bitwise


def test_fixed_passes_in_half_precision_are_not_called_bitwise(folder: Path) -> None:
    model = load(folder, device="cpu", passes="fixed", dtype="bfloat16")
    assert model.passes is not None
    assert not model.is_bitwise
    assert len(generate(model, "abc abc", Settings(max_new_tokens=20, eos_token_id=())).ids) == 20


def test_choices_that_exclude_each_other(folder: Path) -> None:
    assert "unknown exact 'exactly': use auto, bitwise, fixed or fast" in refusal(folder, exact="exactly")
    assert "unknown passes 'some': use auto, dynamic, fixed or graphs" in refusal(folder, passes="some")
    assert "leave out passes='dynamic'" in refusal(folder, exact="fixed", passes="dynamic")
    assert "needs passes='dynamic', not 'fixed'" in refusal(folder, exact="bitwise", passes="fixed")
    assert "at least 1 token, not 0" in refusal(folder, passes="fixed", context=0)


def test_passes_of_one_width_that_depend_on_drafts_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lookupdec.hf.passes.draft_dependence", lambda _: "a draft gives other results")
    message = refusal(folder, exact="fixed", device="cpu")
    assert "a draft gives other results; use exact='fast'" in message


def test_where_nothing_is_asked_a_model_that_cannot_runs_on_dynamic_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tiny_model("mistral", 1)
    options: dict[str, Any] = {"passes": "auto", "one_width": False, "context": None, "progress": None}
    assert loading_module._fixed(model, "tiny", **options) is None
    assert "tiny runs on dynamic passes: MistralForCausalLM keeps a DynamicSlidingWindowLayer" in caplog.text
    for asked in ({"passes": "fixed"}, {"one_width": True}):
        with pytest.raises(UnsupportedCacheError, match="MistralForCausalLM keeps"):
            loading_module._fixed(model, "tiny", **(options | asked))


class TestMeasuring:
    def test_on_request_a_dynamic_model_has_a_cost_and_follows_it(self, folder: Path) -> None:
        model = load(folder, device="cpu", passes="dynamic", measure_cost=True)
        assert isinstance(model.watch, CostWatch)
        assert model.cost is not None
        assert model.cost.widths == ()
        seen: list[int] = []
        add = model.watch.add

        def note(width: int, seconds: float) -> bool:
            seen.append(width)
            return add(width, seconds)

        model.watch.add = note  # type: ignore[method-assign]
        generate(model, "abc", Settings(max_new_tokens=9), drafter=PlainDrafter())
        assert seen == [1] * 8

    def test_fixed_passes_have_the_cost_of_each_width(self, folder: Path) -> None:
        model = load(folder, device="cpu", passes="fixed", measure_cost=True)
        assert model.cost is not None
        assert [width for width, _ in model.cost.widths] == [1, 2, 4, 8, 16, 32, 64, 128]
        assert model.cost.widths[0] == (1, 1.0)

    @pytest.mark.parametrize("options", [{"passes": "fixed"}, {"exact": "fixed"}])
    def test_fixed_passes_on_a_cpu_are_timed_by_width_unless_told_not_to(
        self, folder: Path, options: Any
    ) -> None:
        model = load(folder, device="cpu", **options)
        assert model.passes is not None
        assert isinstance(model.watch, WidthWatch)
        assert model.cost is not None
        assert [width for width, _ in model.cost.widths] == list(model.passes.widths)
        assert load(folder, device="cpu", measure_cost=False, **options).watch is None

    def test_the_default_drafter_takes_the_measured_cost(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = load(folder, device="cpu", passes="fixed")
        model = replace(model, watch=WidthWatch(dict.fromkeys((1, 8), 1.0)))
        given: list[CostModel | None] = []

        class Noting(PlainDrafter):
            def __init__(self, *, cost: CostModel | None = None) -> None:
                given.append(cost)

        monkeypatch.setattr(sys.modules["lookupdec.hf.generate"], "CopyDrafter", Noting)
        generate(model, "abc", Settings(max_new_tokens=3))
        assert given == [CostModel.from_widths({1: 1.0, 8: 1.0})]

    def test_costs_that_are_right_are_kept(self) -> None:
        watch = WidthWatch(SECONDS)
        before = watch.cost
        assert not any(watch.add(width, SECONDS[width] * 1.1) for width in SECONDS for _ in range(50))
        assert watch.cost == before

    def test_a_width_that_has_become_dearer_is_noticed(self) -> None:
        watch = WidthWatch(SECONDS)
        changes = [watch.add(width, seconds) for width, seconds in ((1, 0.01), (60, 0.05)) for _ in range(40)]
        assert any(changes)
        assert dict(watch.cost.widths)[64] == pytest.approx(5.0)
        assert dict(watch.cost.widths)[1] == 1.0

    def test_a_slower_machine_changes_no_ratio(self) -> None:
        watch = WidthWatch(SECONDS)
        before = dict(watch.cost.widths)
        for _ in range(40):
            for width in (1, 16, 64):
                watch.add(width, SECONDS[width] * 3)
        assert dict(watch.cost.widths) == pytest.approx(before)

    def test_few_passes_and_single_slow_ones_say_nothing(self) -> None:
        watch = WidthWatch(SECONDS)
        for number in range(40):
            assert not watch.add(8, 30.0 if number % 4 == 0 else SECONDS[8])
        for _ in range(FEWEST_PASSES - 1):
            assert not watch.add(1, DRIFT * 2 * SECONDS[1])
        assert not watch.add(500, 1.0)  # several passes in one step
        with pytest.raises(InputError, match="takes time"):
            watch.add(1, 0.0)

    def test_a_width_that_was_dear_for_a_while_is_tried_again(self) -> None:
        watch = WidthWatch(SECONDS)
        before = watch.cost
        for width in (1, 8, 32) * FEWEST_PASSES:
            watch.add(width, SECONDS[width] * (5.0 if width > 1 else 1.0))
        assert dict(watch.cost.widths)[8] == pytest.approx(6.0)
        for _ in range(STALE_AFTER + 2):
            watch.add(1, SECONDS[1] * 1.2)
        assert dict(watch.cost.widths) == pytest.approx(dict(before.widths))

    def test_a_pass_is_timed_until_its_first_choice_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter([1.0, 1.5, 9.0])
        monkeypatch.setattr("lookupdec.hf.watch.perf_counter", times.__next__)
        added: list[tuple[int, float]] = []

        class Noting:
            cost = CostModel()

            def add(self, width: int, seconds: float) -> bool:
                added.append((width, seconds))
                return False

        released: list[Any] = []

        class Echo:
            def resume(self, states: Any) -> None:
                assert states == ()

            def prefill(self, prompt: Any) -> Any:
                return iter(prompt)

            def states(self) -> Any:
                return ()

            def start(self, prompt: Any) -> int:
                return 1

            def release(self) -> None:
                released.append(self)

            def step(self, ids: Any) -> Any:
                return iter(ids)

            def rewind(self, count: int) -> None:
                assert count == 2

        target = WatchedTarget(Echo(), Noting())
        target.resume(target.states())
        assert list(target.prefill([7, 8])) == [7, 8]
        assert target.start([1]) == 1
        choices = target.step([1, 2, 3])
        assert next(choices) == 1
        assert added == [(3, 0.5)]
        assert list(choices) == [2, 3]
        target.rewind(2)
        target.release()
        assert added == [(3, 0.5)]
        assert len(released) == 1


class TestMemory:
    def test_weights_that_do_not_fit_are_refused_before_they_are_moved(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory, "free_bytes", lambda device: 400_000)
        monkeypatch.setattr(torch.nn.Module, "to", lambda *_: pytest.fail("the weights were moved"))
        message = refusal(folder, device="cpu")
        assert message.endswith(
            "does not fit cpu: weights 0.2 MB, KV cache of 1024 tokens 0.4 MB, free 0.4 MB; "
            "use dtype='bfloat16', a smaller model or device='cpu'"
        )

    def test_a_cache_that_does_not_fit_is_refused_with_the_numbers_before_a_pass(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = tiny_model("llama", 1, max_position_embeddings=4096)
        each = memory.kv_bytes_per_token(model)
        assert each == 2 * 3 * 2 * 8 * 4
        monkeypatch.setattr(memory, "free_bytes", lambda device: 2048 * each)
        model.register_forward_pre_hook(lambda *_: pytest.fail("a forward pass has run"))
        with pytest.raises(ModelError) as caught:
            FixedPasses(model, name="tiny", context=4096)
        assert str(caught.value) == (
            "tiny does not fit cpu: weights 0.1 MB, KV cache of 4096 tokens 1.6 MB, free beside the weights 0.8 MB; "
            "use context=1817, a smaller model or device='cpu'"
        )

    def test_the_context_is_what_half_of_the_memory_holds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = tiny_model("llama", 1, max_position_embeddings=4096)
        each = memory.kv_bytes_per_token(model)
        monkeypatch.setattr(memory, "free_bytes", lambda device: 5000 * each)
        assert FixedPasses(model).room == 2500 - 128
        monkeypatch.setattr(memory, "free_bytes", lambda device: 50_000 * each)
        assert FixedPasses(model).room == 4096
        monkeypatch.setattr(memory, "free_bytes", lambda device: 1000 * each)
        with pytest.raises(ModelError, match="KV cache of 1024 tokens .* use dtype='bfloat16'"):
            FixedPasses(model)

    def test_a_model_without_attention_keeps_no_keys_and_values(self) -> None:
        config = MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=24)
        assert memory.kv_bytes_per_token(MambaForCausalLM(config)) == 0

    def test_shared_weights_count_once(self) -> None:
        model = tiny_model("llama", 1, tie_word_embeddings=True)
        assert memory.weight_bytes(model) < memory.weight_bytes(tiny_model("llama", 1))


@pytest.mark.parametrize("sample", [False, True])
def test_the_drop_in_runs_on_fixed_passes_where_it_can(sample: bool) -> None:
    model = tiny_model("llama", 1, pad_token_id=0, initializer_range=0.15)
    passes = FixedPasses(model, context=40)
    lane = passes._free[0]
    ran: list[int] = []
    run = lane.run

    def count(position: int, ids: Any) -> Any:
        ran.append(position)
        return run(position, ids)

    lane.run = count  # type: ignore[method-assign]
    ids = torch.tensor([[0, 5, 7, 3, 5, 7]])
    masked = torch.ones_like(ids)
    masked[0, 0] = 0
    requests: list[tuple[bool, dict[str, Any]]] = [
        (True, {"max_new_tokens": 30}),
        (False, {"max_new_tokens": 36}),
        (False, {"max_new_tokens": 20, "attention_mask": masked}),
        (False, {"max_new_tokens": 20, "return_dict_in_generate": True, "output_scores": True}),
    ]
    for is_fixed, options in requests:
        told = {"attention_mask": torch.ones_like(ids), "do_sample": sample} | options
        results = []
        for more in ({}, {"custom_generate": custom_generate, "drafter": NaiveCopier(), "passes": passes}):
            torch.manual_seed(1)
            output = model.generate(ids, **told, **more)
            results.append(output if isinstance(output, torch.Tensor) else output.sequences)
            results.append(torch.rand(1))  # draws go on alike
        assert results[2].equal(results[0])
        assert results[3].equal(results[1])
        assert bool(ran) == is_fixed
        ran.clear()


@pytest.mark.parametrize("one_width", [False, True])
def test_what_is_made_in_inference_mode_serves_outside_of_it(one_width: bool) -> None:
    model, prompt = tiny_model("llama", 2), [1, 2, 3, 1, 2]
    expected = generate(wrap(model), prompt, Settings(max_new_tokens=20), drafter=PlainDrafter()).ids
    with torch.inference_mode():
        passes = FixedPasses(model, context=60, one_width=one_width)
        loaded = replace(wrap(model), passes=passes)
        # Of two at one time the second has a lane of its own, or dynamic passes.
        streams = [stream(loaded, prompt, Settings(max_new_tokens=20, temperature=t)) for t in (0.0, 0.7)]
        for chunks in streams:
            next(chunks)
        dynamic = stream(wrap(model), prompt, Settings(max_new_tokens=20), drafter=NaiveCopier())
        next(dynamic)
    texts = [[token for chunk in chunks for token in chunk.ids] for chunks in (*streams, dynamic)]
    assert texts[0] == texts[2] == list(expected[1:])
    assert len(texts[1]) == 19
    for _ in range(2):
        assert generate(loaded, prompt, Settings(max_new_tokens=20), drafter=NaiveCopier()).ids == expected
    with torch.inference_mode():
        assert generate(loaded, prompt, Settings(max_new_tokens=20), drafter=NaiveCopier()).ids == expected


def cache_of(model: Any, ids: torch.Tensor) -> tuple[str, Any]:
    """Return a cache that has read ``ids``, and the name that ``generate`` knows it by."""
    names = inspect.signature(model.prepare_inputs_for_generation).parameters
    cache = read_with_cache(model, ids, None)[1]
    return ("cache" if "cache" in names else "past_key_values"), cache


def test_the_drop_in_leaves_to_dynamic_passes_what_is_more_than_ids() -> None:
    model = tiny_model("llama", 1, pad_token_id=0, initializer_range=0.15)
    passes, ids = FixedPasses(model, context=60), torch.tensor([[4, 5, 7, 3, 5, 7]])
    read = torch.tensor([[9, 2, 6, 6, 1]])

    def requests() -> list[dict[str, Any]]:
        name, cache = cache_of(model, read)
        whole, whole_cache = torch.cat([read, ids], dim=1), cache_of(model, read)[1]
        return [
            {"inputs": ids, "position_ids": torch.tensor([[0, 1, 2, 8, 9, 10]])},
            {"inputs": ids, "attention_mask": torch.ones(1, 11).long(), name: cache},
            {"inputs": whole, "attention_mask": torch.ones_like(whole), name: whole_cache},
        ]

    told: dict[str, Any] = {"max_new_tokens": 20, "do_sample": False}
    for expected, given in zip(requests(), requests(), strict=True):
        output = model.generate(**given, **told, custom_generate=custom_generate, passes=passes)
        assert output.equal(model.generate(**expected, **told))
    with pytest.raises(InputError, match="leave out inputs_embeds"):
        embeddings = torch.zeros(1, 6, 32)
        model.generate(ids, inputs_embeds=embeddings, **told, custom_generate=custom_generate, passes=passes)


def test_the_drop_in_drafts_at_what_is_usual_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[CostModel | None] = []

    class Noting(PlainDrafter):
        def __init__(self, *, cost: CostModel | None = None) -> None:
            given.append(cost)

    monkeypatch.setattr("lookupdec.hf.drop_in.CopyDrafter", Noting)
    ids = torch.tensor([[1, 2, 3]])
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model("llama", 1).to(dtype)
        model.generate(ids, max_new_tokens=3, do_sample=False, custom_generate=custom_generate)
    assert given == [CostModel(CPU_COST), CostModel(CPU_HALF_COST)]
    assert usual_cost(torch.device("cuda"), torch.bfloat16) == CostModel()


def test_the_drop_in_refuses_what_passes_of_one_width_cannot_serve() -> None:
    model = tiny_model("llama", 1, pad_token_id=0)
    passes, ids = FixedPasses(model, context=40, one_width=True), torch.tensor([[4, 5, 7, 3, 5, 7]])
    told: dict[str, Any] = {"do_sample": False, "custom_generate": custom_generate, "passes": passes}
    masked = torch.tensor([[0, 1, 1, 1, 1, 1]])
    for options, error, message in (
        (
            {"max_new_tokens": 36},
            ContextFullError,
            "may have 42 tokens, but .* room for 41: lower max_new_tokens",
        ),
        ({"max_new_tokens": 9, "attention_mask": masked}, InputError, "leave out padding"),
        (
            {"max_new_tokens": 9, "return_dict_in_generate": True},
            InputError,
            "leave out return_dict_in_generate",
        ),
    ):
        with pytest.raises(error, match=message):
            model.generate(ids, **options, **told)
    assert model.generate(ids, max_new_tokens=35, **told).shape == (1, 41)
    assert len(passes._free) == 1


def test_generations_with_a_watch_are_those_without() -> None:
    model = tiny_model("llama", 2)
    watched = replace(wrap(model), watch=CostWatch(CostModel()))
    expected = generate(wrap(model), [1, 2, 3], Settings(max_new_tokens=30)).ids
    for drafter in (None, PlainDrafter(), Known(expected)):
        assert generate(watched, [1, 2, 3], Settings(max_new_tokens=30), drafter=drafter).ids == expected
