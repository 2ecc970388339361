from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec import _copying as copying
from lookupdec import _drafting as drafting
from lookupdec import _kernels as kernels
from lookupdec import draft as draft_module
from lookupdec.cache import RollingCache
from lookupdec.decode import decode
from lookupdec.draft import CopyDrafter, locate
from lookupdec.errors import DrafterError
from lookupdec.ids import Ids, Reference
from lookupdec.phrases import PhraseBook
from lookupdec.policy import CostModel, SurvivalModel
from lookupdec.stats import Stats
from tests.fakes import ScriptedTarget

NOT_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
CPU, GPU = CostModel(per_token=0.03), CostModel(per_token=0.003)
HEAD, TAIL = [6001, 6002, 6003], [6004, 6005]
END = 9000
DOCUMENT: list[int] = np.random.default_rng(0).permutation(5000)[:300].tolist()
# Lines that begin alike, so that their first token says nothing about the place.
LINES = [token for at in range(0, 240, 6) for token in (0, *DOCUMENT[at : at + 6])]


def run(
    drafter: CopyDrafter,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    reference: Ids | slice | Reference | None = None,
    namespace: str | None = None,
) -> Stats:
    """Decode ``output`` and return what it took."""
    stats = Stats()
    steps = decode(
        ScriptedTarget(output), drafter, prompt, limit=len(output), is_last=lambda _: False, stats=stats,
        reference=reference, namespace=namespace,
    )  # fmt: skip
    assert [token for step in steps for token in step.tokens] == list(output)
    return stats


def cost_of(stats: Stats, alpha: float) -> float:
    return stats.passes + alpha * stats.drafted


def drafted(
    prompt: Sequence[int],
    written: Sequence[int],
    *,
    cost: CostModel = CPU,
    reference: Ids | slice | Reference | None = None,
    limit: int = 1000,
) -> tuple[list[int], tuple[str, ...]]:
    """Return what a fresh drafter drafts after ``written``, and from where."""
    drafter = CopyDrafter(cost=cost)
    drafter.begin(prompt, reference=reference)
    drafter.observe(written)
    return drafter.propose(limit).tolist(), drafter.sources


def starts_with(text: Sequence[int], draft: Sequence[int]) -> bool:
    return len(draft) > 0 and list(text[: len(draft)]) == list(draft)


class TestFirstRequest:
    def test_a_copy_of_the_prompt_takes_few_passes(self) -> None:
        stats = run(CopyDrafter(), HEAD + DOCUMENT + TAIL, DOCUMENT)
        assert stats.passes <= 12
        assert stats.acceptance_rate > 0.9

    def test_without_a_match_nothing_is_drafted(self) -> None:
        assert drafted(DOCUMENT, [6000]) == ([], ())
        assert drafted(DOCUMENT, []) == ([], ())
        assert drafted([], []) == ([], ())

    def test_the_more_has_matched_the_longer_the_draft(self) -> None:
        sizes = [len(drafted(DOCUMENT, DOCUMENT[:size])[0]) for size in (1, 8, 32, 100)]
        assert sizes == sorted(sizes)
        assert 0 < sizes[0] < sizes[-1]

    def test_a_cheap_token_is_drafted_further(self) -> None:
        short, long = (drafted(DOCUMENT, DOCUMENT[:8], cost=cost)[0] for cost in (CPU, GPU))
        assert len(short) < len(long)
        assert long[: len(short)] == short

    def test_where_a_token_costs_a_pass_nothing_is_drafted(self) -> None:
        assert drafted(DOCUMENT, DOCUMENT[:100], cost=CostModel(per_token=1.0))[0] == []

    @pytest.mark.parametrize("limit", [0, 1, 5, 64])
    def test_a_draft_keeps_to_its_limit(self, limit: int) -> None:
        draft, sources = drafted(DOCUMENT, DOCUMENT[:150], limit=limit)
        assert len(draft) == len(sources) == limit
        assert starts_with(DOCUMENT[150:], draft) or limit == 0

    def test_a_limit_may_be_any_number(self) -> None:
        loop = [1, 2, 3] * 3000
        draft, sources = drafted(loop, loop, cost=CostModel(per_token=1e-4), limit=10**18)
        assert len(draft) == len(sources) > 2 * draft_module.DRAFT_ROOM
        assert draft == ([1, 2, 3] * len(draft))[: len(draft)]


