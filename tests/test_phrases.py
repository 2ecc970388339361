from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import thread_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.errors import DrafterError, FileError, InputError
from lookupdec.phrases import MAX_FOLLOWED, PhraseBook, PhraseTracker
from tests.oracle import slow_phrase_rest

few_ids = st.integers(0, 2)


def rest(tracker: PhraseTracker) -> list[int] | None:
    found = tracker.candidate()
    return None if found is None else found.tolist()


def rest_after(book: PhraseBook, written: Sequence[int]) -> list[int] | None:
    tracker = book.tracker()
    tracker.observe(written)
    return rest(tracker)


def characters(text: str) -> list[int]:
    return [ord(character) for character in text]


@given(
    phrases=st.lists(st.lists(few_ids, max_size=9), max_size=8),
    pieces=st.lists(st.lists(few_ids, max_size=8), max_size=8),
    min_prefix=st.integers(1, 3),
)
def test_offers_what_the_slow_search_offers(
    phrases: list[list[int]], pieces: list[list[int]], min_prefix: int
) -> None:
    tracker = PhraseBook(phrases, min_prefix=min_prefix).tracker()
    text: list[int] = []
    for piece in pieces:
        tracker.observe(piece)
        text += piece
        assert rest(tracker) == slow_phrase_rest(phrases, text, min_prefix)


def test_offers_the_rest_once_the_beginning_is_written() -> None:
    tracker = PhraseBook([range(10, 20)]).tracker()
    offered = []
    for token in [1, *range(10, 20), 1]:
        tracker.observe([token])
        offered.append(rest(tracker))
    rests: list[list[int] | None] = [list(range(start, 20)) for start in range(14, 20)]
    assert offered == [None] * 4 + rests + [None] * 2


def test_candidate_is_an_int32_array() -> None:
    tracker = PhraseBook([[1, 2, 3, 4, 5]]).tracker()
    tracker.observe(np.array([1, 2, 3, 4], np.int64))
    found = tracker.candidate()
    assert found is not None
    assert found.dtype == np.int32


def test_a_difference_ends_the_offer() -> None:
    book = PhraseBook([range(10, 20)])
    assert rest_after(book, [10, 11, 12, 13, 99]) is None
    assert rest_after(book, [10, 11, 12, 13, 99, 14]) is None


def test_a_phrase_begun_again_inside_itself_is_found() -> None:
    assert rest_after(PhraseBook([[1, 2, 1, 2, 3, 4]], min_prefix=2), [1, 2, 1, 2, 1, 2]) == [3, 4]


def test_longest_prefix_wins_and_the_shorter_takes_over() -> None:
    tracker = PhraseBook([[1, 2, 3, 4, 5], [3, 4, 6, 7]], min_prefix=2).tracker()
    tracker.observe([1, 2, 3, 4])
    assert rest(tracker) == [5]
    tracker.observe([6])
    assert rest(tracker) == [7]


def test_of_two_with_one_beginning_the_first_registered_is_offered_until_they_part() -> None:
    tracker = PhraseBook([[1, 2, 9, 9], [1, 2, 3, 4]], min_prefix=2).tracker()
    tracker.observe([1, 2])
    assert rest(tracker) == [9, 9]
    tracker.observe([3])
    assert rest(tracker) == [4]


def test_a_phrase_that_is_the_beginning_of_another_gives_way_to_it() -> None:
    book = PhraseBook([[1, 2, 3], [1, 2, 3, 4, 5]], min_prefix=2)
    assert rest_after(book, [1, 2]) == [3]
    assert rest_after(book, [1, 2, 3]) == [4, 5]
    assert rest_after(book, [1, 2, 3, 4, 5]) is None


@pytest.mark.parametrize("phrase", [[], [1], [1, 2, 3], [1, 2, 3, 4]])
def test_phrases_without_more_than_the_prefix_never_draft(phrase: list[int]) -> None:
    assert rest_after(PhraseBook([phrase]), phrase) is None


def test_duplicates_and_empty_phrases_count_once_and_not_at_all() -> None:
    assert len(PhraseBook([[1, 2], [], [1, 2], np.array([1, 2], np.uint8)])) == 1


def test_a_book_without_phrases_offers_nothing() -> None:
    tracker = PhraseBook().tracker()
    assert rest(tracker) is None
    tracker.observe([1, 2, 3])
    assert rest(tracker) is None


def test_observing_nothing_changes_nothing() -> None:
    tracker = PhraseBook([range(9)]).tracker()
    tracker.observe([0, 1, 2, 3])
    tracker.observe([])
    assert rest(tracker) == [4, 5, 6, 7, 8]


def test_trackers_are_independent_and_keep_the_book_they_were_made_with() -> None:
    book = PhraseBook([range(9)])
    before = book.tracker()
    before.observe([0, 1, 2])
    book.add(range(20, 30))
    after = book.tracker()
    for tracker in (before, after):
        tracker.observe([3])
    assert rest(before) == [4, 5, 6, 7, 8]
    assert rest(after) is None
    for tracker in (before, after):
        tracker.observe(range(20, 24))
    assert rest(before) is None
    assert rest(after) == list(range(24, 30))


