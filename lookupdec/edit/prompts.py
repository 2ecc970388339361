"""What a model is asked. Knows templates and text, no model and no tokens.

The text comes first and the instruction after it, so that consecutive instructions on one text share their
prefix. Templates are files that a user can replace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Literal, get_args

from lookupdec.edit.fences import fence_around
from lookupdec.edit.textio import check_unicode
from lookupdec.errors import FileError, InputError

Messages = list[dict[str, str]]
"""Chat messages: ``role`` and ``content``."""

Task = Literal["whole", "part", "create", "rewrite", "summarize"]
"""What is asked, each by its template: to edit a text, or a part of it, to write one where there is none, to
rewrite it, to summarise it."""

_TASKS: tuple[Task, ...] = get_args(Task)
_SENTENCE_WORDS = 4
"""A line of a template with so many words of its own is nobody's text."""
_FIELDS = frozenset({"context", "fence", "language", "text", "part", "instruction"})


@dataclass(frozen=True, slots=True)
class EditPrompt:
    """What goes into a prompt. ``part`` is the piece of ``text`` to edit, "" where that is all of it.

    ``context`` are other texts the model should know; ``language`` is an info string for the fences.
    """

    instruction: str
    text: str = ""
    part: str = ""
    language: str = ""
    context: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Templates:
    """The texts of prompts: ``string.Template`` files, ``system.txt`` and one for each task."""

    system: str
    tasks: Mapping[Task, str]

    @classmethod
    def load(cls, folder: Path | None = None) -> Templates:
        """Read the templates of a folder; those it lacks are the built-in ones. Raises ``FileError``."""
        if folder is not None and not folder.is_dir():
            raise FileError(f"there is no folder {folder} with templates: check the path")
        return cls(_read("system", folder), {task: _read(task, folder) for task in _TASKS})

    def messages(self, task: Task, prompt: EditPrompt) -> Messages:
        """Return the chat messages that ask for ``task``."""
        text, part = _with_newline(prompt.text), _with_newline(prompt.part)
        fence = fence_around(text, part, *prompt.context)
        fields = {
            "fence": fence,
            "language": prompt.language,
            "text": text,
            "part": part,
            "instruction": prompt.instruction.strip(),
            "context": "".join(f"{fence}\n{_with_newline(other)}{fence}\n\n" for other in prompt.context),
        }
        asked = check_unicode(Template(self.tasks[task]).substitute(fields), "prompt")
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": asked}]

    def sentences(self, prompt: EditPrompt) -> list[str]:
        """Return what the templates say in words of their own, with the instruction in its place."""
        filled = {"instruction": prompt.instruction.strip(), "language": prompt.language, "context": ""}
        lines = "\n".join((self.system, *self.tasks.values())).split("\n")
        return [
            Template(line).safe_substitute(filled).strip()
            for line in lines
            if len(re.sub(r"\$\{?\w+\}?", " ", line).split()) >= _SENTENCE_WORDS
        ]


def plain_prompt(messages: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """Return messages as a text for a model without chat template, and the string that ends its answer.

    Such a model continues text: the prompt opens a code block, and the answer ends where it closes. Where the
    last message is the assistant's, the answer continues it.
    """
    asked = messages
    begun = ""
    if messages and messages[-1]["role"] == "assistant":
        asked, begun = messages[:-1], messages[-1]["content"]
    content = "\n\n".join(message["content"] for message in asked)
    opened = re.match("(`{3,})[^`\n]*\n", begun)
    if opened:
        return f"{content}\n\nThe result:\n\n{begun}", f"\n{opened[1]}"
    fence = max(re.findall("`{3,}", content + "\n" + begun), key=len, default="```")
    return f"{content}\n\nThe result:\n\n{fence}\n{begun}", f"\n{fence}"


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
        else:
            text = resources.files("lookupdec.edit").joinpath("templates", f"{name}.txt").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the template {path} cannot be read as UTF-8 text: check the file") from error
    if name != "system":
        _check(name, text)
    return text.removesuffix("\n")


def _check(name: str, text: str) -> None:
    template = Template(text)
    if not template.is_valid():
        raise FileError(f"the template {name}.txt has a stray $: write $$ for a dollar sign")
    found = set(template.get_identifiers())
    if unknown := found - _FIELDS:
        raise FileError(f"the template {name}.txt asks for ${unknown.pop()}, which is not known")
    needed = {"instruction"} if name == "create" else {"instruction", "part" if name == "part" else "text"}
    if missing := needed - found:
        raise FileError(f"the template {name}.txt lacks ${missing.pop()}")


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
