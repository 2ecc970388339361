"""The ``replay`` command: options, progress bar, tables, JSON line and plot. Counts nothing itself."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from lookupdec.cli.common import one_line_errors
from lookupdec.decode import Drafter, PlainDrafter
from lookupdec.errors import InputError
from lookupdec.files import check_writable, write_atomically
from lookupdec.replay import ReplayResult, Trace, best_speedup, copy_limit, load_traces, replay
from lookupdec.stats import Stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[str, ReplayResult]
Curves = Mapping[str, Sequence[tuple[float, float]]]
"""(alpha, speed-up) points by name."""

_PLOTTED_ALPHAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


class DrafterName(StrEnum):
    """What ``--drafter`` takes; a peer stands for all its measured settings."""

    LOOKUPDEC = "lookupdec"
    TRANSFORMERS = "transformers"
    VLLM = "vllm"
    ARCTIC = "arctic"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter to run: its name in the tables, how to make a fresh one, and whether it drafts by alpha."""

    name: str
    make: Callable[[float], Drafter]
    adapts: bool = False


def replay_command(
    traces: Annotated[
        Path,
        typer.Argument(help="Recorded edits: JSONL with instruction, input, output.", metavar="TRACES.jsonl"),
    ],
    limit: Annotated[int, typer.Option(help="Use at most this many of them.")] = 150,
    alpha: Annotated[float, typer.Option(help="Cost of one drafted token, in one-token passes.")] = 0.03,
    reference: Annotated[
        bool, typer.Option("--reference", help="Give the drafter the input text as reference.")
    ] = False,
    past_outputs: Annotated[
        bool, typer.Option(help="Let lookupdec draft from the outputs of earlier items too.")
    ] = True,
    drafter: Annotated[list[DrafterName] | None, typer.Option(help="What to run; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON line only.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write speed-up against alpha as a PNG.", metavar="OUT.png")
    ] = None,
) -> None:
    """Count the passes a drafter needs on recorded edits, no model run.

    Where the output is no terminal, it ends with one JSON line that holds every figure.
    """
    with one_line_errors(stopped="stopped"):
        _check(alpha, plot)
        chosen = contenders(drafter or [DrafterName.LOOKUPDEC], past_outputs=past_outputs)
        loaded = load_traces(traces, limit)
        limits = copy_limit(loaded)
        results = run(chosen, loaded, alpha, with_reference=reference, quiet=as_json)
        if plot is not None:
            drawn = curves(chosen, results, loaded, with_reference=reference, quiet=as_json)
            save_plot(plot, drawn, list(limits.values()))
    best = best_speedup(limits.values(), alpha)
    console = _console()
    if not as_json:
        console.print(results_table(results, alpha, best))
        console.print(sources_table(results))
    if as_json or not console.is_terminal:
        typer.echo(json.dumps(report(traces.name, results, limits, alpha=alpha, with_reference=reference)))


def contenders(names: Sequence[DrafterName], *, past_outputs: bool) -> list[Contender]:
    """Return the drafters that were asked for, each once."""
    from lookupdec.peers import rows_by_peer  # imports numba, which other commands need not wait for

    chosen: list[Contender] = []
    for name in dict.fromkeys(names):
        if name is DrafterName.PLAIN:
            chosen.append(Contender(name.value, lambda _alpha: PlainDrafter()))
        elif name is DrafterName.LOOKUPDEC:
            chosen.append(Contender(name.value, _copy_drafter_maker(past_outputs), adapts=True))
        else:
            chosen += [Contender(row.name, _ignoring_alpha(row.make)) for row in rows_by_peer()[name.value]]
    return chosen


def run(
    chosen: Sequence[Contender], traces: Sequence[Trace], alpha: float, *, with_reference: bool, quiet: bool
) -> dict[str, ReplayResult]:
    """Replay the traces with a fresh drafter of each kind, with a progress bar on stderr unless ``quiet``."""
    results: dict[str, ReplayResult] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    disable = quiet or not console.is_terminal  # in a log it would leave empty lines
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        for contender in chosen:
            task = progress.add_task(f"{contender.name}, alpha {alpha:g}", total=len(traces))
            results[contender.name] = replay(
                contender.make(alpha),
                traces,
                with_reference=with_reference,
                on_trace=_advancing(progress, task),
            )
    return results


