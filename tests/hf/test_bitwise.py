"""Passes over several tokens that compute every token as a one-token pass does."""

from __future__ import annotations

import threading
import warnings
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers.modeling_utils import PreTrainedModel

from lookupdec.errors import ModelError
from lookupdec.hf import Settings, custom_generate, generate, load, row_attention
from lookupdec.hf.bitwise import RowInvariance, one_token_arithmetic, prepare
from lookupdec.hf.row_linear import LinearRule, RowLinear, find_rule, spaced
from tests.hf.drafters import Garbage, Known, NaiveCopier
from tests.hf.tiny import byte_tokenizer, plain, tiny_model, wrap

# Smaller products take another way through PyTorch when they have one row.
WIDE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32, "vocab_size": 200}
FAMILIES = {
    "llama": {},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8, "query_pre_attn_scalar": 32},
}


def half_model(family: str = "llama", seed: int = 0, **overrides: Any) -> Any:
    settings = WIDE | FAMILIES.get(family, {}) | {"initializer_range": 0.1} | overrides
    return tiny_model(family, seed, **settings).to(torch.bfloat16)


def prepared(model: Any) -> RowInvariance:
    report = prepare(model)
    if not report.exact:
        pytest.skip(f"not on this processor: {report.reason}")
    return report


def read(model: Any, ids: torch.Tensor, cache: Any = None, **options: Any) -> tuple[torch.Tensor, Any]:
    # Newer versions of transformers call it `cache`.
    name = next(name for name in signature(model.forward).parameters if name in ("cache", "past_key_values"))
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=True, **{name: cache}, **options)
    return output.logits[0], output[name]


def some_ids(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, 200, (1, length), generator=torch.Generator().manual_seed(seed))


# attention


@pytest.mark.parametrize("shape", [(4, 2, 32), (9, 3, 64), (4, 4, 128), (8, 1, 48)])
def test_attention_equals_one_token_calls(shape: tuple[int, int, int]) -> None:
    heads, key_heads, head = shape
    if not row_attention.is_same_as_torch(heads, key_heads, head, head**-0.5):
        pytest.skip("PyTorch adds in another order on this processor")
    for n_keys in (40, 513, 1100):
        rows = 33
        query = torch.randn(1, heads, rows, head).to(torch.bfloat16)
        key = 2 * torch.randn(1, key_heads, n_keys, head).to(torch.bfloat16)
        value = torch.randn(1, key_heads, n_keys, head).to(torch.bfloat16)
        together = row_attention.attend(query, key, value, head**-0.5)
        for row in range(rows):
            end = n_keys - rows + 1 + row
            alone = functional.scaled_dot_product_attention(
                query[:, :, row : row + 1], key[:, :, :end], value[:, :, :end],
                scale=head**-0.5, enable_gqa=heads != key_heads,
            )  # fmt: skip
            assert torch.equal(together[:, row], alone[:, :, 0])


def test_attention_takes_keys_that_are_views() -> None:
    query = torch.randn(1, 4, 3, 32).to(torch.bfloat16)
    states = torch.randn(1, 2, 60, 32).to(torch.bfloat16)
    cut = states[:, :, :50]
    assert torch.equal(
        row_attention.attend(query, cut, cut, 0.2),
        row_attention.attend(query, cut.contiguous(), cut.contiguous(), 0.2),
    )


def test_attention_leaves_other_dtypes_to_torch() -> None:
    query = torch.randn(1, 4, 1, 32)
    assert not row_attention.fits(query, query)
    assert row_attention.fits(query.to(torch.bfloat16), query.to(torch.bfloat16))
    assert not row_attention.is_same_as_torch(4, 4, 24, 0.2)  # no multiple of the vector width


# linear layers


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("n_in", [576, 1152, 1536, 1700])
def test_linear_rows_equal_one_row_calls(n_in: int, has_bias: bool) -> None:
    layer = torch.nn.Linear(n_in, 96, bias=has_bias).to(torch.bfloat16)
    rule = find_rule(layer)
    if rule.width == 1:
        pytest.skip("this processor has no exact way to take several rows")
    exact = RowLinear(layer, rule, lambda: True)
    with torch.no_grad():
        rows = torch.randn(1, 600, n_in).to(torch.bfloat16)
        alone = torch.cat(
            [functional.linear(row[None, None], layer.weight, layer.bias) for row in rows[0]], 1
        )
        for width in (2, 7, 32, 33, 100, 600):
            assert torch.equal(exact(rows[:, :width]), alone[:, :width])


