from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from lookupdec.errors import InputError
from lookupdec.hf import LanguageModel
from lookupdec.hf import cost as cost_module
from lookupdec.hf.cost import measure_cost
from lookupdec.hf.watch import DEAREST, FEWEST_PASSES, STALE_AFTER, CostWatch
from lookupdec.policy import CostModel
from tests.hf.tiny import byte_tokenizer, tiny_model


def line(per_token: float, width: int, single: float = 0.04) -> float:
    return single * (1 + per_token * (width - 1))


def passes(count: int, seed: int = 0) -> Iterator[int]:
    """Return widths as edits have them: many single ones, short and long drafts."""
    generator = random.Random(seed)
    return (
        generator.choice((1, 1, generator.randint(2, 7), generator.randint(30, 200))) for _ in range(count)
    )


class TestMeasure:
    @pytest.mark.parametrize("per_token", [0.002, 0.07, 0.9])
    def test_the_line_through_the_timed_passes_is_found(
        self, tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch, per_token: float
    ) -> None:
        Clock(monkeypatch, per_token)
        assert measure_cost(tiny).per_token == pytest.approx(per_token, rel=0.01)

    def test_every_width_is_warmed_up(self, tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
        Clock(monkeypatch, 0.07, first_round=5.0)
        assert measure_cost(tiny).per_token == pytest.approx(0.07, rel=0.01)

    def test_it_ends_in_time(self, tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cost_module, "perf_counter", itertools.count(step=2).__next__)
        clock = Clock(monkeypatch, 0.07)
        measure_cost(tiny)
        assert clock.passes == 2 * len(cost_module.WIDTHS)

    def test_a_short_context_is_measured_as_far_as_it_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch, 0.07)
        model = tiny_model("llama", 3, vocab_size=257, max_position_embeddings=40)
        assert measure_cost(LanguageModel(model, byte_tokenizer(), "short")).per_token == pytest.approx(0.07)
        assert 8 < max(clock.widths) < 32

    def test_a_context_without_room_is_refused(self) -> None:
        model = tiny_model("llama", 3, vocab_size=257, max_position_embeddings=3)
        with pytest.raises(InputError, match="too short"):
            measure_cost(LanguageModel(model, byte_tokenizer(), "shortest"))


