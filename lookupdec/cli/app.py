"""The sub-commands put together. A new one is one line in here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from lookupdec.cli.batch import batch_command
from lookupdec.cli.compare import compare_command
from lookupdec.cli.edit import edit_command
from lookupdec.cli.lsp import lsp_command
from lookupdec.cli.replay import replay_command
from lookupdec.cli.verify import verify_command
from lookupdec.installed import own_version

app = typer.Typer(
    name="lookupdec",
    help="Edit, rewrite and summarise with a language model, by copying: the same output in fewer passes.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its panels cut the names of options at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("edit")(edit_command)
app.command("compare")(compare_command)
app.command("batch")(batch_command)
app.command("lsp")(lsp_command)
app.command("replay")(replay_command)
app.command("verify")(verify_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(own_version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; a wrong option is one line, as all bad input is."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    try:
        code = command.main(given or ["--help"], "lookupdec", standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        typer.echo("stopped", err=True)
        return 130
    except Exception as error:
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        message = " ".join(format_message().split()).removesuffix(".")
        context = getattr(error, "ctx", None)
        remedy = f": see {context.command_path} --help" if context is not None else ""
        typer.echo(f"error: {message}{remedy}", err=True)
        return 2
    if not given:
        return 2
    return code if isinstance(code, int) else 0
