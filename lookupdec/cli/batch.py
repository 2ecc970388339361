"""``lookupdec batch``: edit many texts, one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from lookupdec.cli.common import (
    INCOMPLETE,
    Device,
    Dtype,
    ExactMode,
    MaxNewTokens,
    ModelName,
    Phrases,
    Seed,
    Temperature,
    TemplateFolder,
    error_console,
    generation_settings,
    one_line_errors,
)
from lookupdec.cli.edit import load_editor
from lookupdec.cli.show import Lines, speed
from lookupdec.edit.items import survey
from lookupdec.stats import Stats

if TYPE_CHECKING:
    from lookupdec.edit.pipeline import Progress


def batch_command(  # noqa: PLR0913
    items: Annotated[Path, typer.Argument(help="Items: text and instruction.", metavar="IN.jsonl")],
    output: Annotated[Path, typer.Argument(help="Results, appended one by one.", metavar="OUT.jsonl")],
    instruction: Annotated[
        str | None, typer.Option("--instruction", "-i", help="For the items that have none.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Make results that failed or are not complete once more.")
    ] = False,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    exact: ExactMode = "auto",
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = None,
    templates: TemplateFolder = None,
    phrases: Phrases = None,
) -> None:
    """Edit every item of IN.jsonl. Run again after a stop: it goes on where it was.

    Exits with 3 where an item failed or its answer is not complete; its line in OUT.jsonl says why. With --retry
    such lines are made once more, in OUT.jsonl.retry, which takes the place of OUT.jsonl at the end.
    """
    console = error_console()
    with one_line_errors(stopped="stopped: what is finished is kept, run it again to go on"):
        count, unread = survey(items)
        for sentence in unread:
            console.print(f"warning: {sentence}", markup=False, soft_wrap=True)
        editor = load_editor(
            console, model, templates, dtype=dtype, device=device, exact=exact, phrases=phrases
        )
        from lookupdec.edit.pipeline import edit_many

        with _progress_bar(console, count) as show:
            progress = edit_many(
                editor,
                items,
                output,
                instruction=instruction,
                retry=retry,
                on_item=show,
                **generation_settings(temperature, seed, max_new_tokens),
            )
    console.print(_summary(progress, progress.done), soft_wrap=True)
    if progress.failed:
        alike = f", and {progress.alike - 1} more like it" if progress.alike > 1 else ""
        console.print(f"the first error{alike}: {progress.first_error}", markup=False, soft_wrap=True)
    if progress.failed or progress.incomplete:
        raise typer.Exit(INCOMPLETE)


@contextmanager
def _progress_bar(console: Console, count: int) -> Iterator[Callable[[Progress], None]]:
    if not console.is_terminal:
        lines = Lines(console)
        yield lambda progress: lines(lambda: f"{progress.done} of {_summary(progress, count)}")
        return
    figures = TextColumn("{task.fields[figures]}")
    with Bar(BarColumn(), MofNCompleteColumn(), figures, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("items", total=count, figures="")
        yield lambda progress: bar.update(task, completed=progress.done, figures=_speed(progress.stats))


def _summary(progress: Progress, count: int) -> str:
    parts = [f"{count} items"]
    for count, what in [
        (progress.resumed, "done before"),
        (progress.failed, "failed"),
        (progress.incomplete, "not complete"),
    ]:
        parts += [f"{count} {what}"] if count else []
    figures = _speed(progress.stats)
    return ", ".join(parts) + (f": {figures}" if figures else "")


def _speed(stats: Stats) -> str:
    return speed(stats, stats.seconds) if stats.tokens else ""
