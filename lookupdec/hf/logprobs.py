"""How likely the model found each emitted token, and what else it found likely. Knows no model and no draft."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one emitted token and of the likeliest tokens in its place, likeliest first.

    They are the model's own (the log-softmax of its logits), as in the OpenAI API: before penalties, bans,
    temperature and truncations, so that they are comparable whatever the settings. ``top`` may lack the emitted
    token.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class LogprobRecord:
    """Collects a ``TokenLogprob`` per emitted token, keeping no logits."""

    def __init__(self, alternatives: int) -> None:
        self._alternatives = alternatives
        self._seen: list[TokenLogprob] = []
        self._logprobs = torch.empty(0)

    def see_logits(self, logits: torch.Tensor) -> None:
        """Take the logits of the next token, ``[1, vocabulary]``."""
        self._logprobs = logits.log_softmax(dim=-1)[0]

    def see_choice(self, scores: torch.Tensor, token: int) -> None:  # noqa: ARG002
        """Take the choice that was made from them."""
        top: tuple[tuple[int, float], ...] = ()
        if self._alternatives:
            values, ids = self._logprobs.topk(min(self._alternatives, len(self._logprobs)))
            top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        self._seen.append(TokenLogprob(token, float(self._logprobs[token]), top))

    def take(self) -> tuple[TokenLogprob, ...]:
        """Return what was seen since the last call, and forget it."""
        seen, self._seen = tuple(self._seen), []
        return seen
