"""Every drafter on every trace file, without a model; the figures are kept with where they were measured.

    python -m benchmarks.drafting [FOLDER] [--limit 150] [--peers-only] [--prior FILE.npz] [--out FILE.json]

The packaged prior of lookupdec was fitted on all recorded edits, these among them. With ``--prior`` every row of
lookupdec stands there twice, also with that one: fit it on the other traces alone, so that no trace is measured
that the prior has seen.

    python -m benchmarks.fit_prior FOLDER --skip 150 --out FILE.npz

Prints one table a file, then a JSON line with the summary, and writes benchmarks/results/drafting.json. Where
the folder holds a baselines.json, the peers' rows are checked against it. The counting rules are those of
``lookupdec replay``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.common import ALPHAS, EDIT_FILES, FILES, RESULTS, keep
from benchmarks.traces import add_folder, load_kind
from lookupdec.cache import RollingCache
from lookupdec.decode import Drafter
from lookupdec.draft import CopyDrafter
from lookupdec.peers import PEER_ROWS
from lookupdec.policy import CostModel, SurvivalModel
from lookupdec.replay import ReplayResult, Trace, best_speedup, copy_limit, replay

COUNTS = ("tokens", "passes", "drafted", "accepted")

Rows = dict[str, dict[float, ReplayResult]]  # by name, then by alpha


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tables: a drafter made for an alpha."""

    name: str
    make: Callable[[float], Drafter]
    with_reference: bool = False
    adapts: bool = False
    past_outputs: bool = True


def peer_rows() -> list[Row]:
    """Return the settings of the peers that are installed; they know no alpha."""

    def ignoring_alpha(make: Callable[[], Drafter]) -> Callable[[float], Drafter]:
        return lambda _alpha: make()

    missing = set() if find_spec("arctic_inference") else {"arctic"}
    if missing:
        print(
            "arctic-inference is left out: pip install arctic-inference to compare with it", file=sys.stderr
        )
    return [
        Row(row.name, ignoring_alpha(row.make), past_outputs=row.past_outputs)
        for row in PEER_ROWS
        if row.peer not in missing
    ]


def own_rows(prior: Path | None = None) -> list[Row]:
    """Return lookupdec with a rolling cache over all traces, without it, and with the input as reference."""
    stored = None if prior is None else dict(np.load(prior))
    remark = "" if prior is None else ", prior of other traces"

    def new_model() -> SurvivalModel:
        return SurvivalModel.new() if stored is None else SurvivalModel.from_prior(stored)

    def with_cache(alpha: float) -> Drafter:
        return CopyDrafter(RollingCache(), cost=CostModel(per_token=alpha), model=new_model())

    def without_cache(alpha: float) -> Drafter:
        return CopyDrafter(cost=CostModel(per_token=alpha), model=new_model())

    return [
        Row(f"lookupdec past outputs{remark}", with_cache, adapts=True),
        Row(f"lookupdec no past outputs{remark}", without_cache, adapts=True, past_outputs=False),
        Row(f"lookupdec past outputs, reference{remark}", with_cache, with_reference=True, adapts=True),
    ]


def measure(row: Row, traces: Sequence[Trace]) -> dict[float, ReplayResult]:
    """Replay one row at every alpha, or once where the drafter does not draft by it."""
    results: dict[float, ReplayResult] = {}
    for alpha in ALPHAS:
        if row.adapts or not results:
            result = replay(row.make(alpha), traces, with_reference=row.with_reference)
        results[alpha] = result
    return results


def figures(result: ReplayResult, alpha: float, best: float) -> dict[str, object]:
    """Return one row's figures at one alpha as JSON-ready values."""
    return {
        **result.as_dict(),
        "cost": round(result.cost(alpha), 2),
        "speedup": round(result.speedup(alpha), 3),
        "share_of_limit": round(result.speedup(alpha) / best, 4),
    }


