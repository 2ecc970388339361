"""What stands around a piece of a text and came back with the answer. Knows a region, no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lookupdec.edit.region import Region
from lookupdec.edit.textio import line_contents, whole_lines

_MANY = 4
"""So many letters on one side of a piece come back by no accident."""
_QUOTE = re.compile(r"\"{3}|'{3}|[\"'`|]")


def without_echo(new: str, region: Region) -> str:
    """Drop neighbours of a piece that a model repeated around its answer; all with LF line endings.

    Whole lines, the rest of the lines that the piece begins and ends in, and the quotes or cell borders around
    it; only where the piece itself neither begins nor ends like that.
    """
    old = region.document.shown
    new = _without_rest_of_lines(new, old, region)
    if not (region.line_before or region.line_after):
        return _without_lines(new, old, region)
    return _without_quotes(new, old, region)


def _without_lines(new: str, old: str, region: Region) -> str:
    old_lines, before, after = line_contents(old), line_contents(region.before), line_contents(region.after)
    lines = whole_lines(new)
    contents = line_contents(new)
    head = _echo(contents, before, old_lines)
    if not _says_something(contents[:head]) and _balance(contents[head:]) != _balance(old_lines):
        head = 0
    tail = _echo(contents[head:][::-1], after[::-1], old_lines[::-1])
    end = len(lines) - tail
    # A closing bracket may be the answer's own.
    if not _says_something(contents[end:]) and _balance(contents[head:end]) != _balance(old_lines):
        end = len(lines)
    return "".join(lines[head:end])


def _echo(lines: Sequence[str], neighbours: Sequence[str], old_lines: Sequence[str]) -> int:
    """Return how many of the first ``lines`` repeat the last ``neighbours``."""
    known = set(old_lines)
    for count in range(min(len(lines) - 1, len(neighbours)), 0, -1):
        if lines[0] != neighbours[-count] or list(lines[:count]) != list(neighbours[-count:]):
            continue
        if any(line.strip() and line not in known for line in lines[:count]):
            return count
    return 0


def _without_rest_of_lines(new: str, old: str, region: Region) -> str:
    """Drop what stands before and after a piece in its own lines, and the lines before and after those.

    All of it must be there and say something, or one side say much: ``)`` alone may be the answer's own.
    """
    before, after = region.before.split("\n"), region.after.split("\n")
    may_begin, may_end = bool(before[-1].strip()), bool(region.line_after.strip())
    head = _begun(new, before, old) if may_begin else ""
    rest = new[len(head) :]
    tail = _ended(rest, after, old) if may_end else ""
    rest = rest[: len(rest) - len(tail)]
    is_all = (head or not may_begin) and (tail or not may_end)
    words = re.findall(r"\w", head + tail)
    if not words or not (is_all or len(words) >= _MANY) or not rest:
        return new
    is_inside_word = _joins_words(head[-1:], rest[:1]) or _joins_words(rest[-1:], tail[:1])
    return new if is_inside_word else rest


def _begun(new: str, before: Sequence[str], old: str) -> str:
    """Return the most of what stands before a piece that ``new`` begins with, from the beginning of a line on."""
    lines = new.split("\n")
    for count in range(min(len(before), len(lines)), 0, -1):
        if lines[count - 1].startswith(before[-1]) and lines[: count - 1] == before[-count:-1]:
            head = "\n".join(before[-count:])
            if head not in old:
                return head
    return ""


def _ended(new: str, after: Sequence[str], old: str) -> str:
    """Return the most of what stands after a piece that ``new`` ends with, up to the end of a line."""
    lines = new.split("\n")
    for count in range(min(len(after), len(lines)), 0, -1):
        if lines[-count].endswith(after[0]) and lines[len(lines) - count + 1 :] == after[1:count]:
            tail = "\n".join(after[:count])
            if tail not in old:
                return tail
    return ""


def _joins_words(left: str, right: str) -> bool:
    return re.fullmatch(r"\w\w", left + right) is not None


def _without_quotes(new: str, old: str, region: Region) -> str:
    """Drop the quotes around a string, or the borders of a table's cell, that stand around the piece already."""
    before, after = region.line_before.rstrip(" "), region.line_after.lstrip(" ")
    inner = new.strip(" ")
    for quote in _QUOTE.findall(before[-3:])[::-1] + [before[-1:]]:
        is_around = quote and before.endswith(quote) and after.startswith(quote)
        if (
            is_around
            and _QUOTE.fullmatch(quote)
            and _is_in(inner, quote)
            and not _is_in(old.strip(" "), quote)
        ):
            inner = inner[len(quote) : len(inner) - len(quote)]
            return inner.strip(" ") if quote == "|" else inner
    return new


def _is_in(text: str, quote: str) -> bool:
    return len(text) > 2 * len(quote) and text.startswith(quote) and text.endswith(quote)


def _says_something(texts: Sequence[str]) -> bool:
    return any(re.search(r"\w", text) for text in texts)


def _balance(lines: Sequence[str]) -> list[int]:
    text = "\n".join(lines)
    return [text.count(opening) - text.count(closing) for opening, closing in ("()", "[]", "{}")]
