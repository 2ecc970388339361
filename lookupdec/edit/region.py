"""Which part of a text is to be edited, and how it goes back in. Knows no model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lookupdec.edit.textio import Document, check_unicode, split_lines
from lookupdec.errors import InputError


@dataclass(frozen=True, slots=True)
class Region:
    """The piece ``text[start:end]`` of a text; the rest stays as it is, character for character."""

    text: str
    start: int
    end: int

    @classmethod
    def of(
        cls,
        text: str,
        lines: tuple[int, int] | None = None,
        selection: tuple[int, int] | None = None,
        *,
        skipped: int = 0,
    ) -> Region:
        """Some lines, a selection or all of a text, which follows ``skipped`` characters of what is selected from.

        Raises ``InputError``.
        """
        check_unicode(text, "text")
        if lines is not None and selection is not None:
            raise InputError("give either lines or a selection, not both")
        if lines is not None:
            return cls.of_lines(text, lines)
        if selection is not None and text.strip():
            # What begins or ends among the characters before does so at the beginning of the text.
            start, end = (max(offset - skipped, min(offset, 0)) for offset in selection)
            return cls.of_selection(text, (start, end))
        return cls.whole(text)

    @classmethod
    def whole(cls, text: str) -> Region:
        """All of a text."""
        return cls(text, 0, len(text))

    @classmethod
    def of_lines(cls, text: str, lines: tuple[int, int]) -> Region:
        """Lines ``first`` to ``last``, counted from 1, both included. Raises ``InputError``."""
        first, last = lines
        found = split_lines(text)
        if first < 1 or last < first:
            raise InputError(f"lines {first}:{last} are no range: give FIRST:LAST, counted from 1")
        if last > len(found):
            raise InputError(f"lines {first}:{last} are outside the text, which has {_lines(len(found))}")
        sizes = [len(content) + len(ending) for content, ending in found]
        return cls(text, sum(sizes[: first - 1]), sum(sizes[:last]))

    @classmethod
    def of_selection(cls, text: str, selection: tuple[int, int]) -> Region:
        """Characters ``start`` to ``end`` (exclusive). An empty selection means the line it stands in.

        Raises ``InputError``.
        """
        start, end = selection
        if not 0 <= start <= end <= len(text):
            raise InputError(f"the selection {start}:{end} is outside the text of {len(text)} characters")
        return cls(text, start, end) if start < end else _line_around(text, start)

    @property
    def is_whole(self) -> bool:
        """Whether nothing stands outside."""
        return self.start == 0 and self.end == len(self.text)

    @property
    def document(self) -> Document:
        """The piece alone, as a document with its own line endings."""
        return Document(self.text[self.start : self.end])

    @property
    def first_line(self) -> int:
        """The number of the line it begins in, counted from 1."""
        return len(split_lines(self.text[: self.start] + "x"))

    @property
    def before(self) -> str:
        """What stands before the piece, with LF line endings."""
        return Document(self.text[: self.start]).shown

    @property
    def after(self) -> str:
        """What stands after the piece, with LF line endings."""
        return Document(self.text[self.end :]).shown

    @property
    def line_before(self) -> str:
        """What stands before the piece in its own line."""
        return re.split("[\r\n]", self.text[: self.start])[-1]

    @property
    def line_after(self) -> str:
        """What stands after the piece in its own line; "" where the piece ends with that."""
        if self.text[self.start : self.end].endswith(("\r", "\n")):
            return ""
        return re.split("[\r\n]", self.text[self.end :], maxsplit=1)[0]

    def replacement(self, new_shown: str) -> str:
        """Return what takes the piece's place, with its own line endings; ``new_shown`` has LF ones."""
        document = self.document
        if not any(ending for _, ending in document.lines):
            # A piece without a line ending of its own takes those of the text around it.
            ending = Document(self.text).dominant_ending
            new = "".join(content + (ending if own else "") for content, own in split_lines(new_shown))
        else:
            new = document.restore(new_shown)
        return self._kept_apart(new)

    def _kept_apart(self, new: str) -> str:
        """Keep a CR and an LF that meet at a border from being read as one CRLF, unless they were one."""
        follows_lf = self.text.startswith("\n", self.end)
        if new.endswith("\r") and follows_lf and not self.text[: self.end].endswith("\r"):
            new = new[:-1] + "\n"
        begins_with_lf = new.startswith("\n") or (not new and follows_lf)
        if (
            self.text[: self.start].endswith("\r")
            and begins_with_lf
            and not self.text.startswith("\n", self.start)
        ):
            new = "\r" + new
        return new


def _line_around(text: str, offset: int) -> Region:
    start = 0
    for content, ending in split_lines(text):
        end = start + len(content)
        if offset <= end:
            break
        start = end + len(ending)
    else:
        end = start
    if not text[start:end].strip():
        raise InputError("the selection is empty and so is its line: select what is to change")
    return Region(text, start, end)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
