"""Places of a text: offsets, and line and character as editors count them. Knows no edit."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from lookupdec.edit.textio import split_lines
from lookupdec.errors import InputError

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]
"""What a position's ``character`` counts: bytes, UTF-16 code units, or code points."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text: line, and character in it, both from zero, as in the Language Server Protocol."""

    line: int
    character: int


class AnyPosition(Protocol):
    """A line and a character in it, from zero: a ``Position`` or another package's."""

    @property
    def line(self) -> int:
        """The line."""
        ...

    @property
    def character(self) -> int:
        """The character."""
        ...


def check_position_encoding(encoding: str) -> None:
    """Raise ``InputError`` for one that is not known."""
    if encoding not in get_args(PositionEncoding):
        raise InputError(f"unknown position encoding {encoding!r}: use utf-8, utf-16 or utf-32")


class Positions:
    """Offsets of one text to line and character, and back. Raises ``InputError`` for an unknown encoding."""

    def __init__(self, text: str, encoding: PositionEncoding) -> None:
        check_position_encoding(encoding)
        self._text = text
        self._encoding = encoding
        self._starts, self._ends = [0], []  # of each line, its ending left out
        for content, ending in split_lines(text):
            self._ends.append(self._starts[-1] + len(content))
            if ending:  # no line begins after an unfinished one
                self._starts.append(self._ends[-1] + len(ending))
        if len(self._ends) < len(self._starts):
            self._ends.append(len(text))

    def at(self, offset: int) -> Position:
        """Return an offset as a position."""
        line = bisect.bisect_right(self._starts, offset) - 1
        return Position(line, self._width(self._text[self._starts[line] : offset]))

    def offset(self, position: AnyPosition) -> int:
        """Return the offset of a position. Raises ``InputError`` for one that is outside of the text."""
        if not 0 <= position.line < len(self._starts):
            raise InputError(f"line {position.line} is outside the text of {len(self._starts)} lines")
        start = self._starts[position.line]
        is_last = position.line + 1 == len(self._starts)
        offset = self._last(position, len(self._text) if is_last else self._starts[position.line + 1])
        if self._width(self._text[start:offset]) != position.character:
            raise InputError(f"line {position.line} has no place at character {position.character}")
        return offset

    def nearest(self, position: AnyPosition) -> int:
        """Return the offset of a position; outside of the text or its line, of the nearest before."""
        if position.line >= len(self._starts):
            return len(self._text)
        return self._last(position, self._ends[position.line])

    def _last(self, position: AnyPosition, end: int) -> int:
        """Return the last offset of a line, up to ``end``, that is no farther on than a position."""
        units = 0
        for offset in range(self._starts[position.line], end):
            units += self._width(self._text[offset])
            if units > position.character:
                return offset
        return end

    def _width(self, text: str) -> int:
        if self._encoding == "utf-32":
            return len(text)
        if self._encoding == "utf-8":
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(char > "\uffff" for char in text)
