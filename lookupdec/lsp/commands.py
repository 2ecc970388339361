"""What the commands do: from an order to an edit in the editor, or to one line that says why not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lookupdec.edit.editor import Editor
from lookupdec.edit.engine import Chunk
from lookupdec.edit.results import EditResult, Summary
from lookupdec.errors import InputError, LookupDecError
from lookupdec.lsp.documents import Snapshot
from lookupdec.lsp.marks import Piece
from lookupdec.lsp.menu import choose
from lookupdec.lsp.orders import REWRITE, SUMMARIZE, Order
from lookupdec.lsp.progress import Meter, Progress, figures
from lookupdec.lsp.worker import Job

if TYPE_CHECKING:
    from lookupdec.lsp.server import LookupServer

CHANGED = "the document has changed meanwhile: nothing was applied, ask again"


class _Refused(InputError):
    """Nothing is applied, and that is nobody's mistake."""


async def execute(server: LookupServer, params: types.ExecuteCommandParams) -> dict[str, Any]:
    """Carry out a command and return what became of it; where nothing did, the user is told why."""
    task = asyncio.current_task()
    assert task is not None, "requests run as tasks"
    job = Job(task)
    progress = Progress(server, params.work_done_token)
    try:
        order = Order.read(params)
        job.needs_same_text = order.command != SUMMARIZE
        server.begin(order.uri, job)
        return await _carry_out(server, order, job, progress)
    except asyncio.CancelledError:
        job.abandon()
        if job.reason is None:  # the editor cancelled the request itself, and is told so by the protocol
            raise
        task.uncancel()
        return _not_applied(job.reason)
    except LookupDecError as error:
        kind = types.MessageType.Warning if isinstance(error, _Refused) else types.MessageType.Error
        server.say(str(error), kind)
        return _not_applied(str(error))
    except Exception as error:
        message = f"internal error: {type(error).__name__}: {error}"
        server.say(message, types.MessageType.Error)
        return _not_applied(message)
    finally:
        server.finish(job)
        progress.end(job.reason or "done")


async def _carry_out(server: LookupServer, order: Order, job: Job, progress: Progress) -> dict[str, Any]:
    snapshot = Snapshot.of(server.workspace, order.uri)
    if order.version is not None and order.version != snapshot.version:
        raise _Refused(CHANGED)
    piece = order.piece(snapshot)
    instruction = order.instruction or piece.instruction
    if not instruction and order.command != SUMMARIZE:
        instruction = await choose(server)
        if not instruction:
            return _not_applied("no instruction was chosen")
    await progress.begin(
        f"lookupdec: {'summarize' if order.command == SUMMARIZE else 'edit'}",
        "reading" if server.worker.is_ready else "waiting for the model",
        on_cancel=lambda: job.stop("cancelled"),
    )
    if order.command == SUMMARIZE:
        return await _summarize(server, piece, instruction, job, progress)
    result = await _edit(server, order, snapshot, piece, instruction, job, progress)
    return await _apply(server, snapshot, piece, result, job, progress)


async def _edit(  # noqa: PLR0913
    server: LookupServer,
    order: Order,
    snapshot: Snapshot,
    piece: Piece,
    instruction: str,
    job: Job,
    progress: Progress,
) -> EditResult:
    meter = Meter(progress, piece.end - piece.start)

    def on_token(chunk: Chunk) -> None:
        job.check()
        meter(chunk)

    def work(editor: Editor) -> EditResult:
        job.check()
        if order.command == REWRITE and snapshot.is_prose:
            return editor.rewrite(
                piece.text,
                instruction,
                path=snapshot.path,
                on_token=on_token,
                max_new_tokens=server.max_new_tokens,
            )
        return editor.edit(
            piece.text,
            instruction,
            selection=piece.selection,
            language=snapshot.language or None,
            path=snapshot.path,
            on_token=on_token,
            max_new_tokens=server.max_new_tokens,
        )

    return await server.worker.run(work)


async def _apply(  # noqa: PLR0913
    server: LookupServer,
    snapshot: Snapshot,
    piece: Piece,
    result: EditResult,
    job: Job,
    progress: Progress,
) -> dict[str, Any]:
    if not result.complete:
        raise _Refused(f"not applied, the answer is not complete: {'; '.join(result.warnings)}")
    _check_current(server, snapshot)
    new_text = piece.prefix + result.text
    if new_text == snapshot.text:
        raise _Refused("the model left everything as it is")
    job.is_final = True
    edit = snapshot.workspace_edit(new_text, versioned=_knows_versions(server))
    params = types.ApplyWorkspaceEditParams(edit=edit, label="lookupdec")
    try:
        answer = await asyncio.shield(server.workspace_apply_edit_async(params))
    except JsonRpcException as error:
        raise _Refused(f"the editor did not apply the edit: {error.message}") from error
    if not answer.applied:
        raise _Refused(f"the editor did not apply the edit: {answer.failure_reason or CHANGED}")
    for warning in result.warnings:
        server.say(warning, types.MessageType.Warning)
    progress.end(figures(result.stats))
    return {"applied": True, "figures": figures(result.stats), "warnings": list(result.warnings)}


async def _summarize(
    server: LookupServer, piece: Piece, style: str, job: Job, progress: Progress
) -> dict[str, Any]:
    meter = Meter(progress, (piece.end - piece.start) // 4)

    def on_token(chunk: Chunk) -> None:
        job.check()
        meter(chunk)

    def work(editor: Editor) -> Summary:
        job.check()
        text = piece.text[piece.start : piece.end]
        return editor.summarize(
            text, style=style or "paragraph", on_token=on_token, max_new_tokens=server.max_new_tokens
        )

    summary = await server.worker.run(work)
    if not summary.complete:
        raise _Refused("; ".join(summary.warnings))
    server.window_show_message(types.ShowMessageParams(type=types.MessageType.Info, message=summary.text))
    progress.end(figures(summary.stats))
    return {"summary": summary.text, "figures": figures(summary.stats)}


def _check_current(server: LookupServer, snapshot: Snapshot) -> None:
    if not snapshot.is_current(server.workspace):
        raise _Refused(CHANGED)


def _knows_versions(server: LookupServer) -> bool:
    workspace = server.client_capabilities.workspace
    edit = None if workspace is None else workspace.workspace_edit
    return edit is not None and bool(edit.document_changes)


def _not_applied(reason: str) -> dict[str, Any]:
    return {"applied": False, "reason": " ".join(reason.split())}
