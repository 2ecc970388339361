"""The proof: it passes where nothing is wrong, catches faults, and knows a near-tie from one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from lookupdec import decode as loop
from lookupdec.errors import ContextFullError
from lookupdec.hf import LanguageModel, Settings
from lookupdec.hf.fixed_target import FixedTarget
from lookupdec.hf.generate import prepare_inputs
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.proof import gaps_below_choice, plain_generate, prove, settings_of_run
from lookupdec.hf.target import ModelTarget
from tests.hf.tiny import random_prompt, tiny_model, wrap

# The module: its name within the package is that of a function.
GENERATE = sys.modules["lookupdec.hf.generate"]
PROMPTS = [random_prompt(seed) for seed in (2, 3, 5)]


def verdicts(model: LanguageModel, **options: Any) -> list[str]:
    return [run.verdict for run in prove(model, PROMPTS, **({"samples": 2, "max_new_tokens": 24} | options))]


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_sound_decoder_is_identical_in_every_run(family: str) -> None:
    runs = list(prove(wrap(tiny_model(family, 4)), PROMPTS, samples=2, max_new_tokens=24))
    assert [(run.prompt, run.seed) for run in runs] == [(p, s) for p in range(3) for s in (None, 0, 1)]
    assert {(run.verdict, run.difference) for run in runs} == {("identical", None)}
    assert [run.mode for run in runs[:2]] == ["greedy", "sampled"]
    assert all(run.lookup.tokens == run.plain_tokens == 24 for run in runs)


def test_the_proof_leaves_the_global_random_numbers_alone() -> None:
    model = wrap(tiny_model())
    before = torch.random.get_rng_state()
    verdicts(model)
    assert torch.random.get_rng_state().equal(before)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_the_tokens_of_plain_decoding_are_the_models_choices_one_and_all(seed: int | None) -> None:
    model, prompt = wrap(tiny_model("llama", 4, initializer_range=0.15)), random_prompt(4)
    settings = settings_of_run(seed, 40)
    prepared = prepare_inputs(model.model, prompt, settings, 40)
    plain = plain_generate(model, prompt, settings)
    gaps = gaps_below_choice(model, prompt, plain, settings, prepared.processors)
    assert gaps == pytest.approx([0.0] * 40, abs=1e-4)
    wrong = [*plain[:10], (plain[10] + 1) % 24]
    gaps = gaps_below_choice(model, prompt, wrong, settings, prepared.processors)
    assert max(gaps[:10]) < 1e-4 < 1e-2 < gaps[10]


def accept_whatever_was_drafted(
    draft: Sequence[int], choices: Iterable[int], is_last: Callable[[int], bool]
) -> tuple[tuple[int, ...], int, bool]:
    emitted = (*draft, list(choices)[-1])
    return emitted, len(draft), any(map(is_last, emitted))


def accept_one_too_many(
    draft: Sequence[int], choices: Iterable[int], is_last: Callable[[int], bool]
) -> tuple[tuple[int, ...], int, bool]:
    emitted: list[int] = []
    for position, choice in enumerate(choices):
        emitted.append(choice)
        if is_last(choice):
            return tuple(emitted), position, True
        if position and emitted[position - 1] != draft[position - 1]:
            break
    return tuple(emitted), len(emitted) - 1, False


@pytest.mark.parametrize("accept", [accept_whatever_was_drafted, accept_one_too_many])
def test_a_broken_accept_rule_is_a_fault(monkeypatch: pytest.MonkeyPatch, accept: Any) -> None:
    monkeypatch.setattr(loop, "accept", accept)
    runs = list(prove(wrap(tiny_model("llama", 4)), PROMPTS, samples=1, max_new_tokens=24))
    assert "fault" in [run.verdict for run in runs if run.mode == "greedy"]
    fault = next(run for run in runs if run.verdict == "fault")
    assert fault.difference is not None
    assert fault.difference.plain != fault.difference.lookup
    assert "below the model's own choice" in fault.difference.why


def test_a_cache_that_is_not_rolled_back_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    rewind = ModelTarget.rewind
    monkeypatch.setattr(ModelTarget, "rewind", lambda self, count: rewind(self, max(0, count - 1)))
    assert "fault" in verdicts(wrap(tiny_model("llama", 4)))


def test_an_end_that_is_missed_and_one_that_comes_too_early_are_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("llama", 4)
    free = plain_generate(wrap(model), PROMPTS[0], Settings(max_new_tokens=24))
    model.generation_config.eos_token_id = free[10]
    assert verdicts(wrap(model), samples=0)[0] == "identical"

    def at_no_token(stop_ids: Collection[int]) -> Callable[[int], bool]:
        return lambda token: False

    monkeypatch.setattr(GENERATE, "stops_at", at_no_token)
    run = next(prove(wrap(model), PROMPTS, max_new_tokens=24))
    assert (run.verdict, run.difference and run.difference.plain) == ("fault", None)
    assert run.difference is not None
    assert run.difference.why == "it went on after an end-of-text token"
    monkeypatch.setattr(GENERATE, "stops_at", lambda stop_ids: lambda token: token == free[4])
    run = next(prove(wrap(model), PROMPTS, max_new_tokens=24))
    assert run.verdict == "fault"
    assert run.difference is not None
    assert (run.difference.position, run.difference.lookup) == (free.index(free[4]) + 1, None)


def test_other_draws_than_plain_decoding_makes_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseeded(device: torch.device, seed: int | None) -> torch.Generator:
        return torch.Generator(device=device).manual_seed(123456)

    monkeypatch.setattr(GENERATE, "_seeded_generator", unseeded)
    runs = list(prove(wrap(tiny_model("llama", 4, initializer_range=0.1)), PROMPTS, max_new_tokens=24))
    assert [run.verdict for run in runs if run.mode == "greedy"] == ["identical"] * 3
    assert [run.verdict for run in runs if run.mode == "sampled"] == ["fault"] * 3


def test_a_crash_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: ModelTarget, ids: Sequence[int]) -> Iterator[int]:
        raise RuntimeError("sizes do not match\nand so on")

    monkeypatch.setattr(ModelTarget, "step", crash)
    run = next(prove(wrap(tiny_model()), PROMPTS, max_new_tokens=5))
    assert run.verdict == "fault"
    assert run.difference is not None
    assert run.difference.why == "lookup decoding failed: sizes do not match"


def twins() -> LanguageModel:
    """Return a model whose tokens come in pairs that are exactly as likely."""
    model = tiny_model("llama", 4)
    with torch.no_grad():
        for weight in (model.lm_head.weight, model.get_input_embeddings().weight):
            weight[1::2] = weight[::2]
    return wrap(model)


def test_the_other_one_of_two_equals_is_a_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(verdicts(twins(), samples=0)) == {"identical"}
    step = ModelTarget.step
    monkeypatch.setattr(ModelTarget, "step", lambda self, ids: (token ^ 1 for token in step(self, ids)))
    runs = list(prove(twins(), PROMPTS, samples=0, max_new_tokens=24))
    assert [run.verdict for run in runs] == ["near-tie"] * 3
    assert runs[0].difference is not None
    assert runs[0].difference.gap == pytest.approx(0.0, abs=1e-4)
    assert runs[0].difference.plain == (runs[0].difference.lookup or 0) ^ 1
    # Where passes are promised to be bitwise equal, no difference is a matter of rounding.
    assert set(verdicts(replace(twins(), is_bitwise=True), samples=0)) == {"fault"}


def test_passes_of_one_width_are_compared_with_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_model("llama", 4)
    model = replace(wrap(network), passes=FixedPasses(network, one_width=True))
    assert model.arithmetic == "fixed"
    monkeypatch.setattr("lookupdec.hf.proof.plain_generate", lambda *_: pytest.fail("not what is promised"))
    assert set(verdicts(model)) == {"identical"}
    # A draft that changes the text is a fault, however small the gap.
    choices = FixedTarget.step

    def other(self: FixedTarget, ids: Sequence[int]) -> Iterator[int]:
        tokens = choices(self, ids)
        return (token ^ 1 for token in tokens) if len(ids) > 1 else iter(tokens)

    monkeypatch.setattr(FixedTarget, "step", other)
    assert "fault" in verdicts(model)
    # And so is a text that is no choice of the model's, with and without drafts.
    monkeypatch.setattr(FixedTarget, "step", lambda self, ids: ((t + 5) % 24 for t in choices(self, ids)))
    run = next(prove(model, PROMPTS, max_new_tokens=24))
    assert run.verdict == "fault"
    assert run.difference is not None
    assert "below the model's own choice" in run.difference.why


def test_a_fault_behind_a_near_tie_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ModelTarget.step
    steps: list[int] = []

    def first_a_tie_and_then_a_fault(self: ModelTarget, ids: Sequence[int]) -> Iterator[int]:
        steps.append(1)
        return (token ^ 1 if len(steps) < 4 else (token + 5) % 24 for token in step(self, ids))

    monkeypatch.setattr(ModelTarget, "step", first_a_tie_and_then_a_fault)
    assert next(prove(twins(), PROMPTS, max_new_tokens=24)).verdict == "fault"


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_run() -> None:
    model = tiny_model()
    model.register_forward_pre_hook(lambda *_: pytest.fail("a forward pass has run"))
    with pytest.raises(ContextFullError, match="has 256 tokens"):
        next(prove(wrap(model), [[1, 2], [3] * 256]))
