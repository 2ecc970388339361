"""What may be asked of one generation, by name. Knows no model and does no decoding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookupdec.errors import InputError
from lookupdec.limits import SEEDS

if TYPE_CHECKING:
    from transformers import LogitsProcessor


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to generate: length, choice of tokens and where to stop.

    ``None`` means "as the model's own generation config says" (``top_k`` is 50 where that says nothing),
    with two exceptions: ``temperature=None`` or ``0`` is greedy decoding, and ``max_new_tokens=None`` is
    what the context leaves.

    ``seed`` fixes the draws of this generation alone; ``None`` takes a fresh one. ``stop`` are strings
    that end the output and are not part of its text. ``eos_token_id=()`` ends at no token. Frequency and
    presence penalties count the generated tokens only. ``prefill_chunk_size`` is how many tokens of the prompt
    one pass reads. ``deadline`` is in seconds, prefill included; it is looked at after every pass.
    ``logits_processor`` run after the model's own and before temperature and the truncations, once per emitted
    token. ``logprobs`` asks for the log-probability of every emitted token and that many of the likeliest
    alternatives; 0 asks for the emitted token's alone.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int | None = None
    bad_words_ids: Sequence[Sequence[int]] | None = None
    suppress_tokens: Sequence[int] | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: str | Sequence[str] = ()
    eos_token_id: int | Sequence[int] | None = None
    deadline: float | None = None
    logits_processor: Sequence[LogitsProcessor] = ()
    logprobs: int | None = None
    prefill_chunk_size: int | None = None

    def __post_init__(self) -> None:
        _check_at_least("max_new_tokens", self.max_new_tokens, 1)
        _check_at_least("min_new_tokens", self.min_new_tokens, 0)
        _check_at_least("temperature", self.temperature, 0)
        _check_at_least("top_k", self.top_k, 0)
        _check_at_least("no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        _check_at_least("deadline", self.deadline, 0)
        _check_at_least("logprobs", self.logprobs, 0)
        _check_at_least("prefill_chunk_size", self.prefill_chunk_size, 1)
        _check_share("top_p", self.top_p)
        _check_share("min_p", self.min_p, lowest_allowed=True)
        _check_share("typical_p", self.typical_p)
        if self.repetition_penalty is not None and not 0 < self.repetition_penalty < math.inf:
            raise InputError(
                f"repetition_penalty must be above 0, not {self.repetition_penalty}: 1 means none"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{name} must be a finite number, not {getattr(self, name)}: 0 means none")
        if self.seed is not None and not 0 <= self.seed < SEEDS:
            raise InputError(f"seed must lie in 0..2**63-1, not {self.seed}")
        if any(not string for string in self.stop_strings):
            raise InputError("a stop string is empty: leave it out")
        if self.max_new_tokens is not None and (self.min_new_tokens or 0) > self.max_new_tokens:
            raise InputError(
                f"min_new_tokens ({self.min_new_tokens}) exceeds max_new_tokens ({self.max_new_tokens})"
            )

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn (True) or the likeliest one is taken (False)."""
        return self.temperature is not None and self.temperature > 0

    def generation_overrides(self, limit: int) -> dict[str, Any]:
        """Return what ``generate`` of transformers is told by name, for at most ``limit`` new tokens."""
        overrides: dict[str, Any] = {
            "max_new_tokens": limit,
            "do_sample": self.samples,
            "num_beams": 1,
            "num_return_sequences": 1,
            "use_cache": True,
            "cache_implementation": None,
            "prompt_lookup_num_tokens": None,
            "return_dict_in_generate": False,
            "stop_strings": None,
        }
        if self.min_new_tokens is not None:
            overrides["min_new_tokens"] = min(self.min_new_tokens, limit)
        names = ["repetition_penalty", "no_repeat_ngram_size", "prefill_chunk_size"]
        names += ["temperature", "top_k", "top_p", "min_p", "typical_p"] if self.samples else []
        overrides |= {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.bad_words_ids:
            overrides["bad_words_ids"] = [list(word) for word in self.bad_words_ids]
        if self.suppress_tokens:
            overrides["suppress_tokens"] = list(self.suppress_tokens)
        if self.logit_bias:
            overrides["sequence_bias"] = {
                (int(token),): float(bias) for token, bias in self.logit_bias.items()
            }
        if self.eos_token_id is not None:
            ids = [self.eos_token_id] if isinstance(self.eos_token_id, int) else list(self.eos_token_id)
            overrides["eos_token_id"] = ids or None
        return overrides


def _check_at_least(name: str, value: float | None, lowest: float) -> None:
    if value is not None and not lowest <= value < math.inf:
        raise InputError(f"{name} must be at least {lowest}, not {value}")


def _check_share(name: str, value: float | None, *, lowest_allowed: bool = False) -> None:
    if value is not None and not (0 < value <= 1 or (lowest_allowed and value == 0)):
        raise InputError(f"{name} must lie between 0 and 1, not {value}: leave it out to switch it off")
