"""Edit many texts into a file of results. Knows no model and no terminal.

What an earlier run left is checked against the items, and the run goes on behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lookupdec.edit.editor import Editor
from lookupdec.edit.records import Record, encoded, opened
from lookupdec.edit.results import EditResult, total
from lookupdec.errors import FileError, InputError, first_line
from lookupdec.files import naming
from lookupdec.stats import Stats

_TEXT_FIELDS = ("text", "input")
_REMEMBERED_CHARACTERS = 4_000_000
"""About what a rolling cache holds."""
_OPTIONS = ("lines", "selection", "language", "path", "context", "prediction")
_FIELDS = ("id", *_TEXT_FIELDS, "instruction", *_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Item:
    """What counts of an item, as it is and as JSON; ``error`` says why that cannot be edited at all.

    All other columns are their owner's.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    encoded: bytes = b""
    error: str = ""

    @classmethod
    def of(cls, item: object) -> _Item:
        """Take an item of a program."""
        if not isinstance(item, Mapping):
            return cls(error="the item is no mapping of names to values")
        fields = {name: item[name] for name in _FIELDS if name in item}
        try:
            return cls(fields, encoded(fields))
        except (TypeError, ValueError, RecursionError) as error:
            return cls(error=f"the item cannot be written as JSON: {first_line(error)}")

    @classmethod
    def parsed(cls, line: bytes, number: int) -> _Item:
        """Read a line of a file."""
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            return cls(error=f"line {number} is no JSON: {first_line(error)}")
        return cls.of(item) if isinstance(item, dict) else cls(error=f"line {number} is no JSON object")

    def digest(self, common: bytes) -> str:
        """Return what tells whether a result was made from this very item in this very way."""
        return hashlib.sha256(b"\0".join((self.encoded, self.error.encode(), common))).hexdigest()


@dataclass(slots=True)
class Progress:
    """How far a run is: items by how they ended, resumed ones among them, and what this run cost."""

    done: int = 0
    resumed: int = 0
    failed: int = 0
    incomplete: int = 0
    stats: Stats = field(default_factory=partial(total, ()))

    def add(self, record: Record, stats: Stats | None) -> None:
        """Count one item; ``stats`` is None for one that an earlier run did."""
        self.done += 1
        self.resumed += stats is None
        self.failed += "error" in record
        self.incomplete += not record.get("complete", True)
        if stats is not None:
            self.stats = total([self.stats, stats])


@runtime_checkable
class _Remembers(Protocol):
    """An engine that drafts from texts it is told."""

    def remember(self, text: str, namespace: str) -> None:
        """Draft from this text, too, in requests that name the namespace."""


@dataclass(slots=True)
class _Past:
    """The results of earlier runs in one namespace, the newest as far as they can be of use."""

    namespace: str | None
    texts: deque[str] = field(default_factory=deque)
    size: int = 0

    def add(self, record: Record) -> None:
        """Keep a result for ``remind``, where it is an answer and of this namespace."""
        text = record.get("answer", record.get("text"))
        if record.get("namespace") != self.namespace or not isinstance(text, str):
            return
        self.texts.append(text)
        self.size += len(text)
        while self.size > _REMEMBERED_CHARACTERS and len(self.texts) > 1:
            self.size -= len(self.texts.popleft())

    def remind(self, engine: object) -> None:
        """Tell an engine what was kept; does nothing when called again."""
        if self.namespace is not None and isinstance(engine, _Remembers):
            for text in self.texts:
                engine.remember(text, self.namespace)
        self.texts.clear()


