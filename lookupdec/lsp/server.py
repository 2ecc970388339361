"""The language server: what it can do, and the requests that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method

from lookupdec.edit.editor import Editor
from lookupdec.errors import LookupDecError
from lookupdec.installed import own_version
from lookupdec.lsp.actions import EDITS, SUMMARIES, code_actions
from lookupdec.lsp.commands import CHANGED, execute
from lookupdec.lsp.orders import EDIT, REWRITE, SUMMARIZE
from lookupdec.lsp.progress import Progress
from lookupdec.lsp.worker import Job, Worker


class LookupProtocol(LanguageServerProtocol):
    """The protocol, with commands that see their progress token and that can be cancelled while they run."""

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # type: ignore[override]
        self, params: types.ExecuteCommandParams
    ) -> Any:
        """Run a command as a task of its own."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            raise JsonRpcInvalidParams(f"there is no command {params.command}")
        return await handler(params)


class LookupServer(LanguageServer):
    """A language server around one model. ``load`` is called once, in the background."""

    def __init__(self, load: Callable[[], Editor], *, max_new_tokens: int | None = None) -> None:
        # Whole texts: pygls counts lines at form feeds, too, which would put partial changes in the wrong place.
        super().__init__(
            "lookupdec",
            own_version(),
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            protocol_cls=LookupProtocol,
            converter_factory=default_converter,
        )
        self.worker = Worker(load)
        self.max_new_tokens = max_new_tokens
        self.initialization_options: Any = None
        self.is_ending = False
        self.has_shut_down = False
        self._jobs: dict[str, Job] = {}
        self._register()

    def begin(self, uri: str, job: Job) -> None:
        """Note a request; an older one on the same document ends."""
        older = self._jobs.get(unquote(uri))
        self._jobs[unquote(uri)] = job
        if older is not None:
            older.stop("replaced by a newer request")

    def note_change(self, uri: str) -> None:
        """End an edit of a document that is no longer what it was."""
        job = self._jobs.get(unquote(uri))
        if job is not None and job.needs_same_text and job.stop(CHANGED):
            self.say(CHANGED, types.MessageType.Warning)

    def finish(self, job: Job) -> None:
        """Forget a request."""
        self._jobs = {uri: other for uri, other in self._jobs.items() if other is not job}

    def say(self, message: str, kind: types.MessageType) -> None:
        """Show one line to the user."""
        line = " ".join(message.split())
        self.window_show_message(types.ShowMessageParams(type=kind, message=f"lookupdec: {line}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Tell the user what went wrong with a message; a request has that in its answer."""
        if source is not FeatureRequestError and not self.is_ending:
            # What fails while this is sent must not be reported in turn.
            self.is_ending = True
            self.say(f"a message could not be handled: {error}", types.MessageType.Error)
            self.is_ending = False

    def shutdown(self) -> None:
        """End all that is under way. The reading thread may wait for input that never comes: it is left."""
        self.is_ending = True
        for job in self._jobs.values():
            job.abandon()
        self.worker.close()
        if self._thread_pool is not None:
            self._thread_pool.shutdown(wait=False)

    def _register(self) -> None:
        options = types.CodeActionOptions(code_action_kinds=[EDITS, SUMMARIES])
        self.feature(types.INITIALIZE)(_initialize)
        self.feature(types.INITIALIZED)(_initialized)
        self.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(_code_action)
        self.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_changed)
        self.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_changed)
        self.feature(types.SHUTDOWN)(_shutdown)
        for name in (EDIT, REWRITE, SUMMARIZE):
            self.command(name)(_command())


def _initialize(ls: LookupServer, params: types.InitializeParams) -> None:
    ls.initialization_options = params.initialization_options


async def _initialized(ls: LookupServer, params: types.InitializedParams) -> None:  # noqa: ARG001
    """Load the model, and show that."""
    progress = Progress(ls)
    loading = ls.worker.load()
    await progress.begin("lookupdec", "loading the model")
    try:
        editor = await asyncio.shield(asyncio.wrap_future(loading))
    except asyncio.CancelledError:
        raise
    except Exception as error:
        expected = isinstance(error, LookupDecError)
        ls.say(str(error) if expected else f"{type(error).__name__}: {error}", types.MessageType.Error)
        progress.end("the model could not be loaded")
    else:
        progress.end(f"{editor.engine.name} is loaded")


async def _code_action(
    ls: LookupServer, params: types.CodeActionParams
) -> list[types.CodeAction | types.Command]:
    return await code_actions(ls, params)


def _changed(
    ls: LookupServer, params: types.DidChangeTextDocumentParams | types.DidCloseTextDocumentParams
) -> None:
    ls.note_change(params.text_document.uri)


def _shutdown(ls: LookupServer, *_: object) -> None:
    ls.is_ending = ls.has_shut_down = True


def _command() -> Callable[..., Any]:
    async def command(ls: LookupServer, params: types.ExecuteCommandParams) -> dict[str, Any]:
        return await execute(ls, params)

    return command