def test_the_largest_ids_are_matched() -> None:
    largest = 2**31 - 2
    assert rest_after(PhraseBook([[largest] * 6]), [largest] * 4) == [largest, largest]


def test_one_token_over_and_over_stays_bounded() -> None:
    tracker = PhraseBook([[7] * 2000]).tracker()
    tracker.observe([7] * 1500)
    assert rest(tracker) == [7] * 500
    assert len(tracker._followed) == MAX_FOLLOWED


def test_thousands_of_phrases_are_told_apart() -> None:
    generator = np.random.default_rng(0)
    phrases = generator.integers(0, 49152, (5000, 60)).astype(np.int32)
    phrases[:, :5] = 7  # one shared beginning
    book = PhraseBook(phrases)
    for phrase in phrases[::500]:
        assert rest_after(book, phrase[:7]) == phrase[7:].tolist()


def test_observing_costs_microseconds() -> None:
    generator = np.random.default_rng(0)
    phrases = generator.integers(0, 49152, (200, 300)).astype(np.int32)
    text = np.concatenate([phrases[:30], generator.integers(0, 49152, (30, 300))], axis=1).ravel().tolist()

    def seconds() -> float:
        tracker = PhraseBook(phrases).tracker()
        start = thread_time()
        for token in text:
            tracker.observe((token,))
        return thread_time() - start

    # About one; slow machines and debug builds aside.
    assert min(seconds() for _ in range(5)) / len(text) < 10e-6


class TestBadInput:
    @pytest.mark.parametrize("ids", [[-1], [2**31], [0.5], ["a"], [[1, 2]], 3])
    def test_bad_phrases_are_refused(self, ids: list[int]) -> None:
        book = PhraseBook([range(9)])
        with pytest.raises(DrafterError):
            book.add(ids)
        assert len(book) == 1

    @pytest.mark.parametrize("ids", [[-1], [2**40], [0.5], ["a"], [[1, 2]], [None]])
    def test_bad_written_ids_are_refused_and_change_nothing(self, ids: list[int]) -> None:
        tracker = PhraseBook([range(9)]).tracker()
        tracker.observe([0, 1, 2])
        with pytest.raises(DrafterError, match="whole numbers"):
            tracker.observe(ids)
        tracker.observe([3])
        assert rest(tracker) == [4, 5, 6, 7, 8]

    @pytest.mark.parametrize("min_prefix", [0, -1])
    def test_min_prefix_must_be_positive(self, min_prefix: int) -> None:
        with pytest.raises(InputError, match="min_prefix"):
            PhraseBook(min_prefix=min_prefix)


class TestFromFile:
    def test_plain_text_is_split_at_separator_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "phrases.txt"
        file.write_text("first\nphrase\n---\n\n---\nsecond\n--- no separator\n", encoding="utf-8")
        book = PhraseBook.from_file(file, characters)
        assert len(book) == 2
        assert rest_after(book, characters("first")) == characters("\nphrase\n")
        assert rest_after(book, characters("second")) == characters("\n--- no separator\n")

    def test_line_endings_and_byte_order_mark_are_no_part_of_a_phrase(self, tmp_path: Path) -> None:
        file = tmp_path / "phrases.txt"
        file.write_bytes(b"\xef\xbb\xbffirst\r\nphrase\r\n---\r\nsecond")
        book = PhraseBook.from_file(str(file), characters)
        assert rest_after(book, characters("first")) == characters("\nphrase\n")
        assert rest_after(book, characters("seco")) == characters("nd")

    def test_jsonl_holds_one_phrase_a_line(self, tmp_path: Path) -> None:
        file = tmp_path / "phrases.JSONL"
        texts = ["a\n---\nb", "", "import os\nimport sys\n"]
        file.write_text("\n".join(json.dumps({"text": text, "name": 1}) for text in texts) + "\n\n")
        book = PhraseBook.from_file(file, characters, min_prefix=2)
        assert len(book) == 2
        assert rest_after(book, characters("a\n")) == characters("---\nb")

    def test_an_empty_file_holds_no_phrase(self, tmp_path: Path) -> None:
        for name in ("none.txt", "none.jsonl"):
            (tmp_path / name).write_text("")
            assert len(PhraseBook.from_file(tmp_path / name, characters)) == 0

    @pytest.mark.parametrize("line", ["{", "[]", "3", '{"name": "a"}', '{"text": 3}', "[" * 100_000])
    def test_bad_json_lines_are_named(self, tmp_path: Path, line: str) -> None:
        file = tmp_path / "phrases.jsonl"
        file.write_text('{"text": "good"}\n' + line + "\n")
        with pytest.raises(FileError, match=r"phrases\.jsonl line 2"):
            PhraseBook.from_file(file, characters)

    def test_unreadable_files_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="does not exist"):
            PhraseBook.from_file(tmp_path / "missing.txt", characters)
        with pytest.raises(FileError, match="is a directory"):
            PhraseBook.from_file(tmp_path, characters)
        (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
        with pytest.raises(FileError, match="not UTF-8"):
            PhraseBook.from_file(tmp_path / "latin.txt", characters)
