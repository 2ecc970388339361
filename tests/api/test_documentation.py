"""What docs/ tells readers to type at the service, typed: every command, and one for every endpoint."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from editor_api.app import create_app
from editor_api.settings import Settings
from tests.api.documented import PORT, commands
from tests.api.fakes import FakeEngine
from tests.api.serving import Served, serving

COMMANDS = [(page, command) for page in ("http.md", "editors.md") for command in commands(page)]
PATH = re.compile(rf"(?<=:{PORT})/[\w/.-]*")
NAMES = [f"{page} {PATH.findall(command)[0]}" for page, command in COMMANDS]
GAPS = ("/infill", "/fim/")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    fake = FakeEngine("colour = 2\nprint(colour)\n", model_name="SmolLM2-135M-Instruct", context_length=8192)
    with serving(fake) as running:
        yield running


def typed(command: str, port: int) -> tuple[int, str]:
    """Run a command against a service at another port, and return the status and the body."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    words = shlex.split(re.sub(rf"\b(localhost|127\.0\.0\.1):{PORT}\b", f"127.0.0.1:{port}", command))
    done = subprocess.run(
        [words[0], "--noproxy", "*", "-w", "\n%{http_code}", *words[1:]],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=NAMES)
def test_every_command_is_answered(served: Served, page: str, command: str) -> None:
    status, body = typed(command, served.port)
    assert status == 200, body
    if "/metrics" not in command:
        assert json.loads(body)


def test_every_endpoint_has_a_command() -> None:
    paths = set(create_app(Settings(), FakeEngine()).openapi()["paths"])
    typed_paths = {name.removeprefix("http.md ") for name in NAMES if name.startswith("http.md ")}
    assert {re.sub("/v1/models/.*", "/v1/models/{name}", path) for path in typed_paths} == paths


@pytest.mark.model
@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=NAMES)
def test_the_default_model_answers_every_command(model_served: Served, page: str, command: str) -> None:
    # A small model may go on for long; the documentation leaves that to the reader.
    shortened = re.sub(r"-d '\{", """-d '{"max_tokens": 100, """, command)
    status, body = typed(shortened, model_served.port)
    if any(path in command for path in GAPS):
        assert (status, json.loads(body)["error"]["code"]) == (400, "unsupported_value")
    elif "apply" in command and status != 200:  # what such a model writes need not be the whole text
        assert (status, json.loads(body)["error"]["code"]) == (500, "incomplete_answer")
    else:
        assert status == 200, body


@pytest.mark.model
def test_the_default_model_merges_a_snippet(model_served: Served) -> None:
    """Whatever a small model makes of it: a text and what it took, or the reason why there is none."""
    code = "".join(f"value_{number} = {number}\n" for number in range(12))
    body: dict[str, Any] = {
        "initial_code": code,
        "edit_snippet": "value_0 = 100\n# ... existing code ...",
        "max_tokens": 200,
    }
    answer = model_served.client.post("/v1/code/apply", json=body)
    if answer.status_code == 500:
        assert answer.json()["error"]["code"] == "incomplete_answer"
    else:
        assert answer.json()["mergedCode"].endswith("\n")
        assert answer.json()["timings"]["draft_n_accepted"] > 20
