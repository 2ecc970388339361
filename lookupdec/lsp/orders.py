"""What an editor asks for with a command: its argument, read and checked. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from lookupdec.edit.languages import language_of
from lookupdec.edit.positions import Position
from lookupdec.errors import InputError
from lookupdec.lsp.documents import Range, Snapshot
from lookupdec.lsp.marks import Piece, piece_of

EDIT, REWRITE, SUMMARIZE = "lookupdec.edit", "lookupdec.rewrite", "lookupdec.summarize"

_SHAPE = (
    'takes one argument: {"uri": "file:///...", "range": {"start": {"line": 0, "character": 0}, "end": ...}, '
    '"instruction": "...", "version": 1}; all but "uri" may be left out'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A command and its argument. ``range`` None is the whole document, ``version`` None the present one."""

    command: str
    uri: str
    range: Range | None = None
    instruction: str | None = None
    version: int | None = None

    @classmethod
    def read(cls, params: types.ExecuteCommandParams) -> Order:
        """Read a command. Raises ``InputError`` with the shape that it must have."""
        try:
            return _read(params.command, params.arguments or ())
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(f"{params.command} {_SHAPE}") from error

    def as_argument(self) -> dict[str, Any]:
        """Return the argument as it is sent."""
        argument: dict[str, Any] = {"uri": self.uri}
        if self.range is not None:
            ends = {"start": self.range.start, "end": self.range.end}
            argument["range"] = {
                name: {"line": at.line, "character": at.character} for name, at in ends.items()
            }
        if self.instruction is not None:
            argument["instruction"] = self.instruction
        if self.version is not None:
            argument["version"] = self.version
        return argument

    def piece(self, snapshot: Snapshot) -> Piece:
        """Return what of a document it is about. Raises ``InputError`` where that is nothing."""
        take_marks = self.instruction is None and self.command != SUMMARIZE
        span = (0, len(snapshot.text)) if self.range is None else snapshot.span(self.range)
        piece = piece_of(
            snapshot.text,
            *span,
            prose=snapshot.is_prose,
            language=language_of(snapshot.language, None),
            take_marks=take_marks,
        )
        if piece.is_blank:
            raise InputError("there is nothing to edit here: select what is to change")
        return piece


def _read(command: str, arguments: Sequence[Any]) -> Order:
    match arguments:
        case [{"uri": str(uri), **others}]:
            pass
        case _:
            raise ValueError
    instruction, version, range_ = (others.get(name) for name in ("instruction", "version", "range"))
    if not isinstance(instruction, str | None) or not isinstance(version, int | None):
        raise TypeError
    if isinstance(instruction, str) and not instruction.strip():
        raise InputError("the instruction is empty: say what to change")
    if command == EDIT and range_ is None:
        raise InputError(f'{EDIT} needs a "range": for the whole document, use {REWRITE}')
    return Order(
        command=command,
        uri=uri,
        range=None if range_ is None else _range(range_),
        instruction=instruction,
        version=version,
    )


def _range(value: object) -> Range:
    match value:
        case {"start": start, "end": end}:
            return Range(_position(start), _position(end))
    raise ValueError


def _position(value: object) -> Position:
    match value:
        case {"line": int(line), "character": int(character)} if line >= 0 and character >= 0:
            return Position(line, character)
    raise ValueError
