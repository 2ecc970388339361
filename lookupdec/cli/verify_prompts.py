"""The prompts of ``lookupdec verify``: a file of the user's, the project's data, or a few built in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lookupdec.errors import InputError
from lookupdec.files import read_bytes

_CODE = """\
def load_settings(path, defaults):
    settings = dict(defaults)
    with open(path) as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            name, _, value = line.partition("=")
            settings[name.strip()] = value.strip()
    return settings
"""

_CONFIG = """\
services:
  web:
    image: example/web:1.4
    ports: ["8080:80"]
    environment:
      LOG_LEVEL: info
      CACHE_SECONDS: "300"
  worker:
    image: example/worker:1.4
    environment:
      LOG_LEVEL: info
      CACHE_SECONDS: "300"
"""

_TEXT = """\
The library opens at nine on weekdays and at ten on Saturdays. It is closed on Sundays. Members may borrow
six books for three weeks, and renew them twice unless another member has asked for them. Newspapers and
maps are read in the building. A lost card costs two euros.
"""

_CHARACTERS = """\
name: Zoë Ďurišová; city: Košice; note: naïve café ☕ — “quoted” 👩‍👩‍👧
name: 山田太郎; city: 東京; note: 図書館へ行きます。
name: Ægir Þórsson; city: Reykjavík; note: e\u0301 is é, almost.
"""

_BUILT_IN = (
    ("Rename the parameter path to filename, and return the whole function.", _CODE),
    ("Set LOG_LEVEL to debug for the worker only, and return the whole file.", _CONFIG),
    ("Change the opening hour on Saturdays to eleven, and return the whole text.", _TEXT),
    ("Summarise this in two sentences.", _TEXT),
    ("Copy these lines exactly, changing nothing.", _CHARACTERS),
)
# The data lies beside the package in a checkout; an installed package has none.
_DATA = Path(__file__).resolve().parents[2] / "datasets" / "edits.jsonl"
# Longer ones take minutes on a CPU and prove nothing more.
_LONGEST_DATA = 2000
_KINDS = "give each line messages, a prompt, or an instruction and an input"

Messages = list[dict[str, Any]]


def read_prompts(path: Path | None) -> list[str | Messages]:
    """Return the prompts of a JSON Lines file; for None, the project's shorter edits or those built in.

    A line is a string or an object with ``messages``, with ``prompt``, or with ``instruction`` and ``input``.

    Raises ``FileError`` and ``InputError``.
    """
    if path is None and not _DATA.is_file():
        return [_edit(instruction, text) for instruction, text in _BUILT_IN]
    if path is None:
        return [prompt for prompt in _read(_DATA) if len(str(prompt)) <= _LONGEST_DATA]
    return _read(path)


def _read(path: Path) -> list[str | Messages]:
    lines = read_bytes(path).split(b"\n")
    prompts = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise InputError(f"{path} holds no prompts: {_KINDS}")
    return prompts


def _parse(line: bytes, place: str) -> str | Messages:
    try:
        item = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place} is no JSON ({error}): {_KINDS}") from error
    fields = item if isinstance(item, dict) else {"prompt": item}
    prompt, messages = fields.get("prompt"), fields.get("messages")
    instruction, text = fields.get("instruction"), fields.get("input")
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        return messages
    if isinstance(instruction, str) and isinstance(text, str):
        return _edit(instruction, text)
    raise InputError(f"{place} is no prompt: {_KINDS}")


def _edit(instruction: str, text: str) -> Messages:
    return [{"role": "user", "content": f"{instruction}\n\n{text}"}]
