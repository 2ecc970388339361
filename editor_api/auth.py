"""API keys: who a request is from. Knows no HTTP framework."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path

from editor_api.errors import ApiError

ANYONE = "local"
"""The tenant where there are no keys."""

_HEADERS = ("api-key", "x-api-key")
_COMMENT = re.compile(r"(^|\s)#.*")


class ApiKeys:
    """The keys that open the service; without any, everybody who can reach it is let in."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @classmethod
    def read(cls, path: Path | None) -> ApiKeys:
        """Read a file with one key a line, and comments: ``#`` at the start of a line or after white space.

        Raises ``ValueError`` where it has no key or one that not every client can send, or cannot be read.
        """
        if path is None:
            return cls()
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the key file {path} cannot be read as UTF-8 text: {error}") from error
        keys = [_COMMENT.sub("", line).strip() for line in lines]
        for number, key in enumerate(keys, 1):
            if not (key.isascii() and key.isprintable()):
                raise ValueError(
                    f"line {number} of the key file {path} has a character that headers cannot hold: "
                    "write keys of ASCII letters, digits and signs"
                )
        if not any(keys):
            raise ValueError(f"the key file {path} holds no key: write one a line")
        return cls(tuple(filter(None, keys)))

    @property
    def are_needed(self) -> bool:
        """Whether anybody is kept out."""
        return bool(self._keys)

    def tenant(self, headers: Mapping[str, str]) -> str:
        """Return a name for whose key a request carries. Raises ``ApiError``.

        Clients send one key in several headers, some of them with another meaning elsewhere: one that fits is
        enough.
        """
        if not self._keys:
            return ANYONE
        sent = [headers[name] for name in _HEADERS if name in headers]
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            sent.append(token.strip())
        for candidate in sent:
            # Every key is compared, whichever fits: time tells nothing.
            fits = [hmac.compare_digest(candidate.encode("utf-8", "replace"), key) for key in self._keys]
            if any(fits):
                return hashlib.blake2b(self._keys[fits.index(True)], digest_size=8).hexdigest()
        message = "the API key is wrong" if sent else "an API key is needed: send Authorization: Bearer <key>"
        raise ApiError(401, message, "invalid_api_key")
