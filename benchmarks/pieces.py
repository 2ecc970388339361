"""A tokenizer that needs no file: pieces of text as programs and prose split, numbered as they first appear.

For replays where no real tokenizer is installed. A piece is up to five letters with the space before them, a digit, a
run of spaces, or one other character: 3.3 characters on average on datasets/edits.jsonl, about what real tokenizers
make of such text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PIECE = re.compile(r" ?[^\W\d_]{1,5}|\d|[^\S\n]+|\n+|.", re.DOTALL)


class PieceTokenizer:
    """Numbers pieces from 1 up to ``vocabulary``, then again from 1; 0 ends a turn."""

    eos_token_id = 0

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._numbers: dict[str, int] = {}

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        """Return the turns as text."""
        assert not tokenize
        turns = "".join(f"[{turn['role']}]\n{turn['content']}\n" for turn in conversation)
        return turns + ("[assistant]\n" if add_generation_prompt else "")

    def __call__(
        self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool, verbose: bool
    ) -> dict[str, Sequence[Any]]:
        """Return ``input_ids`` and ``offset_mapping`` of a text."""
        assert not add_special_tokens
        assert return_offsets_mapping
        del verbose
        found = list(_PIECE.finditer(text))
        return {
            "input_ids": [self._number(match.group()) for match in found],
            "offset_mapping": [match.span() for match in found],
        }

    def _number(self, piece: str) -> int:
        number = self._numbers.setdefault(piece, len(self._numbers))
        return 1 + number % (self._vocabulary - 1)
