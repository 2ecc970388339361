"""Code fences as CommonMark writes them. Knows lines and nothing about who wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>.*?)[ \t]*")


@dataclass(frozen=True, slots=True)
class Fence:
    """A line that opens or closes a code block."""

    char: str
    length: int
    info: str

    def closes(self, opening: Fence) -> bool:
        """Whether this line may end the block that ``opening`` began."""
        return not self.info and self.char == opening.char and self.length >= opening.length


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block from its opening line to its closing one; ``end`` is None where it is never closed."""

    opening: Fence
    start: int
    end: int | None


def fence_at(line: str) -> Fence | None:
    """Read a line as a fence. The info string of a backtick fence holds no backtick."""
    match = _FENCE.fullmatch(line)
    if match is None or (match["mark"][0] == "`" and "`" in match["info"]):
        return None
    return Fence(match["mark"][0], len(match["mark"]), match["info"])


def code_blocks(lines: Sequence[str]) -> list[CodeBlock]:
    """Return the outermost blocks, in order.

    Inside a block, a fence that cannot close it opens an inner one. CommonMark would take it as text; models
    that wrap a Markdown file in a fence do not count backticks, and mean it so.
    """
    blocks: list[CodeBlock] = []
    open_fences: list[tuple[Fence, int]] = []
    for number, line in enumerate(lines):
        fence = fence_at(line)
        if fence is None:
            continue
        if open_fences and fence.closes(open_fences[-1][0]):
            opening, start = open_fences.pop()
            if not open_fences:
                blocks.append(CodeBlock(opening, start, number))
        else:
            open_fences.append((fence, number))
    if open_fences:
        opening, start = open_fences[0]
        blocks.append(CodeBlock(opening, start, None))
    return blocks


def fence_around(*texts: str) -> str:
    """Return a backtick fence longer than any run of backticks in ``texts``, three at least."""
    longest = max((len(run) for text in texts for run in re.findall("`+", text)), default=0)
    return "`" * max(3, longest + 1)
