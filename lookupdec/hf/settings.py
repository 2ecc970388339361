"""What may be asked of one generation, by name. Knows no model and does no decoding."""

from __future__ import annotations

import math
import operator
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
    one pass reads. ``deadline`` is in seconds, prefill included; it is looked at after every pass (``max_time`` of
    transformers).
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
    stop: str | Sequence[str] | None = ()
    eos_token_id: int | Sequence[int] | None = None
    deadline: float | None = None
    logits_processor: Sequence[LogitsProcessor] = ()
    logprobs: int | None = None
    prefill_chunk_size: int | None = None

    def __post_init__(self) -> None:
        for name in _WHOLE:
            self._set(name, _whole(name, getattr(self, name)))
        for name in _NUMBERS:
            self._set(name, _number(name, getattr(self, name)))
        for name in ("presence_penalty", "frequency_penalty"):
            self._set(name, getattr(self, name) or 0.0)
        self._set("stop", _strings(self.stop))
        self._set("logits_processor", _listed("logits_processor", self.logits_processor))
        self._set("eos_token_id", _ids("eos_token_id", self.eos_token_id))
        self._set("suppress_tokens", _ids("suppress_tokens", self.suppress_tokens))
        if self.bad_words_ids is not None:
            words = _listed("bad_words_ids", self.bad_words_ids)
            self._set("bad_words_ids", tuple(_listed_ids("bad_words_ids", word) for word in words))
        if self.logit_bias is not None:
            self._set("logit_bias", _biases(self.logit_bias))
        self._check_ranges()

    def _set(self, name: str, value: object) -> None:
        # Once, on the way in: whole numbers of NumPy and torch become Python's, None what it stands for.
        object.__setattr__(self, name, value)

    def _check_ranges(self) -> None:
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
        return tuple(self.stop or ())

    def check_ids(self, vocabulary: int) -> None:
        """Refuse what is asked of ids that a model of so many tokens has not. Raises ``InputError``."""
        asked = {
            "logit_bias": tuple(self.logit_bias or ()),
            "bad_words_ids": tuple(token for word in self.bad_words_ids or () for token in word),
        }
        for name, ids in asked.items():
            beyond = next((token for token in ids if not 0 <= token < vocabulary), None)
            if beyond is not None:
                raise InputError(
                    f"{name} names the id {beyond}, which lies outside of the model's vocabulary of "
                    f"{vocabulary} tokens"
                )

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
            "output_attentions": False,
            "output_hidden_states": False,
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
            overrides["sequence_bias"] = {(token,): bias for token, bias in self.logit_bias.items()}
        if self.eos_token_id is not None:
            overrides["eos_token_id"] = list(_ids("eos_token_id", self.eos_token_id) or ()) or None
        return overrides


_WHOLE = (
    "max_new_tokens",
    "min_new_tokens",
    "top_k",
    "no_repeat_ngram_size",
    "seed",
    "logprobs",
    "prefill_chunk_size",
)
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "deadline",
)


def _whole(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} must be a whole number, not {value!r}") from error


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number, not {value!r}") from error


def _strings(stop: Any) -> tuple[str, ...]:
    if stop is None or isinstance(stop, str):
        return () if stop is None else (stop,)
    strings = _listed("stop", stop)
    if not all(isinstance(string, str) for string in strings):
        raise InputError(f"stop must be a string or a list of strings, not {stop!r}")
    return strings


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return () if value is None else tuple(value)
    except TypeError as error:
        raise InputError(f"{name} must be a list, not {value!r}") from error


def _listed_ids(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_whole(name, token) or 0 for token in _listed(name, value))


def _ids(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    is_one = getattr(value, "ndim", 0) == 0 and hasattr(value, "__index__")
    return _listed_ids(name, [value] if is_one else value)


def _biases(biases: Any) -> dict[int, float]:
    if not isinstance(biases, Mapping):
        raise InputError(f"logit_bias must map ids to numbers, not be {biases!r}")
    found = {_whole("logit_bias", token) or 0: _number("logit_bias", bias) for token, bias in biases.items()}
    wrong = next((token for token, bias in found.items() if bias is None or math.isnan(bias)), None)
    if wrong is not None:
        raise InputError(f"logit_bias of {wrong} must be a number, not {biases[wrong]!r}")
    return {token: bias for token, bias in found.items() if bias is not None}


def _check_at_least(name: str, value: float | None, lowest: float) -> None:
    if value is not None and not lowest <= value < math.inf:
        raise InputError(f"{name} must be at least {lowest}, not {value}")


def _check_share(name: str, value: float | None, *, lowest_allowed: bool = False) -> None:
    if value is not None and not (0 < value <= 1 or (lowest_allowed and value == 0)):
        raise InputError(f"{name} must lie between 0 and 1, not {value}: leave it out to switch it off")
