"""A loaded model with its tokenizer: what it is, and prompts as it reads them. Knows no decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lookupdec.errors import InputError, first_line
from lookupdec.hf.memory import kv_bytes_per_token
from lookupdec.hf.network import vocabulary_size
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.prompts import Message, Prompt, sorted_prompt
from lookupdec.hf.rope import rope_of
from lookupdec.hf.watch import Watch
from lookupdec.policy import CostModel


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal language model of transformers with its tokenizer.

    Several threads may generate with one of these at the same time: whatever changes belongs to a request.
    ``is_bitwise`` says that a pass over a draft computes, bit for bit, what plain decoding does. ``passes`` are
    its passes of fixed widths, where it has them, and ``watch`` follows what passes take, where that is measured.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str = "model"
    is_bitwise: bool = False
    passes: FixedPasses | None = None
    watch: Watch | None = None

    @property
    def cost(self) -> CostModel | None:
        """What a drafted token costs here, as measured so far; None where it is not measured."""
        return None if self.watch is None else self.watch.cost

    @property
    def arithmetic(self) -> Literal["bitwise", "fixed", "fast"]:
        """How passes over drafts compute, by the names that ``load`` takes."""
        if self.passes is not None and self.passes.one_width:
            return "fixed"
        return "bitwise" if self.is_bitwise else "fast"

    def may_resume(self, length: int) -> bool:
        """Whether a prompt of so many tokens may be read on from where an earlier request stopped.

        Not where that rounds differently and must not, and not where a long prompt is read with other rotary positions.
        """
        rope = rope_of(self.model)
        return self.arithmetic == "fast" and (rope is None or length <= rope.shortest)

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return torch.device(self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """The numbers the model computes with."""
        return self.model.dtype

    @property
    def vocabulary_size(self) -> int:
        """How many tokens the model knows: ids lie below that."""
        return vocabulary_size(self.model)

    @property
    def kv_bytes_per_token(self) -> int:
        """The bytes that the keys and values of one token take."""
        return kv_bytes_per_token(self.model)

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and output may have together; None where the config does not say."""
        length = getattr(self.model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if self.passes is not None and self.passes.one_width:
            # Another kind of pass would give another text.
            return self.passes.room
        return int(length) if length else None

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text inside a text: no special tokens are added."""
        return self._tokenize(text, add_special_tokens=False)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt.

        A string is tokenised as the tokenizer does by default. Chat messages go through the model's chat
        template; where the last one is the assistant's, the output continues it. Ids are checked and kept, be they a
        list, an array or tensor with one row, or under ``input_ids`` of what a tokenizer returned.

        Raises ``InputError`` where there is nothing to read or the tokenizer cannot take it.
        """
        given = sorted_prompt(prompt)
        if isinstance(given, str):
            ids = self._tokenize(given, add_special_tokens=True)
        elif given and isinstance(given[0], Mapping):
            ids = self._apply_chat_template(given)
        else:
            ids = cast(list[int], given)
        if not ids:
            raise InputError("the prompt is empty: give at least one token")
        size = self.vocabulary_size
        if min(ids) < 0 or max(ids) >= size:
            raise InputError(f"a prompt id lies outside of the model's vocabulary of {size} tokens")
        return ids

    def _tokenize(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text has a lone surrogate at {error.start}: it is no valid Unicode"
            ) from error
        # Not `verbose`: the tokenizer's own length warning knows nothing of the model's context.
        return [
            int(token)
            for token in self.tokenizer.encode(text, add_special_tokens=add_special_tokens, verbose=False)
        ]

    def _apply_chat_template(self, messages: list[Message]) -> list[int]:
        if not self.tokenizer.chat_template:
            raise InputError(f"{self.name} has no chat template: give the prompt as a string")
        continues = messages[-1].get("role") == "assistant"
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=not continues,
                continue_final_message=continues,
            )
        except Exception as error:  # templates raise whatever their author chose
            raise InputError(
                f"the chat template of {self.name} refuses the messages: {first_line(error)}"
            ) from error
        assert isinstance(text, str)
        return self.encode_text(text)
