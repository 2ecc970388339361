"""What changed between two texts: a unified diff for people, text edits for editors. Knows no model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lookupdec.edit.align import Block, align
from lookupdec.edit.positions import Position, PositionEncoding, Positions
from lookupdec.edit.textio import Document, whole_lines
from lookupdec.errors import InputError

_ESCAPES = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace what stands from ``start`` to ``end`` (exclusive) by ``new_text``."""

    start: Position
    end: Position
    new_text: str

    def as_lsp(self) -> dict[str, object]:
        """Return the edit as the Language Server Protocol writes it."""
        return {
            "range": {
                "start": {"line": self.start.line, "character": self.start.character},
                "end": {"line": self.end.line, "character": self.end.character},
            },
            "newText": self.new_text,
        }


def unified_diff(old: str, new: str, path: str = "text", *, context: int = 3) -> str:
    """Return the unified diff of two texts, "" where they are equal; ``patch`` and ``git apply`` take it.

    Lines end at LF alone, as those tools see them: a carriage return is part of its line.
    """
    if old == new:
        return ""
    old_lines, new_lines = _lf_lines(old), _lf_lines(new)
    parts = [f"{mark} {_name(side, path)}\n" for mark, side in (("---", "a"), ("+++", "b"))]
    for hunk in _hunks(align(old_lines, new_lines), context):
        first, last = hunk[0], hunk[-1]
        parts.append(
            f"@@ -{_span(first.old_start, last.old_end)} +{_span(first.new_start, last.new_end)} @@\n"
        )
        for block in hunk:
            if block.kept:
                parts += [_diff_line(" ", line) for line in old_lines[block.old_start : block.old_end]]
                continue
            parts += [_diff_line("-", line) for line in old_lines[block.old_start : block.old_end]]
            parts += [_diff_line("+", line) for line in new_lines[block.new_start : block.new_end]]
    return "".join(parts)


def encoded_diff(document: Document, new: str, path: str = "text") -> tuple[bytes, bool]:
    """Return the unified diff of a file as it is stored, and whether ``patch`` and ``git apply`` take it.

    They do not know UTF-16: such a diff is in UTF-8, for reading, as is one of a text that has no other bytes.
    """
    bom = "\ufeff" if document.bom else ""
    try:
        if "@-+ \\\n".encode(document.encoding) == b"@-+ \\\n":
            return _encoded(unified_diff(bom + document.text, bom + new, path), document.encoding), True
    except UnicodeEncodeError:
        pass
    return _encoded(unified_diff(document.text, new, path), "utf-8"), False


def _encoded(diff: str, encoding: str) -> bytes:
    """Encode the hunks of a diff; the names before them are UTF-8."""
    names, at, hunks = diff.partition("\n@@")
    return (names + at).encode() + hunks.encode(encoding)


def text_edits(old: str, new: str, *, position_encoding: PositionEncoding = "utf-16") -> tuple[TextEdit, ...]:
    """Return the edits that turn ``old`` into ``new``: sorted, not overlapping, positions in ``old``.

    One edit for each run of changed lines, cut down to the characters that differ. CRLF is never split.
    """
    old_lines = whole_lines(old)
    new_lines = whole_lines(new)
    positions = Positions(old, position_encoding)
    old_starts = [0, *itertools.accumulate(map(len, old_lines))]
    new_starts = [0, *itertools.accumulate(map(len, new_lines))]
    edits = []
    for block in align(old_lines, new_lines):
        if block.kept:
            continue
        span = (old_starts[block.old_start], old_starts[block.old_end])
        start, end, replacement = _trim(
            old, *span, new[new_starts[block.new_start] : new_starts[block.new_end]]
        )
        edits.append(TextEdit(positions.at(start), positions.at(end), replacement))
    return tuple(edits)


def apply_edits(
    text: str, edits: Iterable[TextEdit], *, position_encoding: PositionEncoding = "utf-16"
) -> str:
    """Return ``text`` with every edit applied; all positions are those of ``text`` itself.

    Raises ``InputError`` for a position outside the text and for edits that overlap.
    """
    positions = Positions(text, position_encoding)
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        start, end = positions.offset(edit.start), positions.offset(edit.end)
        if start < done or end < start:
            raise InputError("these edits overlap: each must end before the next begins")
        parts += [text[done:start], edit.new_text]
        done = end
    return "".join([*parts, text[done:]])


def _trim(old: str, start: int, end: int, replacement: str) -> tuple[int, int, str]:
    """Cut what both sides begin and end with; a CR that belongs to a CRLF stays with its LF."""
    original = old[start:end]
    shorter = min(len(original), len(replacement))
    head = 0
    while head < shorter and original[head] == replacement[head]:
        head += 1
    if head and original[head - 1] == "\r":
        head -= "\n" in (original[head : head + 1], replacement[head : head + 1])
    tail = 0
    while tail < shorter - head and original[-1 - tail] == replacement[-1 - tail]:
        tail += 1
    if tail and original[-tail] == "\n":
        tail -= "\r" in (original[-tail - 1 : -tail], replacement[-tail - 1 : -tail])
    return start + head, end - tail, replacement[head : len(replacement) - tail]


def _name(side: str, path: str) -> str:
    """Write a file's name as git does: quoted where it holds what would end it, else a tab ends one with spaces."""
    name = f"{side}/{path.lstrip('/')}"
    quoted = "".join(map(_quoted, name))
    if quoted != name:
        return f'"{quoted}"'
    return f"{name}\t" if " " in name else name


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return f"\\{_ESCAPES[char]}"
    if char >= " " and char != "\x7f" and not "\ud800" <= char <= "\udfff":
        return char
    # A byte of a name that is no UTF-8 comes as a lone surrogate.
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", errors))


def _lf_lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _diff_line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _span(start: int, end: int) -> str:
    """A hunk's line range: counted from 1; an empty one names the line before it."""
    count = end - start
    return f"{start + 1 if count else start}" + ("" if count == 1 else f",{count}")


def _hunks(blocks: list[Block], context: int) -> Iterator[list[Block]]:
    """Group the changed blocks with ``context`` kept lines around; close ones share a hunk."""
    hunk: list[Block] = []
    for number, block in enumerate(blocks):
        if not block.kept:
            hunk.append(block)
            continue
        count = block.old_end - block.old_start
        if number == 0 or number == len(blocks) - 1 or count > 2 * context:
            if hunk:
                yield [*hunk, _slice(block, 0, context)]
            hunk = [_slice(block, max(0, count - context), count)]
        else:
            hunk.append(block)
    if any(not block.kept for block in hunk):
        yield hunk


def _slice(block: Block, start: int, end: int) -> Block:
    end = min(end, block.old_end - block.old_start)
    old, new = block.old_start, block.new_start
    return Block(True, old + start, old + end, new + start, new + end)
