"""Where a program may be cut: between the members of its blocks. Knows grammars, no budget and no model."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, TreeCursor

_GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "bash": ("tree_sitter_bash", "language"),
}
_LEADING = (
    "decorator",
    "attribute_item",
    "inner_attribute_item",
    "attribute_list",
    "annotation",
    "marker_annotation",
)
_TEXTS = ("string", "heredoc", "comment")


@dataclass(slots=True)
class _Siblings:
    """What has been seen of a node's children: the last one's row and role, and what leads to the next."""

    end: int | None = None
    role: int = 0
    lead: int | None = None


def code_borders(lines: Sequence[str], language: str) -> dict[int, int] | None:
    """Return the numbers of the lines (from 0) that begin a member of a block, each with its depth.

    A cut before such a line tears as many nested units apart as its depth says: 0 between the functions of a
    file, more inside a class, and so on. Comments, decorators and attributes are one with what follows them.
    ``lines`` have no endings. None where no grammar for the language is installed (the extra ``code``).
    """
    grammar = _grammar(language)
    if grammar is None:
        return None
    from tree_sitter import Parser

    lines = [*lines, ""]  # a final newline: some grammars need it to end their last line
    starts = [len(line) - len(line.lstrip(" \t\f")) for line in lines]
    tree = Parser(grammar).parse("\n".join(lines).encode("utf-8", "surrogatepass"))
    return dict(_borders(tree.walk(), starts))


@cache
def _grammar(language: str) -> Language | None:
    module, function = _GRAMMARS.get(language, ("", ""))
    if not module:
        return None
    try:
        from tree_sitter import Language

        return Language(getattr(importlib.import_module(module), function)())
    except (ModuleNotFoundError, ValueError):  # not installed, or made for another release of tree-sitter
        return None


def _borders(cursor: TreeCursor, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Walk a tree; give the row and the depth of each node that follows another in the same role."""
    levels: list[_Siblings] = [_Siblings()]
    while True:
        node = cursor.node
        assert node is not None
        if node.is_named:
            row = _border(levels[-1], node, cursor.field_id or 0, starts)
            if row is not None and len(levels) > 1:
                yield row, len(levels) - 2
        if _may_be_cut(node) and cursor.goto_first_child():
            levels.append(_Siblings())
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            levels.pop()


def _border(seen: _Siblings, node: Node, role: int, starts: Sequence[int]) -> int | None:
    """Return the row of the border before a node, with what leads to it; None where there is none."""
    row = node.start_point.row
    # Columns are bytes, but what stands before the first character of a line is ASCII.
    begins_line = node.start_point.column == starts[row]
    if node.type.endswith("comment") or node.type in _LEADING:
        if begins_line and seen.lead is None:
            seen.lead = row
        elif not begins_line and seen.lead is None and seen.end is not None:
            seen.end = _last_row(node)
        return None
    first = row if seen.lead is None else seen.lead
    is_border = (
        seen.end is not None
        and seen.end < first
        and role == seen.role
        and (begins_line or seen.lead is not None)
    )
    seen.end, seen.role, seen.lead = _last_row(node), role, None
    return first if is_border else None


def _may_be_cut(node: Node) -> bool:
    """Whether borders may lie inside; the lines of a string are none."""
    return node.start_point.row < node.end_point.row and not any(name in node.type for name in _TEXTS)


def _last_row(node: Node) -> int:
    # Some grammars count a line's end to what stands in the line.
    return node.end_point.row - (node.end_point.column == 0 and node.end_point.row > node.start_point.row)
