"""What the index and the drafter cost a token, by the length of the context.

    python -m benchmarks.index [FOLDER] [--out FILE.json]

Contexts are prompts and outputs of the code edits, one after the other, cut to length, as far as they reach.
Measured are building the index, one token on with the longest match, and one token observed with a proposal of
64: as the text goes on, while it copies itself (full drafts all the time), with past outputs, and on ids that
nothing predicts. Prints a table, then one JSON line, and writes benchmarks/results/index.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from benchmarks.common import RESULTS, keep
from benchmarks.traces import add_folder, load_kind
from lookupdec.cache import RollingCache
from lookupdec.draft import CopyDrafter
from lookupdec.ids import Int32Array
from lookupdec.index import SuffixIndex

LENGTHS = (1_000, 32_000, 128_000)
LIMIT = 64
TOKENS = 2000  # timed after each context
BUILDS = 5
PAST_TOKENS = 300_000
VOCABULARY = 49_152
BARS = {"append_and_match": 5.0, "observe_and_propose": 25.0, "build_128k_ms": 60.0, "bytes_per_token": 100.0}


@dataclass(frozen=True, slots=True)
class Costs:
    """Medians over the timed tokens; microseconds, calls from Python included."""

    tokens: int
    build_ms: float
    bytes_per_token: float
    append_and_match: float
    observe_and_propose: float
    observe_and_propose_copying: float
    observe_and_propose_past_outputs: float
    observe_and_propose_random: float


def time_build(context: Int32Array) -> tuple[float, float]:
    """Return milliseconds to index a context, the best of a few, and bytes a token."""
    best = float("inf")
    for _ in range(BUILDS):
        begun = perf_counter_ns()
        index = SuffixIndex(context.size)
        index.extend(context)
        best = min(best, (perf_counter_ns() - begun) / 1e6)
    return best, index.nbytes / context.size


def time_index(context: Int32Array, ahead: list[int]) -> float:
    """Return the microseconds that one more token and the longest match take."""
    index = SuffixIndex(context.size + len(ahead))
    index.extend(context)

    def one_on(token: int) -> None:
        index.append(token)
        index.longest_match()

    return _median(one_on, ahead)


def time_drafter(drafter: CopyDrafter, context: Int32Array, ahead: list[int]) -> float:
    """Return the microseconds that observing one token and proposing take."""
    drafter.begin(context)

    def one_on(token: int) -> None:
        drafter.observe([token])
        drafter.propose(LIMIT)

    return _median(one_on, ahead)


def _median(call: Callable[[int], None], tokens: list[int]) -> float:
    nanoseconds = np.empty(len(tokens))
    for number, token in enumerate(tokens):
        begun = perf_counter_ns()
        call(token)
        nanoseconds[number] = perf_counter_ns() - begun
    return round(float(np.median(nanoseconds)) / 1e3, 2)


def measure(text: Int32Array, tokens: int, cache: RollingCache) -> Costs:
    """Measure everything with a context of ``tokens``."""
    context, ahead = text[:tokens], text[tokens : tokens + TOKENS].tolist()
    copied = context[tokens // 3 :][:TOKENS].tolist()
    unpredictable = np.random.default_rng(0).integers(0, VOCABULARY, tokens + TOKENS).astype(np.int32)
    build_ms, bytes_per_token = time_build(context)
    return Costs(
        tokens,
        round(build_ms, 2),
        round(bytes_per_token, 1),
        time_index(context, ahead),
        time_drafter(CopyDrafter(), context, ahead),
        time_drafter(CopyDrafter(), context, copied),
        time_drafter(CopyDrafter(cache), context, ahead),
        time_drafter(CopyDrafter(), unpredictable[:tokens], unpredictable[tokens:].tolist()),
    )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_folder(parser)
    parser.add_argument("--out", type=Path, default=RESULTS / "index.json")
    options = parser.parse_args()

    traces = load_kind(options.folder, "code_edit")
    text = np.concatenate([ids for trace in traces for ids in (trace.prompt, trace.output)])
    lengths = [tokens for tokens in LENGTHS if tokens + TOKENS <= text.size]
    if not lengths:
        raise SystemExit(f"the code edits must have {LENGTHS[0] + TOKENS:,} tokens, not {text.size:,}")
    cache = RollingCache()
    cache.add(text[-PAST_TOKENS:])
    measure(text, lengths[0], cache)  # compiles

    rows = [measure(text, tokens, cache) for tokens in lengths]
    header = (
        "context",
        "build ms",
        "bytes/token",
        "append+match",
        "observe+propose",
        "copying",
        "+ past",
        "random ids",
    )
    print("{:>9}{:>10}{:>13}{:>14}{:>17}{:>9}{:>9}{:>12}".format(*header))
    for row in rows:
        print(
            f"{row.tokens:>9,}{row.build_ms:>10}{row.bytes_per_token:>13}{row.append_and_match:>14}"
            f"{row.observe_and_propose:>17}{row.observe_and_propose_copying:>9}"
            f"{row.observe_and_propose_past_outputs:>9}{row.observe_and_propose_random:>12}"
        )
    within = {
        "append_and_match": max(row.append_and_match for row in rows) < BARS["append_and_match"],
        "observe_and_propose": max(row.observe_and_propose for row in rows) < BARS["observe_and_propose"],
        "bytes_per_token": max(row.bytes_per_token for row in rows) <= BARS["bytes_per_token"],
    }
    if lengths == list(LENGTHS):
        within["build_128k_ms"] = rows[-1].build_ms < BARS["build_128k_ms"]
    summary = {"microseconds": [asdict(row) for row in rows], "bars": BARS, "within_bars": within}
    keep(options.out, summary)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
