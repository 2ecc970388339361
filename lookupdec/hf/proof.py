"""The proof that lookup decoding changes nothing: each prompt decoded twice, and every difference explained.

``generate`` of transformers is the measure. Where the two outputs differ, the lookup output is fed through the
model as it is, in one pass without a draft, and every one of its tokens must be the model's choice there up to a
rounding error. With passes of one width, which promise another text, the measure is plain decoding by the same passes,
and the output must stand that second test in any case. Prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import torch
from transformers import LogitsProcessorList

from lookupdec.decode import PlainDrafter
from lookupdec.errors import first_line
from lookupdec.hf.generate import Generation, eos_ids, generate, prepare_inputs, room
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.prompts import Prompt
from lookupdec.hf.settings import Settings
from lookupdec.stats import Stats

NEAR_TIES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}
"""By dtype: how far below the model's choice a token's score may lie for the two to count as a near-tie.

In bfloat16 the default model's real differences lie at 0 to 0.25, faults at several logits.
"""

Verdict = Literal["identical", "near-tie", "fault"]
Mode = Literal["greedy", "sampled"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two outputs part, and what that means.

    ``position`` counts emitted tokens from 0. A token is None where that output had already ended. ``gap`` is how
    far the worst token of the lookup output lies below the model's own choice, in logits; ``why`` says it in words.
    """

    position: int
    plain: int | None
    lookup: int | None
    gap: float
    why: str


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt decoded both ways; ``seed`` is None for greedy decoding."""

    prompt: int
    seed: int | None
    verdict: Verdict
    plain_tokens: int
    plain_seconds: float
    lookup: Stats
    difference: Difference | None = None

    @property
    def mode(self) -> Mode:
        """How tokens were chosen."""
        return "greedy" if self.seed is None else "sampled"


def settings_of_run(seed: int | None, max_new_tokens: int) -> Settings:
    """Return what a run is generated with.

    Samples are drawn from all tokens: at the edge of a truncation no gap would tell a rounding error from a fault.
    """
    if seed is None:
        return Settings(max_new_tokens=max_new_tokens)
    return Settings(
        max_new_tokens=max_new_tokens,
        temperature=0.8,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        typical_p=1.0,
        seed=seed,
    )


def prove(
    model: LanguageModel, prompts: Sequence[Prompt], *, samples: int = 1, max_new_tokens: int = 64
) -> Iterator[Run]:
    """Decode every prompt greedily and ``samples`` times sampled, both ways, and yield a ``Run`` for each.

    Raises what ``generate`` raises for a request that cannot be carried out, before anything is run.
    """
    encoded = [model.encode_prompt(prompt) for prompt in prompts]
    for ids in encoded:
        room(model, len(ids), settings_of_run(None, max_new_tokens))
    seeds: list[int | None] = [None, *range(samples)]
    for number, ids in enumerate(encoded):
        for seed in seeds:
            yield _run(model, number, ids, settings_of_run(seed, max_new_tokens))


def _plain(model: LanguageModel, ids: Sequence[int], settings: Settings) -> list[int]:
    if model.arithmetic == "fixed":
        return list(generate(model, list(ids), settings, drafter=PlainDrafter()).ids)
    return plain_generate(model, ids, settings)


def plain_generate(model: LanguageModel, ids: Sequence[int], settings: Settings) -> list[int]:
    """Return what ``generate`` of transformers emits, with the seed of ``settings`` where it samples."""
    batch = torch.tensor([list(ids)], device=model.device)
    overrides = settings.generation_overrides(room(model, len(ids), settings))
    plain: Any = model.model
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed or 0)
        output = plain.generate(input_ids=batch, attention_mask=torch.ones_like(batch), **overrides)
    return output[0, len(ids) :].tolist()  # type: ignore[no-any-return]


def _run(model: LanguageModel, number: int, ids: list[int], settings: Settings) -> Run:
    began = perf_counter()
    plain = _plain(model, ids, settings)
    seconds = perf_counter() - began
    try:
        result = generate(model, ids, settings)
    except Exception as error:  # a crash is what a proof is there to find
        why = f"lookup decoding failed: {first_line(error)}"
        difference = Difference(0, plain[0], None, float("inf"), why)
        return Run(number, settings.seed, "fault", len(plain), seconds, Stats(), difference)
    difference_found = explain(model, ids, settings, plain, result)
    verdict: Verdict = "identical"
    if difference_found is not None:
        # Bitwise passes leave no rounding to explain a difference with, and passes of one width none either.
        is_rounding = model.arithmetic == "fast" and difference_found.gap <= near_tie(model)
        verdict = "near-tie" if is_rounding else "fault"
    elif model.arithmetic == "fixed":
        gap, why = _strays(model, ids, settings, plain)
        if gap > near_tie(model):
            difference_found, verdict = (
                Difference(0, plain[0], plain[0], gap, f"with and without drafts, {why}"),
                "fault",
            )
    return Run(number, settings.seed, verdict, len(plain), seconds, result.stats, difference_found)


def near_tie(model: LanguageModel) -> float:
    """Return the largest gap that counts as a near-tie for this model."""
    return NEAR_TIES.get(model.dtype, NEAR_TIES[torch.float32])


def explain(
    model: LanguageModel, ids: list[int], settings: Settings, plain: list[int], lookup: Generation
) -> Difference | None:
    """Return the first difference of two outputs and how far the lookup output strays from the model's choices."""
    emitted = list(lookup.ids)
    if emitted == plain:
        return None
    position = 0
    while emitted[position : position + 1] == plain[position : position + 1]:
        position += 1
    mine, theirs = (output[position] if position < len(output) else None for output in (emitted, plain))
    gap, why = _strays(model, ids, settings, emitted)
    return Difference(position, plain=theirs, lookup=mine, gap=gap, why=why)


