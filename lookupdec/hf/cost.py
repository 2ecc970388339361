"""What a drafted token costs on a loaded model, measured. Knows no drafting.

Passes are timed where they are used, in the decode loop: whatever a pass does there is in the figure, the wait for
a GPU included, since the loop reads the choices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median
from time import perf_counter

from lookupdec.errors import InputError
from lookupdec.hf.generate import stream
from lookupdec.hf.models import LanguageModel
from lookupdec.hf.settings import Settings
from lookupdec.hf.watch import CostWatch
from lookupdec.ids import Ids, Reference
from lookupdec.policy import CostModel

WIDTHS = (1, 8, 32, 128)
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 512
ROUNDS = 5  # passes of each width, after one that warms up
MAX_SECONDS = 1.2  # no round begins later


def measure_cost(model: LanguageModel) -> CostModel:
    """Time passes of 1, 8, 32 and 128 tokens on a short context and fit the cost of a drafted token to them.

    Raises
    ------
    InputError
        The model's context has no room for passes of several tokens.
    """
    context = model.context_length or PROMPT_TOKENS + OUTPUT_TOKENS
    prompt = [0] * max(1, min(PROMPT_TOKENS, context // 4))
    settings = Settings(max_new_tokens=OUTPUT_TOKENS, eos_token_id=())
    seconds: dict[int, list[float]] = defaultdict(list)
    begun, before = perf_counter(), 0.0
    with closing(stream(model, prompt, settings, drafter=_EachWidth())) as chunks:
        for chunk in chunks:
            taken, before = chunk.stats.verifying_seconds - before, chunk.stats.verifying_seconds
            rounds, rest = divmod(chunk.stats.passes, len(WIDTHS))
            if chunk.stats.passes > len(WIDTHS):
                seconds[chunk.step.drafted + 1].append(taken)
            if rest == 0 and (rounds > ROUNDS or (rounds > 1 and perf_counter() - begun > MAX_SECONDS)):
                break
    if len(seconds) < 2:
        raise InputError(f"a context of {context} tokens is too short to measure passes of several")
    return CostModel.from_passes({width: median(taken) for width, taken in seconds.items()})


def measured(model: LanguageModel) -> LanguageModel:
    """Return a model with the cost of its passes measured, which takes a second or two.

    Raises ``InputError`` as ``measure_cost`` does.
    """
    if model.passes is not None:
        return replace(model, watch=model.passes.watched())
    return replace(model, watch=CostWatch(measure_cost(replace(model, watch=None))))


class _EachWidth:
    """Makes every pass as wide as the next of ``WIDTHS``; what it drafts is not meant to come."""

    def __init__(self) -> None:
        self._proposals = 0
        self.sources: Sequence[str] = ()

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        """Do nothing."""

    def propose(self, limit: int) -> Sequence[int]:
        """Return a draft for a pass of the next width, as far as the limit allows."""
        width = WIDTHS[self._proposals % len(WIDTHS)]
        self._proposals += 1
        draft = [0] * min(width - 1, limit)
        self.sources = ("measure",) * len(draft)
        return draft

    def observe(self, ids: Ids) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
