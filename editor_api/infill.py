"""Prompts for text between two texts, with the tokens of models that learnt to fill gaps. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lookupdec.errors import InputError

_SUFFIX_SHARE = 4  # at least one token of so many is left to what stands after the gap


@dataclass(frozen=True, slots=True)
class OtherText:
    """A text to know besides the one with the gap."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infill:
    """A gap between ``prefix`` and ``suffix``, and other texts to know, the most important last.

    Where the prompt would have more than ``most`` tokens, other texts are left out first, then what is farthest
    from the gap.
    """

    prefix: str
    suffix: str
    others: Sequence[OtherText] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """The ids of a prompt, the ids that end its answer, and whether something was left out."""

    ids: list[int]
    ends: tuple[int, ...]
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """How a family of models writes a gap. ``middle`` is "" where nothing stands between gap and answer."""

    prefix: str
    suffix: str
    middle: str
    suffix_first: bool = False


_FORMS = (
    _Form("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma, Zeta
    _Form("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite, StableCode
    _Form("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    _Form("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    _Form("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    _Form("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    _Form("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", suffix_first=True),  # Seed-Coder
    _Form("[PREFIX]", "[SUFFIX]", "", suffix_first=True),  # Codestral
)
_FILES = ("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>")
"""Tokens that begin a file, by what a tokenizer may have."""

_ENDS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<fim_pad>",
    "<repo_name>",
    "▁<EOT>",
)
"""Tokens that end an answer, besides those of the gap, of files, and the model's own."""


class Infiller:
    """Writes prompts with one tokenizer's tokens for gaps."""

    def __init__(self, tokenizer: Any, encode: Callable[[str], list[int]], eos: Sequence[int]) -> None:
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        self._vocabulary = vocabulary
        self._encode = encode
        self._form = next((form for form in _FORMS if _has(vocabulary, form)), None)
        self._file = next((vocabulary[token] for token in _FILES if token in vocabulary), None)
        self._opening = _opening(tokenizer)
        self._begins_with_a_space = _begins_with_a_space(tokenizer)
        known = [vocabulary[token] for token in (*_FILES, *_ENDS) if token in vocabulary]
        self._ends = tuple(dict.fromkeys([*eos, *known, *self._gap_ids()]))

    def encode(self, infill: Infill, model_name: str) -> InfillPrompt:
        """Return the prompt. Raises ``InputError`` where the tokenizer has no tokens for it."""
        form = self._form
        if form is None:
            raise InputError(
                f"{model_name} has no fill-in-the-middle tokens: serve a model that has, such as Qwen2.5-Coder"
            )
        prefix, suffix = self._encode(infill.prefix), self._encode_after_a_token(infill.suffix)
        others = [self._other(other) for other in infill.others]
        fixed = len(self._opening) + 3 + len(self._heading())
        room = None if infill.most is None else max(1, infill.most - fixed)
        kept_prefix, kept_suffix, kept_others = _fitting(prefix, suffix, others, room)
        is_cut = len(kept_prefix) + len(kept_suffix) < len(prefix) + len(suffix) or len(kept_others) < len(
            others
        )
        before = [self._vocabulary[form.prefix], *kept_prefix]
        after = [self._vocabulary[form.suffix], *kept_suffix]
        gap = [*after, *before] if form.suffix_first else [*before, *after]
        if form.middle:
            gap.append(self._vocabulary[form.middle])
        heading = self._heading() if kept_others else []
        return InfillPrompt([*self._opening, *chain(*kept_others), *heading, *gap], self._ends, is_cut)

    def _encode_after_a_token(self, text: str) -> list[int]:
        """Return the ids of a text without the space that some tokenizers put before any text."""
        if not self._begins_with_a_space:
            return self._encode(text)
        anchor, ids = self._encode("\n"), self._encode("\n" + text)
        return ids[len(anchor) :] if ids[: len(anchor)] == anchor else self._encode(text)

    def _gap_ids(self) -> list[int]:
        form = self._form
        if form is None:
            return []
        return [self._vocabulary[token] for token in (form.prefix, form.suffix, form.middle) if token]

    def _other(self, other: OtherText) -> list[int]:
        text = other.text if other.text.endswith("\n") else other.text + "\n"
        if self._file is None:
            return self._encode(f"{text}\n")
        return [self._file, *self._encode(f"{other.name or 'other'}\n{text}")]

    def _heading(self) -> list[int]:
        """Return what stands between other texts and the one with the gap."""
        return [] if self._file is None else [self._file, *self._encode("this\n")]


def _has(vocabulary: dict[str, int], form: _Form) -> bool:
    return all(token in vocabulary for token in (form.prefix, form.suffix, form.middle) if token)


def _opening(tokenizer: Any) -> list[int]:
    """Return the ids that the tokenizer puts before every prompt."""
    whole = [int(token) for token in tokenizer.encode("a", add_special_tokens=True)]
    bare = [int(token) for token in tokenizer.encode("a", add_special_tokens=False)]
    return whole[: -len(bare)] if bare and whole[-len(bare) :] == bare else []


def _begins_with_a_space(tokenizer: Any) -> bool:
    ids = tokenizer.encode("a", add_special_tokens=False)
    return bool(ids) and str(tokenizer.convert_ids_to_tokens(int(ids[0]))).startswith("▁")


def _fitting(
    prefix: list[int], suffix: list[int], others: list[list[int]], room: int | None
) -> tuple[list[int], list[int], list[list[int]]]:
    """Return what fits into ``room`` tokens, the closest to the gap first."""
    if room is None:
        return prefix, suffix, others
    suffix_length = min(len(suffix), max(room // _SUFFIX_SHARE, room - len(prefix)))
    suffix = suffix[:suffix_length]
    prefix_length = min(len(prefix), room - suffix_length)
    prefix = prefix[len(prefix) - prefix_length :]
    left = room - len(prefix) - len(suffix)
    kept: list[list[int]] = []
    for other in reversed(others):
        left -= len(other)
        if left < 0:
            break
        kept.insert(0, other)
    return prefix, suffix, kept
