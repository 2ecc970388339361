"""A file of results, one JSON object a line, that survives a kill. Knows no model and no item.

The lines are in the order of the items, each on the disk before the next is made. What a killed run left is
therefore a beginning of the whole, and perhaps of one more line.
"""

from __future__ import annotations

import contextlib
import json
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from lookupdec.errors import FileError
from lookupdec.files import naming, sync_folder

Record = dict[str, Any]
"""One result, as it stands in the file."""

_KEPT = "cannot be written, what is finished is kept"


def encoded(value: object) -> bytes:
    """Return a value as JSON in one line; what JSON lacks becomes a number or its text.

    Raises ``TypeError``, ``ValueError`` or ``RecursionError`` for what has no such form.
    """
    # A lone surrogate, say in an id, becomes the escape that JSON has for it.
    return json.dumps(value, ensure_ascii=False, default=_plain).encode("utf-8", "backslashreplace")


def _plain(value: object) -> object:
    if isinstance(value, numbers.Integral):  # of NumPy, say
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return type(value).__name__ if callable(value) else str(value)


class Results:
    """The results of a list of items: first those that earlier runs left, then what is appended."""

    def __init__(self, path: Path, file: IO[bytes], *, older: Results | None = None) -> None:
        """Read and write ``file``; good results of ``older`` are copied instead of made again."""
        self._path, self._file, self._older = path, file, older
        self._count = 0  # of the results that were read or written
        self._found = self._read()

    def earlier(self, digest: str) -> Record | None:
        """Return the next item's result, where there is one. Raises ``FileError`` where it is another item's."""
        older = None if self._older is None else next(self._older._found, None)
        record = next(self._found, None)
        if record is not None:
            self._check(record, digest)
        elif self._older is not None and older is not None and _is_good(older):
            self._older._check(older, digest)
            self.append(older, sync=False)
            return older
        return record

    def _check(self, record: Record, digest: str) -> None:
        if record.get("item_sha256") != digest:
            raise FileError(
                f"line {self._count} of {self._path} is the result of another item or other settings: "
                "name a new file"
            )

    def append(self, record: Record, *, sync: bool = True) -> None:
        """Write the next item's result, and see it on the disk. Raises ``FileError``."""
        left = encoded(record) + b"\n"
        with naming(self._path, _KEPT):
            while left:  # past the buffer, which would try to write again when the file is closed
                left = left[os.write(self._file.fileno(), left) :]
            if sync:
                os.fsync(self._file.fileno())
        self._count += 1

    def check_end(self) -> None:
        """Raise ``FileError`` where there are results of more items."""
        if self._older is not None:
            self._older.check_end()
        if next(self._found, None) is not None:
            raise FileError(f"{self._path} holds more results than there are items: name a new file")

    def _read(self) -> Iterator[Record]:
        """Give the results of earlier runs, and cut off a last one that was not written whole."""
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file):
            record = _parsed(line)
            if record is None:
                begun = b'{"index": %d, ' % number
                if line.endswith(b"\n") or not (begun.startswith(line) or line.startswith(begun)):
                    raise FileError(f"line {number + 1} of {self._path} is no result: name a new file")
                break
            end += len(line)
            self._count += 1
            yield record
        with naming(self._path, _KEPT):
            self._file.truncate(end)


def _parsed(line: bytes) -> Record | None:
    """Return a whole line's result, None where it is none."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_good(record: Record) -> bool:
    return "error" not in record and record.get("complete", True) is True


@contextlib.contextmanager
def opened(path: Path, *, retry: bool = False) -> Iterator[Results]:
    """Open a file of results for this process alone.

    With ``retry``, only its good results count. They and the new ones go to a file beside it, which takes its
    place at the end, and which another ``retry`` goes on with after a kill. Raises ``FileError``.
    """
    with _locked(path) as file:
        results = Results(path, file)
        if not retry:
            yield results
            return
        real = Path(os.path.realpath(path))
        beside = real.with_name(f"{real.name}.retry")
        with _locked(beside) as new:
            yield Results(beside, new, older=results)
            with naming(path, _KEPT):
                os.fsync(new.fileno())
                os.replace(beside, real)
        sync_folder(real.parent)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    with naming(path):
        file = path.open("a+b")
    with file:
        _lock(file, path)
        yield file


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileError(
            f"{path} is being written by another run: wait for it, or name another file"
        ) from error
