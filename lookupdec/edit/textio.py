"""Files to text and back, byte for byte. Knows no model and no instruction.

A model sees lines that end with LF. A ``Document`` remembers what each line really ended with, so that a line
the model did not change gets its own bytes back. Only LF, CRLF and CR end a line: form feeds, vertical tabs,
NEL and U+2028 are content, and nothing is stripped or normalised.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lookupdec.edit.align import align
from lookupdec.errors import FileError, InputError
from lookupdec.files import read_bytes

_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")

_UTF16_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_UTF32_BOMS = {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"}
_BOMS = {codec: bom for bom, codec in (_UTF16_BOMS | _UTF32_BOMS).items()} | {"utf-8": codecs.BOM_UTF8}
_BOM = "\ufeff"


def split_bom(text: str) -> tuple[str, str]:
    """Return the byte order mark that a text begins with, or "", and the rest: no model sees it, none may lose it."""
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def split_lines(text: str) -> list[tuple[str, str]]:
    """Return each line's content and its own ending; only the last ending may be "" (no final newline)."""
    return [(match[1], match[2]) for match in _LINE.finditer(text) if match[0]]


def whole_lines(text: str) -> list[str]:
    """Return the lines with their endings; together they are the text."""
    return [content + ending for content, ending in split_lines(text)]


def line_contents(text: str) -> list[str]:
    """Return the lines without their endings."""
    return [content for content, _ in split_lines(text)]


def check_unicode(text: str, what: str) -> str:
    """Return the text, or raise ``InputError`` where no tokenizer can read it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the {what} has a lone surrogate at {error.start}: it is no valid Unicode"
        ) from error
    return text


@dataclass(frozen=True)
class Document:
    """A text and how it is stored: its encoding, its byte order mark and every line's own ending."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @classmethod
    def from_bytes(cls, data: bytes, *, encoding: str | None = None, name: str = "the file") -> Document:
        """Decode a file's bytes.

        ``encoding`` None takes UTF-8, with or without a byte order mark, and UTF-16 with one; "detect"
        guesses; any other name is used as given. Raises ``FileError`` for binary data and bytes that do not
        decode.
        """
        bom, codec = _sniff(data, encoding, name)
        body = data[len(bom) :]
        try:
            text = body.decode(codec)
        except UnicodeDecodeError as error:
            raise FileError(_not_decodable(name, codec, error)) from error
        if "\0" in text:
            raise FileError(f"{name} is binary (it holds NUL bytes): only text files can be edited")
        if text.encode(codec) != body:
            raise FileError(f"{name} cannot be written back byte for byte as {codec}: name another encoding")
        return cls(text, codec, bom)

    @cached_property
    def lines(self) -> list[tuple[str, str]]:
        """Each line's content and its own ending."""
        return split_lines(self.text)

    @cached_property
    def shown(self) -> str:
        """The text as a model sees it: every line ending as LF."""
        return "".join(content + ("\n" if ending else "") for content, ending in self.lines)

    @cached_property
    def dominant_ending(self) -> str:
        """The most frequent line ending, the first seen on a tie, LF where no line has any."""
        counts = Counter(ending for _, ending in self.lines if ending)
        return counts.most_common(1)[0][0] if counts else "\n"

    def restore(self, new_shown: str) -> str:
        """Return ``new_shown`` with the document's own line endings.

        A kept line, and a line replaced by exactly one other, keep their ending; added lines get the dominant
        one. Whether the last line ends at all is as in ``new_shown``.
        """
        new_lines = split_lines(new_shown)
        endings = [self.dominant_ending] * len(new_lines)
        is_kept = [False] * len(new_lines)
        old_contents = [content for content, _ in self.lines]
        for block in align(old_contents, [content for content, _ in new_lines]):
            old_count, new_count = block.old_end - block.old_start, block.new_end - block.new_start
            if block.kept or old_count == new_count:
                for offset in range(new_count):
                    own = self.lines[block.old_start + offset][1]
                    endings[block.new_start + offset] = own or self.dominant_ending
                    is_kept[block.new_start + offset] = block.kept
        if new_lines and not new_lines[-1][1]:
            endings[-1] = ""
        contents = [content for content, _ in new_lines]
        _keep_apart(contents, endings, is_kept)
        return "".join(map("".join, zip(contents, endings, strict=True)))

    def encode(self, text: str | None = None, *, name: str = "the file") -> bytes:
        """Return the bytes of ``text`` (the document's own when None) in the document's encoding.

        Raises ``FileError`` where the encoding has no byte for a character of ``text``.
        """
        try:
            return self.bom + (self.text if text is None else text).encode(self.encoding)
        except UnicodeEncodeError as error:
            char = error.object[error.start]
            raise FileError(
                f"the new text holds {char!r} (U+{ord(char):04X}), which {self.encoding} cannot write: "
                f"convert {name} to UTF-8 first"
            ) from error