def _strays(
    model: LanguageModel, ids: list[int], settings: Settings, emitted: list[int]
) -> tuple[float, str]:
    """Return how far an output strays from what the model would choose along it, and the same in words."""
    limit = room(model, len(ids), settings)
    prepared = prepare_inputs(model.model, ids, settings, limit)
    ends = frozenset(eos_ids(prepared.config))
    if any(token in ends for token in emitted[:-1]):
        return float("inf"), "it went on after an end-of-text token"
    if len(emitted) > limit or (len(emitted) < limit and emitted[-1] not in ends):
        return float("inf"), f"it ended after {len(emitted)} of {limit} tokens, at no end-of-text token"
    gaps = gaps_below_choice(model, ids, emitted, settings, prepared.processors)
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[worst] == 0:
        return 0.0, "every token is the model's own choice there"
    return gaps[worst], f"token {worst} lies {gaps[worst]:.3g} below the model's own choice"


@torch.no_grad()
def gaps_below_choice(
    model: LanguageModel,
    prompt: Sequence[int],
    emitted: Sequence[int],
    settings: Settings,
    processors: LogitsProcessorList,
) -> list[float]:
    """Return, for every emitted token, how far its score lies below the best one, in one pass over all of them.

    A draw takes the token for which the log-probability minus the log of an exponential random number is largest
    (``torch.multinomial`` draws single tokens like that), so a sampled token has such a gap too, given the seed.
    """
    batch = torch.tensor([[*prompt, *emitted]], device=model.device)
    forward: Any = model.model
    logits = forward(batch, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    noise = _noise(model.device, settings) if settings.samples else None
    gaps = []
    for place, token in enumerate(emitted):
        scores: Any = processors(batch[:, : len(prompt) + place], logits[place : place + 1].clone())  # type: ignore[arg-type]
        if noise is not None:
            scores = scores.log_softmax(dim=-1) - noise(scores).log()
        gaps.append(float(scores.max() - scores[0, token]))
    return gaps


def _noise(device: torch.device, settings: Settings) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what gives the exponential random numbers behind one draw after the other."""
    generator = torch.Generator(device=device).manual_seed(settings.seed or 0)
    return lambda scores: torch.empty_like(scores).exponential_(1.0, generator=generator)