class Clock:
    """A clock for the decode loop, on which the passes of ``measure_cost`` take what a line gives.

    The loop reads it four times before the first pass, and three times a pass: before the drafter, after it, and at
    the pass's end.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, per_token: float, *, first_round: float = 1.0
    ) -> None:
        self.widths: list[int] = []
        self._per_token = per_token
        self._slower = first_round
        self._now = 0.0
        self._reads = 0
        propose = cost_module._EachWidth.propose

        def noted(drafter: cost_module._EachWidth, limit: int) -> Sequence[int]:
            draft = propose(drafter, limit)
            self.widths.append(1 + len(draft))
            return draft

        monkeypatch.setattr(cost_module._EachWidth, "propose", noted)
        monkeypatch.setattr("lookupdec.decode.perf_counter", self)

    @property
    def passes(self) -> int:
        return (self._reads - 4) // 3

    def __call__(self) -> float:
        self._reads += 1
        if self._reads > 4 and (self._reads - 4) % 3 == 0:
            slower = self._slower if self.passes <= len(cost_module.WIDTHS) else 1.0
            # Where there is no room the drafter is not asked.
            width = self.widths[-1] if len(self.widths) == self.passes else 1
            self._now += line(self._per_token, width) * slower
        return self._now


class TestWatch:
    def test_it_keeps_a_cost_that_is_right(self) -> None:
        watch = CostWatch(CostModel(per_token=0.05))
        assert not any(watch.add(width, line(0.05, width)) for width in passes(500))
        assert watch.cost == CostModel(per_token=0.05)

    @pytest.mark.parametrize("per_token", [0.003, 0.02, 0.2])
    def test_it_finds_a_cost_that_is_wrong(self, per_token: float) -> None:
        watch = CostWatch(CostModel(per_token=0.05))
        changes = [watch.add(width, line(per_token, width)) for width in passes(300)]
        assert any(changes)
        assert watch.cost.per_token == pytest.approx(per_token, rel=0.25)

    def test_it_follows_a_drift(self) -> None:
        watch = CostWatch(CostModel(per_token=0.02))
        for width in passes(300):
            watch.add(width, line(0.02, width))
        for width in passes(500, seed=1):
            watch.add(width, line(0.06, width))
        assert watch.cost.per_token == pytest.approx(0.06, rel=0.25)

    def test_a_slower_machine_is_no_drift(self) -> None:
        watch = CostWatch(CostModel(per_token=0.02))
        for width in passes(300):
            watch.add(width, line(0.02, width, single=0.04))
        changes = [watch.add(width, line(0.02, width, single=0.4)) for width in passes(500, seed=2)]
        assert watch.cost.per_token == pytest.approx(0.02, rel=0.3)
        assert not any(changes[-100:])

    def test_single_slow_passes_change_nothing(self) -> None:
        watch = CostWatch(CostModel(per_token=0.02))
        generator = random.Random(3)
        for width in passes(500):
            slow = 30.0 if generator.random() < 0.15 else 1.0
            assert not watch.add(width, line(0.02, width) * slow * generator.uniform(0.95, 1.05))

    def test_few_passes_say_nothing(self) -> None:
        watch = CostWatch(CostModel(per_token=0.02))
        for _ in range(FEWEST_PASSES - 1):
            assert not watch.add(1, 0.04)
            assert not watch.add(64, 4.0)
        assert not watch.add(1, 0.04)
        assert watch.add(64, 4.0)

    def test_a_cost_beyond_what_any_draft_pays_still_lets_drafts_be_tried(self) -> None:
        watch = CostWatch(CostModel(per_token=0.08))
        for width in (1, 3) * FEWEST_PASSES:
            watch.add(width, line(1.1, width))
        assert watch.cost.per_token == DEAREST
        assert CostWatch(CostModel(per_token=3.0)).cost.per_token == DEAREST

    def test_a_busy_while_is_forgotten_when_nothing_is_drafted_after_it(self) -> None:
        watch = CostWatch(CostModel(per_token=0.08))
        for width in (1,) * FEWEST_PASSES + (3,) * FEWEST_PASSES:
            watch.add(width, line(0.08, width) * (2.5 if width > 1 else 1.0))
        assert watch.cost.per_token == DEAREST
        changes = [watch.add(1, line(0.08, 1)) for _ in range(STALE_AFTER + 1)]
        assert changes.index(True) == STALE_AFTER
        assert watch.cost.per_token == 0.08
        # A few passes of the old kind are no longer enough to go back to it, as many as at first are.
        for number in range(FEWEST_PASSES):
            assert watch.cost.per_token == 0.08, number
            watch.add(3, line(1.0, 3))
        assert watch.cost.per_token == DEAREST

    def test_a_range_that_is_still_in_use_outlives_one_that_is_not(self) -> None:
        watch = CostWatch(CostModel(per_token=0.02))
        for width in (1, 4, 100) * FEWEST_PASSES:
            watch.add(width, line(0.2 if width == 100 else 0.05, width))
        assert watch.cost.per_token == pytest.approx(0.2, rel=0.05)
        for width in (1, 4) * STALE_AFTER:
            watch.add(width, line(0.05, width))
        assert watch.cost.per_token == pytest.approx(0.05)

    @pytest.mark.parametrize(("width", "seconds"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0)])
    def test_impossible_passes_are_refused(self, width: int, seconds: float) -> None:
        with pytest.raises(InputError, match="a pass"):
            CostWatch(CostModel()).add(width, seconds)


@pytest.mark.model
@pytest.mark.slow
def test_the_default_model_is_measured_in_seconds(default_model: LanguageModel) -> None:
    assert 1e-3 < measure_cost(default_model).per_token < 1
