"""What the commands do: from an order to an edit in the editor, or to one line that says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lookupdec.edit.editor import Editor, OnToken
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

Answer = TypeVar("Answer")

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
        snapshot = Snapshot.of(server.workspace, order.uri)
        if order.version is not None and order.version != snapshot.version:
            raise _Refused(CHANGED)
        run = _Run(server, order, snapshot, order.piece(snapshot), job, progress)
        server.begin(order.uri, job)  # not before: one that is refused must not end another
        return await run.result()
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
        progress.end(job.reason or "nothing was applied")


@dataclass(frozen=True, slots=True)
class _Run:
    """One command under way, and all that belongs to it."""

    server: LookupServer
    order: Order
    snapshot: Snapshot
    piece: Piece
    job: Job
    progress: Progress

    async def result(self) -> dict[str, Any]:
        """Find the instruction, generate, and bring the answer to the editor."""
        instruction = self.order.instruction or self.piece.instruction
        if self.order.command == SUMMARIZE:
            return self._shown(
                await self._generated("summarize", self._summarize(instruction or "paragraph"))
            )
        instruction = instruction or await choose(self.server)
        if not instruction:
            return _not_applied("no instruction was chosen")
        return await self._applied(await self._generated("edit", self._edit(instruction)))

    def _edit(self, instruction: str) -> Callable[[Editor, OnToken], EditResult]:
        piece, snapshot, limit = self.piece, self.snapshot, self.server.max_new_tokens

        def work(editor: Editor, on_token: OnToken) -> EditResult:
            if self.order.command == REWRITE and snapshot.is_prose and piece.selection is None:
                return editor.rewrite(
                    piece.text, instruction, path=snapshot.path, on_token=on_token, max_new_tokens=limit
                )
            return editor.edit(
                piece.text,
                instruction,
                selection=piece.selection,
                language=snapshot.language or None,
                path=snapshot.path,
                on_token=on_token,
                max_new_tokens=limit,
            )

        return work

    def _summarize(self, style: str) -> Callable[[Editor, OnToken], Summary]:
        text, limit = self.piece.text[self.piece.start : self.piece.end], self.server.max_new_tokens

        def work(editor: Editor, on_token: OnToken) -> Summary:
            return editor.summarize(text, style=style, on_token=on_token, max_new_tokens=limit)

        return work

    async def _generated(self, title: str, work: Callable[[Editor, OnToken], Answer]) -> Answer:
        """Do the work in the generating thread, with a progress bar around it."""
        await self.progress.begin(
            f"lookupdec: {title}",
            "reading" if self.server.worker.is_ready else "waiting for the model",
            on_cancel=lambda: self.job.stop("cancelled"),
        )
        meter = Meter(self.progress, self.piece.end - self.piece.start)

        def on_token(chunk: Chunk) -> None:
            self.job.check()
            meter(chunk)

        def checked(editor: Editor) -> Answer:
            self.job.check()
            return work(editor, on_token)

        return await self.server.worker.run(checked)

    async def _applied(self, result: EditResult) -> dict[str, Any]:
        if not result.complete:
            raise _Refused(f"not applied, the answer is not complete: {'; '.join(result.warnings)}")
        if not self.snapshot.is_current(self.server.workspace):
            raise _Refused(CHANGED)
        if not result.changed:  # compared without the marks, which are to stay where nothing came of them
            raise _Refused("the model left everything as it is")
        self.job.is_final = True
        edit = self.snapshot.workspace_edit(result.text, versioned=_knows_versions(self.server))
        params = types.ApplyWorkspaceEditParams(edit=edit, label="lookupdec")
        try:
            answer = await asyncio.shield(self.server.workspace_apply_edit_async(params))
        except JsonRpcException as error:
            raise _Refused(f"the editor did not apply the edit: {error.message}") from error
        if not answer.applied:
            raise _Refused(f"the editor did not apply the edit: {answer.failure_reason or CHANGED}")
        for warning in result.warnings:
            self.server.say(warning, types.MessageType.Warning)
        self.progress.end(figures(result.stats))
        return {"applied": True, "figures": figures(result.stats), "warnings": list(result.warnings)}

    def _shown(self, summary: Summary) -> dict[str, Any]:
        if not summary.complete:
            raise _Refused("; ".join(summary.warnings))
        self.server.window_show_message(
            types.ShowMessageParams(type=types.MessageType.Info, message=summary.text)
        )
        self.progress.end(figures(summary.stats))
        return {"summary": summary.text, "figures": figures(summary.stats)}


def _knows_versions(server: LookupServer) -> bool:
    workspace = server.client_capabilities.workspace
    edit = None if workspace is None else workspace.workspace_edit
    return edit is not None and bool(edit.document_changes)


def _not_applied(reason: str) -> dict[str, Any]:
    return {"applied": False, "reason": " ".join(reason.split())}
