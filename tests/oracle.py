"""Slow twins of what the package computes fast: a few obvious lines each, on plain lists."""

from __future__ import annotations

from collections.abc import Sequence

# peers and the copy limit


def slow_leftmost_ngram(text: Sequence[int], size: int) -> int:
    """Return where the leftmost earlier place of the last ``size`` ids ends, or -1."""
    last = list(text[len(text) - size :])
    ends = [end for end in range(size, len(text)) if list(text[end - size : end]) == last]
    return min(ends, default=-1)


def slow_longest_ngram(text: Sequence[int], smallest: int, largest: int) -> int:
    """Return where the leftmost earlier place of the longest n-gram of that range ends, or -1."""
    for size in range(min(largest, len(text) - 1), smallest - 1, -1):
        end = slow_leftmost_ngram(text, size)
        if end >= 0:
            return end
    return -1


def slow_longest_copy(text: Sequence[int], position: int, cap: int) -> int:
    """Return how many ids from ``position`` on, at most ``cap``, also stand together wholly before it."""
    for length in range(min(cap, len(text) - position, position), 0, -1):
        span = list(text[position : position + length])
        if any(list(text[start : start + length]) == span for start in range(position - length + 1)):
            return length
    return 0


# the suffix index, the corpus of several documents, phrases


def slow_contexts(text: Sequence[int]) -> list[tuple[int, int]]:
    """Return (length, latest earlier end) of the text's suffixes, longest first, where that end changes."""
    found: list[tuple[int, int]] = []
    for size in range(len(text) - 1, 0, -1):
        end = slow_latest_end(text[:-1], text[len(text) - size :])
        if end and (not found or end != found[-1][1]):
            found.append((size, end))
    return found


def slow_latest_end(text: Sequence[int], span: Sequence[int]) -> int:
    """Return where the latest place of ``span`` ends, or 0."""
    ends = slow_ends(text, span)
    return max(ends, default=0)


def slow_ends(text: Sequence[int], span: Sequence[int]) -> list[int]:
    """Return where ``span`` ends, every time."""
    size = len(span)
    return [end for end in range(size, len(text) + 1) if list(text[end - size : end]) == list(span)]


def slow_continued_ends(documents: Sequence[Sequence[int]], span: Sequence[int]) -> list[int]:
    """Return where ``span`` ends and its document goes on, in the documents joined by one separator each."""
    ends: list[int] = []
    start = 0
    for document in documents:
        ends += [start + end for end in slow_ends(document[:-1], span)]
        start += len(document) + 1
    return ends


def slow_phrase_rest(
    phrases: Sequence[Sequence[int]], text: Sequence[int], min_prefix: int
) -> list[int] | None:
    """Return the rest of the first phrase of which the longest prefix ends the text, if it has a rest."""
    for size in range(len(text), min_prefix - 1, -1):
        for phrase in phrases:
            if len(phrase) > size and list(phrase[:size]) == list(text[len(text) - size :]):
                return list(phrase[size:])
    return None
