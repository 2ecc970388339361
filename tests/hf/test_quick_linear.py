"""Linear layers with the sides of their product exchanged: the same numbers, and only where they are meant to be."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch.nn import functional

from lookupdec.hf import LanguageModel, Settings, generate
from lookupdec.hf import quick_linear as quick
from tests.hf.drafters import Known
from tests.hf.tiny import plain, random_prompt, tiny_model, wrap


def layer(
    n_in: int = 24, n_out: int = 40, *, bias: bool = True, dtype: torch.dtype = torch.float32
) -> torch.nn.Linear:
    torch.manual_seed(n_in)
    made = torch.nn.Linear(n_in, n_out, bias=bias).to(dtype)
    made.forward = quick.QuickLinear(made)  # type: ignore[assignment]
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
    assert not any("forward" in vars(module) for module in model.modules())


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


@pytest.mark.model
def test_the_default_model_is_quick_where_that_pays(default_model: LanguageModel) -> None:
    layers = [module for module in default_model.model.modules() if type(module) is torch.nn.Linear]
    are_quick = [isinstance(module.forward, quick.QuickLinear) for module in layers]
    assert all(are_quick) or not any(are_quick)
