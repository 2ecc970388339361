"""Indentation that a model lost on the way. Knows an answer and the text it stands for, with LF endings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lookupdec.edit.textio import whole_lines

_OPENERS = (":", "{", "(", "[")
"""What ends a line before a deeper one."""


def reindented(new: str, old: str, *, line_before: str = "") -> str:
    """Give an answer the leading indentation of the piece back, where the model dropped it.

    Either the first line lost its own, or every line lost what all lines of the piece share. An answer that
    is the piece itself, moved as a whole, is what was asked for and stays. ``line_before`` is what stands
    before the piece in its first line: where that is indentation, the first line is to go without it.
    """
    lead = line_before if not line_before.strip() else ""
    if new == old or line_before.strip() or (lead and old[:1] in (" ", "\t")):
        return new
    if lead and new.startswith(lead):
        return new[len(lead) :]
    indent, old_lines, new_lines = _common_indent(lead + old), whole_lines(lead + old), whole_lines(new)
    first = _first_full(new_lines)
    if not indent or first == len(new_lines) or new_lines[first].startswith(indent):
        return new
    shifted = [indent + line if line.strip() else line for line in new_lines]
    if shifted == old_lines:
        return new
    old_lines = old_lines[_first_full(old_lines) :]
    if not _is_moved(new_lines[first:], old_lines, indent):
        shifted = [*new_lines[:first], _first(new_lines[first], old_lines[0]), *new_lines[first + 1 :]]
    return "".join(shifted).removeprefix(lead)


def _first_full(lines: Sequence[str]) -> int:
    return next((number for number, line in enumerate(lines) if line.strip()), len(lines))


def _is_moved(new_lines: Sequence[str], old_lines: Sequence[str], indent: str) -> bool:
    """Whether all lines lack the indentation that those of the piece share, and not the first one alone."""
    rest = [line for line in new_lines[1:] if line.strip()]
    old_rest = [line for line in old_lines[1:] if line.strip()]
    if not all(line.startswith(indent) for line in rest) or not rest:
        return True
    if new_lines[0].rstrip().endswith(_OPENERS):
        return len(_indent_of(rest[0])) <= len(_indent_of(old_lines[0]))
    return bool(old_rest) and _indent_of(old_rest[0]) == indent + _indent_of(rest[0])


def _first(line: str, old_line: str) -> str:
    """Indent the first line as the piece's first line is, where it has no indentation."""
    return line if line[:1] in (" ", "\t") else _indent_of(old_line) + line


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _common_indent(text: str) -> str:
    indents = [_indent_of(line) for line in text.split("\n") if line.strip()]
    if not indents:
        return ""
    shortest, longest = min(indents), max(indents)
    for index, char in enumerate(shortest):
        if char != longest[index : index + 1]:
            return shortest[:index]
    return shortest


def retabbed(new: str, old: str) -> str:
    """Give an answer its tabs back, where the original is indented by tabs alone and the answer by spaces.

    An answer that is the original with other indentation is what was asked for and stays.
    """
    old_indents, new_indents = _indents(old), _indents(new)
    if not old_indents or any(set(indent) != {"\t"} for indent in old_indents):
        return new
    if not new_indents or any(set(indent) != {" "} for indent in new_indents):
        return new
    width = math.gcd(*map(len, new_indents))
    lines = [_with_tabs(line, width) for line in whole_lines(new)]
    return new if width == 1 or _stripped(new) == _stripped(old) else "".join(lines)


def _with_tabs(line: str, width: int) -> str:
    content = line.lstrip(" ")
    return "\t" * ((len(line) - len(content)) // width) + content


def _indents(text: str) -> list[str]:
    """The indentation of every line that has some."""
    lines = [line for line in text.split("\n") if line.strip() and line[0] in " \t"]
    return [_indent_of(line) for line in lines]


def _stripped(text: str) -> list[str]:
    return [line.lstrip(" \t") for line in text.split("\n")]
