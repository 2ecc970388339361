"""Indentation that a model lost on the way. Knows an answer and the text it stands for, with LF endings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lookupdec.edit.textio import split_lines


def reindented(new: str, old: str) -> str:
    """Give an answer the leading indentation of the piece back, where the model dropped it.

    Either the first line lost its own, or every line lost what all lines of the piece share. An answer that
    is the piece itself, moved as a whole, is what was asked for and stays.
    """
    indent = _common_indent(old)
    if not indent:
        return new
    new_lines, old_lines = _shown_lines(new), _shown_lines(old)
    shifted = [indent + line if line.strip() else line for line in new_lines]
    known = set(old_lines)
    if shifted != old_lines and _count_in(known, shifted) > _count_in(known, new_lines):
        return "".join(shifted)
    if new_lines and old_lines and new_lines[0] == old_lines[0].lstrip(" \t") != old_lines[0]:
        rest = new_lines[1:]
        if not rest or _common_indent("".join(rest)):
            return old_lines[0] + "".join(rest)
    return new


def _common_indent(text: str) -> str:
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in text.split("\n") if line.strip()]
    if not indents:
        return ""
    shortest, longest = min(indents), max(indents)
    for index, char in enumerate(shortest):
        if char != longest[index : index + 1]:
            return shortest[:index]
    return shortest


def _count_in(known: set[str], lines: Sequence[str]) -> int:
    return sum(line in known for line in lines if line.strip())


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
    lines = [_with_tabs(line, width) for line in _shown_lines(new)]
    return new if width == 1 or _stripped(new) == _stripped(old) else "".join(lines)


def _with_tabs(line: str, width: int) -> str:
    content = line.lstrip(" ")
    return "\t" * ((len(line) - len(content)) // width) + content


def _indents(text: str) -> list[str]:
    """The indentation of every line that has some."""
    lines = [line for line in text.split("\n") if line.strip() and line[0] in " \t"]
    return [line[: len(line) - len(line.lstrip(" \t"))] for line in lines]


def _stripped(text: str) -> list[str]:
    return [line.lstrip(" \t") for line in text.split("\n")]


def _shown_lines(shown: str) -> list[str]:
    return [content + ending for content, ending in split_lines(shown)]
