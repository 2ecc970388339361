"""What a model wrote to itself before its answer. Knows no edit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = r"(?:seed:)?(?:think|thinking|thoughts?|reasoning)"
# Up to the last line's end behind it: the first line of the text keeps its indentation.
_END = r"(?:\s*\n|[ \t]*)"
_BLOCK = re.compile(
    rf"\s*(?:<(?P<name>{_NAME})>.*?(?:(?P<end></(?P=name)>){_END}|\Z)"
    rf"|(?-i:\[THINK\].*?(?:(?P<bracket>\[/THINK\]){_END}|\Z)))",
    re.DOTALL | re.IGNORECASE,
)
_OPENING = re.compile(rf"<{_NAME}>|\[THINK\]", re.IGNORECASE)
_CLOSING = re.compile(rf"(?:</{_NAME}>|(?-i:\[/THINK\]))[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Thinking:
    """An answer without the thinking before it.

    ``is_open`` where that never ended, ``is_begun`` where only its end was there, ``in_doubt`` where what stands
    before such an end may be text.
    """

    rest: str
    is_open: bool = False
    is_begun: bool = False
    in_doubt: bool = False


def without_thinking(text: str, original: str) -> Thinking:
    """Take off blocks such as ``<think>...</think>`` that ``original`` does not begin with.

    Some chat templates open the block themselves: the answer holds its end alone.
    """
    old_lines = _full_lines(original)
    own = sum(1 for _ in _blocks(original))
    blocks = list(_blocks(text))
    start, is_open = 0, False
    for block in blocks[: max(0, len(blocks) - own)]:
        first = text[block.start() :].lstrip().split("\n", 1)[0].strip()
        if _full_lines(text[start:]).count(first) <= old_lines.count(first):
            break
        start, is_open = block.end(), not (block["end"] or block["bracket"])
    rest = text[start:]
    end = _lone_end(rest, original)
    if end is None:
        return Thinking(rest, is_open)
    if set(_full_lines(rest[: end.start()])) & set(old_lines):
        return Thinking(rest, is_open, in_doubt=True)
    return Thinking(re.sub(r"\A\s*\n", "", rest[end.end() :]), is_open, is_begun=True)


def _blocks(text: str) -> Iterator[re.Match[str]]:
    """Give the blocks that a text begins with."""
    match = _BLOCK.match(text)
    while match is not None:
        yield match
        match = _BLOCK.match(text, match.end())


def _lone_end(text: str, original: str) -> re.Match[str] | None:
    """Find the end of a block that began before the text; a tag inside a line of text is none."""
    ends = list(_CLOSING.finditer(text))
    if not ends or len(ends) <= len(_CLOSING.findall(original)) or _OPENING.search(text, 0, ends[0].start()):
        return None
    behind = text[ends[0].end() :].split("\n", 1)[0].strip()
    return ends[0] if not behind or behind in _full_lines(original) else None


def _full_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]
