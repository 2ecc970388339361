"""An editor: a language client over a pipe that keeps documents, applies edits and notes what it is shown."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

from cattrs import Converter
from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

from lookupdec.edit import Position, TextEdit, apply_edits

ROOT = Path(__file__).parents[2]
URI = "file:///somewhere/text.py"
SECONDS = 300.0  # machines may be slow

EVERYTHING: dict[str, Any] = {
    "window": {"workDoneProgress": True, "showMessage": {"messageActionItem": {}}},
    "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
    "textDocument": {
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["refactor.rewrite"]}}}
    },
}


def _converter() -> Converter:
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]

    def action(found: Any, _: object) -> types.Command | types.CodeAction:
        # lsprotocol takes an action that has a command for that command.
        if isinstance(found.get("command"), str):
            return converter.structure(found, types.Command)
        return converter.structure(found, types.CodeAction)

    converter.register_structure_hook(Union[types.Command, types.CodeAction], action)  # noqa: UP007
    return converter


class Editor(LanguageClient):
    """Documents by URI, each with its version; ``answers`` are given to the questions of the server."""

    def __init__(self, encoding: str | None = None) -> None:
        super().__init__("editor", "1", converter_factory=_converter)
        self.encoding = encoding or "utf-16"
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.messages: list[types.ShowMessageParams] = []
        self.questions: list[types.ShowMessageRequestParams] = []
        self.bars: list[Any] = []
        self.edits: list[types.WorkspaceEdit] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer: Callable[[list[str]], str | None] = lambda titles: titles[0]
        self.settings: Any = None
        self.applies = True
        self._happened = asyncio.Event()
        self._register()

    def _register(self) -> None:
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params)
            self._happened.set()

        async def question(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params)
            self._happened.set()
            await self.may_answer.wait()
            title = self.answer([action.title for action in params.actions or []])
            return None if title is None else types.MessageActionItem(title)

        def created(params: types.WorkDoneProgressCreateParams) -> None:
            return None

        def progress(params: types.ProgressParams) -> None:
            value: Any = params.value
            self.bars.append(SimpleNamespace(token=params.token, value=SimpleNamespace(**value)))
            self._happened.set()

        def configuration(params: types.ConfigurationParams) -> list[Any]:
            return [self.settings]

        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.edits.append(params.edit)
            return types.ApplyWorkspaceEditResult(applied=self.applies and self._apply(params.edit))

        for method, handler in {
            types.WINDOW_SHOW_MESSAGE: message,
            types.WINDOW_SHOW_MESSAGE_REQUEST: question,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: created,
            types.PROGRESS: progress,
            types.WORKSPACE_CONFIGURATION: configuration,
            types.WORKSPACE_APPLY_EDIT: apply,
        }.items():
            self.feature(method)(handler)

    def _apply(self, edit: types.WorkspaceEdit) -> bool:
        for uri, edits in (edit.changes or {}).items():
            self.change(uri, self._edited(uri, edits))
        for change in edit.document_changes or []:
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            if change.text_document.version != self.versions[uri]:
                return False
            self.change(uri, self._edited(uri, change.edits))
        return True

    def _edited(self, uri: str, edits: Any) -> str:
        ours = [
            TextEdit(
                Position(edit.range.start.line, edit.range.start.character),
                Position(edit.range.end.line, edit.range.end.character),
                edit.new_text,
            )
            for edit in edits
        ]
        return apply_edits(self.texts[uri], ours, position_encoding=self.encoding)  # type: ignore[arg-type]

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, text: str) -> None:
        self.texts[uri] = text
        self.versions[uri] += 1
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri]),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def actions(self, selected: types.Range, **context: Any) -> list[Any]:
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(URI), selected, types.CodeActionContext(diagnostics=[], **context)
        )
        return list(await self.text_document_code_action_async(params) or [])

    async def command(self, name: str, *, token: str | None = None, **argument: Any) -> Any:
        params = types.ExecuteCommandParams(name, [{"uri": URI, **argument}], work_done_token=token)
        return await asyncio.wait_for(self.workspace_execute_command_async(params), SECONDS)

    def start(self, name: str, *, request: str | None = None, **argument: Any) -> asyncio.Future[Any]:
        params = types.ExecuteCommandParams(name, [{"uri": URI, **argument}])
        future: asyncio.Future[Any] = self.protocol.send_request_async(
            types.WORKSPACE_EXECUTE_COMMAND, params, msg_id=request
        )
        return future

    async def until(self, happened: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not happened():
                await self._happened.wait()
                self._happened.clear()

    @property
    def edited_version(self) -> int | None:
        """The version that the last edit was made against."""
        (change,) = self.edits[-1].document_changes or []
        assert isinstance(change, types.TextDocumentEdit)
        return change.text_document.version

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._server is not None
        return self._server

    @property
    def shown(self) -> list[str]:
        return [message.message for message in self.messages]

    def reports(self) -> list[str]:
        return [params.value.message for params in self.bars if params.value.kind == "report"]


def selection(start: tuple[int, int], end: tuple[int, int]) -> types.Range:
    return types.Range(types.Position(*start), types.Position(*end))


def as_json(selected: types.Range) -> dict[str, Any]:
    start, end = selected.start, selected.end
    return {
        "start": {"line": start.line, "character": start.character},
        "end": {"line": end.line, "character": end.character},
    }


async def launched(options: dict[str, Any] | list[str], encoding: str | None = None) -> Editor:
    """Start a server: the scripted one with its options, or the real command with its arguments."""
    editor = Editor(encoding)
    if isinstance(options, list):
        command = ["lookupdec.cli", "lsp", "--stdio", *options]
    else:
        command = ["tests.lsp.scripted_server", json.dumps(options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    await editor.start_io(sys.executable, "-m", *command, cwd=ROOT, env=environment)
    return editor


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


@contextlib.asynccontextmanager
async def editing(
    options: dict[str, Any] | list[str] | None = None,
    *,
    encoding: str | None = None,
    capabilities: dict[str, Any] | None = None,
    initialization: Any = None,
) -> AsyncIterator[Editor]:
    """Run an editor with a server; afterwards the server has ended well and has printed nothing."""
    editor = await launched({} if options is None else options, encoding)
    wanted = dict(EVERYTHING if capabilities is None else capabilities)
    if encoding is not None:
        wanted["general"] = {"positionEncodings": [encoding]}
    structured = _converter().structure(wanted, types.ClientCapabilities)
    try:
        answer = await editor.initialize_async(
            types.InitializeParams(
                capabilities=structured, process_id=os.getpid(), initialization_options=initialization
            )
        )
        assert answer.capabilities.position_encoding == editor.encoding
        editor.initialized(types.InitializedParams())
        yield editor
        await asyncio.wait_for(editor.shutdown_async(None), SECONDS)
        editor.exit(None)
        assert await asyncio.wait_for(editor.process.wait(), SECONDS) == 0
    finally:
        stderr = await ended(editor)
    assert stderr == b""


async def ended(editor: Editor) -> bytes:
    """Make sure that a server is gone, and return what it printed."""
    process = editor.process
    if process.returncode is None:
        process.kill()
    assert process.stderr is not None
    stderr = await process.stderr.read()
    await editor.stop()  # type: ignore[no-untyped-call]
    process._transport.close()  # type: ignore[attr-defined]
    return stderr
