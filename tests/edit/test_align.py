import difflib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lookupdec.edit import align as module
from lookupdec.edit.align import Block, align

LINES = st.lists(st.sampled_from("abc"), max_size=12).map(tuple)


@given(LINES, LINES)
def test_blocks_cover_both_texts_in_order_and_kept_ones_are_equal(old, new):
    blocks = align(old, new)
    old_end = new_end = 0
    for block in blocks:
        assert (block.old_start, block.new_start) == (old_end, new_end)
        old_end, new_end = block.old_end, block.new_end
        if block.kept:
            assert old[block.old_start : old_end] == new[block.new_start : new_end]
    assert (old_end, new_end) == (len(old), len(new))
    assert all(first.kept != second.kept for first, second in zip(blocks, blocks[1:], strict=False))


def longest_common(old: Sequence[str], new: Sequence[str]) -> int:
    if not old or not new:
        return 0
    if old[0] == new[0]:
        return 1 + longest_common(old[1:], new[1:])
    return max(longest_common(old[1:], new), longest_common(old, new[1:]))


@given(
    st.lists(st.sampled_from("ab"), max_size=7).map(tuple),
    st.lists(st.sampled_from("ab"), max_size=7).map(tuple),
)
def test_no_alignment_keeps_more_lines(old, new):
    kept = sum(block.old_end - block.old_start for block in align(old, new) if block.kept)
    assert kept == longest_common(old, new)


def test_never_keeps_less_than_difflib_on_a_large_rewrite():
    old = [f"line {number % 700}" for number in range(5000)]
    new = [line for number, line in enumerate(old) if number % 7] + ["the end"]
    matches = difflib.SequenceMatcher(None, old, new, autojunk=True).get_matching_blocks()
    kept = sum(block.old_end - block.old_start for block in align(old, new) if block.kept)
    assert kept == len(new) - 1 >= sum(match.size for match in matches)


def test_a_region_too_large_to_align_counts_as_replaced(monkeypatch):
    monkeypatch.setattr(module, "_MAX_CELLS", 3)
    assert align("xaby", "xbay") == [
        Block(True, 0, 1, 0, 1),
        Block(False, 1, 3, 1, 3),
        Block(True, 3, 4, 3, 4),
    ]
