"""Edit many texts into a file of results. Knows no model and no terminal.

What an earlier run left is checked against the items, and the run goes on behind it.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lookupdec.edit.editor import Editor
from lookupdec.edit.items import Item, read_items
from lookupdec.edit.records import Record, encoded, opened
from lookupdec.edit.results import EditResult, total
from lookupdec.errors import FileError, InputError
from lookupdec.stats import Stats

_REMEMBERED_CHARACTERS = 4_000_000
"""About what a rolling cache holds."""
_NUMBERS = re.compile(r"\d+")


@dataclass(slots=True)
class Progress:
    """How far a run is: items by how they ended, resumed ones among them, and what this run cost.

    ``alike`` errors say the same as the first one, but for numbers.
    """

    done: int = 0
    resumed: int = 0
    failed: int = 0
    incomplete: int = 0
    first_error: str = ""
    alike: int = 0
    stats: Stats = field(default_factory=partial(total, ()))

    def add(self, record: Record, stats: Stats | None) -> None:
        """Count one item; ``stats`` is None for one that an earlier run did."""
        self.done += 1
        self.resumed += stats is None
        if "error" in record:
            error = str(record["error"])
            self.failed += 1
            self.first_error = self.first_error or error
            self.alike += _NUMBERS.sub("", error) == _NUMBERS.sub("", self.first_error)
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

    An item has ``text`` (or ``input``; where it is empty, one is written) and ``instruction``, or takes the one given
    here; it may have ``id``
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
    with read_items(items) as found, opened(output, retry=retry) as results:
        for index, item in enumerate(found):
            digest = _digest(item, common)
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


def _digest(item: Item, common: bytes) -> str:
    """Return what tells whether a result was made from this very item in this very way."""
    return hashlib.sha256(b"\0".join((item.encoded, item.error.encode(), common))).hexdigest()


def _edit(
    editor: Editor,
    item: Item,
    instruction: str | None,
    namespace: str | None,
    settings: Mapping[str, Any],
) -> tuple[Record, Stats]:
    try:
        text, own_instruction, options = item.checked(instruction)
        result = editor.edit(text, own_instruction, namespace=namespace, **options, **settings)
    except InputError as error:
        return {"error": " ".join(str(error).split())}, Stats()
    return _as_record(result), result.stats


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