class TestReference:
    PROMPT = HEAD + DOCUMENT + TAIL
    SPAN = slice(3, 303)

    def test_the_copy_starts_before_any_output(self) -> None:
        draft, sources = drafted(self.PROMPT, [], reference=self.SPAN)
        assert starts_with(DOCUMENT, draft)
        assert set(sources) == {"reference"}

    @pytest.mark.parametrize("written", [[], DOCUMENT[:5], [*DOCUMENT[:40], 7777], DOCUMENT])
    def test_ids_that_stand_in_the_prompt_are_found_there(self, written: list[int]) -> None:
        by_span = drafted(self.PROMPT, written, reference=self.SPAN)
        assert drafted(self.PROMPT, written, reference=DOCUMENT) == by_span
        assert drafted(self.PROMPT, written, reference=np.array(DOCUMENT, np.int64)) == by_span

    def test_the_ends_may_be_cut_differently_in_the_prompt(self) -> None:
        assert locate(np.array(self.PROMPT, np.int32), np.array([1, *DOCUMENT[1:-1], 2], np.int32)) == (
            3,
            303,
        )

    def test_of_two_places_the_later_is_meant(self) -> None:
        prompt = np.array(DOCUMENT + TAIL + DOCUMENT + TAIL, np.int32)
        assert locate(prompt, np.array(DOCUMENT, np.int32)) == (302, 602)

    def test_a_place_is_one_of_whole_ids(self) -> None:
        prompt = np.array([0x00020000, 0x00010000, 5], np.int32)
        assert locate(prompt, np.array([0x0002], np.int32)) == (0, 0)
        assert locate(prompt, np.array([0x00010000], np.int32)) == (1, 2)

    def test_a_place_is_found_in_any_text(self) -> None:
        prompt = np.zeros(200_000, np.int32)
        start, stop = locate(prompt, np.zeros(100_000, np.int32))
        assert 100_000 <= start <= 100_002
        assert stop == 200_000
        assert locate(prompt, np.append(np.zeros(100_000, np.int32), [1, 1, 1]).astype(np.int32)) == (0, 0)

    def test_ids_from_elsewhere_are_copied_from_their_first(self) -> None:
        draft, sources = drafted(HEAD, [], reference=DOCUMENT)
        assert starts_with(DOCUMENT, draft)
        assert set(sources) == {"reference"}
        assert run(CopyDrafter(), HEAD, DOCUMENT, reference=DOCUMENT).passes <= 10

    def test_a_copy_ends_with_the_reference_that_stands_alone(self) -> None:
        assert drafted(HEAD, DOCUMENT[:250], reference=DOCUMENT)[0] == DOCUMENT[250:]
        assert drafted(HEAD, DOCUMENT, reference=DOCUMENT)[0] == []

    def test_after_the_reference_comes_what_outputs_ended_with(self) -> None:
        drafter = CopyDrafter()
        run(drafter, HEAD, [*DOCUMENT, END], reference=DOCUMENT)
        drafter.begin(HEAD, reference=DOCUMENT[:200])
        drafter.observe(DOCUMENT[:200])
        assert drafter.propose(10).tolist() == [END]  # and nothing after it
        assert drafter.sources == ("reference",)
        drafter.observe([7000])
        assert drafter.propose(10).tolist() in ([], [END])

    def test_after_a_span_comes_what_follows_it(self) -> None:
        assert starts_with(TAIL, drafted(self.PROMPT, DOCUMENT, reference=self.SPAN, cost=GPU)[0])

    @pytest.mark.parametrize("reference", [[], slice(0, 0), slice(5, 2), slice(10**6, 10**7), None])
    def test_an_empty_one_is_none(self, reference: Ids | slice | Reference | None) -> None:
        written = DOCUMENT[:20]
        assert drafted(self.PROMPT, written, reference=reference) == drafted(self.PROMPT, written)

    def test_negative_bounds_count_from_the_end(self) -> None:
        draft, _ = drafted(self.PROMPT, [], reference=slice(-302, -2))
        assert starts_with(DOCUMENT, draft)


