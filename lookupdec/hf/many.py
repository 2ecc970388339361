"""Several prompts, or several samples of one, in one call. Knows no model: it is a loop over ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lookupdec.decode import Drafter
from lookupdec.draft import CopyDrafter
from lookupdec.errors import InputError
from lookupdec.hf.generate import Generation, generate, room
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.prompts import Prompt
from lookupdec.hf.settings import Settings
from lookupdec.limits import SEEDS

_DEFAULTS = Settings()


def generate_many(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    settings: Settings = _DEFAULTS,
    *,
    n: int = 1,
    drafter: Drafter | None = None,
    namespace: str | None = None,
) -> list[list[Generation]]:
    """Generate ``n`` outputs for every prompt, one after the other; return them by prompt and number.

    Output ``i`` of a prompt is that of ``generate`` alone with the seed ``seed + i``, whatever other prompts
    stand beside it; without a seed every output is a fresh draw. Greedy outputs are all the same, so one is
    made and stands for all ``n``. A ``logits_processor`` with a state is shared by all outputs.

    One drafter serves them all, so that later ones profit from what it learnt. Prompts are checked before the
    first one is run, so that a bad one costs nothing.

    Raises what ``generate`` raises, and ``InputError`` for ``n`` below 1.
    """
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    encoded = [model.encode_prompt(prompt) for prompt in prompts]
    for ids in encoded:
        room(model, len(ids), settings)
    drafter = CopyDrafter(cost=model.cost) if drafter is None else drafter

    def one(ids: Sequence[int], number: int) -> Generation:
        seed = None if settings.seed is None else (settings.seed + number) % SEEDS
        return generate(model, ids, replace(settings, seed=seed), drafter=drafter, namespace=namespace)

    if settings.samples:
        return [[one(ids, number) for number in range(n)] for ids in encoded]
    return [[one(ids, 0)] * n for ids in encoded]
