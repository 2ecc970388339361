"""What the README tells a reader to type does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "Makefile",
    *sorted((ROOT / "docs").glob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.startswith("lookupdec ")
]
pytestmark = pytest.mark.timeout(1800)
# Enough to run through; the whole answers are for readers with time.
SHORTENED = {"batch": 8, "compare": 24, "edit": 24, "verify": 8}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=600, stdin=subprocess.DEVNULL
    )


@pytest.mark.model
@pytest.mark.parametrize("block", range(len(re.findall("```python\n", README))))
def test_python_examples_run(block: int) -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.S)[block]
    done = run("-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.model
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_run(command: list[str], tmp_path: Path) -> None:
    name = command[0]
    few = tmp_path / "few.jsonl"
    items = (ROOT / "datasets" / "edits.jsonl").read_text(encoding="utf-8").split("\n")
    few.write_text("\n".join(items[:2]), encoding="utf-8")
    stands_for = {"answers.jsonl": tmp_path / "answers.jsonl"}
    if name == "batch":
        stands_for["datasets/edits.jsonl"] = few
    arguments = [str(stands_for.get(word, word)) for word in command]
    if name == "verify":
        arguments += ["--prompts", str(few), "--samples", "0"]
    if name in SHORTENED:
        arguments += ["--max-new-tokens", str(SHORTENED[name])]
    done = run("-m", "lookupdec.cli", *arguments)
    # 3: a shortened answer is not complete, and says so. 1: nobody told the language server to shut down.
    assert done.returncode == {"edit": 3, "batch": 3, "lsp": 1}.get(name, 0), done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_is_in_the_readme() -> None:
    listed = run("-m", "lookupdec.cli", "--help").stdout
    assert set(re.findall(r"^  (\w+) ", listed.partition("Commands:")[2], re.M)) == {
        command[0] for command in COMMANDS
    }


def documented_benchmarks() -> dict[str, set[str]]:
    """Return the options that documents give to each benchmark."""
    options: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for name, arguments in re.findall(
            r"(?:python -m|\$\(RUN\)) benchmarks\.(\w+)([^`\n]*(?:\n--[^`\n]*)?)", text
        ):
            options.setdefault(name, set()).update(re.findall(r"--[\w-]+", arguments))
    return options


@pytest.mark.parametrize(("name", "options"), sorted(documented_benchmarks().items()))
def test_benchmarks_know_the_options_that_documents_give_them(name: str, options: set[str]) -> None:
    shown = run("-m", f"benchmarks.{name}", "--help")
    assert shown.returncode == 0, shown.stderr
    assert options <= set(re.findall(r"--[\w-]+", shown.stdout))


@pytest.mark.slow
def test_benchmarks_of_drafting_run_on_what_is_here() -> None:
    done = subprocess.run(["make", "bench"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert '"over_best_peer"' in done.stdout


def test_named_files_exist() -> None:
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / name).exists(), name


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)