def test_spaced_puts_zeros_between_blocks() -> None:
    wide = spaced(torch.arange(1.0, 1201.0)[None])
    assert wide.shape == (1, 5 * 512)
    assert wide[0, :512].tolist() == list(range(1, 513))
    assert not wide[0, 512:1024].any()
    assert wide[0, 1024:1536].tolist() == list(range(513, 1025))
    assert wide[0, 2048 : 2048 + 176].tolist() == list(range(1025, 1201))
    assert not wide[0, 2048 + 176 :].any()


def test_spaced_weights_follow_the_layer() -> None:
    layer = torch.nn.Linear(1100, 8, bias=False)
    exact = RowLinear(layer, LinearRule(64, spaced=True), lambda: True)
    rows = torch.randn(3, 1100)
    with torch.no_grad():
        torch.testing.assert_close(exact(rows), functional.linear(rows, layer.weight))
        layer.weight.mul_(3)
        torch.testing.assert_close(exact(rows), functional.linear(rows, layer.weight))
        layer.to(torch.float64)
        torch.testing.assert_close(exact(rows.double()), functional.linear(rows.double(), layer.weight))


def test_linear_is_plain_outside_of_an_exact_pass() -> None:
    layer = torch.nn.Linear(1100, 8)
    calls: list[torch.Tensor] = []
    layer.register_forward_hook(lambda *_: calls.append(torch.empty(0)))
    rows = torch.randn(5, 1100)
    RowLinear(layer, LinearRule(2), lambda: False).install()
    assert torch.equal(layer(rows), functional.linear(rows, layer.weight, layer.bias))
    assert len(calls) == 1


# whole models


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt_length", [1, 6, 30])
def test_pass_over_several_tokens_equals_one_token_passes(family: str, prompt_length: int) -> None:
    model = half_model(family)
    prepared(model)
    prompt, rest = some_ids(prompt_length), some_ids(20, seed=1)
    _, cache = read(model, prompt)
    singly = []
    for position in range(20):
        logits, cache = read(model, rest[:, position : position + 1], cache)
        singly.append(logits[0])
    for width in (2, 7, 20):
        _, cache = read(model, prompt)
        with one_token_arithmetic(model):
            together, cache = read(model, rest[:, :width], cache)
        assert torch.equal(together, torch.stack(singly[:width]))


def test_masked_positions_stay_masked() -> None:
    model = half_model()
    prepared(model)
    ids, n_padding, n_prompt = some_ids(24), 5, 12
    mask = torch.ones_like(ids)
    mask[:, :n_padding] = 0
    _, cache = read(model, ids[:, :n_prompt], attention_mask=mask[:, :n_prompt])
    singly = []
    for end in range(n_prompt + 1, 25):
        logits, cache = read(model, ids[:, end - 1 : end], cache, attention_mask=mask[:, :end])
        singly.append(logits[0])
    _, cache = read(model, ids[:, :n_prompt], attention_mask=mask[:, :n_prompt])
    with one_token_arithmetic(model):
        together, _ = read(model, ids[:, n_prompt:], cache, attention_mask=mask)
    assert torch.equal(together, torch.stack(singly))


def test_prepare_changes_nothing_for_others() -> None:
    model, twin = half_model(), half_model()
    prepared(model)
    ids = some_ids(40)
    assert torch.equal(read(model, ids)[0], read(twin, ids)[0])
    settings: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 20,
        "do_sample": False,
    }
    assert torch.equal(model.generate(ids, **settings), twin.generate(ids, **settings))
    assert set(model.state_dict()) == set(twin.state_dict())


