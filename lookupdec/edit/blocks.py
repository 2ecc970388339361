"""Which code block of an answer holds the text, and which are the text's own. Knows lines and no edit."""

from __future__ import annotations

from lookupdec.edit.fences import CodeBlock, code_blocks, fence_at


def outer_block(lines: list[str], old_lines: list[str]) -> CodeBlock | None:
    """Find the block that may hold the whole answer; None where its fences are the text's own."""
    if (longer := _longer_block(lines, old_lines)) is not None:
        return longer
    blocks = code_blocks(lines)
    if not blocks or _is_own_fence(lines, blocks[0].start, old_lines):
        return None
    first = blocks[0]
    last = max(number for number, line in enumerate(lines) if line.strip())
    last_fence = fence_at(lines[last])
    closes_at_last = last > first.start and last_fence is not None and last_fence.closes(first.opening)
    if first.end is None and not closes_at_last and lines[first.start] in old_lines:
        return None
    if len(blocks) == 1:
        return CodeBlock(first.opening, first.start, last) if closes_at_last and first.end is None else first
    # Inner fences without an info string look like the end of the outer one. Where the original has fences,
    # and those inside pair up or are as many, the last line is the end.
    body = lines[first.start + 1 : last]
    old_count = count_fences(old_lines)
    paired = all(block.end is not None for block in code_blocks(body)) or count_fences(body) == old_count
    if closes_at_last and paired and old_count:
        return CodeBlock(first.opening, first.start, last)
    return None


def _longer_block(lines: list[str], old_lines: list[str]) -> CodeBlock | None:
    """Find a block from the first line to the last whose fence is longer than all in it and in the original.

    Fences of the other kind do not count, unless the original begins with one: that may have been changed.
    """
    full = [number for number, line in enumerate(lines) if line.strip()]
    if len(full) < 2:
        return None
    opening, closing = fence_at(lines[full[0]]), fence_at(lines[full[-1]])
    if opening is None or closing is None or not closing.closes(opening):
        return None
    begins_with_fence = fence_at(_first_full(old_lines)) is not None
    for line in (*lines[full[0] + 1 : full[-1]], *old_lines):
        other = fence_at(line)
        if other is None or not (begins_with_fence or other.char == opening.char):
            continue
        if other.length >= opening.length:
            return None
    return CodeBlock(opening, full[0], full[-1])


def _first_full(lines: list[str]) -> str:
    return next((line for line in lines if line.strip(" \t")), "")


def count_fences(lines: list[str]) -> int:
    """Return how many lines are fences."""
    return sum(fence_at(line) is not None for line in lines)


def _is_own_fence(lines: list[str], start: int, old_lines: list[str]) -> bool:
    """Whether the fence that opens at ``start`` is one that the original had."""
    following = lines[start + 1 : start + 2]
    pairs = zip(old_lines, old_lines[1:], strict=False)
    if following and (lines[start], following[0]) in set(pairs):
        return True
    first_old = _first_full(old_lines)
    opening, inner = fence_at(lines[start]), fence_at(following[0]) if following else None
    if opening is not None and inner is not None and inner.closes(opening):
        return lines[start] == first_old
    return fence_at(first_old) is not None and inner is None


def is_remark(outside: list[str], body: list[str], old_lines: list[str]) -> bool:
    """Whether the lines around a fence are the model's talk, and not text: the original is in the fence."""
    old = {line.strip() for line in old_lines if line.strip()}
    if any(line.strip() in old for line in outside):
        return False
    return 2 * len(old & {line.strip() for line in body}) >= len(old)


def around(block: CodeBlock, lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the lines in a block, and those before and after it that are not blank."""
    end = len(lines) if block.end is None else block.end
    before = [line for line in lines[: block.start] if line.strip()]
    return lines[block.start + 1 : end], before, [line for line in lines[end + 1 :] if line.strip()]


def unclosed(lines: list[str]) -> int | None:
    """Return where a code block begins that nothing closes."""
    blocks = code_blocks(lines)
    return blocks[-1].start if blocks and blocks[-1].end is None else None