class TestVariants:
    """The reference in another form: one token in each line of six is another, or the text stands elsewhere."""

    OTHER = [token + 5000 if place % 7 == 3 else token for place, token in enumerate(LINES)]

    @pytest.mark.parametrize("outside", [False, True])
    def test_an_answer_in_another_form_is_copied_as_well(self, outside: bool) -> None:
        prompt = [*HEAD, *(TAIL if outside else LINES), *TAIL]
        known: Ids | slice = LINES if outside else slice(3, 3 + len(LINES))
        without = run(CopyDrafter(cost=CPU), prompt, self.OTHER, reference=known)
        stats = run(CopyDrafter(cost=CPU), prompt, self.OTHER, reference=Reference(known, [self.OTHER]))
        assert stats.passes < without.passes / 3
        assert stats.by_source["reference"].accepted > 0.9 * len(self.OTHER)

    @pytest.mark.parametrize("outside", [False, True])
    def test_the_first_form_is_copied_from_the_first_token(self, outside: bool) -> None:
        prompt = [*HEAD, *(TAIL if outside else LINES), *TAIL]
        known: Ids | slice = LINES if outside else slice(3, 3 + len(LINES))
        without = run(CopyDrafter(cost=CPU), prompt, LINES, reference=known)
        stats = run(CopyDrafter(cost=CPU), prompt, LINES, reference=Reference(known, [self.OTHER, DOCUMENT]))
        assert stats.passes <= without.passes + 1

    def test_variants_without_a_reference_and_empty_ones(self) -> None:
        drafter = CopyDrafter(cost=CPU)
        for reference in (
            Reference([], [self.OTHER]),
            Reference(slice(0, 0), [[], self.OTHER]),
            Reference([]),
        ):
            stats = run(drafter, HEAD, self.OTHER, reference=reference)
            assert stats.tokens == len(self.OTHER)

    def test_bad_ids_are_refused(self) -> None:
        with pytest.raises(DrafterError, match="token ids"):
            CopyDrafter().begin(HEAD, reference=Reference(HEAD, [[-1]]))


@pytest.mark.parametrize("reference", [None, slice(3, 3 + len(LINES))])
class TestDifferences:
    """What comes after a difference is drafted at a token that alone says nothing about the place."""

    def draft(self, written: list[int], reference: slice | None, cost: CostModel = GPU) -> list[int]:
        return drafted(HEAD + LINES + TAIL, written, cost=cost, reference=reference)[0]

    def test_insertion(self, reference: slice | None) -> None:
        draft = self.draft([*LINES[:70], 0, 8001, 8002, 8003, 0], reference)
        assert starts_with(LINES[71:], draft)

    def test_deletion(self, reference: slice | None) -> None:
        draft = self.draft(LINES[:70] + LINES[77:79], reference, CPU)
        assert starts_with(LINES[79:], draft)

    def test_substitution(self, reference: slice | None) -> None:
        draft = self.draft([*LINES[:73], 8001], reference, CPU)
        assert starts_with(LINES[74:], draft)

    def test_replaced_line(self, reference: slice | None) -> None:
        draft = self.draft([*LINES[:71], 8001, 8002, 8003, 8004, 8005, 8006, 0], reference)
        assert starts_with(LINES[71:], draft) or starts_with(LINES[78:], draft)

    def test_moved_block(self, reference: slice | None) -> None:
        draft = self.draft(LINES[:70] + LINES[140:143], reference, CPU)
        assert starts_with(LINES[143:], draft)

    def test_what_came_after_the_last_ones_comes_again(self, reference: slice | None) -> None:
        drafter = CopyDrafter(cost=CPU)
        drafter.begin(HEAD + LINES + TAIL, reference=reference)
        sizes = []
        for at in range(14, 224, 14):
            drafter.observe([*LINES[at - 14 : at - 4], 8000 + at])
            draft = drafter.propose(64).tolist()
            sizes.append(len(draft))
            drafter.observe(LINES[at - 3 : at])
        assert starts_with(LINES[207:], draft)
        assert sizes[0] < sizes[-1]


class TestSources:
    def test_the_prompt_and_the_own_output(self) -> None:
        drafter = CopyDrafter()
        drafter.begin(HEAD + DOCUMENT)
        drafter.observe(DOCUMENT[:100])
        drafter.propose(20)
        assert drafter.sources == ("prompt",) * 20
        new = list(range(7000, 7100))
        drafter.observe([*new, *new[:30]])
        drafter.propose(20)
        assert drafter.sources == ("output",) * 20

    def test_a_loop_is_copied_from_the_output(self) -> None:
        drafter = CopyDrafter()
        drafter.begin([])
        drafter.observe([7] * 40)
        assert drafter.propose(5).tolist() == [7] * 5
        assert drafter.sources == ("output",) * 5

    def test_past_outputs(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT)
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:20])
        draft = drafter.propose(30).tolist()
        assert starts_with(DOCUMENT[20:], draft)
        assert drafter.sources == ("past output",) * len(draft)

    def test_a_phrase(self) -> None:
        drafter = CopyDrafter(phrases=PhraseBook([DOCUMENT[:12]]), cost=GPU)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:5])
        assert drafter.propose(30).tolist() == DOCUMENT[5:12]
        assert drafter.sources == ("phrase",) * 7

    def test_phrases_that_do_not_come_are_drafted_less(self) -> None:
        drafter = CopyDrafter(phrases=PhraseBook([DOCUMENT[at : at + 9] for at in range(0, 270, 9)]))
        drafter.begin(HEAD)
        sizes = []
        for at in range(0, 261, 9):
            drafter.observe(DOCUMENT[at : at + 4])
            sizes.append(len(drafter.propose(30)))
            drafter.observe([7000 + at])
        assert sizes[0] >= 3
        assert sizes[-1] <= 1

    def test_two_in_one_draft(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT[:60])
        drafter = CopyDrafter(cache, cost=GPU)
        drafter.begin([*HEAD, *DOCUMENT[40:100], *TAIL])
        drafter.observe(DOCUMENT[:30])
        draft = drafter.propose(40).tolist()
        assert starts_with(DOCUMENT[30:], draft)
        assert drafter.sources[:10] == ("past output",) * 10
        assert set(drafter.sources[11:]) == {"prompt"}


