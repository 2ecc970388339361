from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search import search
from lookupdec import _kernels as kernels
from lookupdec import cache as cache_module
from lookupdec._kernels import SEPARATOR, Automaton
from lookupdec.cache import RollingCache
from lookupdec.errors import DrafterError, FileError, InputError
from lookupdec.ids import Ids, Int32Array
from tests.automaton import check_structure, field, reached
from tests.oracle import slow_continued_ends, slow_ends

MIB = 1 << 20
NOT_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
Documents = list[list[int]]

documents_of = st.integers(1, 4).flatmap(
    lambda ids: st.lists(st.lists(st.integers(0, ids - 1), min_size=1, max_size=15), max_size=5)
)


def arrays_of(cache: RollingCache, namespace: str | None = None) -> Automaton:
    corpus = cache.corpus(namespace)
    assert corpus is not None
    return corpus.arrays


def texts_of(cache: RollingCache, namespace: str | None = None) -> Documents:
    """Return what a namespace holds, as its text has it."""
    if cache.corpus(namespace) is None:
        return []
    arrays = arrays_of(cache, namespace)
    used = arrays.text[: int(arrays.meta[kernels.N_TOKENS])]
    assert used[-1] == SEPARATOR
    ends = np.flatnonzero(used == SEPARATOR)
    return [used[start + 1 : end].tolist() for start, end in pairwise([-1, *ends.tolist()])]


def draft(cache: RollingCache, query: Sequence[int], namespace: str | None = None) -> list[int]:
    """Return what followed the longest matching end of ``query`` last, up to its document's end."""
    arrays = arrays_of(cache, namespace)
    found = np.empty(50, np.int32)
    _, size = search(arrays.states, arrays.edges, arrays.text, 0, np.array(query, np.int32), found)
    return [int(token) for token in found[:size]]


def random_ids(tokens: int, seed: int = 0, vocabulary: int = 49152) -> Int32Array:
    return np.random.default_rng(seed).integers(0, vocabulary, tokens).astype(np.int32)


def filled(documents: Sequence[Ids]) -> RollingCache:
    cache = RollingCache()
    for document in documents:
        cache.add(document)
    return cache


class Watched:
    """An array that allows no index out of its bounds and calls back after every store."""

    def __init__(self, array: Int32Array, on_store: Callable[[], None]) -> None:
        self.array = array
        self.size = array.size
        self._on_store = on_store

    def __getitem__(self, at: int) -> int:
        assert 0 <= at < self.size
        return int(self.array[at])

    def __setitem__(self, at: int, value: int) -> None:
        assert 0 <= at < self.size
        self.array[at] = value
        self._on_store()


def watched(array: Int32Array, on_store: Callable[[], None]) -> Any:
    return Watched(array, on_store)


