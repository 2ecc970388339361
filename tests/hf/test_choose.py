"""Choices from logits: the exact distribution, the right prefixes, nothing corrupted."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from lookupdec.hf import LanguageModel, Settings, custom_generate, generate
from lookupdec.hf.choose import Chooser, CountPenalty, Record
from tests.hf.drafters import Alternating, Garbage, Known, NaiveCopier
from tests.hf.tiny import byte_tokenizer, random_prompt, tiny_model


class Watching(LogitsProcessor):
    """Remembers every prefix it was shown, and works in place as bad processors do."""

    def __init__(self, spoil: float = 0.0) -> None:
        self.prefixes: list[list[int]] = []
        self.spoil = spoil

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.prefixes.append(input_ids[0].tolist())
        scores += self.spoil
        return scores


def chooser(logits: torch.Tensor, processors: list[Any] | None = None, **options: Any) -> Chooser:
    prompt = torch.tensor([[1, 2]])
    return Chooser(
        prompt, LogitsProcessorList(processors or []), limit=len(logits), **{"sample": False, **options}
    )


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert list(chooser(logits).choices(logits)) == [1, 0]
    assert list(chooser(logits, [Watching()]).choices(logits)) == [1, 0]


def test_choices_are_made_only_when_asked_for() -> None:
    logits, watching = torch.eye(4), Watching()
    choices = chooser(logits, [watching]).choices(logits)
    assert [next(choices), next(choices)] == [0, 1]
    assert watching.prefixes == [[1, 2], [1, 2, 0]]


def test_earlier_prefixes_do_not_change() -> None:
    logits = torch.eye(4)
    one = chooser(logits)
    choices = one.choices(logits)
    next(choices)
    before = one.ids
    list(choices)
    assert before.tolist() == [[1, 2, 0]]
    assert one.ids.tolist() == [[1, 2, 0, 1, 2, 3]]


def test_in_place_processors_corrupt_neither_logits_nor_the_record() -> None:
    logits, record = torch.eye(3), Record(keep_scores=True, keep_logits=True)
    list(chooser(logits, [Watching(spoil=5.0)], recorder=record).choices(logits))
    assert logits.equal(torch.eye(3))
    assert torch.cat(record.logits).equal(torch.eye(3))
    assert torch.cat(record.scores).equal(torch.eye(3) + 5)


def test_half_precision_logits_are_processed_in_float32() -> None:
    logits, record = torch.eye(3, dtype=torch.bfloat16), Record(keep_scores=True)
    list(chooser(logits, recorder=record).choices(logits))
    assert record.scores[0].dtype == torch.float32


def test_count_penalty_counts_generated_tokens_only() -> None:
    penalty = CountPenalty(2, frequency=0.5, presence=0.25)
    scores = penalty(torch.tensor([[3, 3, 1, 1, 2]]), torch.zeros(1, 5))
    torch.testing.assert_close(scores, torch.tensor([[0.0, -1.25, -0.75, 0.0, 0.0]]))


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
@pytest.mark.parametrize("value", [2.0, -2.0])
def test_penalties_inside_a_block_equal_plain_decoding(name: str, value: float) -> None:
    model, prompt = tiny_model("llama", 9), random_prompt(9)
    options = {name.split("_")[0]: value}
    penalty = CountPenalty(len(prompt), **{"frequency": 0.0, "presence": 0.0, **options})
    ids = torch.tensor([prompt])
    expected = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=30,
        do_sample=False,
        logits_processor=[penalty],
    )[0, len(prompt) :].tolist()
    wrapped = LanguageModel(model, byte_tokenizer())
    for drafter in (NaiveCopier(), Garbage(), Known([7] * 40), Known(expected), None):
        settings = Settings(max_new_tokens=30, **{name: value})  # type: ignore[arg-type]
        assert list(generate(wrapped, prompt, settings, drafter=drafter).ids) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stateful_processor_is_called_once_per_emitted_token(temperature: float) -> None:
    model, prompt = LanguageModel(tiny_model("llama", 4), byte_tokenizer()), random_prompt(4)
    for drafter in (NaiveCopier(), Garbage(), Alternating(), None):
        watching = Watching()
        settings = Settings(
            max_new_tokens=25, temperature=temperature, seed=1, logits_processor=[watching], eos_token_id=3
        )
        emitted = list(generate(model, prompt, settings, drafter=drafter).ids)
        assert watching.prefixes == [prompt + emitted[:length] for length in range(len(emitted))]


def test_user_processors_and_criteria_of_the_drop_in_see_every_token_once() -> None:
    model, ids = tiny_model("llama", 4), torch.tensor([random_prompt(4)])
    watching, seen = Watching(), []

    def after_seven(input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        seen.append(input_ids[0, ids.shape[1] :].tolist())
        return torch.tensor([input_ids.shape[1] >= ids.shape[1] + 7])

    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 20,
        "do_sample": False,
    }
    expected = model.generate(ids, **options)[0, ids.shape[1] :].tolist()
    output = model.generate(
        ids,
        **options,
        logits_processor=[watching],
        stopping_criteria=[after_seven],
        custom_generate=custom_generate,
        drafter=Known(expected),
    )
    assert output[0, ids.shape[1] :].tolist() == expected[:7]
    assert seen == [expected[: length + 1] for length in range(7)]
    assert [prefix[ids.shape[1] :] for prefix in watching.prefixes] == [
        expected[:length] for length in range(7)
    ]


SAMPLES = 1500


def enumerated(model: Any, prompt: list[int], length: int, processors: Any) -> dict[Any, float]:
    """Return the probability of every continuation, by running the model on every prefix."""
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        grown: dict[tuple[int, ...], float] = {}
        for text, chance in chances.items():
            ids = torch.tensor([prompt + list(text)])
            with torch.no_grad():
                scores = processors(ids, model(ids).logits[:, -1])
            for token, share in enumerate(scores.softmax(-1)[0].tolist()):
                if share > 0:
                    grown[*text, token] = chance * share
        chances = grown
    return chances


@pytest.mark.parametrize(
    "chosen", [{"top_k": 0}, {"top_k": 3}, {"top_k": 0, "top_p": 0.7}], ids=["plain", "top_k", "top_p"]
)
def test_samples_follow_the_distribution_of_the_model(chosen: dict[str, Any]) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    model = tiny_model("llama", 2, vocab_size=6, initializer_range=0.12, num_hidden_layers=1)
    prompt = [1, 2, 3, 1, 2]
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.8)])
    if chosen.get("top_k"):
        processors.append(TopKLogitsWarper(chosen["top_k"]))
    if chosen.get("top_p"):
        processors.append(TopPLogitsWarper(chosen["top_p"]))
    expected = enumerated(model, prompt, 3, processors)
    assert sum(expected.values()) == pytest.approx(1.0)

    wrapped, counts = LanguageModel(model, byte_tokenizer()), Counter[tuple[int, ...]]()
    drafts = itertools.cycle([Known([1, 3, 1]), Known([2, 0, 5]), NaiveCopier()])
    for seed in range(SAMPLES):
        drafter = next(drafts)
        drafter.text, drafter.told = [], 0  # type: ignore[attr-defined]
        settings = Settings(max_new_tokens=3, temperature=0.8, seed=seed, **chosen)
        counts[generate(wrapped, prompt, settings, drafter=drafter).ids] += 1
    assert set(counts) <= set(expected)
    # The statistic of Pearson over cells expected often enough, the rest together; mean `cells`, deviation
    # sqrt(2 cells).
    often = {text: chance * SAMPLES for text, chance in expected.items() if chance * SAMPLES >= 5}
    rest = SAMPLES - sum(often.values())
    statistic = sum((counts[text] - count) ** 2 / count for text, count in often.items())
    if rest >= 5:
        statistic += (SAMPLES - sum(counts[text] for text in often) - rest) ** 2 / rest
    assert statistic < len(often) + 4 * (2 * len(often)) ** 0.5
