"""What the rolling cache costs: bytes a token, tokens added a second, time of a search.

    python -m benchmarks.cache [FOLDER] [--tokens 1000000] [--out FILE.json]

Adds documents of random ids over a vocabulary of 49,152 and the traces' prompts and outputs, without and with
eviction, then searches spans of the outputs, alone and while another thread adds. Prints two tables, then one
JSON line, and writes benchmarks/results/cache.json.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns, thread_time

import numpy as np

from benchmarks.common import FILES, RESULTS, keep
from benchmarks.search import search
from benchmarks.traces import add_folder, load_kind
from lookupdec._kernels import Automaton
from lookupdec.cache import RollingCache
from lookupdec.ids import Int32Array

VOCABULARY = 49_152
DOCUMENT_TOKENS = (1000, 2000, 4000)
DRAFT_TOKENS = 64
QUERY_TOKENS = 16
SEARCHES = 20_000
UNBOUNDED = 1 << 40
SMALL_BYTES = 24 << 20


@dataclass(frozen=True, slots=True)
class Filling:
    """What filling a cache took, in CPU time of the thread."""

    tokens: int
    held: int
    bytes_per_token: float
    tokens_per_second: int
    slowest_add_ms: float


@dataclass(frozen=True, slots=True)
class Searches:
    """Microseconds of wall-clock time a search took, the call from Python included."""

    p50: float
    p99: float
    drafted: float


def fill(documents: Iterable[Int32Array], capacity_bytes: int) -> tuple[RollingCache, Filling]:
    """Add the documents to a new cache."""
    cache = RollingCache(capacity_bytes)
    tokens = 0
    slowest = 0.0
    total = 0.0
    for document in documents:
        start = thread_time()
        cache.add(document)
        taken = thread_time() - start
        total += taken
        slowest = max(slowest, taken)
        tokens += document.size
    held = len(cache)
    return cache, Filling(
        tokens, held, round(cache.nbytes / held, 1), round(tokens / total), round(1e3 * slowest, 1)
    )


def random_documents(tokens: int, size: int, seed: int = 0) -> list[Int32Array]:
    """Return documents of uniformly random ids."""
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (tokens // size, size))
    return list(ids.astype(np.int32))


def time_searches(cache: RollingCache, texts: Sequence[Int32Array], matched: int, count: int) -> Searches:
    """Search one token on from a match of ``matched`` tokens, or all of them where ``matched`` is 0."""
    generator = np.random.default_rng(1)
    draft = np.empty(DRAFT_TOKENS, np.int32)
    nanoseconds = np.empty(count)
    drafted = 0
    for number in range(count):
        text = texts[int(generator.integers(len(texts)))]
        start = int(generator.integers(max(1, text.size - QUERY_TOKENS)))
        query = text[start : start + QUERY_TOKENS]
        arrays = _arrays(cache)
        state, _ = search(arrays.states, arrays.edges, arrays.text, 0, query[:matched], draft[:0])
        begun = perf_counter_ns()
        arrays = _arrays(cache, arrays)
        _, size = search(arrays.states, arrays.edges, arrays.text, state, query[matched:], draft)
        nanoseconds[number] = perf_counter_ns() - begun
        drafted += size
    p50, p99 = np.percentile(nanoseconds, [50, 99]) / 1e3
    return Searches(round(float(p50), 2), round(float(p99), 2), round(drafted / count, 1))


def _arrays(cache: RollingCache, otherwise: Automaton | None = None) -> Automaton:
    """Return the arrays to search, or those searched before where their states have become invalid."""
    corpus = cache.corpus()
    if corpus is None:
        raise SystemExit("the traces are too short to fill a cache")
    arrays = corpus.arrays
    return arrays if otherwise is None or arrays.generation == otherwise.generation else otherwise


def time_searches_while_adding(
    cache: RollingCache, texts: Sequence[Int32Array], documents: Sequence[Int32Array], count: int
) -> Searches:
    """Search whole queries while another thread adds documents without a pause."""
    stop = threading.Event()

    def add() -> None:
        for document in cycle(documents):
            if stop.is_set():
                return
            cache.add(document)

    adder = threading.Thread(target=add)
    adder.start()
    try:
        return time_searches(cache, texts, 0, count)
    finally:
        stop.set()
        adder.join()


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_folder(parser)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of random documents")
    parser.add_argument("--out", type=Path, default=RESULTS / "cache.json")
    options = parser.parse_args()

    traces = [trace for name in FILES for trace in load_kind(options.folder, name)]
    outputs = [trace.output for trace in traces]
    both = [ids for trace in traces for ids in (trace.prompt, trace.output)]
    fill(both[:2], UNBOUNDED)  # compiles
    workloads: dict[str, tuple[Iterable[Int32Array], int]] = {
        "outputs of the traces": (outputs, UNBOUNDED),
        "prompts and outputs": (both, UNBOUNDED),
        **{
            f"random, {size} a document": (random_documents(options.tokens, size), UNBOUNDED)
            for size in DOCUMENT_TOKENS
        },
        "prompts and outputs, with eviction": (both, SMALL_BYTES),
    }
    fillings: dict[str, Filling] = {}
    print(f"{'added':38}{'tokens':>11}{'held':>11}{'bytes/token':>13}{'tokens/s':>12}{'slowest add':>13}")
    for name, (documents, capacity) in workloads.items():
        cache, filling = fill(documents, capacity)
        fillings[name] = filling
        print(
            f"{name:38}{filling.tokens:>11,}{filling.held:>11,}{filling.bytes_per_token:>13}"
            f"{filling.tokens_per_second:>12,}{filling.slowest_add_ms:>10} ms"
        )

    cache, _ = fill(both, UNBOUNDED)
    small, _ = fill(both, SMALL_BYTES)
    time_searches(cache, outputs, 0, 10)  # compiles
    searches = {
        f"one token on, {DRAFT_TOKENS} copied": time_searches(cache, outputs, QUERY_TOKENS - 1, SEARCHES),
        f"{QUERY_TOKENS} tokens, {DRAFT_TOKENS} copied": time_searches(cache, outputs, 0, SEARCHES),
        "the same while adding": time_searches_while_adding(
            cache, outputs, random_documents(10**6, 2000), SEARCHES
        ),
        "the same while adding and evicting": time_searches_while_adding(small, outputs, both, SEARCHES),
    }
    print(f"\n{'search':38}{'p50 us':>11}{'p99 us':>11}{'drafted':>11}")
    for name, taken in searches.items():
        print(f"{name:38}{taken.p50:>11}{taken.p99:>11}{taken.drafted:>11}")

    summary = {
        "filling": {name: asdict(filling) for name, filling in fillings.items()},
        "searches_microseconds": {name: asdict(taken) for name, taken in searches.items()},
    }
    keep(options.out, summary)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
