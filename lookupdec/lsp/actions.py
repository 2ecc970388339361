"""The code actions that an editor lists. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from lookupdec.errors import InputError
from lookupdec.lsp.documents import Range, Snapshot
from lookupdec.lsp.menu import has_menu, instructions
from lookupdec.lsp.orders import EDIT, REWRITE, SUMMARIZE, Order

if TYPE_CHECKING:
    from lookupdec.lsp.server import LookupServer

EDITS, SUMMARIES = types.CodeActionKind.RefactorRewrite.value, "source.lookupdec"

_LONGEST_TITLE = 60


async def code_actions(
    server: LookupServer, params: types.CodeActionParams
) -> list[types.CodeAction | types.Command]:
    """Return what can be done with a range; no line of it changes before an action is taken."""
    try:
        snapshot = Snapshot.of(server.workspace, params.text_document.uri)
    except InputError:
        return []
    if not snapshot.text.strip():
        return []
    only = params.context.only
    automatic = params.context.trigger_kind == types.CodeActionTriggerKind.Automatic
    actions: list[types.CodeAction] = []
    if _wanted(EDITS, only):
        actions += await _selection(server, snapshot, params.range, automatic=automatic)
        actions += [] if automatic else [_whole(snapshot)]
    if _wanted(SUMMARIES, only) and not automatic:
        order = Order(command=SUMMARIZE, uri=snapshot.uri, version=snapshot.version)
        actions.append(_action("Summarize file", SUMMARIES, order))
    if _takes_actions(server):
        return list(actions)
    return [action.command for action in actions if action.command is not None]


async def _selection(
    server: LookupServer, snapshot: Snapshot, selected: types.Range, *, automatic: bool
) -> list[types.CodeAction]:
    """Return the edits of a range: what stands in the text, else a prompt, else the list itself.

    An editor that looks for actions by itself, as the cursor moves, is told of an instruction in the text alone.
    """
    order = Order(
        command=EDIT,
        uri=snapshot.uri,
        range=Range(selected.start, selected.end),
        version=snapshot.version,
    )
    try:
        marked = order.piece(snapshot).instruction
    except InputError:
        return []
    if marked:
        return [_action(f"Edit selection: {_short(marked)}", EDITS, order)]
    if automatic:
        return []
    found = [_action("Edit selection with instruction...", EDITS, order)]
    if has_menu(server):
        return found
    return found + [
        _action(
            f"Edit selection: {_short(instruction)}",
            EDITS,
            Order(
                command=EDIT,
                uri=order.uri,
                range=order.range,
                version=order.version,
                instruction=instruction,
            ),
        )
        for instruction in await _instructions(server)
    ]


def _whole(snapshot: Snapshot) -> types.CodeAction:
    order = Order(command=REWRITE, uri=snapshot.uri, version=snapshot.version)
    marked = order.piece(snapshot).instruction
    title = f"Rewrite file: {_short(marked)}" if marked else "Rewrite file with instruction..."
    return _action(title, EDITS, order)


async def _instructions(server: LookupServer) -> tuple[str, ...]:
    try:
        return await instructions(server)
    except InputError as error:
        server.say(str(error), types.MessageType.Error)
        return ()


def _action(title: str, kind: str, order: Order) -> types.CodeAction:
    command = types.Command(title=title, command=order.command, arguments=[order.as_argument()])
    return types.CodeAction(title=title, kind=kind, command=command)


def _wanted(kind: str, only: object) -> bool:
    """Whether a kind is one of those asked for: the same, or one that a more general kind includes."""
    if not isinstance(only, list | tuple):
        return True
    names = [str(getattr(one, "value", one)) for one in only]
    return any(not name or f"{kind}.".startswith(f"{name}.") for name in names)


def _takes_actions(server: LookupServer) -> bool:
    """Whether the editor knows code actions; the oldest ones know commands alone."""
    documents = server.client_capabilities.text_document
    code_action = None if documents is None else documents.code_action
    return code_action is not None and code_action.code_action_literal_support is not None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_TITLE else text[: _LONGEST_TITLE - 3].rstrip() + "..."
