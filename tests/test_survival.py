from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec import _copying as copying
from lookupdec import _kernels as kernels
from lookupdec import _survival as survival
from lookupdec.index import SuffixIndex
from lookupdec.policy import SurvivalModel
from tests.automaton import reached
from tests.oracle import slow_bucket, slow_contexts, slow_ends, slow_share_bucket

texts = st.integers(1, 4).flatmap(lambda ids: st.lists(st.integers(0, ids - 1), min_size=1, max_size=40))


class TestOracles:
    def test_buckets(self) -> None:
        for value in range(400):
            lengths = (1, 2, 3, 4, 5, 7, 11, 16, 32, 64, 128, 256)
            assert survival.length_bucket(value) == slow_bucket(value, lengths)
            assert survival.count_bucket(value) == slow_bucket(value, (1, 2, 3, 4, 8, 16))
            assert survival.gap_bucket(value) == slow_bucket(value, (1, 2, 3, 4, 8, 16, 32))
            assert survival.depth_bucket(value) == slow_bucket(value, (4, 16, 64))

    def test_shares(self) -> None:
        for total in range(25):
            for count in range(total + 1):
                assert survival.share_bucket(count, total) == slow_share_bucket(count, total)

    @given(texts)
    def test_contexts_are_the_longest_the_next_and_the_shortest(self, text: list[int]) -> None:
        index = SuffixIndex()
        index.extend(text)
        own = index.automaton
        contexts = np.zeros(survival.N_CONTEXTS * 3, np.int64)
        state = kernels.context_state(own.states, own.meta)
        length = int(own.states[state * kernels.STATE_FIELDS + kernels.LENGTH])
        survival.fill_contexts(own.states, state, length, contexts, 0)
        expected = slow_contexts(text)
        found = contexts.reshape(-1, 3)[:3, 1].tolist()
        if not expected:
            assert found == [0, 0, 0]
            return
        lengths = [size for size, _ in expected]
        assert found[0] == lengths[0]
        assert found[1] == (lengths[1] if len(lengths) > 1 else 0)
        if len(lengths) <= survival.SHORTEST_STEPS:
            assert found[2] == lengths[-1]
        for _, size, count in contexts.reshape(-1, 3)[:3].tolist():
            if size:
                assert count == len(slow_ends(text[:-1], text[len(text) - size :]))

    @given(texts, st.integers(0, 4))
    def test_occurrences(self, text: list[int], token: int) -> None:
        index = SuffixIndex()
        index.extend(text)
        own = index.automaton
        for size in range(1, len(text)):
            state = reached(own.states, own.edges, text[:size])
            expected = len(slow_ends(text[:-1], [*text[:size], token]))
            assert survival.occurrences(own.states, own.edges, state, token) == expected

    @given(st.floats(-1e6, 1e6))
    def test_a_chance_is_never_certain(self, logit: float) -> None:
        assert 1e-6 < survival.chance_of(logit) < 1 - 1e-6
        expected = 1 / (1 + np.exp(-np.clip(logit, -survival.MAX_SUM, survival.MAX_SUM)))
        assert survival.chance_of(logit) == pytest.approx(expected)


def estimate_in(model: copying.Model, index: SuffixIndex, token: int, cells: survival.Int64Array) -> float:
    own = index.automaton
    now = np.zeros(survival.POSITION_FIELDS, np.int64)
    now[survival.CURSOR] = kernels.NONE
    contexts = np.zeros(survival.N_CONTEXTS * 3, np.int64)
    copying.set_own_match(own, now)
    survival.fill_contexts(own.states, now[survival.OWN], now[survival.OWN_LENGTH], contexts, 0)
    empty = SuffixIndex().automaton
    return survival.estimate(
        token, 0, now, contexts, own.states, own.edges, empty.states, empty.edges, model.tables, model.weights,
        cells,
    )  # fmt: skip


def indexed(text: list[int]) -> SuffixIndex:
    index = SuffixIndex()
    index.extend(text)
    return index


