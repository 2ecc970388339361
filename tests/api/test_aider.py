"""aider itself against the service, with the settings of the documentation, in a small repository.

aider pins many old packages, so it lives in a virtual environment of its own: that which LOOKUPDEC_AIDER names,
or one that is made for these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editor_api.engine import Request
from tests.api.documented import block
from tests.api.fakes import FakeEngine, FakeJob
from tests.api.serving import Served, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # where it is missing it is installed

AIDER = "aider-chat==0.86.2"
OLD = 'def greet(name):\n    print("Hello, " + name)\n\n\ngreet("you")\n'
NEW = OLD.replace("greet", "welcome")
ANSWER = f"Renamed.\n\ngreet.py\n```\n{NEW}```\n"
HALF = ANSWER.index("print") + 2  # inside a word: aider drops white space where it continues
FAILURES = ("APIError", "BadRequest", "litellm.", "Traceback", "Empty response", "InternalServer")
QUIET = {
    "AIDER_ANALYTICS": "false",
    "AIDER_CHECK_UPDATE": "false",
    "AIDER_SHOW_MODEL_WARNINGS": "false",
    "AIDER_SHOW_RELEASE_NOTES": "false",
    "AIDER_GITIGNORE": "false",
    "AIDER_DETECT_URLS": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "NO_COLOR": "1",
}


@pytest.fixture(scope="module")
def aider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program, installed if need be."""
    if given := os.environ.get("LOOKUPDEC_AIDER"):
        program = Path(given) / "bin" / "aider"
        assert program.exists(), (
            f"LOOKUPDEC_AIDER is to be a virtual environment with aider: {program} is not there"
        )
        return program
    if sys.version_info >= (3, 13):
        pytest.skip("aider is made for Python below 3.13: set LOOKUPDEC_AIDER to an environment that has it")
    folder = tmp_path_factory.mktemp("aider") / "venv"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", AIDER],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            pytest.skip(f"{AIDER} cannot be installed: {lines[-1]}")
    return folder / "bin" / "aider"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "greet.py").write_text(OLD)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    return folder


def run(aider: Path, repository: Path, port: int, message: str, *options: str) -> str:
    """Run aider for one message with the documented settings, and return what it printed."""
    config = block("editors.md", "aider", "yaml").at(port)
    (repository / ".aider.conf.yml").write_text(config)
    (repository / ".aider.model.settings.yml").write_text(block("editors.md", "aider", "yaml", 1).text)
    environment = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        [str(aider), "--yes-always", "--no-pretty", *options, "--message", message, "greet.py"],
        cwd=repository,
        env=environment | QUIET | identity | {"HOME": str(repository.parent)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not [failure for failure in FAILURES if failure in printed], printed
    return printed


class CutEngine(FakeEngine):
    """Gives the first answer in two halves: the first one reaches the limit."""

    def submit(self, request: Request) -> FakeJob:
        if self.jobs:
            self.answer = ANSWER[HALF:]
        else:
            self.answer = ANSWER
            request = replace(request, settings={**request.settings, "max_new_tokens": HALF})
        return super().submit(request)


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_an_answer_becomes_an_edit_and_a_commit(aider: Path, repository: Path, options: list[str]) -> None:
    fake = FakeEngine(ANSWER, context_length=100_000)
    with serving(fake) as served:
        printed = run(aider, repository, served.port, "Rename greet to welcome.", *options)
    assert (repository / "greet.py").read_text() == NEW, printed
    assert fake.jobs[0].expected[0] == f"greet.py\n```\n{OLD}```\n"
    assert fake.jobs[0].request.settings["max_new_tokens"] == 1024
    log = subprocess.run(["git", "log", "--oneline"], cwd=repository, capture_output=True, text=True)
    assert len(log.stdout.splitlines()) == 2


def test_an_answer_that_reaches_the_limit_is_continued(aider: Path, repository: Path) -> None:
    engine = CutEngine(context_length=100_000)
    metadata = block("editors.md", "aider", "json").text
    (repository / ".aider.model.metadata.json").write_text(metadata)
    with serving(engine) as served:
        printed = run(aider, repository, served.port, "Rename greet to welcome.")
    assert (repository / "greet.py").read_text() == NEW, printed
    assert engine.decode(engine.jobs[1].request.prompt).endswith(ANSWER[:HALF])


@pytest.mark.model
@pytest.mark.parametrize("edit_format", ["whole", "diff"])
def test_a_conversation_with_the_default_model(
    aider: Path, repository: Path, model_served: Served, edit_format: str
) -> None:
    before: Any = model_served.client.get("/metrics").text
    run(aider, repository, model_served.port, "Rename greet to welcome.", "--edit-format", edit_format)
    served = '{path="/v1/chat/completions",status="200"}'
    counts = [
        float(line.rsplit(" ", 1)[1])
        for text in (before, model_served.client.get("/metrics").text)
        for line in text.splitlines()
        if line.startswith(f"lookupdec_http_requests_total{served}")
    ]
    assert counts and (len(counts) == 1 or counts[1] > counts[0])
