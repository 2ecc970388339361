from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec import _copying as copying
from lookupdec import _drafting as drafting
from lookupdec import _survival as survival
from lookupdec.errors import FileError, InputError
from lookupdec.policy import FORMAT, CostModel, SurvivalModel, best_exposure
from tests.oracle import slow_best_length


class TestCostModel:
    def test_the_default_is_a_small_model_on_a_cpu(self) -> None:
        assert CostModel().per_token == 0.03

    @pytest.mark.parametrize("per_token", [0.0, -1.0, 11.0, float("nan"), float("inf"), "0.03", None])
    def test_a_cost_that_cannot_be_is_refused(self, per_token: Any) -> None:
        with pytest.raises(InputError, match="per_token"):
            CostModel(per_token=per_token)

    def test_passes_on_a_line_give_its_slope(self) -> None:
        seconds = {width: 0.04 * (1 + 0.02 * (width - 1)) for width in (1, 8, 32, 128)}
        assert CostModel.from_passes(seconds).per_token == pytest.approx(0.02)

    def test_other_passes_give_the_line_that_fits_best(self) -> None:
        seconds = {1: 1.0, 8: 1.3, 32: 1.9, 128: 4.1}
        costs = np.geomspace(1e-3, 0.2, 2000)
        errors = [sum((1 + cost * (n - 1) - value) ** 2 for n, value in seconds.items()) for cost in costs]
        assert CostModel.from_passes(seconds).per_token == pytest.approx(costs[np.argmin(errors)], rel=0.01)

    def test_wider_passes_that_take_no_longer_cost_next_to_nothing(self) -> None:
        assert CostModel.from_passes({1: 1.0, 8: 0.9}).per_token == 1e-5

    def test_less_survival_is_asked_for_where_tokens_are_cheap(self) -> None:
        highest = [CostModel(per_token=cost).stops().max() for cost in (1e-5, 0.003, 0.03, 0.1, 10.0)]
        assert highest == sorted(highest)
        assert 0.45 < highest[0] < highest[-1] < 1

    @pytest.mark.parametrize("seconds", [{}, {1: 1.0}, {8: 1.0}, {1: 0.0, 8: 1.0}, {1: 1.0, 8: -1.0}])
    def test_too_few_or_impossible_passes_are_refused(self, seconds: dict[int, float]) -> None:
        with pytest.raises(InputError, match="measured passes"):
            CostModel.from_passes(seconds)


class TestBestExposure:
    @given(st.floats(1e-6, 1e6))
    def test_it_is_the_root(self, ratio: float) -> None:
        x = best_exposure(ratio)
        assert x > 0
        assert math.expm1(x) - x == pytest.approx(ratio, rel=1e-6)

    @pytest.mark.parametrize("cost", [0.1, 0.03, 0.003])
    @pytest.mark.parametrize("hazard", [0.05, 0.01, 0.001])
    def test_it_makes_a_token_cheapest(self, cost: float, hazard: float) -> None:
        def price(size: float) -> float:
            return float((1 + cost * size) / (1 - (1 - hazard) ** size))

        chosen = max(1.0, round(best_exposure(hazard / cost) / -math.log1p(-hazard)))
        assert price(chosen) <= 1.002 * price(slow_best_length(cost, hazard, 5000))

    def test_the_table_asks_for_the_survival_at_that_length(self) -> None:
        cost = CostModel(per_token=0.01)
        for hazard in (1e-4, 1e-3, 0.01, 0.1, 0.9):
            asked = drafting.stop_below(cost.stops(), hazard / cost.per_token)
            # A bin spans a quarter of an octave.
            near = [0.85 * math.exp(-best_exposure(hazard / cost.per_token * f)) for f in (1.2, 1 / 1.2)]
            assert near[0] <= asked <= near[1]


def arrays_of(model: SurvivalModel) -> list[Any]:
    return list(model.arrays)


def same(one: SurvivalModel, other: SurvivalModel) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(arrays_of(one), arrays_of(other), strict=True))


