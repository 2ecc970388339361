"""Generations with transformers, counted and timed, and the sum of many."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from lookupdec.hf import LanguageModel


@dataclass(frozen=True, slots=True)
class Run:
    """One generation: new tokens, passes after the prefill, seconds with prefill, and whether it is plain's."""

    tokens: int
    passes: int
    seconds: float
    identical: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one method over prompts; ``speedup`` is tokens per second over plain's, of all together."""

    prompts: int
    identical: int
    tokens: int
    passes: int
    seconds: float
    speedup: float
    median_speedup: float


@contextmanager
def counted_passes(model: Any) -> Iterator[list[int]]:
    """Give a list with the number of tokens of every forward pass within the block."""
    widths: list[int] = []

    def count(_module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = positional[0] if positional else named["input_ids"]
        widths.append(int(ids.shape[-1]))

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield widths
    finally:
        handle.remove()


def generate(
    model: LanguageModel, prompt: Sequence[int], seed: int, **options: Any
) -> tuple[list[int], int, float]:
    """Return new ids, passes after the prefill and seconds."""
    inputs = torch.tensor([list(prompt)])
    transformers_model: Any = model.model
    torch.manual_seed(seed)
    with counted_passes(transformers_model) as widths:
        began = perf_counter()
        ids = transformers_model.generate(inputs, attention_mask=torch.ones_like(inputs), **options)
        seconds = perf_counter() - began
    return ids[0, len(prompt) :].tolist(), len(widths) - 1, seconds


def summarise(runs: Sequence[Run], plain: Sequence[Run]) -> Summary:
    """Add up one method's runs."""

    def speed(some: Sequence[Run]) -> float:
        return sum(run.tokens for run in some) / sum(run.seconds for run in some)

    ratios = [speed([run]) / speed([other]) for run, other in zip(runs, plain, strict=True)]
    return Summary(
        prompts=len(runs),
        identical=sum(run.identical for run in runs),
        tokens=sum(run.tokens for run in runs),
        passes=sum(run.passes for run in runs),
        seconds=round(sum(run.seconds for run in runs), 3),
        speedup=round(speed(runs) / speed(plain), 3),
        median_speedup=round(statistics.median(ratios), 3),
    )
