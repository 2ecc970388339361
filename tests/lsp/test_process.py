"""How the server's process begins and ends."""

import asyncio
import contextlib
import json
import subprocess
import sys

import pytest
from lsprotocol import types

from tests.lsp.client import ROOT, SECONDS, URI, Editor, editing, ended, in_loop, launched

LONG = "".join(f"line {number} of a text\n" for number in range(100))
NEVER = str(ROOT / "never" / "there")
UNENDING = {"gate": NEVER}


async def generating(editor: Editor) -> asyncio.Future[object]:
    """Bring a server to where it generates."""
    window = types.WindowClientCapabilities(work_done_progress=True)
    await editor.initialize_async(types.InitializeParams(types.ClientCapabilities(window=window)))
    editor.initialized(types.InitializedParams())
    editor.open(LONG)
    answer = editor.start("lookupdec.rewrite", instruction="Tell.")
    await editor.until(editor.reports)
    return answer


@in_loop
async def test_shutdown_and_exit_end_a_generation():
    async with editing(UNENDING) as editor:
        editor.open(LONG)
        answer = editor.start("lookupdec.rewrite", instruction="Tell.")
        await editor.until(editor.reports)
    assert isinstance(answer.exception(), Exception)
    assert (editor.texts[URI], editor.edits) == (LONG, [])


@in_loop
async def test_exit_without_shutdown_ends_the_server_with_1():
    editor = await launched(UNENDING)
    answer = await generating(editor)
    editor.exit(None)
    assert await asyncio.wait_for(editor.process.wait(), SECONDS) == 1
    assert await ended(editor) == b""
    assert answer.exception() is not None


@pytest.mark.parametrize("options", [UNENDING, {"load": NEVER}], ids=["generating", "loading"])
@in_loop
async def test_the_server_ends_when_the_editor_dies(options):
    editor = await launched(options)
    answer = None
    if "load" in options:
        await editor.initialize_async(types.InitializeParams(types.ClientCapabilities()))
        editor.initialized(types.InitializedParams())
    else:
        answer = await generating(editor)
    assert editor.process.stdin is not None
    editor.process.stdin.close()
    assert await asyncio.wait_for(editor.process.wait(), SECONDS) == 1
    assert await ended(editor) == b""
    assert answer is None or answer.exception() is not None


@in_loop
async def test_one_editor_may_connect_through_a_port_and_a_browser_may_not():
    command = [sys.executable, "-m", "tests.lsp.scripted_server", json.dumps({"tcp": "127.0.0.1:0"})]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            port = int((await asyncio.to_thread(process.stderr.readline)).rpartition(":")[2])
            body = b'{"jsonrpc": "2.0", "id": 1, "method": "shutdown"}'
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            editor = Editor()
            await editor.start_tcp("127.0.0.1", port)
            answer = await editor.initialize_async(types.InitializeParams(types.ClientCapabilities()))
            assert answer.server_info is not None and answer.server_info.name == "lookupdec"
            await editor.shutdown_async(None)
            editor.exit(None)
            assert await asyncio.to_thread(process.wait, SECONDS) == 0
            await editor.stop()  # type: ignore[no-untyped-call]
            assert editor.protocol.writer is not None
            editor.protocol.writer.close()
        finally:
            process.kill()
        assert process.stderr.read() == ""


def command(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    start = f"import sys; {code}sys.argv[0] = 'lookupdec'; from lookupdec.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, "lsp", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        input="",
        timeout=SECONDS,
    )


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("0.0.0.0:9000", "0.0.0.0 is not of this machine alone"),
        ("example.org:9000", "example.org is not of this machine alone"),
        ("127.0.0.1", "is no address: give HOST:PORT"),
        ("127.0.0.1:http", "is no address: give HOST:PORT"),
        ("[::1]:65536", "is no address: give HOST:PORT"),
    ],
)
def test_an_address_that_others_can_reach_is_refused(address, message):
    done = command("--tcp", address)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_pygls_the_remedy_is_named():
    done = command(code="sys.modules['pygls'] = None; ")
    assert (done.returncode, done.stdout) == (2, "")
    remedy = 'pip install -c constraints.txt -e ".[lsp]" in the checkout'
    assert done.stderr == f"error: the language server needs pygls: {remedy}\n"


def test_the_command_ends_where_nobody_speaks_to_it():
    done = command()
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.model
@in_loop
async def test_the_default_model_edits_over_the_real_command():
    text = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"
    async with editing(["--max-new-tokens", "60"]) as editor:
        editor.open(text)
        result = await editor.command("lookupdec.rewrite", instruction="Rename add to plus.")
        if result["applied"]:
            assert editor.texts[URI] != text and editor.edited_version == 1
            assert "tokens per pass" in result["figures"]
        else:
            assert editor.shown == [f"lookupdec: {result['reason']}"]
