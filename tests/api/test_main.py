"""The command: settings, and a process that starts and stops as operators expect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from pydantic_settings import CliApp

from editor_api.__main__ import main
from editor_api.app import embedded_engine
from editor_api.settings import Settings
from lookupdec.errors import ModelError
from tests.api.conftest import TINY
from tests.api.serving import PATIENCE, chat_body, events, until
from tests.hf.tiny import byte_tokenizer, tiny_model

ROOT = Path(__file__).parents[2]


def test_every_setting_is_in_the_help_with_a_description() -> None:
    help_text = CliApp.format_help(Settings, strip_ansi_color=True)
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in help_text
        assert field.description
    assert "EDITOR_API_" in help_text


def test_flags_win_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR_API_MAX_QUEUED", "5")
    monkeypatch.setenv("EDITOR_API_DRAFTING", "false")
    monkeypatch.setenv("EDITOR_API_CORS_ORIGINS", '["https://a.example"]')
    assert Settings().cors_origins == ["https://a.example"]
    settings = CliApp.run(Settings, cli_args=["--max-queued", "6"])
    assert settings.max_queued == 6
    assert not settings.drafting
    assert CliApp.run(Settings, cli_args=["--drafting"]).drafting


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--host", "0.0.0.0"], "give --api-keys-file"),
        (["--host", "example.org"], "give --api-keys-file"),
        (["--port", "x"], "--port: "),
        (["--max-running", "0"], "--max-running: "),
        (["--api-keys-file", "/no/such/file"], "cannot be read"),
        (["--api-keys-file", os.devnull], "holds no key"),
        (["--phrases", "/no/such/file"], "does not exist"),
        (["--model", "/no/such/model"], "there is no file or folder '/no/such/model'"),
        (["--model", str(ROOT / "docs")], "holds no model"),
    ],
)
def test_bad_settings_are_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert reason in error


@pytest.mark.parametrize(
    ("arguments", "name"),
    [([], "EDITOR_API_PORT: "), (["--port", "x"], "--port: "), (["--port=x"], "--port: ")],
)
def test_a_bad_setting_is_named_as_it_was_given(
    arguments: list[str], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR_API_PORT", "abc")
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}")


@pytest.mark.parametrize("missing", ["pydantic_settings", "fastapi", "uvicorn"])
def test_without_the_extra_the_command_says_what_installs_it(missing: str) -> None:
    hidden = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['editor-api']"
    code = f"{hidden}; from editor_api.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    told = f'error: the service needs {missing}: pip install -c constraints.txt -e ".[api]" in the checkout\n'
    assert done.stderr == told


def test_how_to_load_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, dict[str, object]]] = []

    def load(model: object, **options: object) -> None:
        asked.append((model, options))
        raise ModelError("enough")

    monkeypatch.setattr("lookupdec.hf.load", load)
    flags = ["--model", "a/b", "--dtype", "bfloat16", "--device", "cpu", "--exact", "fixed"]
    engine = embedded_engine(CliApp.run(Settings, cli_args=flags))
    engine.start()
    until(lambda: engine.capacity.state == "failed")
    assert asked == [("a/b", {"dtype": "bfloat16", "device": "cpu", "exact": "fixed"})]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_key(host: str) -> None:
    assert Settings(host=host).api_keys_file is None


def test_a_port_in_use_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_the_command_is_quick_to_say_what_it_does() -> None:
    code = "import sys; from editor_api.__main__ import main; print({'torch', 'fastapi'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout
        == "set()\n"
    )


class Process:
    """The service as a process."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "editor_api", "--port", "0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self.process.stderr is not None
        self._stderr: IO[str] = self.process.stderr

    def log(self, message: str) -> dict[str, Any]:
        """Read the log up to a message."""
        for line in self._stderr:
            record: dict[str, Any] = json.loads(line)
            if record["message"] == message:
                return record
        raise AssertionError(f"no {message!r} in the log")

    def rest(self) -> str:
        return self._stderr.read()


def is_listening(address: dict[str, Any]) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((address["host"], address["port"])) == 0


@pytest.fixture
def tiny_folder(tmp_path: Path) -> str:
    tiny_model("llama", 3, **TINY | {"max_position_embeddings": 32768}).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.fixture(params=["0.5"])
def started(tiny_folder: str, request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process("--model", tiny_folder, "--drain-seconds", request.param)
    yield process
    process.process.kill()
    process.process.wait()
    process._stderr.close()


@pytest.mark.parametrize(
    ("started", "signals"),
    [("0.5", [signal.SIGTERM]), ("3600", [signal.SIGINT, signal.SIGINT])],
    indirect=["started"],
    ids=["drained", "twice"],
)
def test_a_service_that_is_told_to_end_lets_no_stream_end_without_a_word(
    started: Process, signals: list[signal.Signals]
) -> None:
    address = started.log("listening")
    started.log("ready")
    base = f"http://{address['host']}:{address['port']}"
    bodies: list[bytes] = []
    running = threading.Semaphore(0)

    def ask() -> None:
        path = f"{base}/v1/chat/completions"
        headers = {"content-type": "application/json"}
        body = chat_body("hi", stream=True)
        with httpx2.stream("POST", path, content=body, headers=headers, timeout=PATIENCE) as answer:
            parts = answer.iter_bytes()
            first = next(parts)
            running.release()
            bodies.append(first + b"".join(parts))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        running.acquire()
    for told in signals:
        started.process.send_signal(told)
        until(lambda: not is_listening(address))  # two at once may come as one
    for thread in threads:
        thread.join(PATIENCE)
    assert [events(body)[-1]["error"]["code"] for body in bodies] == ["unavailable"] * 3
    log = started.rest()
    assert started.process.wait(PATIENCE) == 0
    assert "Traceback" not in log
    assert all(json.loads(line) for line in log.splitlines())


@pytest.mark.parametrize(("megabytes", "is_kept"), [("0", False), ("8", True)])
def test_prompts_are_kept_as_the_flag_says(tiny_folder: str, megabytes: str, is_kept: bool) -> None:
    service = Process("--model", tiny_folder, "--prefix-megabytes", megabytes)
    try:
        address = service.log("listening")
        service.log("ready")
        path = f"http://{address['host']}:{address['port']}/v1/chat/completions"
        body = chat_body("Tell me what nobody else has asked.", max_tokens=1)
        headers = {"content-type": "application/json"}
        timings = [
            httpx2.post(path, content=body, headers=headers, timeout=PATIENCE).json()["timings"]
            for _ in range(2)
        ]
    finally:
        service.process.kill()
        service.process.wait()
        service._stderr.close()
    assert timings[0]["cache_n"] == 0
    assert (timings[1]["cache_n"] > 0) is is_kept


def test_a_model_that_cannot_be_loaded_ends_the_service(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")  # told when it is read, not before the service listens
    process = Process("--model", str(tmp_path))
    _, stderr = process.process.communicate(timeout=PATIENCE)
    assert process.process.returncode == 2
    assert '"listening"' in stderr
    assert stderr.splitlines()[-1].startswith(f"error: cannot load {tmp_path}: ")