class TestSurvivalModel:
    def test_new_ones_are_equal_and_apart(self) -> None:
        one, other = SurvivalModel.new(), SurvivalModel.new()
        assert same(one, other)
        for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
            assert not np.shares_memory(a, b)

    def test_the_prior_is_what_was_learnt_without_the_vocabulary(self) -> None:
        model = SurvivalModel.new()
        generator = np.random.default_rng(0)
        model.arrays.tables[:] = generator.normal(size=survival.TABLE_SIZE)
        model.arrays.seen[:] = generator.integers(0, 128, survival.TABLE_SIZE)
        model.arrays.weights[:] = generator.normal(size=survival.WEIGHTS_SIZE)
        prior = model.prior()
        again = SurvivalModel.from_prior(prior)
        shape = slice(0, survival.SHAPE_SIZE)
        assert np.allclose(again.arrays.tables[shape], model.arrays.tables[shape], atol=2e-3)
        assert np.array_equal(again.arrays.seen[shape], model.arrays.seen[shape])
        assert np.allclose(again.arrays.weights, model.arrays.weights, atol=2e-3)
        assert len(prior["averages"]) == survival.DEPTHS + 1
        assert np.unique(again.arrays.tables[survival.TOKEN_PAIR :]).size == 1

    def test_the_packaged_prior_is_whole(self) -> None:
        model = SurvivalModel.new()
        assert all(np.isfinite(array).all() for array in arrays_of(model))
        assert model.arrays.seen[: survival.SHAPE_SIZE].max() == survival.SEEN_LIMIT
        assert np.abs(model.arrays.tables).max() <= survival.MAX_LOGIT

    def test_a_blank_one_knows_nothing(self) -> None:
        assert not SurvivalModel.blank().arrays.tables.any()
        assert not SurvivalModel.blank().arrays.seen.any()


class TestFiles:
    def test_load_gives_what_was_saved(self, tmp_path: Path) -> None:
        model = SurvivalModel.new()
        model.arrays.tables[::7] = 0.25
        model.arrays.ends[:3] = (9, 4, 5)
        model.save(tmp_path / "model")
        loaded = SurvivalModel.load(str(tmp_path / "model"))
        assert same(model, loaded)
        assert all(array.flags.writeable for array in arrays_of(loaded))

    def test_saving_that_fails_keeps_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "model"
        SurvivalModel.new().save(path)
        before = path.read_bytes()

        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(FileError, match="model cannot be written: no space"):
            SurvivalModel.blank().save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_a_missing_file_or_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="nothing does not exist"):
            SurvivalModel.load(tmp_path / "nothing")
        with pytest.raises(FileError, match="is a directory"):
            SurvivalModel.load(tmp_path)
        with pytest.raises(FileError, match="folder does not exist"):
            SurvivalModel.new().save(tmp_path / "nowhere" / "model")

    @pytest.mark.parametrize(
        "content", [b"", b"PK\x03\x04", b"not a model", b"\x93NUMPY\x01\x00", b"\x80\x04N.", b"\x00" * 1000]
    )
    def test_other_files_are_refused_by_name_and_kept(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "other"
        path.write_bytes(content)
        with pytest.raises(FileError, match="other is damaged"):
            SurvivalModel.load(path)
        assert path.read_bytes() == content

    def test_a_single_array_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "one.npy", np.zeros(3))
        with pytest.raises(FileError, match=r"one\.npy is damaged"):
            SurvivalModel.load(tmp_path / "one.npy")

    def test_damage_anywhere_is_refused_or_harmless(self, tmp_path: Path) -> None:
        path = tmp_path / "model"
        SurvivalModel.new().save(path)
        content = path.read_bytes()
        generator = np.random.default_rng(0)
        for _ in range(60):
            damaged = bytearray(content)
            at = int(generator.integers(len(damaged)))
            damaged[at] ^= int(generator.integers(1, 256))
            path.write_bytes(damaged)
            try:
                model = SurvivalModel.load(path)
            except FileError as error:
                assert "model" in str(error)
            else:
                assert same(model, SurvivalModel.new())
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(FileError, match="damaged"):
            SurvivalModel.load(path)

    def saved(self, path: Path, **changes: Any) -> None:
        header = np.frombuffer(json.dumps({"format": FORMAT}).encode(), np.uint8)
        arrays: dict[str, Any] = {"header": header, **SurvivalModel.new().arrays._asdict(), **changes}
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @pytest.mark.parametrize(
        ("name", "array", "message"),
        [
            ("tables", np.zeros(7, np.float32), "other shapes"),
            ("tables", np.zeros(survival.TABLE_SIZE, np.float64), "other shapes"),
            ("ends", np.zeros((copying.N_ENDS, 3), np.int32), "other shapes"),
            ("weights", np.full(survival.WEIGHTS_SIZE, np.nan, np.float32), "no numbers"),
            ("header", np.frombuffer(b'{"format": "lookupdec-survival-0"}', np.uint8), "not of the format"),
            ("header", np.frombuffer(b"[1, 2]", np.uint8), "damaged"),
            ("header", np.array([object()]), "damaged"),
        ],
    )
    def test_other_versions_are_refused(self, tmp_path: Path, name: str, array: Any, message: str) -> None:
        self.saved(tmp_path / "model", **{name: array})
        with pytest.raises(FileError, match=message):
            SurvivalModel.load(tmp_path / "model")


