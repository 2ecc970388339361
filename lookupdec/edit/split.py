"""Cut a long text at its natural borders. Knows no model: it is told what fits.

Programs are cut between functions, classes and sections, Markdown before headings and between blocks, everything
else at blank lines, the least indented first. A unit is torn apart only where it does not fit into a part alone.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Callable, Sequence

from lookupdec.edit.syntax import code_borders
from lookupdec.edit.textio import line_contents, split_lines, whole_lines
from lookupdec.errors import ContextFullError

_DEEPEST = 24
"""How many nested units count; a cut that tears more of them is no worse."""
_BLANK = _DEEPEST + 1
"""From here on, by indentation: after a blank line, where the grammar sees no border."""
_LINE_END = _BLANK + _DEEPEST + 1
"""The depth of a border at any line's end."""
_BLOCK = 8
"""The depth of a border between Markdown's blocks: below the headings, of which there are six."""


def split(
    text: str,
    measure: Callable[[str], int],
    limit: int,
    *,
    language: str | None = None,
    within: tuple[int, int] | None = None,
) -> list[tuple[int, int]]:
    """Return the spans of the parts of a text, in order; together they are all of it.

    Each part measures at most ``limit`` (in tokens, say). ``language`` is a name from ``languages``; ``within``
    is the piece of the text to split, where that is not all of it. Raises ``ContextFullError`` where a single
    line does not fit.
    """
    start, end = within or (0, len(text))
    if start == end:
        return []
    lines = whole_lines(text[start:end])
    first = _line_at(text, start)
    # Line by line: tokens do not add up exactly across a line's end, but are hardly ever more than this.
    sizes = [measure(line) for line in lines]
    for number, size in enumerate(sizes, start=first + 1):
        if size > limit:
            raise ContextFullError(
                f"line {number} has {size} tokens, but a part of the text may have at most {limit}: "
                "it cannot be split, break that line up"
            )
    prices = [_price(depth) for depth in _depths(text, language)[first : first + len(lines)]]
    cuts = _cheapest_cuts(prices, sizes, limit)
    offsets = list(itertools.accumulate(map(len, lines), initial=start))
    return [(offsets[cut], offsets[end]) for cut, end in zip(cuts, [*cuts[1:], len(lines)], strict=True)]


def _line_at(text: str, offset: int) -> int:
    """Return how many whole lines stand before a place; a CRLF is one ending, also for a place inside it."""
    whole = text[:offset].removesuffix("\r") if text.startswith("\n", offset) else text[:offset]
    return len(split_lines(whole + "x")) - 1


def _depths(text: str, language: str | None) -> list[float]:
    """Say for each line how deep a cut before it goes: how many nested units it tears apart."""
    lines = line_contents(text)
    if language == "markdown":
        borders = _markdown_borders(lines)
    else:
        borders = _paragraphs(lines)
        members = code_borders(lines, language) if language else None
        if members:
            borders = {line: _BLANK + depth for line, depth in borders.items()}
            for line, depth in members.items():
                follows_blank = not lines[line - 1].strip()
                borders[line] = min(depth, _DEEPEST) + (0 if follows_blank else 0.5)
    return [borders.get(line, _LINE_END) for line in range(len(lines))]


def _paragraphs(lines: Sequence[str]) -> dict[int, float]:
    """Return the lines after a blank one, each with how far it is indented."""
    borders: dict[int, float] = {}
    for number in range(1, len(lines)):
        line = lines[number]
        if line.strip() and not lines[number - 1].strip():
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            borders[number] = min(-(-len(indent.expandtabs(4)) // 4), _DEEPEST)
    return borders


def _markdown_borders(lines: Sequence[str]) -> dict[int, float]:
    """Return where blocks begin; headings rank by their level, above all others, and blocks by their nesting."""
    from markdown_it import MarkdownIt

    borders: dict[int, float] = {}
    for token in MarkdownIt("commonmark").enable("table").parse("\n".join(lines)):
        if not token.map or token.nesting < 0 or token.type == "inline":
            continue
        start, end = token.map
        is_heading = token.type == "heading_open" and token.level == 0
        depth = int(token.tag[1:]) - 1 if is_heading else min(_BLOCK + token.level, _DEEPEST)
        borders[start] = min(depth, borders.get(start, depth))
        if token.type in ("fence", "code_block", "html_block"):
            inside = _paragraphs(lines[start:end])
            borders.update((start + line, _BLANK + depth) for line, depth in inside.items())
    return borders


def _price(depth: float) -> int:
    """Return what a cut costs: more than two cuts that go less deep, so that no unit that fits is torn."""
    tearing: int = 3 ** int(depth)
    return tearing * (5 if depth % 1 else 4)


def _cheapest_cuts(prices: Sequence[int], sizes: Sequence[int], limit: int) -> list[int]:
    """Return the lines that parts begin with, for the least sum of prices; full parts first among equals."""
    count = len(sizes)
    totals = list(itertools.accumulate(sizes, initial=0))
    # From the end: the price of everything behind a line, and where the part that begins there ends.
    behind = [0] * (count + 1)
    ends = [count] * count
    window: deque[int] = deque([count])
    for line in range(count - 1, -1, -1):
        last = bisect.bisect_right(totals, totals[line] + limit) - 1
        while window[0] > last:
            window.popleft()
        ends[line] = window[0]
        behind[line] = behind[window[0]] + prices[line]
        while window and behind[window[-1]] > behind[line]:
            window.pop()
        window.append(line)
    cuts = [0]
    while ends[cuts[-1]] < count:
        cuts.append(ends[cuts[-1]])
    return cuts