class TestPastOutputs:
    def test_a_finished_output_is_copied_by_the_next_request(self) -> None:
        drafter = CopyDrafter(RollingCache())
        first, second = run(drafter, HEAD, DOCUMENT), run(drafter, TAIL, DOCUMENT)
        assert second.passes < first.passes / 10
        assert second.by_source["past output"].accepted > 250

    def test_namespaces_do_not_see_each_other(self) -> None:
        drafter = CopyDrafter(RollingCache())
        run(drafter, HEAD, DOCUMENT, namespace="a")
        assert run(drafter, HEAD, DOCUMENT, namespace="b").accepted == 0
        assert run(drafter, HEAD, DOCUMENT).accepted == 0
        assert run(drafter, HEAD, DOCUMENT, namespace="a").accepted > 250

    def test_no_match_crosses_from_one_to_the_next(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT[:40])
        cache.add(DOCUMENT[100:140])
        drafter = CopyDrafter(cache)
        drafter.begin([])
        drafter.observe(DOCUMENT[:35])
        assert starts_with(DOCUMENT[35:40], drafter.propose(100).tolist())

    def test_a_request_that_is_abandoned_leaves_nothing(self) -> None:
        cache = RollingCache()
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT)
        drafter.begin(HEAD)
        drafter.end()
        assert len(cache) == 0

    def test_what_others_add_meanwhile_is_copied(self) -> None:
        cache = RollingCache()
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:20])
        assert drafter.propose(30).tolist() == []
        cache.add(DOCUMENT)
        assert starts_with(DOCUMENT[20:], drafter.propose(30).tolist())

    def test_growth_keeps_the_place(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT)
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:30])
        before = drafter.propose(30).tolist()
        for start in range(10):
            cache.add(np.arange(10_000 * (start + 1), 10_000 * (start + 1) + 500))
        assert drafter.propose(30).tolist() == before != []

    def test_eviction_finds_the_place_again(self) -> None:
        cache = RollingCache(150_000)
        cache.add(DOCUMENT)
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:30])
        before = drafter.propose(30).tolist()
        generations = set()
        for start in range(10_000, 60_000, 500):
            cache.add(np.arange(start, start + 500))
            cache.add(DOCUMENT)  # stays the newest
            assert drafter.propose(30).tolist() == before != []
            generations.add(drafter._past.generation)
        assert len(generations) > 5

    def test_forgotten_ones_are_not_copied(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT)
        drafter = CopyDrafter(cache)
        drafter.begin(HEAD)
        drafter.observe(DOCUMENT[:30])
        assert len(drafter.propose(30))
        cache.clear()
        assert drafter.propose(30).tolist() == []
        drafter.observe(DOCUMENT[30:40])

    @pytest.mark.parametrize("capacity", [0, 1])
    def test_a_cache_without_room_is_none(self, capacity: int) -> None:
        drafter = CopyDrafter(RollingCache(capacity))
        for _ in range(2):
            assert run(drafter, HEAD, DOCUMENT).accepted == 0


