"""Token ids to text as they come: whole characters only, and nothing of a stop string. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_HALF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Turns ids into text one at a time; text whose last character is not complete yet is held back."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # `_ids[:_told]` are told already; they stay as context, since some tokenizers treat a first token
        # differently from the same token inside a text.
        self._ids: list[int] = []
        self._told = 0

    def push(self, token: int) -> str:
        """Return the text that ``token`` completes, often that of the token alone."""
        self._ids.append(token)
        return self._advance(final=False)

    def flush(self) -> str:
        """Return what is still held back: bytes that never became a character."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        known = self._decode(self._ids[: self._told])
        text = self._decode(self._ids)
        if text.endswith(_HALF_CHARACTER) and not final:
            return ""
        if len(text) <= len(known):
            return ""
        del self._ids[: self._told]
        self._told = len(self._ids)
        return text[len(known) :]

    def _decode(self, ids: list[int]) -> str:
        # Editing text must come back byte for byte, so spaces are not "cleaned up".
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text


class TextStream:
    """Text that may be shown so far, cut before the first stop string.

    ``push`` each token in order until it returns True; ``take`` what may be shown at any time.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stop = tuple(stop)
        self._pending = ""
        self.stopped_by: str | None = None

    def push(self, token: int) -> bool:
        """Add one token; True where it completes a stop string."""
        return self._add(self._detokenizer.push(token))

    def take(self, *, final: bool = False) -> str:
        """Return the text that can be shown now and was not returned before.

        What may yet become a stop string is held back, unless this is the ``final`` call.
        """
        if final and self.stopped_by is None:
            self._pending += self._detokenizer.flush()
        held = 0 if final or self.stopped_by is not None else self._possible_stop_length()
        cut = len(self._pending) - held
        text, self._pending = self._pending[:cut], self._pending[cut:]
        return text

    def _add(self, text: str) -> bool:
        # Whatever could be the beginning of a stop string is still pending, so a match lies within it.
        self._pending += text
        found = [(self._pending.find(stop), stop) for stop in self._stop]
        found = [(start, stop) for start, stop in found if start >= 0]
        if not found:
            return False
        start, self.stopped_by = min(found, key=lambda match: match[0])
        self._pending = self._pending[:start]
        return True

    def _possible_stop_length(self) -> int:
        return max((_overlap(self._pending, stop) for stop in self._stop), default=0)


def _overlap(text: str, stop: str) -> int:
    # Length of the longest end of `text` that is a beginning of `stop`.
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
