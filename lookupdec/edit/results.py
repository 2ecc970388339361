"""What edits and summaries give back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lookupdec.edit.diff import TextEdit
from lookupdec.stats import Stats, add_sources


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written; ``cached_tokens`` of the prompt needed no computing."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EditResult:
    """What an edit gave.

    ``text`` is the new text, ``edits`` and ``diff`` lead to it from the original. An answer that is not
    ``complete`` changes nothing unless that was allowed: ``text`` is the original, and ``warnings`` say why.
    ``answer`` is what the model wrote, word for word. ``base_sha256`` is the hash of the original as UTF-8.
    ``parts`` is how many pieces the text was cut into because it is longer than the model's context.
    """

    text: str
    edits: tuple[TextEdit, ...]
    diff: str
    changed: bool
    complete: bool
    warnings: tuple[str, ...]
    base_sha256: str
    usage: Usage
    stats: Stats
    answer: str
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary; not ``complete`` where the answer was cut."""

    text: str
    complete: bool
    warnings: tuple[str, ...]
    usage: Usage
    stats: Stats


def usage_of(stats: Stats) -> Usage:
    """Return the token counts."""
    return Usage(stats.prompt_tokens, stats.tokens, stats.cached_tokens)


def total(all_stats: Iterable[Stats]) -> Stats:
    """Add up what several generations cost."""
    result = Stats(prefills=0)
    for stats in all_stats:
        result.prefills += stats.prefills
        result.prompt_tokens += stats.prompt_tokens
        result.cached_tokens += stats.cached_tokens
        result.tokens += stats.tokens
        result.passes += stats.passes
        result.drafted += stats.drafted
        result.accepted += stats.accepted
        result.prefill_seconds += stats.prefill_seconds
        result.drafting_seconds += stats.drafting_seconds
        result.verifying_seconds += stats.verifying_seconds
        add_sources(result.by_source, stats.by_source)
    return result
