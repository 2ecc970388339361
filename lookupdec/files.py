"""Read a file, and write one whole or not at all, with errors that name it. Knows bytes only."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lookupdec.errors import FileError


@contextlib.contextmanager
def naming(path: Path, failure: str = "cannot be written") -> Iterator[None]:
    """Turn what the system says against the use of a file into a ``FileError`` that names it."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path} {failure}: {(error.strerror or str(error)).lower()}") from error


def read_bytes(path: Path) -> bytes:
    """Read a regular file, and say in one line what keeps it from being read."""
    try:
        if path.is_dir():
            raise FileError(f"{path} is a directory: name a file in it")
        if path.exists() and not path.is_file():
            raise FileError(f"{path} is not a regular file: use - to read standard input")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist: check the path") from error
    except PermissionError as error:
        raise FileError(f"{path} cannot be read (permission denied): change its mode or copy it") from error
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: {(getattr(error, 'strerror', None) or str(error)).lower()}"
        ) from error


def check_writable(path: Path) -> None:
    """Raise ``FileError`` where ``write_atomically`` could not write ``path``; asked before work starts."""
    real = _real(path)
    if real.is_dir():
        raise FileError(f"{path} is a directory: name a file in it")
    if real.exists() and not real.is_file():
        raise FileError(f"{path} is not a regular file: name a file")
    if not real.parent.is_dir():
        raise FileError(f"{path} cannot be written: its folder does not exist, create it first")
    if (real.exists() and not os.access(real, os.W_OK)) or not os.access(real.parent, os.W_OK | os.X_OK):
        raise FileError(f"{path} cannot be written (permission denied): change the mode or write elsewhere")


def write_atomically(path: Path, data: bytes, *, expected: bytes | None = None) -> None:
    """Replace the file at ``path`` by ``data`` in one step; whatever goes wrong leaves it untouched.

    Symbolic links are followed; mode, owner and extended attributes are kept. Where another's file may be written
    but not given to its owner, it is written in place. With ``expected``, a file that no longer holds these bytes
    is refused. Raises ``FileError``.
    """
    check_writable(path)
    real = _real(path)
    with naming(path):
        _replace(real, data, expected)


def _replace(real: Path, data: bytes, expected: bytes | None) -> None:
    # The name is short whatever the target's is, and in its folder: a rename across file systems is a copy.
    temporary = real.parent / f".lookupdec-{secrets.token_hex(6)}.tmp"
    exists = real.exists()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if exists else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        keeps_owner = not exists or _copy_metadata(real, temporary)
        if expected is not None and real.read_bytes() != expected:
            raise FileError(f"{real} changed while it was being edited: nothing was written, run it again")
        if keeps_owner:
            os.replace(temporary, real)
        else:
            _overwrite(real, data)
            temporary.unlink()
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(real.parent)


def _overwrite(real: Path, data: bytes) -> None:
    with real.open("r+b") as file:
        old = file.read()
        try:
            _fill(file, data)
        except BaseException:
            _fill(file, old)
            raise


def _fill(file: BinaryIO, data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())


def _copy_metadata(source: Path, target: Path) -> bool:
    """Copy all but the content; False where the owner cannot be kept."""
    owner = source.stat()
    if hasattr(os, "chown"):
        created = target.stat()
        if (created.st_uid, created.st_gid) != (owner.st_uid, owner.st_gid):
            try:
                os.chown(target, owner.st_uid, owner.st_gid)  # before the mode: it clears the set-id bits
            except PermissionError:
                return False
    shutil.copystat(source, target)
    os.utime(target)
    return True


def sync_folder(folder: Path) -> None:
    """Make the rename durable; some systems cannot open a folder, and the data is safe without it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
