"""The file format of a saved rolling cache. Knows bytes and documents, no index.

A line ``lookupdec cache 1``, the SHA-256 of all that follows, the header's length (8 bytes, little-endian),
the header (JSON: the tokenizer's fingerprint, and namespace and size of every document, oldest first), and
the ids of all documents one after the other (int32, little-endian).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lookupdec.errors import FileError
from lookupdec.ids import MAX_ID, Int32Array

Document = tuple[str | None, Int32Array]
"""Namespace and ids."""

_NAME = b"lookupdec cache "
_MAGIC = _NAME + b"1\n"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8
_REMEDY = "delete it, the cache fills again by itself"


def pack(documents: Sequence[Document], fingerprint: str) -> bytes:
    """Return the file that holds ``documents``, oldest first."""
    header = json.dumps(
        {"fingerprint": fingerprint, "documents": [[namespace, ids.size] for namespace, ids in documents]}
    ).encode()
    payload = b"".join(ids.astype("<i4").tobytes() for _, ids in documents)
    body = len(header).to_bytes(_LENGTH_BYTES, "little") + header + payload
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes, path: Path, fingerprint: str) -> list[Document]:
    """Return the documents of a file, oldest first.

    Raises
    ------
    FileError
        The file is no saved cache, is damaged, or was written by another version or for another tokenizer.
    """
    if not data.startswith(_MAGIC):
        if data.startswith(_NAME) and b"\n" in data:
            raise FileError(f"{path} was saved by another version of lookupdec: {_REMEDY}")
        if _MAGIC.startswith(data):
            raise FileError(f"{path} is damaged or cut short: {_REMEDY}")
        raise FileError(f"{path} is not a saved cache of lookupdec: name one")
    body_start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[body_start:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : body_start]:
        raise FileError(f"{path} is damaged or cut short: {_REMEDY}")
    try:
        found, documents = _parse(body)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(f"{path} is damaged or cut short: {_REMEDY}") from error
    if found != fingerprint:
        raise FileError(f"{path} was saved for another tokenizer ({found!r}, not {fingerprint!r}): {_REMEDY}")
    return documents


def _parse(body: memoryview) -> tuple[str, list[Document]]:
    header_end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "little")
    header = json.loads(bytes(body[_LENGTH_BYTES:header_end]))
    ids = np.frombuffer(body[header_end:], "<i4").astype(np.int32)
    if ids.size and not 0 <= ids.min() <= ids.max() <= MAX_ID:
        raise ValueError("token id out of range")
    documents: list[Document] = []
    start = 0
    for namespace, size in header["documents"]:
        if not (namespace is None or isinstance(namespace, str)) or not 0 < size <= ids.size - start:
            raise ValueError("no such document")
        documents.append((namespace, ids[start : start + size]))
        start += size
    if start != ids.size:
        raise ValueError("ids of no document")
    return header["fingerprint"], documents