def test_a_blank_model_calls_everything_even() -> None:
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    assert estimate_in(SurvivalModel.blank().arrays, indexed([1, 2, 1]), 2, cells) == pytest.approx(0.5)


@pytest.mark.parametrize("came", [True, False])
def test_an_estimate_moves_towards_what_came(came: bool) -> None:
    model = SurvivalModel.blank().arrays
    index = indexed([1, 2, 3, 1, 2])
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    chances = []
    for _ in range(50):
        chances.append(estimate_in(model, index, 3, cells))
        survival.learn(came, chances[-1], model.tables, model.seen, model.weights, cells)
    assert chances == sorted(chances, reverse=not came)
    assert chances[-1] > 0.95 if came else chances[-1] < 0.05


def test_rates_settle_at_the_frequency() -> None:
    model = SurvivalModel.blank().arrays
    index = indexed([1, 2, 3, 1, 2])
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    generator = np.random.default_rng(0)
    chance = 0.0
    for _ in range(4000):
        chance = estimate_in(model, index, 3, cells)
        survival.learn(generator.random() < 0.8, chance, model.tables, model.seen, model.weights, cells)
    assert chance == pytest.approx(0.8, abs=0.08)
    assert model.seen.max() == survival.SEEN_LIMIT


def test_whatever_comes_rates_and_weights_stay_finite() -> None:
    model = SurvivalModel.new().arrays
    index = indexed([1, 2, 3, 1, 2])
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    for number in range(20_000):
        chance = estimate_in(model, index, 3, cells)
        assert 0 < chance < 1
        survival.learn(number % 2000 < 1000, chance, model.tables, model.seen, model.weights, cells)
    assert np.abs(model.tables).max() <= survival.MAX_LOGIT
    assert np.isfinite(model.weights).all()


def test_the_prior_prefers_a_long_unanimous_match() -> None:
    model = SurvivalModel.new().arrays
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    text = list(range(100, 140))
    long = estimate_in(model, indexed([*text, 7, *text]), 7, cells)
    short = estimate_in(model, indexed([5, 7, 5, 8, 5]), 7, cells)
    assert long > 0.85
    assert short < 0.15


def test_tables_do_not_overlap() -> None:
    starts = [
        survival.RUN_AND_FLAGS, survival.OWN_LONGEST, survival.OWN_SHORTER, survival.OWN_SHORTEST,
        survival.PAST_LONGEST, survival.PAST_SHORTER, survival.PAST_SHORTEST, survival.DIFFERENCE,
        survival.BOTH_LENGTHS, survival.BOTH_SHARES, survival.RUN_AND_SHARE, survival.REPLACEMENT, survival.LAST_TOKEN,
        survival.NEXT_TOKEN, survival.TOKEN_PAIR, survival.TABLE_SIZE,
    ]  # fmt: skip
    generator = np.random.default_rng(0)
    model = SurvivalModel.blank().arrays
    empty = SuffixIndex().automaton
    cells = np.zeros(survival.N_INPUTS + 2, np.int64)
    contexts = np.zeros(survival.N_CONTEXTS * 3, np.int64)
    now = np.zeros(survival.POSITION_FIELDS, np.int64)
    for _ in range(2000):
        largest = int(10 ** generator.uniform(0, 9))
        now[:] = generator.integers(0, largest + 1, now.size)
        now[survival.REPLACED] %= survival.REPLACEMENTS
        contexts.reshape(-1, 3)[:, 1:] = generator.integers(0, largest + 1, (survival.N_CONTEXTS, 2))
        survival.estimate(
            int(generator.integers(0, 2**31 - 1)), int(generator.integers(0, 32)), now, contexts, empty.states,
            empty.edges, empty.states, empty.edges, model.tables, model.weights, cells,
        )  # fmt: skip
        for table, cell in enumerate(cells[: survival.N_INPUTS]):
            assert starts[table] <= cell < starts[table + 1]
        for row in cells[survival.N_INPUTS :]:
            assert 0 <= row <= survival.WEIGHTS_SIZE - survival.ROW and row % survival.ROW == 0
