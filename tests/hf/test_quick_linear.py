"""Linear layers with the sides of their product exchanged: the same numbers, and only where they are meant to be."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from lookupdec.hf import LanguageModel, Settings, bitwise, generate, load
from lookupdec.hf import quick_linear as quick
from tests.hf.drafters import Known
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap


def layer(
    n_in: int = 24, n_out: int = 40, *, bias: bool = True, dtype: torch.dtype = torch.float32
) -> torch.nn.Linear:
    torch.manual_seed(n_in)
    made = torch.nn.Linear(n_in, n_out, bias=bias).to(dtype)
    made.__class__ = quick.QuickLinear
    return made


@pytest.mark.parametrize("rows", [*range(1, 20), 64, 127, 128])
@pytest.mark.parametrize("bias", [False, True])
def test_any_number_of_rows_gives_what_the_layer_gives(rows: int, bias: bool) -> None:
    made, inputs = layer(bias=bias), torch.randn(1, rows, 24)
    expected = functional.linear(inputs, made.weight, made.bias)
    with torch.no_grad(), quick.quick_passes():
        out = made(inputs)
        assert out.is_contiguous()
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(made(inputs[0]), expected[0], rtol=1e-5, atol=1e-6)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    rows: list[int] = []
    exchanged = quick.exchanged

    def count(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        rows.append(inputs.numel() // inputs.shape[-1])
        return exchanged(inputs, weight, bias)

    monkeypatch.setattr(quick, "exchanged", count)
    return rows


def test_it_is_exchanged_within_the_block_only_and_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, made = counted(monkeypatch), layer()
    made(torch.ones(2, 24))
    with quick.quick_passes():
        other = threading.Thread(target=lambda: made(torch.ones(3, 24)))
        other.start()
        other.join()
        with quick.quick_passes():
            made(torch.ones(4, 24))
        made(torch.ones(5, 24))
    made(torch.ones(6, 24))
    assert rows == [4, 5]


def test_other_dtypes_none_at_all_and_many_rows_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = counted(monkeypatch)
    with quick.quick_passes():
        layer(dtype=torch.bfloat16)(torch.ones(2, 24, dtype=torch.bfloat16))
        layer()(torch.ones(0, 24))
        layer()(torch.ones(quick.MOST_ROWS + 1, 24))
        moved = layer().to(torch.float64)
        moved(torch.ones(2, 24, dtype=torch.float64))
    assert rows == []


def prepared(monkeypatch: pytest.MonkeyPatch, *, pays: bool) -> LanguageModel:
    monkeypatch.setattr(quick, "_TRIED_BYTES", 1)
    monkeypatch.setattr(quick, "WORTH_IT", float("inf") if pays else 0.0)
    model = tiny_model()
    assert quick.prepare_quick(model) is pays
    return wrap(model)


def test_generations_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = prepared(monkeypatch, pays=True), counted(monkeypatch)
    for seed in range(6):
        prompt = random_prompt(seed)
        expected = plain(tiny_model(), prompt, max_new_tokens=30, do_sample=False)
        rows.clear()
        result = generate(model, prompt, Settings(max_new_tokens=30), drafter=Known(expected))
        assert list(result.ids) == expected
        assert max(rows) > 4
        rows.clear()
        assert plain(model.model, prompt, max_new_tokens=30, do_sample=False) == expected
        assert rows == []  # its own generate computes as ever


def test_where_it_does_not_pay_the_model_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(monkeypatch, pays=False).model
    assert not any(isinstance(module, quick.QuickLinear) for module in model.modules())


def test_small_models_and_other_dtypes_are_not_tried() -> None:
    assert not quick.prepare_quick(tiny_model())
    assert not quick.prepare_quick(tiny_model().to(torch.bfloat16))
    assert not quick.prepare_quick(torch.nn.Identity())


def test_a_prepared_model_can_be_prepared_again_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(monkeypatch, pays=True).model
    assert quick.prepare_quick(model)
    prompt = random_prompt(1)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.lm_head.weight.zero_()
    expected = plain(tiny_model(), prompt, max_new_tokens=8, do_sample=False)
    assert list(generate(wrap(model), prompt, Settings(max_new_tokens=8)).ids) == expected
    assert set(generate(wrap(copied), prompt, Settings(max_new_tokens=8)).ids) == {0}


def test_a_copied_layer_computes_with_the_weights_of_the_copy() -> None:
    made, inputs = layer(), torch.randn(3, 24)
    shallow = copy.copy(made)
    shallow._parameters = {"weight": torch.nn.Parameter(torch.zeros(40, 24)), "bias": made.bias}
    with torch.no_grad(), quick.quick_passes():
        assert shallow(inputs).equal(made.bias.expand(3, -1))
        assert not made(inputs).equal(made.bias.expand(3, -1))
        for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert twin.weight is not made.weight
            torch.testing.assert_close(twin(inputs), made(inputs))
            with torch.no_grad():
                twin.weight.zero_()
            assert not made(inputs).equal(twin(inputs))


def test_a_dropped_model_frees_its_weights_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_TRIED_BYTES", 1)
    monkeypatch.setattr(quick, "WORTH_IT", float("inf"))
    model = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.Linear(24, 8))
    assert quick.prepare_quick(model)
    weights = [weakref.ref(parameter) for parameter in model.parameters()]
    gc.disable()
    try:
        del model
        assert [weight() for weight in weights] == [None] * 4
    finally:
        gc.enable()


class Doubled(torch.Tensor):
    """Weights of a class of their own, as quantised ones are: what is stored is half of them."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not functional.linear:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        inputs, weight, *rest = args
        return functional.linear(inputs, 2 * weight.as_subclass(torch.Tensor), *rest)


