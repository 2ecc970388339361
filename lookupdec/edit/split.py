"""Cut a long text at its natural borders. Knows no model: it is told what fits.

Markdown is cut before headings and between blocks, and inside a fence, a list or a table only where that does
not fit. Everything else is cut at blank lines, the least indented first: that is between functions, classes,
sections and paragraphs.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lookupdec.edit.textio import split_lines
from lookupdec.errors import ContextFullError

_LINE = 1000
"""The rank of a border that is no more than a line's end; what ranks lower is a better place to cut."""


@dataclass(frozen=True, slots=True)
class Border:
    """A part may begin at line ``line``; the lower ``rank``, the better."""

    line: int
    rank: int


def split(
    text: str, measure: Callable[[str], int], limit: int, *, markdown: bool = False
) -> list[tuple[int, int]]:
    """Return the spans of the parts, in order; together they are the whole text.

    Each part measures at most ``limit`` (in tokens, say). Raises ``ContextFullError`` where a single line
    does not fit.
    """
    lines = [content + ending for content, ending in split_lines(text)]
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    # Measured line by line: tokens do not add up exactly across a line's end, but are never more than this.
    sizes = [measure(line) for line in lines]
    for number, size in enumerate(sizes):
        if size > limit:
            raise ContextFullError(
                f"line {number + 1} has {size} tokens, but a part of the text may have at most {limit}: "
                "it cannot be split, break that line up"
            )
    borders = _markdown_borders(text, len(lines)) if markdown else _code_borders(lines)
    cuts = _choose(borders, sizes, limit)
    return [(offsets[start], offsets[end]) for start, end in zip(cuts, [*cuts[1:], len(lines)], strict=True)]


def _choose(borders: Sequence[Border], sizes: Sequence[int], limit: int) -> list[int]:
    """End each part at the best border in its second half, the latest among equals.

    Where there is none, the latest one in its first half; and at any line's end where there is no border.
    """
    ranks = {border.line: border.rank for border in borders}
    totals = [0]
    for size in sizes:
        totals.append(totals[-1] + size)
    cuts = [0]
    while totals[-1] - totals[cuts[-1]] > limit:
        start = cuts[-1]
        last = bisect.bisect_right(totals, totals[start] + limit) - 1
        half = bisect.bisect_left(totals, totals[start] + limit // 2, start + 1, last)
        best = min(range(last, half - 1, -1), key=lambda line: ranks.get(line, _LINE))
        if best not in ranks:
            best = next((line for line in range(half, start, -1) if line in ranks), last)
        cuts.append(best)
    return cuts


def _code_borders(lines: Sequence[str]) -> list[Border]:
    """Lines after a blank one, ranked by their indentation."""
    borders = []
    for number in range(1, len(lines)):
        line = lines[number]
        if line.strip() and not lines[number - 1].strip():
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            borders.append(Border(number, len(indent.expandtabs(4))))
    return borders


def _markdown_borders(text: str, count: int) -> list[Border]:
    """The beginnings of top-level blocks; a heading ranks by its level, above all others."""
    from markdown_it import MarkdownIt

    borders = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.level == 0 and token.map and 0 < token.map[0] < count:
            is_heading = token.type == "heading_open"
            borders.append(Border(token.map[0], int(token.tag[1:]) if is_heading else 10))
    return borders