class TestNothingToCopy:
    """On text that nothing predicts at most 0.15 tokens are drafted a pass."""

    @pytest.mark.parametrize("cost", [CPU, GPU])
    @pytest.mark.parametrize("past_outputs", [False, True])
    @pytest.mark.parametrize("repeats", [False, True])
    def test_random_ids(self, cost: CostModel, past_outputs: bool, repeats: bool) -> None:
        generator = np.random.default_rng(1)
        drafter = CopyDrafter(RollingCache() if past_outputs else None, cost=cost)
        total = Stats()
        for _ in range(6):
            # A few of the ids repeat by chance, or none at all.
            ids = generator.integers(0, 49152, 900) if repeats else generator.permutation(49152)[:900]
            stats = run(drafter, ids[:600].tolist(), ids[600:].tolist())
            total.passes += stats.passes
            total.drafted += stats.drafted
        assert total.drafted <= 0.15 * total.passes

    @pytest.mark.parametrize("cost", [CPU, GPU])
    def test_a_reference_that_does_not_come_back(self, cost: CostModel) -> None:
        generator = np.random.default_rng(2)
        stats = Stats()
        for _ in range(6):
            ids = generator.permutation(49152)[:900].tolist()
            one = run(CopyDrafter(cost=cost), ids[:600], ids[600:], reference=slice(50, 500))
            stats.passes += one.passes
            stats.drafted += one.drafted
        assert stats.drafted <= 0.15 * stats.passes


class TestLearning:
    def edits(self, count: int) -> list[tuple[list[int], list[int]]]:
        """Return texts whose every eighth token is replaced by a new one."""
        generator = np.random.default_rng(3)
        pairs = []
        for _ in range(count):
            text = generator.integers(0, 5000, 400).tolist()
            output = [6000 + at if at % 8 == 7 else token for at, token in enumerate(text)]
            pairs.append((text, output))
        return pairs

    def test_later_requests_cost_less(self) -> None:
        pairs = self.edits(8)
        experienced = CopyDrafter()
        for prompt, output in pairs[:6]:
            run(experienced, prompt, output)
        later = sum(cost_of(run(experienced, *pair), 0.03) for pair in pairs[6:])
        at_first = sum(cost_of(run(CopyDrafter(), *pair), 0.03) for pair in pairs[6:])
        assert later < 0.9 * at_first

    def test_a_saved_model_goes_on_as_the_drafter_would_have(self, tmp_path: Path) -> None:
        pairs = self.edits(4)
        drafter = CopyDrafter()
        for prompt, output in pairs[:3]:
            run(drafter, prompt, [*output, END])
        drafter.model.save(tmp_path / "model")
        again = CopyDrafter(model=SurvivalModel.load(tmp_path / "model"))
        fresh = CopyDrafter()
        calls = [all_drafts(one, *pairs[3], reference=pairs[3][0]) for one in (drafter, again, fresh)]
        assert calls[0] == calls[1] != calls[2]

    def test_two_drafters_may_share_a_model(self) -> None:
        model = SurvivalModel.new()
        pairs = self.edits(8)
        for prompt, output in pairs[:6]:
            run(CopyDrafter(model=model), prompt, output)
        at_first = cost_of(run(CopyDrafter(), *pairs[7]), 0.03)
        assert cost_of(run(CopyDrafter(model=model), *pairs[7]), 0.03) < at_first


def learnt(drafter: CopyDrafter) -> list[bytes]:
    arrays: list[Any] = list(drafter.model.arrays)
    return [array.tobytes() for array in arrays]


def all_drafts(
    drafter: CopyDrafter,
    prompt: Ids,
    output: Sequence[int],
    *,
    reference: Ids | slice | Reference | None = None,
    step: int = 7,
) -> list[tuple[list[int], tuple[str, ...]]]:
    """Return the drafts and sources at every seventh token of an output."""
    drafter.begin(prompt, reference=reference)
    drafts = []
    for start in range(0, len(output), step):
        drafter.observe(output[start : start + step])
        drafts.append((drafter.propose(50).tolist(), drafter.sources))
    drafter.end()
    return drafts