class TestOracles:
    @given(documents_of)
    def test_every_span_leads_to_its_occurrences(self, documents: Documents) -> None:
        kept = list({tuple(document): document for document in documents}.values())
        cache = filled(documents)
        assert texts_of(cache) == kept
        for document in kept:
            for start in range(len(document)):
                for stop in range(start + 1, len(document) + 1):
                    states, edges, _, text = arrays_of(cache)
                    state = reached(states, edges, document[start:stop])
                    ends = slow_continued_ends(kept, document[start:stop])
                    assert field(states, state, kernels.COUNT) == len(ends)
                    assert field(states, state, kernels.RECENT) == (ends[-1] if ends else kernels.NONE)
                    assert all(text[end] != SEPARATOR for end in ends)

    @given(documents_of, st.lists(st.integers(0, 4), min_size=1, max_size=4))
    def test_other_spans_lead_nowhere(self, documents: Documents, span: list[int]) -> None:
        cache = filled([[0], *documents])
        states, edges, _, _ = arrays_of(cache)
        found = any(slow_ends(document, span) for document in [[0], *documents])
        assert (reached(states, edges, span) != kernels.NONE) == found

    @given(documents_of)
    def test_structure(self, documents: Documents) -> None:
        states, edges, meta, _ = arrays_of(filled([[0], *documents]))
        check_structure(states, edges, meta)

    @pytest.mark.skipif(not NOT_COMPILED, reason="watches single stores: only without compilation")
    @given(documents_of)
    def test_searches_are_safe_after_every_single_store(self, documents: Documents) -> None:
        arrays = cache_module._empty(100)
        words: list[Int32Array] = [arrays.states, arrays.edges, arrays.text]

        def check() -> None:
            states, edges, text = (watched(array, never) for array in words)
            for state in range(states.size // kernels.STATE_FIELDS):
                walk_everywhere(states, edges, text, state)

        def never() -> None:
            raise AssertionError("a search stores nothing")

        states, edges, text = (watched(array, check) for array in words)
        for document in documents:
            ids = np.array([*document, SEPARATOR], np.int32)
            done = kernels.extend(states, edges, arrays.meta, text, ids)
            assert done == ids.size


def walk_everywhere(states: Any, edges: Any, text: Any, state: int) -> None:
    """Do what a search may do at one state; ``Watched`` checks the bounds, the counts that each walk ends."""
    n_states = states.size // kernels.STATE_FIELDS
    for token in range(4):
        assert kernels.follow(states, edges, state, token) < n_states
    assert kernels.degree(states, edges, state) <= edges.size // kernels.EDGE_FIELDS
    end = states[state * kernels.STATE_FIELDS + kernels.RECENT]
    assert end == kernels.NONE or text[end] >= 0
    steps = 0
    while state > 0:
        state = states[state * kernels.STATE_FIELDS + kernels.LINK]
        steps += 1
        assert steps <= n_states


class TestAdd:
    def test_a_draft_is_what_followed_last(self) -> None:
        cache = filled([[1, 2, 3, 4], [1, 2, 5, 6]])
        assert draft(cache, [1, 2]) == [5, 6]
        assert draft(cache, [9, 1, 2, 3]) == [4]

    def test_no_match_and_no_draft_crosses_a_document(self) -> None:
        cache = filled([[1, 2], [3, 4]])
        assert draft(cache, [1]) == [2]
        states, edges, _, _ = arrays_of(cache)
        for span in ([2, 3], [2, SEPARATOR], [SEPARATOR]):
            assert reached(states, edges, span) == kernels.NONE

    def test_namespaces_never_see_each_other(self) -> None:
        cache = RollingCache()
        cache.add([1, 2, 3])
        cache.add([1, 2, 4], namespace="a")
        cache.add([1, 2, 5], namespace="")
        assert [draft(cache, [1, 2], name) for name in (None, "a", "")] == [[3], [4], [5]]
        assert cache.corpus("b") is None
        assert set(cache.namespaces()) == {None, "a", ""}
        assert len(cache) == 9

    def test_duplicates_are_kept_once_in_each_namespace(self) -> None:
        cache = RollingCache()
        for _ in range(3):
            cache.add([1, 2, 3])
            cache.add(np.array([1, 2, 3], np.int64), namespace="a")
        assert texts_of(cache) == texts_of(cache, "a") == [[1, 2, 3]]
        assert len(cache) == 6

    def test_known_text_adds_no_states(self) -> None:
        text = random_ids(1000)
        cache = filled([text])
        before = int(arrays_of(cache).meta[kernels.N_STATES])
        cache.add(text[:900])
        assert int(arrays_of(cache).meta[kernels.N_STATES]) == before

    def test_empty_documents_are_ignored(self) -> None:
        cache = filled([[], np.empty(0, np.int32)])
        assert (len(cache), cache.nbytes, cache.namespaces()) == (0, 0, ())

    def test_the_caller_may_reuse_its_array(self) -> None:
        ids = np.array([1, 2, 3], np.int32)
        cache = filled([ids])
        ids[:] = 9
        assert texts_of(cache) == [[1, 2, 3]]

    def test_growth_keeps_state_numbers_and_leaves_old_arrays_alone(self) -> None:
        cache = filled([random_ids(500)])
        corpus = cache.corpus()
        assert corpus is not None
        before = corpus.arrays
        copies = [array.copy() for array in before]
        state = reached(before.states, before.edges, before.text[:3].tolist())
        for seed in range(1, 40):
            cache.add(random_ids(500, seed))
        assert cache.corpus() is corpus
        assert corpus.arrays is not before
        assert corpus.arrays.generation == before.generation
        assert reached(corpus.arrays.states, corpus.arrays.edges, before.text[:3].tolist()) == state
        later = [array.copy() for array in before]
        cache.add(random_ids(500, 99))
        assert all(np.array_equal(array, copy) for array, copy in zip(before, later, strict=True))
        assert np.array_equal(before.text[:500], copies[3][:500])
        check_structure(corpus.arrays.states, corpus.arrays.edges, corpus.arrays.meta)

    def test_one_token_that_needs_many_edges(self) -> None:
        cache = filled([[*[7] * 20_000, 8, *[7] * 20_000, 9]])
        assert draft(cache, [*[7] * 100, 8])[:3] == [7, 7, 7]

    def test_out_of_memory_half_way_loses_that_document_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = filled([range(1000)])

        def fail(*_: object) -> None:
            raise MemoryError

        roomy = arrays_of(cache)
        roomy = cache_module._enlarged(roomy, 500, twice=False)
        cache._publish(None, roomy._replace(states=roomy.states[: 1200 * kernels.STATE_FIELDS].copy()))
        with monkeypatch.context() as patch:
            patch.setattr(cache_module, "_resized", fail)
            with pytest.raises(MemoryError):
                cache.add(range(2000, 2400))
        assert len(cache) == 1000
        cache.add([1, 2, 5])
        assert draft(cache, [1, 2]) == [5]
        assert texts_of(cache)[0] == list(range(1000))
        assert texts_of(cache)[2] == [1, 2, 5]
        check_structure(*arrays_of(cache)[:3])


class TestBudget:
    def test_oldest_documents_go_over_all_namespaces(self) -> None:
        cache = RollingCache(MIB)
        for seed in range(40):
            cache.add(random_ids(1000, seed), namespace=f"n{seed % 4}")
            assert cache.nbytes <= MIB
        kept = [text for n in range(4) for text in texts_of(cache, f"n{n}")]
        newest = [random_ids(1000, seed).tolist() for seed in range(40 - len(kept), 40)]
        assert sorted(kept) == sorted(newest)
        assert 10 <= len(kept) < 20
        assert len(cache) == 1000 * len(kept)

    def test_adding_again_makes_a_document_new(self) -> None:
        cache = RollingCache(MIB)
        for seed in range(40):
            cache.add(random_ids(1000, seed))
            cache.add(random_ids(1000, 0))
        assert random_ids(1000, 0).tolist() in texts_of(cache)
        assert random_ids(1000, 1).tolist() not in texts_of(cache)

    def test_eviction_changes_the_generation_and_leaves_old_arrays_alone(self) -> None:
        cache = RollingCache(MIB)
        cache.add(random_ids(1000))
        corpus = cache.corpus()
        assert corpus is not None
        before = arrays = corpus.arrays
        seed = 0
        while arrays.generation == before.generation:
            before, seed = arrays, seed + 1
            copies = [array.copy() for array in before]
            cache.add(random_ids(1000, seed))
            arrays = corpus.arrays
        assert cache.corpus() is corpus
        assert np.array_equal(before.text[:1000], copies[3][:1000])
        check_structure(*before[:3])
        check_structure(*arrays[:3])
        assert texts_of(cache)[-1] == random_ids(1000, seed).tolist()

    def test_untouched_namespaces_keep_their_arrays(self) -> None:
        cache = RollingCache(MIB)
        cache.add(random_ids(8000, 0), namespace="old")
        cache.add(random_ids(1000, 1), namespace="young")
        generation = arrays_of(cache, "young").generation
        for seed in range(2, 13):
            cache.add(random_ids(1000, seed), namespace="other")
        assert cache.corpus("old") is None
        assert arrays_of(cache, "young").generation == generation

    def test_of_a_document_larger_than_the_budget_the_end_is_kept(self) -> None:
        cache = RollingCache(MIB)
        cache.add(random_ids(4000, 1))
        ids = random_ids(100_000)
        cache.add(ids)
        (kept,) = texts_of(cache)
        assert 8000 < len(kept) == len(cache)
        assert kept == ids[-len(kept) :].tolist()
        assert cache.nbytes <= MIB
        generation = arrays_of(cache).generation
        cache.add(ids)
        assert texts_of(cache) == [kept]
        assert arrays_of(cache).generation == generation

    @pytest.mark.parametrize("capacity", [0, 1, 100])
    def test_a_budget_too_small_for_anything_holds_nothing(self, capacity: int, tmp_path: Path) -> None:
        cache = RollingCache(capacity)
        for ids in ([1], range(1000), [1, 2, 3]):
            cache.add(ids, namespace="a")
            assert cache.nbytes <= capacity
        assert (len(cache), cache.namespaces(), cache.corpus("a")) == (0, (), None)
        cache.clear()
        cache.save(tmp_path / "file")
        assert len(RollingCache.load(tmp_path / "file", capacity_bytes=capacity)) == 0

    @given(
        capacity=st.integers(0, 40_000),
        added=st.lists(
            st.tuples(st.integers(1, 600), st.integers(0, 5), st.sampled_from([None, "a", "b"])), max_size=12
        ),
    )
    def test_the_budget_and_the_figures_hold_whatever_is_added(
        self, capacity: int, added: list[tuple[int, int, str | None]]
    ) -> None:
        cache = RollingCache(capacity)
        for size, seed, namespace in added:
            cache.add(random_ids(size, seed), namespace=namespace)
            texts = [text for name in cache.namespaces() for text in texts_of(cache, name)]
            assert sum(map(len, texts)) == len(cache)
            arrays = sum(arrays_of(cache, name).nbytes for name in cache.namespaces())
            assert cache.nbytes == arrays + len(texts) * cache_module.DOCUMENT_BYTES <= capacity

    @pytest.mark.parametrize("vocabulary", [49152, 300])
    def test_a_million_tokens_take_at_most_64_megabytes(self, vocabulary: int) -> None:
        ids = random_ids(1_010_000, vocabulary=vocabulary)

        def seconds() -> float:
            cache = RollingCache(100 * MIB)
            start = thread_time()
            for begin in range(0, ids.size, 2000):
                cache.add(ids[begin : begin + 2000])
                if len(cache) >= 990_000:
                    assert cache.nbytes <= 64 * len(cache)
            return thread_time() - start

        # About 2M a second, see benchmarks/cache.py; the first time may compile.
        assert ids.size / min(seconds() for _ in range(4)) > 300_000

    def test_the_table_of_documents_takes_what_is_counted_for_it(self) -> None:
        import tracemalloc

        cache = RollingCache()
        tracemalloc.start()
        try:
            for token in range(5000):
                cache.add([token], namespace="a")
            arrays_bytes = cache.nbytes - 5000 * cache_module.DOCUMENT_BYTES
            taken = tracemalloc.get_traced_memory()[0] - arrays_bytes
        finally:
            tracemalloc.stop()
        assert taken / 5000 < cache_module.DOCUMENT_BYTES


class TestClear:
    def test_one_namespace(self) -> None:
        cache = RollingCache()
        cache.add([1, 2], namespace="a")
        cache.add([1, 2])
        cache.add([1, 3])
        corpus = cache.corpus()
        assert corpus is not None
        generation = corpus.arrays.generation
        cache.clear(None)
        assert (cache.namespaces(), len(cache)) == (("a",), 2)
        assert corpus.arrays.generation != generation
        assert int(corpus.arrays.meta[kernels.N_TOKENS]) == 0  # also for who holds it still
        cache.add([1, 2])
        assert texts_of(cache) == [[1, 2]]
        assert arrays_of(cache).generation not in (generation, corpus.arrays.generation)

    def test_everything(self) -> None:
        cache = RollingCache()
        cache.add([1, 2], namespace="a")
        cache.add([1, 2])
        cache.clear()
        assert (cache.namespaces(), len(cache), cache.nbytes) == ((), 0, 0)

    def test_what_is_not_there(self) -> None:
        cache = filled([[1, 2]])
        cache.clear("a")
        assert len(cache) == 2


class TestFile:
    def saved(self, folder: Path) -> tuple[RollingCache, Path]:
        cache = RollingCache()
        cache.add([1, 2, 3])
        cache.add([SEPARATOR - 1, 0], namespace="a")
        cache.add([1, 2, 3], namespace="\u00fc\n")
        cache.add([4])
        cache.add([1, 2, 3])
        file = folder / "cache.bin"
        cache.save(file, fingerprint="tokenizer")
        return cache, file

    def test_a_loaded_cache_holds_the_same_in_the_same_order(self, tmp_path: Path) -> None:
        cache, file = self.saved(tmp_path)
        loaded = RollingCache.load(str(file), fingerprint="tokenizer")
        for namespace in (None, "a", "\u00fc\n"):
            assert sorted(texts_of(loaded, namespace)) == sorted(texts_of(cache, namespace))
        assert list(loaded._documents) == list(cache._documents)
        loaded.save(tmp_path / "again", fingerprint="tokenizer")
        assert (tmp_path / "again").read_bytes() == file.read_bytes()

    def test_a_smaller_budget_keeps_the_newest(self, tmp_path: Path) -> None:
        cache = filled([random_ids(1000, seed) for seed in range(30)])
        cache.save(tmp_path / "file")
        loaded = RollingCache.load(tmp_path / "file", capacity_bytes=MIB)
        assert loaded.nbytes <= MIB
        assert texts_of(loaded) == texts_of(cache)[-len(texts_of(loaded)) :]

    def test_every_changed_byte_is_noticed(self, tmp_path: Path) -> None:
        _, file = self.saved(tmp_path)
        whole = file.read_bytes()
        for at in range(len(whole)):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(FileError, match=r"cache\.bin (is|was) .*: "):
                RollingCache.load(file, fingerprint="tokenizer")

    def test_every_cut_is_noticed(self, tmp_path: Path) -> None:
        _, file = self.saved(tmp_path)
        whole = file.read_bytes()
        for size in range(len(whole)):
            file.write_bytes(whole[:size])
            with pytest.raises(FileError, match=r"cache\.bin is damaged or cut short: delete it"):
                RollingCache.load(file, fingerprint="tokenizer")
            assert file.read_bytes() == whole[:size]
        file.write_bytes(whole + b"\0")
        with pytest.raises(FileError, match="is damaged"):
            RollingCache.load(file, fingerprint="tokenizer")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"PK\x03\x04 something else", "is not a saved cache"),
            (b"lookupdec cache 2\nwhatever", "another version"),
        ],
    )
    def test_foreign_files_are_refused(self, tmp_path: Path, data: bytes, message: str) -> None:
        (tmp_path / "foreign").write_bytes(data)
        with pytest.raises(FileError, match=f"foreign .*{message}"):
            RollingCache.load(tmp_path / "foreign")

    def test_another_tokenizer_is_refused_by_name(self, tmp_path: Path) -> None:
        _, file = self.saved(tmp_path)
        with pytest.raises(FileError, match="another tokenizer \\('tokenizer', not 'other'\\)"):
            RollingCache.load(file, fingerprint="other")
        with pytest.raises(FileError, match="another tokenizer"):
            RollingCache.load(file)

    @pytest.mark.parametrize(
        "header",
        [
            {"fingerprint": "", "documents": [[None, 3]]},
            {"fingerprint": "", "documents": [[None, 1]]},
            {"fingerprint": "", "documents": [[None, -1], [None, 3]]},
            {"fingerprint": "", "documents": [[3, 2]]},
            {"fingerprint": "", "documents": [[None, "2"]]},
            {"fingerprint": "", "documents": [[None]]},
            {"fingerprint": "", "documents": 2},
            {"documents": [[None, 2]]},
            [],
        ],
    )
    def test_a_header_that_does_not_fit_is_refused(self, tmp_path: Path, header: object) -> None:
        self.write(tmp_path / "file", json.dumps(header).encode(), np.array([1, 2], "<i4").tobytes())
        with pytest.raises(FileError, match="is damaged"):
            RollingCache.load(tmp_path / "file")

    @pytest.mark.parametrize(
        "payload", [b"\1\0\0", np.array([-1, 1], "<i4").tobytes(), b"\xff\xff\xff\x7f" * 2]
    )
    def test_bad_ids_are_refused(self, tmp_path: Path, payload: bytes) -> None:
        self.write(tmp_path / "file", b'{"fingerprint": "", "documents": [[null, 2]]}', payload)
        with pytest.raises(FileError, match="is damaged"):
            RollingCache.load(tmp_path / "file")

    def write(self, file: Path, header: bytes, payload: bytes) -> None:
        body = len(header).to_bytes(8, "little") + header + payload
        file.write_bytes(b"lookupdec cache 1\n" + hashlib.sha256(body).digest() + body)

    def test_a_failed_save_leaves_the_file_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache, file = self.saved(tmp_path)
        before = file.read_bytes()
        cache.add([5, 6])

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(FileError, match="no space left"):
            cache.save(file)
        assert file.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["cache.bin"]
        assert len(cache) == 11

    def test_unreadable_paths_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="missing does not exist"):
            RollingCache.load(tmp_path / "missing")
        with pytest.raises(FileError, match="is a directory"):
            RollingCache.load(tmp_path)
        with pytest.raises(FileError, match="folder does not exist"):
            RollingCache().save(tmp_path / "missing" / "file")


