"""What an editor has open, as it was at one moment. Knows no model and no message.

Lines end at LF, CRLF and CR alone, as the protocol says; a form feed or U+2028 is content.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from lsprotocol import types
from pygls.workspace import Workspace

from lookupdec.edit.diff import text_edits
from lookupdec.edit.languages import language_of
from lookupdec.edit.positions import AnyPosition, Position, PositionEncoding, Positions
from lookupdec.errors import InputError

_PLAIN = ("", "plaintext", "text")


@dataclass(frozen=True, slots=True)
class Range:
    """From ``start`` to ``end``, exclusive."""

    start: AnyPosition
    end: AnyPosition


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An open document: its text and the version that the editor gave to it."""

    uri: str
    version: int | None
    text: str
    language: str = ""
    path: Path | None = None
    encoding: PositionEncoding = "utf-16"

    @classmethod
    def of(cls, workspace: Workspace, uri: str) -> Snapshot:
        """Take what the editor has open now. Raises ``InputError`` where that is nothing."""
        document = workspace.text_documents.get(unquote(uri))
        if document is None:
            raise InputError(f"{uri} is not open in the editor: open it first")
        return cls(
            uri=document.uri,
            version=document.version,
            text=document.source,
            language=document.language_id or "",
            path=Path(document.path) if document.path else None,
            encoding=_encoding(workspace),
        )

    @property
    def is_prose(self) -> bool:
        """Whether it is Markdown or plain text."""
        return self.language in _PLAIN or language_of(self.language, None) == "markdown"

    def is_current(self, workspace: Workspace) -> bool:
        """Whether the editor still has this very text."""
        document = workspace.text_documents.get(unquote(self.uri))
        return document is not None and (document.version, document.source) == (self.version, self.text)

    def span(self, range_: Range) -> tuple[int, int]:
        """Return a range as characters of the text; what lies outside ends where the text or line ends."""
        positions = Positions(self.text, self.encoding)
        start, end = positions.nearest(range_.start), positions.nearest(range_.end)
        return min(start, end), max(start, end)

    def workspace_edit(self, new_text: str, *, versioned: bool = True) -> types.WorkspaceEdit:
        """Return what turns the text into another; ``versioned`` where the editor can tell versions apart."""
        edits = [
            types.TextEdit(types.Range(_theirs(edit.start), _theirs(edit.end)), edit.new_text)
            for edit in text_edits(self.text, new_text, position_encoding=self.encoding)
        ]
        if not versioned:
            return types.WorkspaceEdit(changes={self.uri: edits})
        document = types.OptionalVersionedTextDocumentIdentifier(uri=self.uri, version=self.version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, list(edits))])


def _theirs(position: Position) -> types.Position:
    return types.Position(position.line, position.character)


def _encoding(workspace: Workspace) -> PositionEncoding:
    agreed = workspace.position_encoding
    if agreed == "utf-8":
        return "utf-8"
    return "utf-32" if agreed == "utf-32" else "utf-16"