def file_report(traces: Sequence[Trace], limits: Mapping[int, ReplayResult], rows: Rows) -> dict[str, object]:
    """Return all figures of one file as JSON-ready values."""
    best = {alpha: best_speedup(limits.values(), alpha) for alpha in ALPHAS}
    return {
        "traces": len(traces),
        "tokens": next(iter(limits.values())).tokens,
        "copy_limit": {
            str(cap): {name: getattr(limit, name) for name in COUNTS} for cap, limit in limits.items()
        },
        "limit_speedup": {str(alpha): round(speedup, 3) for alpha, speedup in best.items()},
        "rows": {
            name: {str(alpha): figures(result, alpha, best[alpha]) for alpha, result in results.items()}
            for name, results in rows.items()
        },
    }


def print_table(name: str, limits: Mapping[int, ReplayResult], rows: Rows) -> None:
    """Print one file's rows for people."""
    print(f"\n{name}")
    header = (
        "drafter",
        "alpha",
        "passes",
        "drafted",
        "accepted",
        "a pass",
        "speed-up",
        "of limit",
        "us/call",
    )
    print("{:58}{:>7}{:>9}{:>11}{:>10}{:>8}{:>10}{:>10}{:>9}".format(*header))
    for row, results in rows.items():
        for alpha, result in results.items():
            share = result.speedup(alpha) / best_speedup(limits.values(), alpha)
            print(
                f"{row:58}{alpha:>7}{result.passes:>9,}{result.drafted:>11,}{result.accepted:>10,}"
                f"{result.tokens_per_pass:>8.2f}{result.speedup(alpha):>9.2f}x{share:>10.0%}"
                f"{result.microseconds_per_proposal:>9.1f}"
            )


def over_best_peer(
    rows: Sequence[Row], measured: Mapping[str, Rows]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return each own row's speed-up over the best peer's, by alpha and file, with the edit files' mean.

    A row without past outputs is held against the peers without them.
    """
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for row in (row for row in rows if row.adapts):
        peers = [
            peer.name for peer in rows if not peer.adapts and (row.past_outputs or not peer.past_outputs)
        ]
        summary[row.name] = {}
        for alpha in ALPHAS:
            ratios = {
                file: results[row.name][alpha].speedup(alpha)
                / max(results[peer][alpha].speedup(alpha) for peer in peers)
                for file, results in measured.items()
            }
            edits = [ratios[file] for file in EDIT_FILES if file in ratios]
            if edits:
                ratios["edit files, geometric mean"] = math.prod(edits) ** (1 / len(edits))
            summary[row.name][str(alpha)] = {file: round(ratio, 4) for file, ratio in ratios.items()}
    return summary


def largest_deviation(folder: Path | None, measured: Mapping[str, Rows]) -> float | None:
    """Return by how much the peers' counts differ at most from baselines.json; None where it is not."""
    if folder is None or not (file := folder / "baselines.json").is_file():
        return None
    expected = json.loads(file.read_text())["files"]
    deviations: list[float] = [
        abs(getattr(rows[name][ALPHAS[0]], count) / row[count] - 1)
        for trace_file, rows in measured.items()
        for name, row in expected[trace_file]["peers"].items()
        if name in rows
        for count in COUNTS
    ]
    return round(max(deviations), 6)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_folder(parser)
    parser.add_argument("--limit", type=int, default=150, help="traces of each file")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument(
        "--prior", type=Path, help="fitted on other traces; measured besides the packaged one"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "drafting.json")
    options = parser.parse_args()

    rows = [*([] if options.peers_only else own_rows()), *peer_rows()]
    if options.prior is not None:
        rows = [*own_rows(options.prior), *rows]
    measured: dict[str, Rows] = {}
    files: dict[str, object] = {}
    for name in FILES:
        traces = load_kind(options.folder, name, options.limit)
        limits = copy_limit(traces)
        measured[name] = {row.name: measure(row, traces) for row in rows}
        files[name] = file_report(traces, limits, measured[name])
        print_table(name, limits, measured[name])
    deviation = largest_deviation(options.folder, measured) if options.limit == 150 else None
    summary = {
        "over_best_peer": over_best_peer(rows, measured),
        "largest_deviation_from_baselines": deviation,
    }
    keep(options.out, {"limit": options.limit, "alphas": ALPHAS, **summary, "files": files})
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
