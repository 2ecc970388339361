"""``lookupdec edit``: change a file as an instruction says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lookupdec.cli.common import (
    INCOMPLETE,
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
    Phrases,
    Seed,
    Source,
    Temperature,
    TemplateFolder,
    error_console,
    generation_settings,
    one_line_errors,
    parse_lines,
    write_stdout,
)
from lookupdec.cli.report import result_as_json
from lookupdec.cli.show import print_diff, speed, stream_view, waiting
from lookupdec.edit.diff import encoded_diff
from lookupdec.edit.prompts import check_instruction
from lookupdec.errors import FileError, InputError
from lookupdec.files import check_writable, write_atomically

if TYPE_CHECKING:
    from lookupdec.edit.editor import Editor
    from lookupdec.edit.results import EditResult


def edit_command(  # noqa: PLR0913
    file: FileArgument,
    instruction: Instruction,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write the new text into FILE.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the new text here.")] = None,
    lines: Lines = None,
    language: Language = None,
    path: GivenPath = None,
    as_json: AsJson = False,
    split: Annotated[
        bool,
        typer.Option(
            "--split/--no-split",
            help="Edit a file that is longer than the model's context in parts, or refuse it.",
        ),
    ] = True,
    plain: Annotated[bool, typer.Option("--plain", help="Decode without drafting.")] = False,
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Use an answer that is cut or leaves text out, too.")
    ] = False,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    exact: ExactMode = "auto",
    temperature: Temperature = 0.0,
    seed: Seed = None,
    max_new_tokens: MaxNewTokens = None,
    encoding: Encoding = None,
    templates: TemplateFolder = None,
    phrases: Phrases = None,
) -> None:
    """Change FILE as the instruction says, and print the diff.

    The file itself stays as it is unless --in-place is given. With - as FILE, the new text is
    printed; --path or --language say what it is.
    """
    console = error_console()
    with one_line_errors():
        target = _target(file, in_place=in_place, output=output)
        source = Source.read(file, encoding, path)
        check_instruction(instruction)
        line_range = parse_lines(lines, source.document.text)
        editor = load_editor(
            console, model, templates, dtype=dtype, device=device, exact=exact, phrases=phrases
        )
        with stream_view(console, editor.engine.decode) as view:
            result = editor.edit(
                source.document.text,
                instruction,
                lines=line_range,
                language=language,
                path=source.known_as,
                split=split,
                plain=plain,
                allow_incomplete=allow_incomplete,
                on_token=view,
                **generation_settings(temperature, seed, max_new_tokens),
            )
        usable = result.complete or allow_incomplete
        new_data, failure = _store(source, result.text, target if usable else None)
        if console.is_terminal:
            console.print(speed(result.stats, result.stats.seconds), style="dim")
        if result.parts > 1:
            console.print(f"the file is longer than the model's context: edited in {result.parts} parts")
        print_warnings(console, result)
        if as_json:
            typer.echo(json.dumps(result_as_json(result, editor.engine.name, source.known_as or source.name)))
        elif source.path is None and output is None and usable and failure is None:
            write_stdout(new_data)
        else:
            print_result_diff(console, source, result)
        if failure is not None:
            raise failure
    if not usable:
        raise typer.Exit(INCOMPLETE)


def load_editor(console: Console, model: str | None, templates: Path | None, **options: Any) -> Editor:
    """Load what edits, with the options of ``Editor.load``; importing it takes a while, too."""
    with waiting(console, "loading the model") as progress:
        from lookupdec.edit.editor import Editor

        return Editor.load(model, templates=templates, progress=progress, **options)


def _target(file: str, *, in_place: bool, output: Path | None) -> Path | None:
    """Return the file to write, None for none; what cannot be written is refused before any work."""
    if in_place and output is not None:
        raise InputError("give either --in-place or --output, not both")
    if in_place and file == "-":
        raise InputError("standard input cannot be edited in place: leave out --in-place, or name a file")
    target = Path(file) if in_place else output
    if target is not None and (target.exists() or not in_place):
        check_writable(target)
    return target


def _store(source: Source, text: str, target: Path | None) -> tuple[bytes, FileError | None]:
    """Return the bytes of the new text, and write them to ``target``; what went wrong is told after the result.

    A file that is edited in place is written only where it is still what was read, and where something changes.
    """
    in_place = target is not None and target == source.path
    try:
        data = source.document.encode(text, name=source.name)
        if target is not None and not (in_place and data == source.data):
            write_atomically(target, data, expected=source.data if in_place else None)
    except FileError as error:
        return b"", error
    return data, None


def print_warnings(console: Console, result: EditResult) -> None:
    """Say what casts doubt on an answer, and that nothing changed where that is so."""
    for warning in result.warnings:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
    if not result.complete:
        console.print("the answer is not complete: it can be used with --allow-incomplete", soft_wrap=True)
    elif not result.changed:
        console.print("nothing changed")


def print_result_diff(console: Console, source: Source, result: EditResult) -> None:
    """Print the diff of a file: in colour on a terminal, elsewhere with the bytes that the file has."""
    out = Console(highlight=False)
    if out.is_terminal and result.diff:
        print_diff(out, result.diff)
        return
    diff, applies = encoded_diff(source.document, result.text, source.known_as or "text")
    if not applies and diff:
        console.print(f"the diff is for reading: it is in UTF-8, the file in {source.document.encoding}")
    write_stdout(diff)