def _keep_apart(contents: Sequence[str], endings: list[str], is_kept: Sequence[bool]) -> None:
    """Change an ending where a CR and the LF of an empty line after it would be read as one CRLF."""
    for number in range(1, len(endings)):
        if endings[number - 1] == "\r" and not contents[number] and endings[number] == "\n":
            if is_kept[number - 1]:
                endings[number] = "\r\n"
            else:
                endings[number - 1] = "\n"


def read_document(path: Path, *, encoding: str | None = None) -> Document:
    """Read a text file; see ``Document.from_bytes``. Raises ``FileError`` with the remedy."""
    return Document.from_bytes(read_bytes(path), encoding=encoding, name=str(path))


def _sniff(data: bytes, encoding: str | None, name: str) -> tuple[bytes, str]:
    """Return the byte order mark (b"" where there is none) and the codec for what follows it."""
    if encoding == "detect":
        return _detect(data, name)
    if encoding is not None:
        return _named(data, encoding)
    if data.startswith(tuple(_UTF32_BOMS)):
        raise FileError(f"{name} is UTF-32: convert it to UTF-8 first")
    if data.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8, "utf-8"
    for bom, codec in _UTF16_BOMS.items():
        if data.startswith(bom):
            return bom, codec
    return b"", "utf-8"


def _named(data: bytes, encoding: str) -> tuple[bytes, str]:
    try:
        info = codecs.lookup(encoding)
        "".encode(encoding)  # refuses codecs that are no text encodings, such as "hex"
    except (LookupError, ValueError) as error:
        raise FileError(
            f"unknown encoding {encoding!r}: use a name such as utf-8, utf-16, latin-1, cp1252"
        ) from error
    if info.name == "utf-16":
        for bom, codec in _UTF16_BOMS.items():
            if data.startswith(bom):
                return bom, codec
        raise FileError("a UTF-16 file without a byte order mark: name utf-16-le or utf-16-be")
    codec = "utf-8" if info.name == "utf-8-sig" else info.name
    bom = _BOMS.get(codec, b"")
    return (bom if data.startswith(bom) else b""), codec


def _detect(data: bytes, name: str) -> tuple[bytes, str]:
    for bom in (codecs.BOM_UTF8, *_UTF16_BOMS):
        if data.startswith(bom):
            return _sniff(data, None, name)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        best = from_bytes(data).best()
        if best is None:
            raise FileError(
                f"{name}: no text encoding found: name one, or convert the file to UTF-8"
            ) from None
        return b"", codecs.lookup(best.encoding).name
    return b"", "utf-8"


def _not_decodable(name: str, codec: str, error: UnicodeDecodeError) -> str:
    if b"\0" in error.object:
        return f"{name} is binary (it holds NUL bytes): only text files can be edited"
    if codec == "utf-8":
        return (
            f"{name} is not UTF-8 (byte 0x{error.object[error.start]:02x} at offset {error.start}): "
            "convert it, or name its encoding (latin-1, cp1252, detect)"
        )
    return f"{name} does not decode as {codec} (at offset {error.start}): name another encoding"
