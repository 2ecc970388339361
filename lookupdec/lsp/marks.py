"""Instructions that stand in the text, and which piece of it they are about. Knows no model and no message.

The protocol has no prompt for a text, so a line can carry it, and goes away with the edit:

    # lookupdec: use pathlib instead of os.path
    // @edit make this async

In Markdown and plain text such a line needs no comment mark.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lookupdec.edit.textio import split_bom, split_lines

_MARKED = re.compile(
    r"""(?P<comment> <!--+ | /[/*]+ | \(\* | \{- | --+ | \#+ | ;+ | %+ | \*+ | ["'!] | rem\b )? \s*
    (?: lookupdec: | @edit (?: : | (?=\s) ) ) \s* (?P<instruction> \S .* )""",
    re.IGNORECASE | re.VERBOSE,
)
_CLOSED = re.compile(r"(?: (?<!-)--+> | (?<!\*)\*+/ | \*\) | -\} ) \Z", re.VERBOSE)
_QUOTES = {'"': "vim", "'": "vb", "!": "fortran"}
"""What begins a comment in one language, and a string or a name in others."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The piece ``text[start:end]`` to edit; ``text`` is what an editor has open without marks.

    ``instruction`` is what marks in the text ask for, "" where there is none.
    """

    text: str
    start: int
    end: int
    instruction: str = ""

    @property
    def selection(self) -> tuple[int, int] | None:
        """The piece, None where it is all of the text."""
        whole = len(split_bom(self.text)[0]), len(self.text)
        return None if (self.start, self.end) == whole else (self.start, self.end)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to edit."""
        return not self.text[self.start : self.end].strip()


def piece_of(
    text: str,
    start: int,
    end: int,
    *,
    prose: bool = False,
    language: str | None = None,
    take_marks: bool = True,
) -> Piece:
    """Return what to edit where ``text[start:end]`` is selected; ``language`` is one of ``edit.languages``.

    A cursor alone, or one selected character, means the paragraph it stands in. Marks count inside the piece
    and directly above it; where the piece is nothing but marks, the paragraph below them is meant.
    """
    bom, text = split_bom(text)
    marks = _Marks(prose, language) if take_marks else None
    found = _piece(text, max(0, start - len(bom)), max(0, end - len(bom)), marks)
    return replace(found, text=bom + found.text, start=len(bom) + found.start, end=len(bom) + found.end)


def _piece(text: str, start: int, end: int, marks: _Marks | None) -> Piece:
    lines = _Lines(text)
    if len(text[start:end].replace("\r\n", "\n")) <= 1 < len(text):
        start, end = lines.paragraph(lines.at(start))
    marked = lines.marked(start, end, marks) if marks is not None else []
    if not marked:
        return Piece(text, start, end)
    instruction = "\n".join(found for _, found in marked)
    removed = [lines.span(number) for number, _ in marked]
    kept = [text[left:right] for left, right in _between(removed, len(text))]
    start, end = start - _before(removed, start), end - _before(removed, end)
    rest = "".join(kept)
    if not rest[start:end].strip():
        start, end = _Lines(rest).next_paragraph(start)
    return Piece(rest, start, end, instruction)


@dataclass(frozen=True, slots=True)
class _Marks:
    """What a mark looks like in a text: in ``prose`` it needs no comment."""

    prose: bool
    language: str | None

    def instruction(self, line: str) -> str:
        """Return what a line asks for, "" where it is none with a mark."""
        match = _MARKED.match(line.strip())
        if match is None or not (self.prose or self._begins_comment(match["comment"] or "")):
            return ""
        return _CLOSED.sub("", match["instruction"]).rstrip()

    def _begins_comment(self, mark: str) -> bool:
        return bool(mark) and _QUOTES.get(mark, self.language) == self.language


class _Lines:
    """The lines of a text, and where they begin."""

    def __init__(self, text: str) -> None:
        lines = split_lines(text)
        self.contents = [content for content, _ in lines]
        self.starts = [0, *itertools.accumulate(len(content) + len(ending) for content, ending in lines)]

    def at(self, offset: int) -> int:
        """Return the number of the line that holds a character."""
        number = 0
        while number + 1 < len(self.contents) and self.starts[number + 1] <= offset:
            number += 1
        return number

    def span(self, number: int) -> tuple[int, int]:
        return self.starts[number], self.starts[number + 1]

    def is_text(self, number: int) -> bool:
        return 0 <= number < len(self.contents) and bool(self.contents[number].strip())

    def paragraph(self, number: int) -> tuple[int, int]:
        """Return the lines around one up to the next blank ones, as characters; a blank line has none."""
        if not self.is_text(number):
            return self.starts[number], self.starts[number]
        first = last = number
        while self.is_text(first - 1):
            first -= 1
        while self.is_text(last + 1):
            last += 1
        return self.starts[first], self.starts[last] + len(self.contents[last])

    def next_paragraph(self, offset: int) -> tuple[int, int]:
        """Return the first paragraph at or below a character, empty where there is none."""
        for number in range(self.at(offset), len(self.contents)):
            if self.is_text(number) and self.starts[number] + len(self.contents[number]) > offset:
                return max(offset, self.starts[number]), self.paragraph(number)[1]
        return offset, offset

    def marked(self, start: int, end: int, marks: _Marks) -> list[tuple[int, str]]:
        """Return the lines with a mark in a piece and directly above it, and what they ask for."""
        if not self.contents:
            return []
        first, last = self.at(start), self.at(max(start, end - 1))
        while first and marks.instruction(self.contents[first - 1]):
            first -= 1
        found = [(number, marks.instruction(self.contents[number])) for number in range(first, last + 1)]
        return [(number, instruction) for number, instruction in found if instruction]


def _between(removed: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    borders = [0, *itertools.chain.from_iterable(removed), length]
    return list(zip(borders[::2], borders[1::2], strict=True))


def _before(removed: Sequence[tuple[int, int]], offset: int) -> int:
    """Return how many removed characters stand before one that is kept."""
    return sum(min(end, offset) - start for start, end in removed if start < offset)
