"""Edit many texts into a file of results that survives a kill. Knows no model and no terminal.

One result a line, in the order of the items, each on the disk before the next item begins. What a killed run
left is therefore a beginning of the whole: the next run checks it against the items and goes on behind it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from lookupdec.edit.editor import Editor
from lookupdec.edit.results import EditResult, total
from lookupdec.errors import FileError, InputError
from lookupdec.stats import Stats

Record = dict[str, Any]
"""One result, as it stands in the file."""

_TEXT_FIELDS = ("text", "input")
_REMEMBERED_CHARACTERS = 4_000_000
"""About what a rolling cache holds."""
_OPTIONS = ("lines", "selection", "language", "path", "context", "prediction")


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
    on_item: Callable[[Progress], object] | None = None,
    **settings: Any,
) -> Progress:
    """Edit every item and append its result to the JSONL file ``output``.

    An item has ``text`` (or ``input``) and ``instruction``, or takes the one given here; it may have ``id``
    and what ``Editor.edit`` takes: ``lines``, ``selection``, ``language``, ``path``, ``context``,
    ``prediction``. ``items`` may be a JSONL file. A bad item becomes a result with ``error``, and the rest
    goes on.

    Results that ``output`` holds already are not made again. They must be those of the same items and
    settings, or ``FileError`` is raised, as it is where another run is writing the file. Earlier answers help
    to draft later ones, within ``namespace``; those of earlier runs, too.
    """
    common = {"instruction": instruction, "model": editor.engine.name, "settings": settings}
    progress, past = Progress(), _Past(namespace)
    with _opened(output) as file:
        earlier = _records(file, output)
        for index, item in enumerate(_read(items)):
            digest = _digest(item, common)
            record = next(earlier, None)
            stats = None
            if record is None:
                past.remind(editor.engine)
                record, stats = _edit(editor, item, instruction, namespace, settings)
                place = {"index": index, "id": item.get("id"), "item_sha256": digest, "namespace": namespace}
                record = place | record
                _append(file, record)
            elif record.get("item_sha256") != digest:
                raise FileError(
                    f"line {index + 1} of {output} is the result of another item or other settings: "
                    "name a new file"
                )
            else:
                past.add(record)
            progress.add(record, stats)
            if on_item is not None:
                on_item(progress)
        if next(earlier, None) is not None:
            raise FileError(f"{output} holds more results than there are items: name a new file")
    return progress


def _edit(
    editor: Editor,
    item: Mapping[str, Any],
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


def _checked(item: Mapping[str, Any], instruction: str | None) -> tuple[str, str, Record]:
    if "error" in item:
        raise InputError(item["error"])
    text = next((item[name] for name in _TEXT_FIELDS if name in item), None)
    own_instruction = item.get("instruction", instruction)
    if not isinstance(text, str):
        raise InputError('the item has no text: give it as "text"')
    if not isinstance(own_instruction, str):
        raise InputError('the item has no instruction: give it as "instruction", or one for all items')
    if not text.strip():
        raise InputError("the text is empty: there is nothing to edit")
    options = {name: item[name] for name in _OPTIONS if item.get(name) is not None}
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


def _read(items: Iterable[Mapping[str, Any]] | Path) -> Iterator[Mapping[str, Any]]:
    """Give the items; a line that is no JSON object is one with an error."""
    if not isinstance(items, Path):
        yield from items
        return
    with items.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _parsed(line, number)


def _parsed(line: bytes, number: int) -> Mapping[str, Any]:
    try:
        item = json.loads(line)
    except ValueError as error:
        return {"error": f"line {number} is no JSON: {error}"}
    return item if isinstance(item, dict) else {"error": f"line {number} is no JSON object"}


def _digest(item: Mapping[str, Any], common: Mapping[str, Any]) -> str:
    """Return what tells whether a result was made from this very item in this very way."""
    return hashlib.sha256(json.dumps([item, common], sort_keys=True, default=str).encode()).hexdigest()


@contextlib.contextmanager
def _opened(output: Path) -> Iterator[IO[bytes]]:
    """Open the results for reading and appending, for this process alone."""
    try:
        file = output.open("a+b")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"{output} cannot be written: {reason}") from error
    with file:
        _lock(file, output)
        yield file


def _lock(file: IO[bytes], output: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileError(
            f"{output} is being written by another run: wait for it, or name another file"
        ) from error


def _records(file: IO[bytes], output: Path) -> Iterator[Record]:
    """Give the results of earlier runs, and cut off a last one that was not written whole."""
    file.seek(0)
    end = 0
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            break
        end += len(line)
        try:
            record = json.loads(line)
        except ValueError as error:
            raise FileError(f"line {number} of {output} is no result: name a new file") from error
        if not isinstance(record, dict):
            raise FileError(f"line {number} of {output} is no result: name a new file")
        yield record
    file.truncate(end)


def _append(file: IO[bytes], record: Record) -> None:
    file.seek(0, os.SEEK_END)
    # A lone surrogate, say in an id, becomes the escape that JSON has for it.
    file.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    file.flush()
    os.fsync(file.fileno())
