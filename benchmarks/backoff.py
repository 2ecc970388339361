"""What the drafter costs on text that it cannot predict: tokens drafted and microseconds a pass.

    python -m benchmarks.backoff [FOLDER] [--pass-ms 42] [--out FILE.json]

Ids without any repetition, uniformly random ids, and summaries after the prompt of another one, where what little
comes back are the common words of the language. Prints a table, then one JSON line, and writes
benchmarks/results/backoff.json. ``--pass-ms`` is what one token takes in plain decoding, by default that of the
default model on two CPU cores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import ALPHAS, RESULTS, keep
from benchmarks.traces import add_folder, load_kind
from lookupdec.cache import RollingCache
from lookupdec.draft import CopyDrafter
from lookupdec.ids import Int32Array
from lookupdec.policy import CostModel
from lookupdec.replay import ReplayResult, Trace, replay

VOCABULARY = 49_152
REQUESTS = 30
PROMPT_TOKENS, OUTPUT_TOKENS = 1000, 500
FOREIGN = 37  # how many traces on the prompt is taken from
MOST_DRAFTED = 0.15  # tokens a pass, on text that nothing predicts
MOST_TIME = 0.03  # of plain decoding


def unpredictable() -> dict[str, list[Trace]]:
    """Return requests whose outputs have nothing to do with their prompts."""
    generator = np.random.default_rng(0)
    size = PROMPT_TOKENS + OUTPUT_TOKENS
    return {
        "ids without repetition": [_trace(generator.permutation(VOCABULARY)[:size]) for _ in range(REQUESTS)],
        "random ids": [_trace(generator.integers(0, VOCABULARY, size)) for _ in range(REQUESTS)],
    }


def _trace(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Trace:
    text: Int32Array = ids.astype(np.int32)
    return Trace("random", text[:PROMPT_TOKENS], text[PROMPT_TOKENS:], slice(0, 0))


def with_foreign_prompts(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces, each with the prompt of another."""
    return [
        Trace(trace.id, traces[(number + FOREIGN) % len(traces)].prompt, trace.output, slice(0, 0))
        for number, trace in enumerate(traces)
    ]


def figures(result: ReplayResult, alpha: float, pass_ms: float) -> dict[str, float]:
    """Return one row's figures as JSON-ready values."""
    return {
        "passes": result.passes,
        "drafted_per_pass": round(result.drafted / result.passes, 4),
        "accepted_per_pass": round(result.accepted / result.passes, 4),
        "speedup": round(result.speedup(alpha), 4),
        "microseconds_per_pass": round(result.microseconds_per_proposal, 1),
        "share_of_plain_time": round(result.microseconds_per_proposal / (1e3 * pass_ms), 6),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_folder(parser)
    parser.add_argument("--pass-ms", type=float, default=42.0, help="of one token in plain decoding")
    parser.add_argument("--out", type=Path, default=RESULTS / "backoff.json")
    options = parser.parse_args()

    workloads = unpredictable()
    bound = list(workloads)
    workloads["summaries after another's prompt"] = with_foreign_prompts(
        load_kind(options.folder, "summarize")
    )
    replay(CopyDrafter(), workloads["random ids"][:1])  # compiles
    rows: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'text':36}{'past':>6}{'alpha':>7}{'drafted':>9}{'accepted':>10}{'speed-up':>10}{'us/pass':>9}")
    for name, traces in workloads.items():
        for past in (False, True):
            row = f"{name}, past outputs" if past else name
            rows[row] = {}
            for alpha in ALPHAS:
                drafter = CopyDrafter(RollingCache() if past else None, cost=CostModel(per_token=alpha))
                measured = figures(replay(drafter, traces), alpha, options.pass_ms)
                rows[row][str(alpha)] = measured
                print(
                    f"{name:36}{'yes' if past else 'no':>6}{alpha:>7}{measured['drafted_per_pass']:>9.3f}"
                    f"{measured['accepted_per_pass']:>10.3f}{measured['speedup']:>9.3f}x"
                    f"{measured['microseconds_per_pass']:>9.1f}"
                )
    unpredicted = [one for name, row in rows.items() if name.startswith(tuple(bound)) for one in row.values()]
    summary = {
        "rows": rows,
        "bars": {"drafted_per_pass": MOST_DRAFTED, "share_of_plain_time": MOST_TIME},
        "within_bars": {
            "drafted_per_pass": max(one["drafted_per_pass"] for one in unpredicted) <= MOST_DRAFTED,
            "share_of_plain_time": max(
                one["share_of_plain_time"] for row in rows.values() for one in row.values()
            )
            <= MOST_TIME,
        },
    }
    keep(options.out, {"pass_ms": options.pass_ms, **summary})
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
