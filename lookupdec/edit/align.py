"""Which lines of an old text a new text kept. Knows lines as opaque strings, no endings and no positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import LCSseq

_MAX_CELLS = 1 << 31
"""The exact alignment takes one bit per pair of lines; above 256 MiB a changed region counts as replaced."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines ``old_start:old_end`` became lines ``new_start:new_end``; ``kept`` where they are equal."""

    kept: bool
    old_start: int
    old_end: int
    new_start: int
    new_end: int


def align(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """Cut both texts into blocks, in order, that keep the longest common subsequence of lines.

    Kept and changed blocks alternate. What both begin or end with is always kept, so a change of one line
    touches that line alone, however often its neighbours repeat.
    """
    head = _common_prefix(old, new)
    old_tail, new_tail = len(old), len(new)
    while old_tail > head and new_tail > head and old[old_tail - 1] == new[new_tail - 1]:
        old_tail -= 1
        new_tail -= 1
    blocks: list[Block] = []
    _push(blocks, Block(True, 0, head, 0, head))
    for block in _align_middle(old[head:old_tail], new[head:new_tail]):
        _push(
            blocks,
            Block(
                block.kept,
                head + block.old_start,
                head + block.old_end,
                head + block.new_start,
                head + block.new_end,
            ),
        )
    _push(blocks, Block(True, old_tail, len(old), new_tail, len(new)))
    return blocks


def _align_middle(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    if len(old) * len(new) > _MAX_CELLS:
        return [Block(False, 0, len(old), 0, len(new))]
    numbers: dict[str, int] = {}
    old_ids = [numbers.setdefault(line, len(numbers)) for line in old]
    new_ids = [numbers.setdefault(line, len(numbers)) for line in new]
    return [
        Block(op.tag == "equal", op.src_start, op.src_end, op.dest_start, op.dest_end)
        for op in LCSseq.opcodes(old_ids, new_ids)
    ]


def _push(blocks: list[Block], block: Block) -> None:
    """Append ``block``, joined with the last one where both are of a kind; empty ones are dropped."""
    if block.old_start == block.old_end and block.new_start == block.new_end:
        return
    if blocks and blocks[-1].kept == block.kept:
        last = blocks.pop()
        block = Block(block.kept, last.old_start, block.old_end, last.new_start, block.new_end)
    blocks.append(block)


def _common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for old_line, new_line in zip(old, new, strict=False):
        if old_line != new_line:
            break
        count += 1
    return count