def test_other_threads_compute_as_before() -> None:
    model = half_model()
    prepared(model)
    ids = some_ids(40)
    _, cache = read(model, ids[:, :20])
    expected = read(model, ids[:, 20:], cache)[0]
    found: list[torch.Tensor] = []

    def elsewhere() -> None:
        _, own_cache = read(model, ids[:, :20])
        found.append(read(model, ids[:, 20:], own_cache)[0])

    with one_token_arithmetic(model):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert torch.equal(found[0], expected)


def test_linear_gives_back_whatever_forward_there_was() -> None:
    layer = torch.nn.Linear(4, 4)
    exact = RowLinear(layer, LinearRule(2), lambda: False)
    exact.install()
    exact.remove()
    assert "forward" not in vars(layer)
    own = layer.forward = lambda input: input  # type: ignore[method-assign]
    exact = RowLinear(layer, LinearRule(2), lambda: False)
    exact.install()
    exact.remove()
    assert layer.forward is own


def test_prepare_is_done_once_for_each_number_of_threads() -> None:
    model = half_model()
    first = prepare(model)
    assert prepare(model) is first
    torch.set_num_threads(2)
    second = prepare(model)
    assert second is not first
    assert prepare(model) is second


def test_prepare_looks_again_at_a_model_that_changed() -> None:
    model = half_model()
    prepared(model)
    report = prepare(model.float())
    assert report.dtype == "float32"
    assert not report.exact
    assert model.config._attn_implementation == "sdpa"
    assert not any("forward" in vars(module) for module in model.modules())


def test_report_names_shapes_and_device() -> None:
    report = prepared(half_model())
    assert report.device == "cpu"
    assert report.dtype == "bfloat16"
    assert "128 to 192" in report.linear
    assert report.reason == ""


def test_other_attention_is_refused_by_name() -> None:
    model = half_model()
    model.set_attn_implementation("eager")
    report = prepare(model)
    assert not report.exact
    assert "eager" in report.reason
    assert model.config._attn_implementation == "eager"


def test_model_that_differs_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = half_model()

    def wrong(layer: torch.nn.Linear) -> LinearRule:
        return LinearRule(64, spaced=layer.in_features > 64)

    # Attention over all rows at once is what the trial passes are to catch.
    monkeypatch.setattr("lookupdec.hf.bitwise.row_views", lambda **options: None)
    monkeypatch.setattr("lookupdec.hf.bitwise.find_rule", wrong)
    report = prepare(model)
    assert not report.exact
    assert "other results" in report.reason
    assert model.config._attn_implementation == "sdpa"
    assert not any("forward" in vars(module) for module in model.modules())


