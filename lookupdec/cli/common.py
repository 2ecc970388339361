"""What the commands share: their options, reading input, and ending in one line whatever goes wrong."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from lookupdec.edit.region import Region
from lookupdec.edit.textio import Document, split_lines
from lookupdec.errors import InputError, LookupDecError, on_command_line
from lookupdec.files import read_bytes

BAD_INPUT, INCOMPLETE, INTERRUPTED = 2, 3, 130

FileArgument = Annotated[str, typer.Argument(help="The file to edit; - is standard input.", metavar="FILE")]
Instruction = Annotated[str, typer.Option("--instruction", "-i", help="What to change, in plain words.")]
Lines = Annotated[
    str | None, typer.Option(help="Rewrite these lines only, counted from 1.", metavar="FIRST:LAST")
]
Language = Annotated[
    str | None, typer.Option(help="What the text is, such as python; as FILE's name says when left out.")
]
GivenPath = Annotated[
    str | None,
    typer.Option("--path", help="Take FILE for a file of this name: its language, its name in the diff."),
]
ModelName = Annotated[
    str | None, typer.Option(help="A hub id, a folder or a GGUF file; the built-in model when left out.")
]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")]
ExactMode = Annotated[
    Literal["auto", "bitwise", "fixed", "fast"],
    typer.Option("--exact", help="Arithmetic of half-precision passes."),
]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token; above it, draws.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Makes draws repeatable.")]
MaxNewTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest answer; left out, 1,024 and three times the text.")
]
Encoding = Annotated[
    str | None, typer.Option(help="The file's encoding where it is not UTF-8: latin-1, cp1252, ..., detect.")
]
TemplateFolder = Annotated[
    Path | None, typer.Option("--templates", help="A folder with prompts of your own.")
]
Phrases = Annotated[
    Path | None,
    typer.Option(help="A file with texts that often come, such as licence headers, to draft from."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be edited, where it came from, its bytes, and the path that its language and its diff go by."""

    path: Path | None
    document: Document
    data: bytes
    given_path: str | None = None

    @property
    def name(self) -> str:
        """The name to show."""
        return _name(self.path)

    @property
    def known_as(self) -> str | None:
        """The path that the text goes by, None for a text from standard input without one."""
        return self.given_path or (None if self.path is None else str(self.path))

    @classmethod
    def read(cls, name: str, encoding: str | None, given_path: str | None = None) -> Source:
        """Read a file, or standard input for "-". Raises ``FileError``."""
        path = None if name == "-" else Path(name)
        data = sys.stdin.buffer.read() if path is None else read_bytes(path)
        document = Document.from_bytes(data, encoding=encoding, name=_name(path))
        return cls(path, document, data, given_path)


@contextlib.contextmanager
def one_line_errors(stopped: str = "stopped: nothing was written") -> Iterator[None]:
    """Turn what is wrong with the input into one line on stderr and an exit code; Ctrl-C into ``stopped``.

    So is what the system refuses, a full disk say; a reader of the output who has gone is no error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (LookupDecError, OSError) as error:
        typer.echo(f"error: {on_command_line(str(error))}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    except KeyboardInterrupt as error:
        typer.echo(f"\n{stopped}", err=True)
        raise typer.Exit(INTERRUPTED) from error


def parse_lines(value: str | None, text: str) -> tuple[int, int] | None:
    """Read ``FIRST:LAST``, ``FIRST:``, ``:LAST`` or one number, and check that ``text`` has these lines."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    try:
        start = int(first) if first or not colon else 1
        end = (int(last) if last else len(split_lines(text))) if colon else start
    except ValueError:
        raise InputError(f"{value!r} is no line range: give FIRST:LAST, such as 10:40") from None
    Region.of_lines(text, (start, end))
    return start, end


def generation_settings(temperature: float, seed: int | None, max_new_tokens: int | None) -> dict[str, Any]:
    """Return the settings to generate with, by name."""
    return {"temperature": temperature, "seed": seed, "max_new_tokens": max_new_tokens}


def error_console() -> Console:
    """The console for everything that is not the result."""
    return Console(stderr=True, highlight=False)


def write_stdout(data: bytes) -> None:
    """Write bytes as they are: no translation of line endings, no encoding of the terminal's."""
    typer.echo(data, nl=False)


def _name(path: Path | None) -> str:
    return "standard input" if path is None else str(path)
