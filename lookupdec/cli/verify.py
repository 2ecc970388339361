"""``lookupdec verify``: the proof, on a model at hand, that lookup decoding changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lookupdec.cli.common import AsJson, Device, Dtype, ExactMode, ModelName, error_console, one_line_errors
from lookupdec.cli.report import stats_as_json
from lookupdec.cli.show import Lines, time_left, waiting
from lookupdec.cli.verify_prompts import read_prompts
from lookupdec.installed import needs_models

if TYPE_CHECKING:
    from lookupdec.hf import LanguageModel
    from lookupdec.hf.proof import Run

FAULT = 1


def verify_command(  # noqa: PLR0913
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    exact: ExactMode = "auto",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON Lines: messages, a prompt, or an instruction and an input.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Sampled runs per prompt, beside the greedy one.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest output.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Compare plain generate with lookup decoding, token by token.

    A difference is a near-tie where rounding explains it and a fault otherwise; a fault ends with exit code 1.
    Run it before trusting a new model or a new version of transformers. Every run writes up to --max-new-tokens twice:
    in all a few minutes with the default model on a CPU, an hour with a large one. --samples 0 takes half of that.
    """
    console = error_console()
    with one_line_errors(stopped="stopped"):
        texts = read_prompts(prompts)
        with waiting(console, "loading the model"):
            loaded = _load(model, dtype=dtype, device=device, exact=exact)
        from lookupdec.hf.proof import near_tie, prove

        chosen = [_for_model(text, loaded) for text in texts]
        with _progress_bar(console, len(chosen) * (1 + samples)) as show:
            runs = []
            for run in prove(loaded, chosen, samples=samples, max_new_tokens=max_new_tokens):
                runs.append(run)
                show(runs)
    report = _as_json(loaded, runs, near_tie(loaded))
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print_report(Console(highlight=False), report, runs, loaded)
    if report["faults"]:
        raise typer.Exit(FAULT)


def _load(model: str | None, **options: Any) -> LanguageModel:
    with needs_models():
        from lookupdec.hf import load

    return load(model, **options)


def _for_model(prompt: str | list[dict[str, Any]], model: LanguageModel) -> str | list[dict[str, Any]]:
    if isinstance(prompt, str) or model.tokenizer.chat_template:
        return prompt
    return "\n\n".join(str(message.get("content", "")) for message in prompt)


@contextmanager
def _progress_bar(console: Console, count: int) -> Iterator[Callable[[Sequence[Run]], None]]:
    began = perf_counter()

    def found(runs: Sequence[Run]) -> str:
        left = time_left(perf_counter() - began, len(runs), count)
        return f"{_count(runs, 'identical')} identical{left}"

    if not console.is_terminal:
        lines = Lines(console)
        yield lambda runs: lines(lambda: f"{len(runs)} of {count} runs, {found(runs)}")
        return
    # Not rich's column of the time left, which knows none where a run takes half a minute.
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[found]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("runs", total=count, found="")
        yield lambda runs: bar.update(task, completed=len(runs), found=found(runs))


def _count(runs: Sequence[Run], verdict: str) -> int:
    return sum(run.verdict == verdict for run in runs)


def _as_json(model: LanguageModel, runs: Sequence[Run], threshold: float) -> dict[str, Any]:
    return {
        "model": model.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "arithmetic": model.arithmetic,
        "passes": "dynamic" if model.passes is None else "fixed",
        "torch": version("torch"),
        "transformers": version("transformers"),
        "near_tie_threshold": threshold,
        "runs": len(runs),
        "identical": _count(runs, "identical"),
        "near_ties": _count(runs, "near-tie"),
        "faults": _count(runs, "fault"),
        "results": [_run_as_json(run) for run in runs],
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    difference = None
    if run.difference is not None:
        difference = asdict(run.difference)
        if not isfinite(run.difference.gap):
            difference["gap"] = None
    return {
        "prompt": run.prompt,
        "mode": run.mode,
        "seed": run.seed,
        "verdict": run.verdict,
        "difference": difference,
        "plain": {"tokens": run.plain_tokens, "seconds": run.plain_seconds},
        "lookup": stats_as_json(run.lookup) if run.lookup.tokens else None,
    }


def _print_report(
    console: Console, report: dict[str, Any], runs: Sequence[Run], model: LanguageModel
) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for title in ("runs", "tokens", "identical", "near-ties", "faults", "tokens per pass"):
        table.add_column(title, justify="right")
    for mode in ("greedy", "sampled"):
        of_mode = [run for run in runs if run.mode == mode]
        if of_mode:
            table.add_row(mode, *_figures(of_mode))
    how = report["arithmetic"], report["passes"]
    versions = ", ".join(f"{name} {report[name]}" for name in ("transformers", "torch"))
    kind = "fast passes of fixed widths" if how == ("fast", "fixed") else f"{how[0]} passes"
    where = f"{report['dtype']} on {report['device']}, {kind}"
    console.print(f"{report['model']}, {where}, {versions}", soft_wrap=True)
    console.print(table)
    for run in runs:
        if run.difference is not None:
            console.print(_difference_line(run, model), markup=False, soft_wrap=True)
    if report["near_ties"]:
        console.print(f"A near-tie lies at most {report['near_tie_threshold']:g} below the model's choice.")


def _figures(runs: Sequence[Run]) -> tuple[str, ...]:
    tokens, passes = sum(run.lookup.tokens for run in runs), sum(run.lookup.passes for run in runs)
    verdicts = (_count(runs, verdict) for verdict in ("identical", "near-tie", "fault"))
    return (
        f"{len(runs):,}",
        f"{tokens:,}",
        *map(str, verdicts),
        f"{(tokens - len(runs)) / passes:.1f}" if passes else "",
    )


def _difference_line(run: Run, model: LanguageModel) -> str:
    assert run.difference is not None
    found = run.difference
    seed = "" if run.seed is None else f" with seed {run.seed}"
    written = [
        "the end" if token is None else repr(model.tokenizer.decode([token]))
        for token in (found.plain, found.lookup)
    ]
    return (
        f"{run.verdict}: prompt {run.prompt + 1}, {run.mode}{seed}, token {found.position}: plain {written[0]}, "
        f"lookup {written[1]}; {found.why}"
    )
