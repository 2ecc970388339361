"""Slow twins of what the package computes fast: a few obvious lines each, mostly on plain lists."""

from __future__ import annotations

from collections.abc import Sequence

from lookupdec.ids import Int32Array

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


# the suffix automaton, of one text and of several documents


def slow_ends(text: Sequence[int], span: Sequence[int]) -> list[int]:
    """Return where ``span`` ends, every time."""
    size = len(span)
    return [end for end in range(size, len(text) + 1) if list(text[end - size : end]) == list(span)]


def slow_contexts(text: Sequence[int]) -> list[tuple[int, int]]:
    """Return (length, latest earlier end) of the text's suffixes, longest first, one for each set of ends."""
    found: list[tuple[int, int]] = []
    known: list[int] = []
    for size in range(len(text) - 1, 0, -1):
        ends = slow_ends(text[:-1], text[len(text) - size :])
        if ends != known:
            found.append((size, ends[-1]))
            known = ends
    return found


def slow_continued_ends(documents: Sequence[Sequence[int]], span: Sequence[int]) -> list[int]:
    """Return where ``span`` ends and its document goes on, in the documents joined by one separator each."""
    ends: list[int] = []
    start = 0
    for document in documents:
        ends += [start + end for end in slow_ends(document[:-1], span)]
        start += len(document) + 1
    return ends


def slow_follow(states: Int32Array, edges: Int32Array, state: int, token: int) -> int:
    """Return where ``token`` leads from ``state``, by reading the whole edge table."""
    inline_token, inline_target = states[state * 7 + 4], states[state * 7 + 5]
    if inline_target != -1 and inline_token == token:
        return int(inline_target)
    for at in range(0, len(edges), 4):
        if edges[at] == state and edges[at + 1] == token:
            return int(edges[at + 2])
    return -1


def slow_links(states: Int32Array, edges: Int32Array, state: int) -> list[int]:
    """Return the tokens that lead on from ``state``: the inline one, then its list."""
    tokens = [int(states[state * 7 + 4])] if states[state * 7 + 5] != -1 else []
    at = states[state * 7 + 6]
    while at != -1:
        assert edges[at] == state
        tokens.append(int(edges[at + 1]))
        at = edges[at + 3]
    return tokens


# phrases


def slow_phrase_rest(
    phrases: Sequence[Sequence[int]], text: Sequence[int], min_prefix: int
) -> list[int] | None:
    """Return the rest of the first phrase of which the longest prefix ends the text, if it has a rest."""
    for size in range(len(text), min_prefix - 1, -1):
        for phrase in phrases:
            if len(phrase) > size and list(phrase[:size]) == list(text[len(text) - size :]):
                return list(phrase[size:])
    return None


# the drafter


def slow_bucket(value: int, bounds: Sequence[int]) -> int:
    """Return how many of the bounds a value reaches."""
    return sum(value >= bound for bound in bounds)


def slow_share_bucket(count: int, total: int) -> int:
    """Return 0 for never, 7 for always, and 1 to 6 for the percentage between."""
    if count <= 0:
        return 0
    return 7 if count >= total else 1 + slow_bucket(count * 100 // total, (10, 25, 50, 75, 90))


def slow_common_suffix(text: Sequence[int], first: int, second: int, limit: int) -> int:
    """Return the longest size, at most ``limit``, at which the spans that end at two positions are equal."""
    sizes = range(1, min(first, second, limit) + 1)
    return max(
        (n for n in sizes if list(text[first - n : first]) == list(text[second - n : second])), default=0
    )


def slow_search_near(
    text: Sequence[int], anchor: int, places: Sequence[int], compared: int
) -> tuple[int, int]:
    """Return (end, worth) of the best of the places where the text's end also stands, (-1, 0) without one."""
    worths = []
    for end in places:
        matched = slow_common_suffix(text, end, len(text), compared)
        distance = abs(end - anchor - 1)
        worth = matched - sum(distance > far for far in (16, 64, 256))
        if matched and worth > 0:
            worths.append((worth, -distance, -end))
    return (-max(worths)[2], max(worths)[0]) if worths else (-1, 0)


def slow_known_suffix(documents: Sequence[Sequence[int]], written: Sequence[int]) -> int:
    """Return the length of the longest end of ``written`` that stands in one of the documents."""
    sizes = range(1, len(written) + 1)
    return max(
        (n for n in sizes if any(slow_ends(document, written[len(written) - n :]) for document in documents)),
        default=0,
    )


def slow_best_length(cost: float, hazard: float, longest: int) -> int:
    """Return the length of the draft that makes a token cheapest where every token ends the copy alike."""
    return min(range(1, longest), key=lambda size: (1 + cost * size) / (1 - (1 - hazard) ** size))


def slow_replacements(
    text: Sequence[int], noted: Sequence[tuple[int, int, int, int]]
) -> dict[int, list[int]]:
    """Return place, tokens written, tokens replaced and times in a row, by the first token that was replaced."""
    known: dict[int, list[int]] = {}
    for anchor, skipped, place, written in noted:
        while skipped < 1 or written < 1:
            skipped, written = skipped + 1, written + 1
        token, before = text[anchor], known.get(text[anchor])
        same = before is not None and before[1] == written and text[before[0]] == text[place]
        known[token] = [place, written, skipped, before[3] + 1 if same and before is not None else 1]
    return known
