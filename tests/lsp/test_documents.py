"""Positions of an editor and characters of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.edit import Position, text_edits
from lookupdec.lsp.documents import Range, Snapshot
from lookupdec.lsp.marks import piece_of

ENCODINGS = ("utf-8", "utf-16", "utf-32")
TEXTS = st.text(st.sampled_from("ab\u00e9\U0001f600\u2028\x0c\r\n\n\ufeff"), max_size=12)
LINES = st.sampled_from(["# lookupdec: x", "  // @edit y", "a", "  b", "", " "])
ENDINGS = st.sampled_from(["\n", "\r\n"])
MARKED = st.lists(st.tuples(LINES, ENDINGS).map("".join), max_size=8).map("".join)


def snapshot(text: str, encoding="utf-16") -> Snapshot:
    return Snapshot("file:///a", 1, text, encoding=encoding)


@given(TEXTS, TEXTS, st.sampled_from(ENCODINGS))
def test_the_places_of_edits_are_found_again(old, new, encoding):
    taken = snapshot(old, encoding)
    result, done = "", 0
    for edit in text_edits(old, new, position_encoding=encoding):
        start, end = taken.span(Range(edit.start, edit.end))
        result += old[done:start] + edit.new_text
        done = end
    assert result + old[done:] == new


@pytest.mark.parametrize(
    ("line", "character", "offset"),
    [(0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 99, 2), (1, 0, 4), (1, 99, 5), (2, 0, 5), (9, 9, 5)],
)
def test_a_place_outside_is_the_nearest_before(line, character, offset):
    place = Position(line, character)
    assert snapshot("\U0001f600a\r\nb").span(Range(place, place)) == (offset, offset)


def test_a_range_may_be_given_backwards():
    assert snapshot("abc").span(Range(Position(0, 2), Position(0, 1))) == (1, 2)


@given(MARKED, st.data())
def test_only_marks_are_taken_out(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    found = piece_of(text, start, end)
    assert 0 <= found.start <= found.end <= len(found.text)
    lines, kept = text.splitlines(keepends=True), found.text.splitlines(keepends=True)
    plain = [line for line in lines if "lookupdec:" not in line and "@edit" not in line]
    assert [line for line in kept if line in plain] == plain
    assert len(lines) - len(kept) == len(found.instruction.splitlines())
    untouched = piece_of(text, start, end, take_marks=False)
    assert (untouched.text, untouched.instruction) == (text, "")
