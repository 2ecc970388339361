"""What a model is asked. Knows templates and text, no model and no tokens.

The text comes first and the instruction after it, so that consecutive instructions on one text share their
prefix. Templates are files that a user can replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from lookupdec.edit.fences import fence_around
from lookupdec.errors import FileError, InputError

Messages = list[dict[str, str]]
"""Chat messages: ``role`` and ``content``."""

_FIELDS = {
    "system": frozenset[str](),
    "whole": frozenset({"context", "fence", "language", "text", "instruction"}),
    "part": frozenset({"context", "fence", "language", "text", "part", "instruction"}),
}
_REQUIRED = {"whole": {"text", "instruction"}, "part": {"part", "instruction"}}

_LANGUAGES = {
    "c": "c", "cc": "cpp", "cpp": "cpp", "css": "css", "csv": "csv", "go": "go", "h": "c", "html": "html",
    "java": "java", "js": "javascript", "json": "json", "jsx": "jsx", "kt": "kotlin", "md": "markdown",
    "php": "php", "py": "python", "rb": "ruby", "rs": "rust", "sh": "bash", "sql": "sql", "toml": "toml",
    "ts": "typescript", "tsx": "tsx", "xml": "xml", "yaml": "yaml", "yml": "yaml",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EditPrompt:
    """What goes into a prompt. ``part`` is the piece of ``text`` to rewrite; None means all of it.

    ``context`` are other texts the model should know; ``language`` is an info string for the fences.
    """

    text: str
    instruction: str
    part: str | None = None
    language: str = ""
    context: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Templates:
    """The texts of a prompt: ``string.Template`` files ``system.txt``, ``whole.txt`` and ``part.txt``."""

    system: str
    whole: str
    part: str

    @classmethod
    def load(cls, folder: Path | None = None) -> Templates:
        """Read the templates of a folder; those it lacks are the built-in ones. Raises ``FileError``."""
        return cls(**{name: _read(name, folder) for name in _FIELDS})

    def messages(self, prompt: EditPrompt) -> Messages:
        """Return the chat messages that ask for an edit."""
        text, part = _with_newline(prompt.text), _with_newline(prompt.part or "")
        fence = fence_around(text, part, *prompt.context)
        fields = {
            "fence": fence,
            "language": prompt.language,
            "text": text,
            "instruction": prompt.instruction.strip(),
            "context": "".join(f"{fence}\n{_with_newline(other)}{fence}\n\n" for other in prompt.context),
        }
        if prompt.part is None:
            asked = Template(self.whole).substitute(fields)
        else:
            asked = Template(self.part).substitute(fields, part=part)
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": asked}]


def language_of(path: str | Path | None) -> str:
    """Return the info string for a file's fence, "" where its name tells nothing."""
    return "" if path is None else _LANGUAGES.get(Path(path).suffix.lower().lstrip("."), "")


def check_instruction(instruction: str) -> str:
    """Return the instruction, or raise ``InputError`` where it says nothing."""
    if not instruction.strip():
        raise InputError("the instruction is empty: say what to change")
    return instruction


def _read(name: str, folder: Path | None) -> str:
    path = folder / f"{name}.txt" if folder else None
    try:
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8")
        elif folder is not None and not folder.is_dir():
            raise FileError(f"there is no folder {folder} with templates: check the path")
        else:
            text = resources.files("lookupdec.edit").joinpath("templates", f"{name}.txt").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the template {path} cannot be read as UTF-8 text: check the file") from error
    _check(name, text)
    return text.removesuffix("\n")


def _check(name: str, text: str) -> None:
    template = Template(text)
    if not template.is_valid():
        raise FileError(f"the template {name}.txt has a stray $: write $$ for a dollar sign")
    found = set(template.get_identifiers())
    if unknown := found - _FIELDS[name]:
        raise FileError(f"the template {name}.txt asks for ${unknown.pop()}, which is not known")
    if missing := _REQUIRED.get(name, set()) - found:
        raise FileError(f"the template {name}.txt lacks ${missing.pop()}")


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
