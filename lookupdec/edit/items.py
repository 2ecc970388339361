"""The items of many edits: read, checked, and what of them is not read told. Knows no model and no result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lookupdec.edit.records import encoded
from lookupdec.errors import FileError, InputError, first_line
from lookupdec.files import naming, read_bytes

_TEXT_FIELDS = ("text", "input")
_OPTIONS = ("lines", "selection", "language", "path", "context", "prediction")
_FIELDS = ("id", *_TEXT_FIELDS, "instruction", *_OPTIONS)
_OF_A_RUN = {
    *("allow_incomplete", "deadline", "drafting", "max_new_tokens", "max_tokens", "model", "namespace"),
    *("position_encoding", "prompt_cache_key", "return", "seed", "session", "stream", "temperature"),
}
"""Fields that an edit over HTTP or in Python has and an item has not."""
_ALIKE = 0.8  # "txt" for text, "languge" for language; not "lang", which data sets have for other ends


@dataclass(frozen=True, slots=True)
class Item:
    """What counts of an item, as it is and as JSON; ``error`` says why that cannot be edited at all.

    All other columns are their owner's.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    encoded: bytes = b""
    error: str = ""

    @classmethod
    def of(cls, item: object) -> Item:
        """Take an item of a program."""
        if not isinstance(item, Mapping):
            return cls(error="the item is no mapping of names to values")
        fields = {name: item[name] for name in _FIELDS if name in item}
        try:
            return cls(fields, encoded(fields))
        except (TypeError, ValueError, RecursionError) as error:
            return cls(error=f"the item cannot be written as JSON: {first_line(error)}")

    @classmethod
    def parsed(cls, line: bytes, number: int) -> Item:
        """Read a line of a file."""
        try:
            return cls.of(_object(line, number))
        except InputError as error:
            return cls(error=str(error))

    def checked(self, instruction: str | None) -> tuple[str, str, dict[str, Any]]:
        """Return the text, its instruction (else the one given) and the options of the edit.

        Raises ``InputError``.
        """
        if self.error:
            raise InputError(self.error)
        given = {name: value for name, value in self.fields.items() if value is not None}
        name = next((name for name in _TEXT_FIELDS if name in given), None)
        if name is None:
            raise InputError('the item has no text: give it as "text"')
        text, own_instruction = given[name], given.get("instruction", instruction)
        if not isinstance(text, str):
            raise InputError(f"the item's {name} is no string")
        if own_instruction is None:
            raise InputError('the item has no instruction: give it as "instruction", or one for all items')
        if not isinstance(own_instruction, str):
            raise InputError("the item's instruction is no string")
        return text, own_instruction, _options({name: given[name] for name in _OPTIONS if name in given})


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as an edit takes them. Raises ``InputError``."""
    options = dict(given)
    for name in ("lines", "selection"):
        if name in options:
            options[name] = _pair(name, options[name])
    for name in ("language", "path", "prediction"):
        if not isinstance(options.get(name, ""), str):
            raise InputError(f"the item's {name} is no string")
    context = options.get("context", [])
    if not isinstance(context, list) or not all(isinstance(other, str) for other in context):
        raise InputError("the item's context is no list of strings")
    return options


def _pair(name: str, value: object) -> tuple[int, int]:
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(part) is int for part in value):
        return value[0], value[1]
    raise InputError(f"the item's {name} must be two whole numbers")


def _object(line: bytes, number: int) -> dict[str, Any]:
    """Return a line's JSON object. Raises ``InputError``."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number} is no JSON: {first_line(error)}") from error
    if not isinstance(found, dict):
        raise InputError(f"line {number} is no JSON object")
    return found


@contextmanager
def read_items(items: Iterable[Mapping[str, Any]] | Path) -> Iterator[Iterator[Item]]:
    """Give the items; one that cannot be read says so itself. Raises ``FileError`` for a file that cannot be."""
    if not isinstance(items, Path):
        yield map(Item.of, items)
        return
    with naming(items, "cannot be read"):
        file = items.open("rb")
    with file:
        yield (Item.parsed(line, number) for number, line in enumerate(file, start=1) if line.strip())


def survey(path: Path) -> tuple[int, list[str]]:
    """Return how many items a file has, and a sentence for every field that one has and that is not read.

    Only fields that were meant for an edit are told; other columns may be of any name. Raises ``FileError`` for a
    file that cannot be read, and for one in which no line is a JSON object.
    """
    lines = [(number, line) for number, line in enumerate(read_bytes(path).split(b"\n"), 1) if line.strip()]
    names: dict[str, None] = {}  # in the order in which they come
    first_error, is_any_good = "", False
    for number, line in lines:
        try:
            names |= dict.fromkeys(_object(line, number))
            is_any_good = True
        except InputError as error:
            first_error = first_error or str(error)
    if lines and not is_any_good:
        raise FileError(
            f"{path} holds no items: {first_error}; "
            'give each line one object, such as {"text": "...", "instruction": "..."}'
        )
    return len(lines), [told for name in names if (told := _unread(name))]


def _unread(name: str) -> str:
    """Say that a field is not read where it looks as if it should be, "" elsewhere."""
    if name in _FIELDS:
        return ""
    plain = name.strip().lower()
    if plain in _OF_A_RUN:
        return f"the field {name!r} of items is not read: it is one setting for all of them, or none"
    similar = get_close_matches(plain, (known for known in _FIELDS if known != "id"), 1, _ALIKE)
    return f"the field {name!r} of items is not read: is {similar[0]!r} meant?" if similar else ""
