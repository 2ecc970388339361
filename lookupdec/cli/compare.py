"""``lookupdec compare``: the same edit by plain decoding and by lookup, side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from lookupdec.cli.common import (
    AsJson,
    Device,
    Dtype,
    Encoding,
    ExactMode,
    FileArgument,
    GivenPath,
    Instruction,
    Language,
    Lines,
    MaxNewTokens,
    ModelName,
    Seed,
    Source,
    Temperature,
    TemplateFolder,
    error_console,
    generation_settings,
    one_line_errors,
    parse_lines,
)
from lookupdec.cli.edit import load_editor, print_result_diff, print_warnings
from lookupdec.cli.report import Comparison
from lookupdec.cli.show import stream_view, waiting
from lookupdec.edit.prompts import check_instruction

if TYPE_CHECKING:
    from lookupdec.edit.editor import Editor
    from lookupdec.edit.results import EditResult

DIFFERENT = 1
_WARM_UP_TOKENS = 8


def compare_command(  # noqa: PLR0913
    file: FileArgument,
    instruction: Instruction,
    lines: Lines = None,
    language: Language = None,
    path: GivenPath = None,
    as_json: AsJson = False,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    exact: ExactMode = "auto",
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = None,
    encoding: Encoding = None,
    templates: TemplateFolder = None,
) -> None:
    """Edit FILE by lookup and by plain decoding, print what each cost.

    FILE stays as it is. Fails where the two answers differ in float32.
    """
    console = error_console()
    with one_line_errors():
        source = Source.read(file, encoding, path)
        check_instruction(instruction)
        request: dict[str, Any] = {
            "text": source.document.text,
            "instruction": instruction,
            "lines": parse_lines(lines, source.document.text),
            "language": language,
            "path": source.known_as,
            "split": False,
        }
        # Both read the whole prompt: neither may start from what the other has read.
        editor = load_editor(
            console, model, templates, dtype=dtype, device=device, exact=exact, prefix_bytes=0
        )
        settings = generation_settings(temperature, seed, max_new_tokens)
        result, comparison = _compare(editor, console, request, settings)
        print_warnings(console, result)
        if as_json:
            typer.echo(json.dumps(comparison.as_json()))
        else:
            print_result_diff(console, source, result)
            Console(highlight=False).print(comparison.table())
    if not comparison.identical and editor.engine.dtype == "float32":
        typer.echo("error: the two answers differ, which must not happen in float32", err=True)
        raise typer.Exit(DIFFERENT)


def _compare(
    editor: Editor, console: Console, request: dict[str, Any], settings: dict[str, Any]
) -> tuple[EditResult, Comparison]:
    with waiting(console, "warming up"):
        # The first passes of a process compile kernels and fault memory in: no part of either's speed.
        for plain in (False, True):
            editor.edit(**request, **(settings | {"max_new_tokens": _WARM_UP_TOKENS}), plain=plain)
    with stream_view(console, editor.engine.decode) as view:
        lookup = editor.edit(**request, **settings, on_token=view)
    with waiting(console, "the same by plain decoding"):
        plain_result = editor.edit(**request, **settings, plain=True)
    return lookup, Comparison(plain_result.stats, lookup.stats, lookup.answer == plain_result.answer)