class TestDeterminism:
    EDIT = [*DOCUMENT[:100], 7, 8, *DOCUMENT[103:180], *DOCUMENT[20:60], *DOCUMENT[180:]]

    def test_two_drafters_agree(self) -> None:
        assert all_drafts(CopyDrafter(), DOCUMENT, self.EDIT) == all_drafts(
            CopyDrafter(), DOCUMENT, self.EDIT
        )

    def test_proposing_changes_nothing(self) -> None:
        drafter = CopyDrafter(RollingCache())
        drafter.begin(DOCUMENT)
        drafter.observe(DOCUMENT[:30])
        first = drafter.propose(50).tolist()
        assert drafter.propose(3).tolist() == first[:3]
        assert drafter.propose(50).tolist() == first

    def test_a_draft_is_the_callers_own(self) -> None:
        drafter = CopyDrafter()
        drafter.begin(DOCUMENT)
        drafter.observe(DOCUMENT[:30])
        draft = drafter.propose(50)
        assert draft.dtype == np.int32
        kept = draft.copy()
        draft[:] = -1
        assert drafter.propose(50).tolist() == kept.tolist()

    @pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.uint16)])
    def test_ids_of_any_kind(self, kind: Callable[[list[int]], Any]) -> None:
        read_only = np.array(DOCUMENT, np.int32)
        read_only.flags.writeable = False
        drafts = all_drafts(CopyDrafter(), kind(DOCUMENT), kind(self.EDIT))
        assert drafts == all_drafts(CopyDrafter(), read_only, self.EDIT)

    def test_observing_nothing_changes_nothing(self) -> None:
        drafter = CopyDrafter()
        drafter.begin(DOCUMENT)
        drafter.observe(DOCUMENT[:30])
        first = drafter.propose(50).tolist()
        drafter.observe([])
        assert drafter.propose(50).tolist() == first

    @pytest.mark.parametrize("reference", [None, slice(0, 3000)])
    def test_thousands_at_once_are_as_one_by_one(self, reference: slice | None) -> None:
        generator = np.random.default_rng(4)
        prompt = generator.integers(0, 300, 3000).tolist()
        output = [*prompt[:900], *generator.integers(0, 300, 600).tolist(), *prompt[1000:2900], 1, 2] * 3
        drafters = [CopyDrafter(RollingCache()) for _ in range(2)]
        for drafter in drafters:
            run(drafter, prompt, prompt)  # something to copy from the past, too
            drafter.begin(prompt, reference=reference)
        drafters[0].observe(output)
        for token in output:
            drafters[1].observe([token])
        for limit in (5, 500):
            assert drafters[0].propose(limit).tolist() == drafters[1].propose(limit).tolist()
        assert learnt(drafters[0]) == learnt(drafters[1])

    def test_growth_does_not_change_what_is_learnt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        edit = [*DOCUMENT, *range(7000, 8500), *DOCUMENT[:100], *range(7500, 7600)]
        book = PhraseBook([[*range(7500, 7504), 1, 2], DOCUMENT[50:90]])
        drafters = []
        for room in (1, 100_000):
            monkeypatch.setattr(draft_module, "OUTPUT_ROOM", room)
            drafters.append(CopyDrafter(phrases=book))
        roomy = all_drafts(drafters[1], DOCUMENT, edit, step=150)
        assert all_drafts(drafters[0], DOCUMENT, edit, step=150) == roomy
        assert learnt(drafters[0]) == learnt(drafters[1])


class TestBadInput:
    @pytest.mark.parametrize(
        "ids", [[-1], [2**31 - 1], [2**31], [2**70], [0.5], ["a"], [[1]], "text", 5, [None], [True]]
    )
    def test_bad_ids(self, ids: Any) -> None:
        drafter = CopyDrafter()
        with pytest.raises(DrafterError):
            drafter.begin(ids)
        with pytest.raises(DrafterError):
            drafter.begin([1], reference=ids)
        drafter.begin(DOCUMENT)
        drafter.observe(DOCUMENT[:30])
        before = drafter.propose(50).tolist()
        with pytest.raises(DrafterError):
            drafter.observe(ids)
        assert drafter.propose(50).tolist() == before

    @pytest.mark.parametrize("limit", [-1, -(10**30), 2.0, None, "5", float("nan")])
    def test_bad_limits(self, limit: Any) -> None:
        drafter = CopyDrafter()
        drafter.begin([1, 2])
        with pytest.raises(DrafterError, match="limit"):
            drafter.propose(limit)

    @pytest.mark.parametrize("reference", [slice(0, 10, 2), slice("a", "b"), slice(0.5, 2), slice(0, 9, 0)])
    def test_bad_spans(self, reference: Any) -> None:
        with pytest.raises(DrafterError, match="span"):
            CopyDrafter().begin(DOCUMENT, reference=reference)

    @pytest.mark.parametrize("namespace", [5, b"a", ["a"]])
    def test_bad_namespaces(self, namespace: Any) -> None:
        with pytest.raises(DrafterError, match="namespace"):
            CopyDrafter(RollingCache()).begin(DOCUMENT, namespace=namespace)

    def test_nothing_before_begin_or_after_end(self) -> None:
        drafter = CopyDrafter()
        for _ in range(2):
            with pytest.raises(DrafterError, match="begin"):
                drafter.propose(5)
            with pytest.raises(DrafterError, match="begin"):
                drafter.observe([1])
            drafter.end()
            drafter.begin([1])
            drafter.end()
            drafter.end()

    def test_a_begin_that_fails_leaves_no_request(self) -> None:
        drafter = CopyDrafter()
        drafter.begin([1])
        with pytest.raises(DrafterError):
            drafter.begin([-1])
        with pytest.raises(DrafterError, match="begin"):
            drafter.propose(5)
        assert run(drafter, HEAD + DOCUMENT, DOCUMENT).passes <= 12

    def test_an_empty_prompt(self) -> None:
        drafter = CopyDrafter(RollingCache())
        for _ in range(2):
            stats = run(drafter, [], DOCUMENT)
        assert stats.passes <= 12

    def test_a_vocabulary_of_one_token(self) -> None:
        for reference in (None, slice(0, 50), [0] * 70):
            stats = run(CopyDrafter(RollingCache()), [0] * 100, [0] * 2000, reference=reference)
            assert stats.passes <= 60

    def test_the_largest_ids(self) -> None:
        text = [2**31 - 2 - token for token in DOCUMENT]
        assert run(CopyDrafter(RollingCache()), text, text, reference=text).passes <= 12

    def test_a_prompt_of_two_hundred_thousand_tokens(self) -> None:
        prompt = np.random.default_rng(6).integers(0, 49152, 200_000)
        drafter = CopyDrafter()
        drafter.begin(prompt, reference=prompt[1000:190_000])
        drafter.observe(prompt[1000:1040])
        assert starts_with(prompt[1040:2000].tolist(), drafter.propose(500).tolist())
        drafter.observe(prompt[150_000:150_200])
        assert starts_with(prompt[150_200:151_000].tolist(), drafter.propose(500).tolist())