def test_unprepared_model_computes_as_it_does(tiny: Any) -> None:
    assert isinstance(tiny.model, PreTrainedModel)
    ids = some_ids(9)
    with one_token_arithmetic(tiny.model):
        inside = read(tiny.model, ids)[0]
    assert torch.equal(inside, read(tiny.model, ids)[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sample", [False, True])
def test_text_is_that_of_plain_generate(family: str, sample: bool) -> None:
    model = half_model(family)
    prepared(model)
    settings: dict[str, Any] = {"max_new_tokens": 80, "do_sample": sample, "temperature": 0.8}
    for seed in range(3):
        ids = some_ids(5, seed).repeat(1, 4)
        settings["attention_mask"] = torch.ones_like(ids)
        torch.manual_seed(seed)
        plain = model.generate(ids, **settings)
        for drafter in (Known(plain[0, ids.shape[1] :].tolist()[1:], most=40), NaiveCopier(), Garbage()):
            torch.manual_seed(seed)
            found = model.generate(ids, custom_generate=custom_generate, drafter=drafter, **settings)
            assert torch.equal(found, plain)


def test_another_number_of_threads_is_tested_first() -> None:
    model = half_model()
    first = prepared(model)
    torch.set_num_threads(2)
    with one_token_arithmetic(model):
        pass
    assert prepare(model) is not first


# models that change after they were prepared


def differing(model: Any, seeds: int = 4) -> int:
    """Return how many of a few texts differ from plain decoding's, with drafts of all of it."""
    count = 0
    for seed in range(seeds):
        ids = some_ids(9, seed)
        settings: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 30}
        settings["do_sample"] = False
        expected = model.generate(input_ids=ids, **settings)
        known = Known(expected[0, 9:].tolist(), most=9)
        found = model.generate(input_ids=ids, **settings, custom_generate=custom_generate, drafter=known)
        count += not torch.equal(found, expected)
    return count


@pytest.mark.parametrize("size", [1536, 1102, 1101])
def test_weights_written_through_data_are_seen(size: int) -> None:
    model = half_model(intermediate_size=size)
    prepared(model)
    assert differing(model, 2) == 0
    for factor in (-1.0, -0.5):
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.data.mul_(factor)
        assert differing(model) == 0
    exact = model.model.layers[0].mlp.down_proj.forward
    made = exact._spaced_weight
    assert differing(model, 1) == 0
    assert exact._spaced_weight is made  # kept while nothing changes
    # One number at the end of a row, which no sum would show.
    weight = model.model.layers[0].mlp.down_proj.weight
    weight.data[3, -1], weight.data[4, -1] = weight.data[4, -1].clone(), weight.data[3, -1].clone()
    exact.renew()
    assert exact._spaced_weight is None


def adapted_from(model: Any, **options: Any) -> Any:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        # peft asks transformers for an attribute by its old name.
        warnings.simplefilter("ignore", FutureWarning)
        config = peft.LoraConfig(init_lora_weights=False, lora_alpha=64, **options)
        return peft.get_peft_model(model, config).to(torch.bfloat16)


def test_an_adapter_merged_and_taken_out_again_is_seen() -> None:
    model = half_model(intermediate_size=1536)
    prepared(model)
    assert differing(model, 1) == 0
    torch.manual_seed(1)
    adapted = adapted_from(model, r=4, target_modules=["down_proj"])
    assert differing(adapted) == 0
    adapted.merge_adapter()
    assert differing(adapted) == 0
    adapted.unmerge_adapter()
    assert differing(adapted) == 0
    assert differing(adapted.merge_and_unload()) == 0


@pytest.mark.parametrize("size", [192, 3000])
def test_an_adapter_put_on_later_is_tested_too(size: int, caplog: pytest.LogCaptureFixture) -> None:
    model = half_model(intermediate_size=size)
    first = prepared(model)
    adapted = adapted_from(model, r=16, target_modules="all-linear")
    assert differing(adapted) == 0 or caplog.records
    report = prepare(adapted)
    assert report is prepare(model) is not first
    assert f"{size} to 16" in report.linear
    assert ("no longer decoded bitwise" in caplog.text) is not report.exact
    found = generate(wrap(adapted), [1, 2, 3], Settings(max_new_tokens=20))
    assert list(found.ids) == plain(adapted, [1, 2, 3], max_new_tokens=20, do_sample=False)


def test_a_model_that_is_no_longer_exact_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    model = half_model()
    prepared(model)
    model.set_attn_implementation("eager")
    for _ in range(2):
        differing(model, 1)
    assert len(caplog.records) == 1
    assert "no longer decoded bitwise: its attention is eager" in caplog.text


# loading


def saved(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def test_load_is_bitwise_for_half_precision_on_a_cpu(tmp_path: Path) -> None:
    folder = saved(half_model(vocab_size=257), tmp_path)
    loaded = load(folder, dtype="bfloat16", device="cpu")
    assert loaded.is_bitwise is prepare(loaded.model).exact
    assert not load(folder, dtype="bfloat16", device="cpu", exact="fast").is_bitwise
    assert not load(folder, dtype="float32", device="cpu").is_bitwise


def test_load_refuses_bitwise_where_it_is_impossible(tmp_path: Path) -> None:
    folder = saved(half_model(vocab_size=257), tmp_path)
    model = load(folder, dtype="float32", device="cpu").model
    if prepare(model).exact:
        pytest.skip("possible on this processor")
    with pytest.raises(ModelError, match="use exact='fast'"):
        load(folder, dtype="float32", device="cpu", exact="bitwise")


@pytest.mark.model
def test_default_model_is_exact_in_bfloat16(default_model: Any) -> None:
    report = prepared(load(dtype="bfloat16").model)
    assert report.widths == (2, 8, 40)