FLAT = CostModel(widths=((1, 1.0), (8, 1.0), (64, 1.01)))
STEEP = CostModel(widths=((1, 1.0), (8, 1.4), (64, 4.0)))


class TestWidths:
    def test_they_are_relative_to_the_narrowest_and_never_fall(self) -> None:
        cost = CostModel.from_widths({4: 0.3, 1: 0.2, 2: 0.1})
        assert dict(cost.widths) == {1: 1.0, 2: 1.0, 4: pytest.approx(1.5)}
        assert cost.per_token == pytest.approx(0.02)
        assert CostModel.from_widths({32: 0.5}) == CostModel(per_token=1e-5, widths=((32, 1.0),))

    @pytest.mark.parametrize("seconds", [{}, {1: 0.0}, {1: 0.1, 2: -0.1}])
    def test_measurements_that_say_nothing_are_refused(self, seconds: dict[int, float]) -> None:
        with pytest.raises(InputError, match="positive seconds"):
            CostModel.from_widths(seconds)

    @pytest.mark.parametrize("widths", [((2, 1.0), (1, 1.0)), ((1, 1.0), (1, 2.0)), ((0, 1.0),), ((1, 0.0),)])
    def test_widths_that_make_no_sense_are_refused(self, widths: tuple[tuple[int, float], ...]) -> None:
        with pytest.raises(InputError, match="widths must rise"):
            CostModel(widths=widths)

    def test_a_safe_copy_takes_the_widest_pass(self) -> None:
        safe = np.full(63, 0.999, np.float32) ** np.arange(1, 64)
        assert FLAT.draft_length(safe) == STEEP.draft_length(safe) == 63

    def test_a_doubtful_rest_is_cut_where_the_next_width_costs_more_than_it_wins(self) -> None:
        survivals = np.array([0.9] * 7 + [0.05] * 20, np.float32)
        assert STEEP.draft_length(survivals) == 7
        assert FLAT.draft_length(survivals) == 27

    def test_a_guess_that_is_worth_less_than_the_wider_pass_is_not_made(self) -> None:
        assert STEEP.draft_length(np.array([0.05, 0.01], np.float32)) == 0
        assert FLAT.draft_length(np.array([0.05, 0.01], np.float32)) == 2

    def test_nothing_drafted_is_nothing_kept(self) -> None:
        assert FLAT.draft_length(np.empty(0, np.float32)) == 0

    def test_a_wider_pass_may_pay_where_the_next_one_does_not(self) -> None:
        cost = CostModel(widths=((1, 1.0), (4, 1.5), (64, 1.5)))
        survivals = np.full(60, 0.98, np.float32) ** np.arange(1, 61)
        assert cost.draft_length(survivals) == 60

    def test_the_width_of_a_pass_is_the_first_that_holds_it(self) -> None:
        assert [FLAT.width_for(count) for count in (1, 2, 8, 9, 64, 300)] == [1, 8, 8, 64, 64, 64]