def curves(
    chosen: Sequence[Contender],
    results: Results,
    traces: Sequence[Trace],
    *,
    with_reference: bool,
    quiet: bool,
) -> dict[str, list[tuple[float, float]]]:
    """Return each drafter's speed-up at the plotted alphas; one that drafts by alpha is run again at each."""
    adapting = [contender for contender in chosen if contender.adapts]
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in results}
    for alpha in _PLOTTED_ALPHAS:
        again = run(adapting, traces, alpha, with_reference=with_reference, quiet=quiet)
        for name, result in {**results, **again}.items():
            points[name].append((alpha, result.speedup(alpha)))
    return points


def results_table(results: Results, alpha: float, best: float) -> Table:
    """Return one line a drafter: counts, cost, speed-up and its share of the copy limit's speed-up."""
    tokens = next(iter(results.values())).tokens
    title = f"{tokens:,} tokens, alpha {alpha:g}, copy limit {best:.2f}x"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("drafter", min_width=len("transformers"))  # the longest word of a name
    columns = ("passes", "drafted", "accepted", "a pass", "speed-up", "of limit", "us/call")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, result in results.items():
        table.add_row(
            name,
            f"{result.passes:,}",
            f"{result.drafted:,}",
            f"{result.accepted:,}",
            f"{result.tokens_per_pass:.2f}",
            f"{result.speedup(alpha):.2f}x",
            f"{result.speedup(alpha) / best:.0%}",
            f"{result.microseconds_per_proposal:.1f}",
        )
    table.caption = "a pass: tokens emitted; of limit: share of the copy limit; us/call: time in the drafter"
    return table


def sources_table(results: Results) -> Table:
    """Return what was drafted from each source and how much of it was accepted."""
    table = Table(title="drafts by source", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("drafter")
    table.add_column("source")
    for column in ("drafted", "accepted", "rate"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        for source, counts in sorted(result.by_source.items()):
            rate = counts.accepted / counts.drafted
            table.add_row(name, source, f"{counts.drafted:,}", f"{counts.accepted:,}", f"{rate:.0%}")
    return table


def report(
    file: str, results: Results, limits: Mapping[int, ReplayResult], *, alpha: float, with_reference: bool
) -> dict[str, object]:
    """Return every figure as JSON-ready values."""
    best = best_speedup(limits.values(), alpha)
    first = next(iter(results.values()))
    return {
        "file": file,
        "traces": first.traces,
        "tokens": first.tokens,
        "alpha": alpha,
        "reference": with_reference,
        "copy_limit": {str(cap): _figures(limit, alpha, best) for cap, limit in limits.items()},
        "limit_speedup": round(best, 3),
        "drafters": {name: _figures(result, alpha, best) for name, result in results.items()},
    }


def _figures(result: ReplayResult, alpha: float, best: float) -> dict[str, object]:
    return {
        **result.as_dict(),
        "cost": round(result.cost(alpha), 2),
        "speedup": round(result.speedup(alpha), 3),
        "share_of_limit": round(result.speedup(alpha) / best, 4),
    }


def save_plot(file: Path, drawn: Curves, limits: Sequence[ReplayResult]) -> None:
    """Draw speed-up against alpha, one line a drafter and the copy limit above them."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(color=colormaps["tab20"].resampled(20)(range(20)))
    for name, points in drawn.items():
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    highest = [best_speedup(limits, alpha) for alpha in _PLOTTED_ALPHAS]
    axes.plot(_PLOTTED_ALPHAS, highest, "k--", label="copy limit")
    _label(axes)
    figure.legend(loc="outside right upper", fontsize="small")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write_atomically(file, image.getvalue())


def _label(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("alpha: cost of one drafted token, in one-token passes")
    axes.set_ylabel("speed-up over one token a pass")
    axes.grid(visible=True, which="both", alpha=0.3)


def _check(alpha: float, plot: Path | None) -> None:
    """Refuse before the work what could only fail after it."""
    if not (math.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha must be a number from 0 on, not {alpha}")
    if plot is None:
        return
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError("--plot needs matplotlib: pip install matplotlib") from error
    check_writable(plot)


def _console() -> Console:
    """Return a console for stdout, wide enough for whole names where no terminal sets its width."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def _advancing(progress: Progress, task: TaskID) -> Callable[[Trace, Stats], None]:
    return lambda _trace, _stats: progress.advance(task)


def _ignoring_alpha(make: Callable[[], Drafter]) -> Callable[[float], Drafter]:
    return lambda _alpha: make()


def _copy_drafter_maker(past_outputs: bool) -> Callable[[float], Drafter]:
    from lookupdec.cache import RollingCache
    from lookupdec.draft import CopyDrafter
    from lookupdec.policy import CostModel

    def make(alpha: float) -> Drafter:
        cache = RollingCache() if past_outputs else None
        return CopyDrafter(cache=cache, cost=CostModel(per_token=alpha))

    return make
