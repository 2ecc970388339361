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