class TestThreads:
    def test_a_drafter_in_use_is_refused_to_another_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inside, release = threading.Event(), threading.Event()

        def slow_propose(*_: Any) -> int:
            inside.set()
            release.wait(10)
            return 0

        drafter = CopyDrafter()
        drafter.begin(DOCUMENT)
        monkeypatch.setattr(drafting, "propose", slow_propose)
        other = threading.Thread(target=drafter.propose, args=(5,))
        other.start()
        try:
            assert inside.wait(10)
            for call in (lambda: drafter.propose(5), lambda: drafter.observe([1]), drafter.end):
                with pytest.raises(DrafterError, match="another thread"):
                    call()
            with pytest.raises(DrafterError, match="another thread"):
                drafter.begin([1])
        finally:
            release.set()
            other.join()
        assert drafter.propose(5).tolist() == []

    def test_a_request_of_another_thread_is_not_taken_over(self) -> None:
        drafter = CopyDrafter()
        owner = threading.Thread(target=drafter.begin, args=(DOCUMENT,))
        owner.start()
        owner.join()
        with pytest.raises(DrafterError, match="another thread"):
            drafter.begin([1])
        # One after the other is no sharing: a request may move to another thread.
        drafter.observe(DOCUMENT[:30])
        assert len(drafter.propose(5))
        drafter.end()
        drafter.begin([1])

    def test_many_threads_with_one_cache(self) -> None:
        cache = RollingCache(400_000)  # evicts all the time
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                generator = np.random.default_rng(seed)
                drafter = CopyDrafter(cache)
                for number in range(15):
                    text = generator.integers(0, 50, 300).tolist()
                    run(drafter, text, [*text[:150], *DOCUMENT[:50], *text[160:]], namespace=str(number % 2))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_drafting_waits_for_no_writer(self) -> None:
        cache = RollingCache()
        cache.add(DOCUMENT)
        drafter = CopyDrafter(cache)
        with cache._lock:
            drafter.begin(HEAD)
            drafter.observe(DOCUMENT[:30])
            assert len(drafter.propose(30))
        drafter.end()


class Bounded(np.ndarray[Any, np.dtype[Any]]):
    """An array that no index may leave, not even a negative one."""

    def __getitem__(self, at: Any) -> Any:
        assert isinstance(at, slice) or 0 <= at < self.size
        return super().__getitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        assert isinstance(at, slice) or 0 <= at < self.size
        super().__setitem__(at, value)


def bounded(kernel: Callable[..., int]) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        return kernel(*(one.view(Bounded) if type(one) is np.ndarray else one for one in arguments))

    return call


@st.composite
def requests_of(draw: st.DrawFn) -> tuple[list[int], list[int], list[int] | slice | None]:
    """Draw a prompt, an output made of pieces of it and of anything else, and a reference."""
    ids = st.integers(0, draw(st.integers(0, 4)))
    prompt = draw(st.lists(ids, max_size=40))
    bounds = st.integers(0, len(prompt))
    pieces = draw(st.lists(st.one_of(st.tuples(bounds, bounds), st.lists(ids, max_size=8)), max_size=6))
    output = [token for one in pieces for token in (prompt[slice(*one)] if isinstance(one, tuple) else one)]
    spans = st.builds(slice, bounds, bounds)
    reference = draw(st.one_of(st.none(), spans, st.lists(ids, max_size=30), st.just(prompt)))
    return prompt, output or [0], reference