class TestBadInput:
    @pytest.mark.parametrize("ids", [[-1], [2**31 - 1], [2**31], [0.5], ["a"], [[1, 2]], [None], 3])
    def test_bad_ids_are_refused_and_change_nothing(self, ids: list[int]) -> None:
        cache = filled([[1, 2]])
        with pytest.raises(DrafterError, match="token ids"):
            cache.add(ids)
        assert texts_of(cache) == [[1, 2]]

    @pytest.mark.parametrize("namespace", [0, b"a", ("a",), True])
    def test_bad_namespaces_are_refused(self, namespace: str) -> None:
        cache = RollingCache()
        with pytest.raises(DrafterError, match="namespace is a string"):
            cache.add([1], namespace=namespace)
        assert cache.namespaces() == ()

    def test_a_negative_budget_is_refused(self) -> None:
        with pytest.raises(InputError, match="capacity_bytes"):
            RollingCache(-1)


class TestThreads:
    def test_searches_take_no_lock(self) -> None:
        cache = filled([[1, 2, 3]])
        answers: list[object] = []

        def ask() -> None:
            answers.append(draft(cache, [1]))
            answers.append((len(cache), cache.nbytes > 0, cache.namespaces()))

        with cache._lock:
            asker = threading.Thread(target=ask, daemon=True)
            asker.start()
            asker.join(timeout=300)
        assert answers == [[2, 3], (3, True, (None,))]

    def test_many_threads_search_while_others_add_and_evict(self) -> None:
        cache = RollingCache(MIB)
        stop = threading.Event()
        failures: list[BaseException] = []
        searches = [0] * 6

        def guarded(work: Callable[..., None], *given: object) -> None:
            try:
                work(cache, *given)
            except BaseException as error:
                failures.append(error)

        adders = [threading.Thread(target=guarded, args=(add_and_clear, number)) for number in range(3)]
        lookers = [
            threading.Thread(target=guarded, args=(look_until, stop, searches, number))
            for number in range(len(searches))
        ]
        for thread in lookers + adders:
            thread.start()
        for thread in adders:
            thread.join()
        stop.set()
        for thread in lookers:
            thread.join()
        assert not failures
        assert min(searches) > 0
        assert cache.nbytes <= MIB
        for name in cache.namespaces():
            check_links(arrays_of(cache, name))