def edit_many(
    editor: Editor,
    items: Iterable[Mapping[str, Any]] | Path,
    output: Path,
    *,
    instruction: str | None = None,
    namespace: str | None = "edit_many",
    retry: bool = False,
    on_item: Callable[[Progress], object] | None = None,
    **settings: Any,
) -> Progress:
    """Edit every item and append its result to the JSONL file ``output``.

    An item has ``text`` (or ``input``) and ``instruction``, or takes the one given here; it may have ``id``
    and what ``Editor.edit`` takes: ``lines``, ``selection``, ``language``, ``path``, ``context``,
    ``prediction``. ``items`` may be a JSONL file. A bad item becomes a result with ``error``, and the rest
    goes on.

    Results that ``output`` holds already are not made again; with ``retry``, those with an error and those that
    are not complete are, once, also where their items have changed. All others must be those of the same items and
    settings, or ``FileError`` is raised, as it is where another run is writing the file. Earlier answers help to
    draft later ones, within ``namespace``; those of earlier runs, too.
    """
    if isinstance(items, Path) and output.exists() and items.exists() and output.samefile(items):
        raise FileError(f"{output} holds the items: name another file for the results")
    common = _common(editor, instruction, settings)
    progress, past = Progress(), _Past(namespace)
    with _read(items) as found, opened(output, retry=retry) as results:
        for index, item in enumerate(found):
            digest = item.digest(common)
            record, stats = results.earlier(digest), None
            if record is None:
                past.remind(editor.engine)
                record, stats = _edit(editor, item, instruction, namespace, settings)
                place = {"index": index, "id": item.fields.get("id")}
                record = place | {"item_sha256": digest, "namespace": namespace} | record
                results.append(record)
            else:
                past.add(record)
            progress.add(record, stats)
            if on_item is not None:
                on_item(progress)
        results.check_end()
    return progress


def _common(editor: Editor, instruction: str | None, settings: Mapping[str, Any]) -> bytes:
    """Return what all results depend on, besides their items."""
    given = {
        name: value for name, value in sorted(settings.items()) if not (value is None or callable(value))
    }
    engine = editor.engine
    model = [engine.name, engine.dtype, getattr(engine, "arithmetic", None)]  # the last is not every engine's
    return encoded(
        [instruction, model, given, editor.templates.system, sorted(editor.templates.tasks.items())]
    )


def _edit(
    editor: Editor,
    item: _Item,
    instruction: str | None,
    namespace: str | None,
    settings: Mapping[str, Any],
) -> tuple[Record, Stats]:
    try:
        text, own_instruction, options = _checked(item, instruction)
        result = editor.edit(text, own_instruction, namespace=namespace, **options, **settings)
    except InputError as error:
        return {"error": " ".join(str(error).split())}, Stats()
    return _as_record(result), result.stats


def _checked(item: _Item, instruction: str | None) -> tuple[str, str, Record]:
    if item.error:
        raise InputError(item.error)
    fields = item.fields
    text = next((fields[name] for name in _TEXT_FIELDS if name in fields), None)
    own_instruction = fields.get("instruction", instruction)
    if not isinstance(text, str):
        raise InputError('the item has no text: give it as "text"')
    if not isinstance(own_instruction, str):
        raise InputError('the item has no instruction: give it as "instruction", or one for all items')
    if not text.strip():
        raise InputError("the text is empty: there is nothing to edit")
    options = {name: fields[name] for name in _OPTIONS if fields.get(name) is not None}
    for name in ("lines", "selection"):
        if name in options:
            options[name] = _pair(name, options[name])
    for name in ("language", "path", "prediction"):
        if not isinstance(options.get(name, ""), str):
            raise InputError(f"the item's {name} is no text")
    context = options.get("context", [])
    if not isinstance(context, list) or not all(isinstance(other, str) for other in context):
        raise InputError("the item's context is no list of texts")
    return text, own_instruction, options


def _pair(name: str, value: object) -> tuple[int, int]:
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(part) is int for part in value):
        return value[0], value[1]
    raise InputError(f"the item's {name} must be two whole numbers")


def _as_record(result: EditResult) -> Record:
    # The text of an answer that is not complete is the original: what the model wrote is kept beside it.
    answer = {} if result.complete else {"answer": result.answer}
    return answer | {
        "text": result.text,
        "changed": result.changed,
        "complete": result.complete,
        "warnings": list(result.warnings),
        "diff": result.diff,
        "tokens": result.stats.tokens,
        "passes": result.stats.passes,
        "seconds": round(result.stats.seconds, 3),
    }


@contextmanager
def _read(items: Iterable[Mapping[str, Any]] | Path) -> Iterator[Iterator[_Item]]:
    """Give the items; one that cannot be read says so itself. Raises ``FileError`` for a file that cannot be."""
    if not isinstance(items, Path):
        yield map(_Item.of, items)
        return
    with naming(items, "cannot be read"):
        file = items.open("rb")
    with file:
        yield (_Item.parsed(line, number) for number, line in enumerate(file, start=1) if line.strip())