def doubled(weight: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter((weight.detach() / 2).as_subclass(Doubled), requires_grad=False)


def test_weights_of_a_class_of_their_own_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_TRIED_BYTES", 1)
    monkeypatch.setattr(quick, "WORTH_IT", float("inf"))
    own, made, inputs = layer(), layer(), torch.randn(3, 24)
    own.__class__ = torch.nn.Linear
    expected = own(inputs)
    own.weight, made.weight = doubled(own.weight), doubled(made.weight)
    assert not quick.prepare_quick(own)
    assert type(own) is torch.nn.Linear
    with torch.no_grad(), quick.quick_passes():
        assert own(inputs).equal(expected)
        assert made(inputs).equal(expected)  # given such weights after it was prepared


def test_what_stands_in_for_a_layers_forward_decides_how_it_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, made = counted(monkeypatch), layer()
    method = made.forward
    made.forward = lambda inputs: method(inputs)  # type: ignore[assignment,method-assign]
    with torch.no_grad(), quick.quick_passes():
        made(torch.ones(2, 24))
    assert rows == []


def test_a_prepared_model_is_saved_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = prepared(monkeypatch, pays=True).model
    model.save_pretrained(tmp_path)
    auto: Any = AutoModelForCausalLM
    read = auto.from_pretrained(tmp_path)
    assert read.state_dict().keys() == model.state_dict().keys() == tiny_model().state_dict().keys()
    assert all(read.state_dict()[name].equal(weight) for name, weight in model.state_dict().items())
    assert not any(isinstance(module, quick.QuickLinear) for module in read.modules())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_copies_and_pickles_are_of_the_layer_that_it_was(protocol: int) -> None:
    made = layer()
    made.extra = "kept"  # type: ignore[assignment]
    for twin in (pickle.loads(pickle.dumps(made, protocol)), copy.deepcopy(made), copy.copy(made)):
        assert type(twin) is torch.nn.Linear
        assert twin.weight.equal(made.weight)
        assert twin.extra == "kept"
    assert type(made) is quick.QuickLinear
    assert b"lookupdec" not in pickle.dumps(made, protocol)


def test_a_model_saved_whole_needs_nothing_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    model, file = prepared(monkeypatch, pays=True).model, io.BytesIO()
    torch.save(model, file)
    assert b"lookupdec" not in file.getvalue()
    file.seek(0)
    read = torch.load(file, weights_only=False)
    ids = torch.tensor([random_prompt(1)])
    with torch.no_grad():
        assert read(ids).logits.equal(model(ids).logits)


def quantised(model: Any, **options: Any) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has deprecated it
        quantise: Any = torch.ao.quantization.quantize_dynamic
        small = quantise(model, {torch.nn.Linear}, torch.qint8, **options)
    return {type(module).__module__ for module in small.modules() if type(module).__name__ == "Linear"}


def test_a_prepared_model_is_quantised_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"torch.ao.nn.quantized.dynamic.modules.linear"}
    assert quantised(tiny_model()) == expected
    assert quantised(prepared(monkeypatch, pays=True).model) == expected


def test_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(monkeypatch, pays=True).model
    quick.restore(model)
    assert not any(isinstance(module, quick.QuickLinear) for module in model.modules())
    assert quantised(model, inplace=True) == {"torch.ao.nn.quantized.dynamic.modules.linear"}
    again = prepared(monkeypatch, pays=True).model
    quick.restore(again)
    assert quick.prepare_quick(again)


def test_a_prepared_model_can_still_be_made_bitwise(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(monkeypatch, pays=True).model
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    assert list(bitwise._linear_layers(model)) == linear


def test_a_prepared_model_takes_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    prompt, texts = random_prompt(3), []
    for pays in (False, True):
        model = prepared(monkeypatch, pays=pays).model
        torch.manual_seed(0)
        with warnings.catch_warnings():
            # peft asks transformers for an attribute by its old name.
            warnings.simplefilter("ignore", FutureWarning)
            adapted = peft.get_peft_model(model, config).eval()
        texts.append(plain(adapted, prompt, max_new_tokens=20, do_sample=False))
        rows = counted(monkeypatch)
        result = generate(wrap(adapted), prompt, Settings(max_new_tokens=20), drafter=Known(texts[0]))
        assert list(result.ids) == texts[0]
        assert bool(rows) is pays
    assert texts[0] == texts[1] != plain(tiny_model(), prompt, max_new_tokens=20, do_sample=False)


@pytest.mark.model
@pytest.mark.parametrize("pays", [True, False])
def test_the_default_model_is_quick_where_that_pays(monkeypatch: pytest.MonkeyPatch, *, pays: bool) -> None:
    monkeypatch.setattr(quick, "WORTH_IT", float("inf") if pays else 0.0)
    model = load(measure_cost=False).model
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert {type(module) for module in layers} == {quick.QuickLinear if pays else torch.nn.Linear}
