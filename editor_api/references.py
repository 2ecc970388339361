"""Texts that are expected to come back, as ids. Takes time for long ones: not for the event loop."""

from __future__ import annotations

from collections.abc import Iterable

from editor_api.engine import USUAL_CONTEXT, Engine

_MOST_CHARACTERS = 32  # of a token in the mean; what is cut off costs drafts alone


def longest_reference(engine: Engine) -> int:
    """Return how many tokens of a reference can be of use: no answer is longer than the context."""
    return engine.context_length or USUAL_CONTEXT


def encoded(engine: Engine, texts: Iterable[str]) -> tuple[list[int], ...]:
    """Return the ids of each text as far as an answer can repeat it."""
    longest = longest_reference(engine)
    return tuple(engine.encode_text(text[: longest * _MOST_CHARACTERS])[:longest] for text in texts)
