"""The accept rule alone."""

from collections.abc import Iterator

import pytest

from lookupdec.verify import accept


def never(token: int) -> bool:
    return False


def counting(tokens: list[int], asked: list[int]) -> Iterator[int]:
    for token in tokens:
        asked.append(token)
        yield token


def test_accepts_the_agreeing_prefix_and_emits_the_first_difference() -> None:
    assert accept([5, 6, 7], [5, 6, 9, 1], never) == ((5, 6, 9), 2, False)


def test_a_whole_accepted_draft_gives_one_token_more() -> None:
    assert accept([5, 6], [5, 6, 7], never) == ((5, 6, 7), 2, False)


def test_an_empty_draft_is_plain_decoding() -> None:
    assert accept([], [4], never) == ((4,), 0, False)


def test_asks_for_no_choice_after_the_first_difference() -> None:
    asked: list[int] = []
    accept([5, 6, 7], counting([5, 8, 7, 1], asked), never)
    assert asked == [5, 8]


@pytest.mark.parametrize("position", range(4))
def test_ends_at_the_last_token_wherever_it_stands_in_the_block(position: int) -> None:
    draft, choices = [10, 11, 12], [10, 11, 12, 13]
    asked: list[int] = []
    emitted, accepted, ended = accept(draft, counting(choices, asked), lambda token: token == 10 + position)
    assert emitted == tuple(choices[: position + 1])
    assert accepted == min(position + 1, len(draft))
    assert ended
    assert asked == list(emitted)


def test_a_mismatch_that_ends_the_output_is_emitted_and_not_counted_as_accepted() -> None:
    assert accept([5], [2, 9], lambda token: token == 2) == ((2,), 0, True)


def test_is_last_is_asked_once_for_every_emitted_token_in_order() -> None:
    asked: list[int] = []

    def is_last(token: int) -> bool:
        asked.append(token)
        return False

    accept([1, 2, 3], [1, 2, 9], is_last)
    assert asked == [1, 2, 9]
