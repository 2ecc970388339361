"""The decode loop on a target that recites a script: no model and no tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.decode import PlainDrafter, decode, stops_at
from lookupdec.ids import Ids, Reference
from lookupdec.stats import Stats
from tests.fakes import ScriptedTarget


class ListDrafter:
    """Proposes the given drafts in turn and remembers what it was told."""

    def __init__(self, drafts: Sequence[Sequence[int]]) -> None:
        self.drafts: Iterator[Sequence[int]] = iter(drafts)
        self.sources: Sequence[str] = ()
        self.told: list[int] = []
        self.limits: list[int] = []
        self.begun: list[tuple[object, ...]] = []
        self.ended = 0

    def begin(
        self, prompt: Ids, *, reference: Ids | slice | Reference | None = None, namespace: str | None = None
    ) -> None:
        self.begun.append((list(prompt), reference, namespace))

    def propose(self, limit: int) -> Sequence[int]:
        self.limits.append(limit)
        draft = list(next(self.drafts, ()))[:limit]
        self.sources = ("list",) * len(draft)
        return draft

    def observe(self, ids: Ids) -> None:
        self.told.extend(int(token) for token in ids)

    def end(self) -> None:
        self.ended += 1


def never(token: int) -> bool:
    return False


def emitted(target: ScriptedTarget, drafter: ListDrafter | PlainDrafter, limit: int) -> list[int]:
    steps = decode(target, drafter, [1, 2], limit=limit, is_last=never)
    return [token for step in steps for token in step.tokens]


SCRIPT = list(range(100, 140))


def test_plain_decoding_takes_one_pass_a_token() -> None:
    target = ScriptedTarget(SCRIPT)
    assert emitted(target, PlainDrafter(), 10) == SCRIPT[:10]
    assert target.passes == 9


def test_a_right_draft_saves_passes_and_changes_nothing() -> None:
    target = ScriptedTarget(SCRIPT)
    assert emitted(target, ListDrafter([SCRIPT[1:6]]), 10) == SCRIPT[:10]
    assert target.passes == 1 + 3


def test_wrong_drafts_leave_nothing_in_the_cache() -> None:
    target = ScriptedTarget(SCRIPT)
    assert emitted(target, ListDrafter([[1, 1, 1], [SCRIPT[2], 1]]), 8) == SCRIPT[:8]
    # The last emitted token is never read.
    assert target.cached == [1, 2, *SCRIPT[:7]]


@given(
    drafts=st.lists(st.lists(st.sampled_from([100, 101, 102]), max_size=6), max_size=20),
    script=st.lists(st.sampled_from([100, 101, 102]), min_size=20, max_size=20),
    limit=st.integers(1, 20),
    end=st.sampled_from([None, 101]),
)
def test_any_drafts_give_what_plain_decoding_gives(
    drafts: list[list[int]], script: list[int], limit: int, end: int | None
) -> None:
    plain, looked_up = ScriptedTarget(script), ScriptedTarget(script)
    is_last = stops_at([] if end is None else [end])
    expected = [t for s in decode(plain, PlainDrafter(), [1], limit=limit, is_last=is_last) for t in s.tokens]
    drafter, stats = ListDrafter(drafts), Stats()
    steps = list(decode(looked_up, drafter, [1], limit=limit, is_last=is_last, stats=stats))
    assert [token for step in steps for token in step.tokens] == expected
    assert looked_up.cached == plain.cached
    assert looked_up.choices_made == len(expected)
    assert drafter.told == expected
    assert drafter.ended == 1
    assert (stats.tokens, stats.passes) == (len(expected), len(steps) - 1)
    assert (
        stats.drafted
        == sum(step.drafted for step in steps)
        == sum(s.drafted for s in stats.by_source.values())
    )
    assert all(step.accepted <= min(step.drafted, len(step.tokens)) for step in steps)


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("length", range(9))
def test_never_more_than_the_limit(limit: int, length: int) -> None:
    target = ScriptedTarget(SCRIPT)
    drafter = ListDrafter([SCRIPT[1 : 1 + length]])
    assert emitted(target, drafter, limit) == SCRIPT[:limit]
    # A draft never reaches beyond the limit, so the context cannot overflow either.
    assert all(length <= limit - 2 for length in drafter.limits)


@pytest.mark.parametrize("position", range(8))
def test_ends_inside_an_accepted_block(position: int) -> None:
    target = ScriptedTarget(SCRIPT)
    steps = decode(target, ListDrafter([SCRIPT[1:6]]), [1], limit=20, is_last=stops_at([SCRIPT[position]]))
    assert [token for step in steps for token in step.tokens] == SCRIPT[: position + 1]
    assert target.cached == [1, *SCRIPT[:position]]


def test_the_drafter_is_told_the_request() -> None:
    drafter = ListDrafter([])
    list(
        decode(
            ScriptedTarget(SCRIPT), drafter, [1], limit=2, is_last=never, reference=slice(0, 1), namespace="n"
        )
    )
    assert drafter.begun == [([1], slice(0, 1), "n")]


def test_a_consumer_that_stops_early_ends_the_drafter() -> None:
    drafter, target = ListDrafter([SCRIPT[1:4]]), ScriptedTarget(SCRIPT)
    steps = decode(target, drafter, [1], limit=20, is_last=never)
    seen = [token for step in islice(steps, 2) for token in step.tokens]
    steps.close()
    assert drafter.told == seen == SCRIPT[:5]
    assert drafter.ended == 1
    assert target.passes == 1


def test_a_failing_target_ends_the_drafter() -> None:
    drafter = ListDrafter([])
    with pytest.raises(IndexError):
        list(decode(ScriptedTarget(SCRIPT[:3]), drafter, [1], limit=20, is_last=never))
    assert drafter.told == SCRIPT[:3]
    assert drafter.ended == 1


def test_stats_name_the_source() -> None:
    stats = Stats()
    drafter = ListDrafter([SCRIPT[1:4], [], [1, 2]])
    list(decode(ScriptedTarget(SCRIPT), drafter, [1, 2], limit=10, is_last=never, stats=stats))
    assert stats.prompt_tokens == 2
    assert (stats.drafted, stats.accepted) == (5, 3)
    assert {name: (s.drafted, s.accepted) for name, s in stats.by_source.items()} == {"list": (5, 3)}
    assert stats.seconds > 0


def test_stops_at_takes_none_one_or_several_ids() -> None:
    assert not stops_at([])(7)
    assert stops_at([7])(7)
    assert [stops_at((2, 7))(token) for token in (1, 2, 7)] == [False, True, True]