class TestAnyText:
    @settings(max_examples=60)
    @given(st.lists(requests_of(), min_size=1, max_size=3), st.sampled_from([1e-5, 0.003, 0.03, 0.3]))
    def test_decoding_gives_what_plain_decoding_gives(
        self, requests: list[tuple[list[int], list[int], list[int] | slice | None]], per_token: float
    ) -> None:
        phrases = PhraseBook([[0, 1, 0, 1, 2], [1, 1, 1]], min_prefix=2)
        drafter = CopyDrafter(RollingCache(20_000), phrases, CostModel(per_token=per_token))
        for prompt, output, reference in requests:
            run(drafter, prompt, output, reference=reference)

    @settings(max_examples=60)
    @given(requests_of(), st.lists(st.integers(0, 70), min_size=1, max_size=8))
    def test_drafts_hold_nothing_but_ids(
        self, request_: tuple[list[int], list[int], list[int] | slice | None], limits: list[int]
    ) -> None:
        prompt, output, reference = request_
        drafter = CopyDrafter(RollingCache(), cost=GPU)
        for _ in range(2):
            drafter.begin(prompt, reference=reference)
            for number, token in enumerate(output):
                limit = limits[number % len(limits)]
                draft = drafter.propose(limit)
                assert len(draft) == len(drafter.sources) <= limit
                assert all(0 <= id_ < kernels.SEPARATOR for id_ in draft.tolist())
                assert "phrase" not in drafter.sources
                drafter.observe([token])
            drafter.end()

    @pytest.mark.skipif(not NOT_COMPILED, reason="only Python checks what it reads")
    def test_kernels_stay_inside_their_arrays(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drafting, "propose", bounded(drafting.propose))
            patch.setattr(copying, "observe", bounded(copying.observe))
            generator = np.random.default_rng(8)
            for ids in (1, 2, 4, 60):
                drafter = CopyDrafter(RollingCache(20_000), cost=CostModel(per_token=1e-3))
                for reference in (None, slice(10, 70), generator.integers(0, ids, 30).tolist()):
                    prompt = generator.integers(0, ids, 80).tolist()
                    output = [*prompt[5:40], *generator.integers(0, ids, 20).tolist(), *prompt[45:], 0]
                    run(drafter, prompt, output, reference=reference)


def test_the_cost_may_change_during_a_request() -> None:
    drafter = CopyDrafter(cost=CPU)
    assert drafter.cost == CPU
    drafter.begin(DOCUMENT)
    drafter.observe(DOCUMENT[:8])
    short = drafter.propose(1000)
    drafter.cost = GPU
    assert drafter.cost == GPU
    assert len(drafter.propose(1000)) > len(short)


class TestWidths:
    COST = CostModel.from_widths({1: 1.0, 2: 1.01, 4: 1.02, 8: 1.03, 16: 1.05, 32: 1.1})

    def drafts(self, cost: CostModel, text: list[int], limit: int = 1000) -> list[int]:
        drafter = CopyDrafter(cost=cost)
        drafter.begin(text)
        draft = [int(token) for token in drafter.propose(limit)]
        assert len(drafter.sources) == len(draft)
        drafter.end()
        return draft

    def test_a_draft_fills_the_widest_pass_and_no_more(self) -> None:
        text = list(range(100, 400))
        assert self.drafts(self.COST, text + text[:40]) == text[40:71]

    def test_the_limit_holds(self) -> None:
        text = list(range(100, 400))
        for limit in (0, 1, 5, 30):
            assert len(self.drafts(self.COST, text + text[:40], limit)) == limit

    def test_a_draft_fills_the_pass_it_pays_for(self) -> None:
        text = list(range(100, 200))
        dear = CostModel.from_widths({1: 1.0, 16: 1.3, 64: 40.0})
        assert len(self.drafts(dear, text + text[:40])) == 15

    def test_it_begins_with_the_draft_of_the_slope(self) -> None:
        chance = random.Random(5)
        text = [chance.randrange(6) for _ in range(400)]
        for size in range(100, 400, 7):
            with_widths = self.drafts(self.COST, text[:size])
            by_slope = self.drafts(CostModel(per_token=self.COST.per_token), text[:size])
            common = min(len(with_widths), len(by_slope))
            assert with_widths[:common] == by_slope[:common]