NAMES = ("a", "b", "c")  # documents of each have ids of their own, from 0, 1000 and 2000 on


def add_and_clear(cache: RollingCache, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for turn in range(300):
        which = turn % len(NAMES)
        ids = generator.integers(0, 60, generator.integers(1, 1500)).astype(np.int32) + 1000 * which
        cache.add(ids, namespace=NAMES[which])
        cache.add(ids[: ids.size // 2], namespace=NAMES[which])
        if turn % 50 == 49:
            cache.clear(NAMES[which])


def look_until(cache: RollingCache, stop: threading.Event, searches: list[int], number: int) -> None:
    """Search until told to stop; no draft may hold a token of another namespace."""
    generator = np.random.default_rng(number)
    found = np.empty(300, np.int32)
    while not stop.is_set():
        which = searches[number] % len(NAMES)
        searches[number] += 1
        corpus = cache.corpus(NAMES[which])
        if corpus is None:
            continue
        states, edges, _, text = corpus.arrays
        query = generator.integers(0, 60, 200).astype(np.int32) + 1000 * which
        state, size = search(states, edges, text, 0, query, found)
        assert 0 <= state < states.size // kernels.STATE_FIELDS
        assert (found[:size] // 1000 == which).all()
        assert set(cache.namespaces()) <= set(NAMES)
        assert len(cache) <= MIB // 4


def check_links(arrays: Automaton) -> None:
    """Check a large automaton's links at once."""
    n_states = int(arrays.meta[kernels.N_STATES])
    table = arrays.states[: n_states * kernels.STATE_FIELDS].reshape(n_states, kernels.STATE_FIELDS)
    links = table[1:, kernels.LINK]
    assert links.min() >= 0
    assert (table[links, kernels.LENGTH] < table[1:, kernels.LENGTH]).all()
