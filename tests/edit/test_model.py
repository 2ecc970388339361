"""Edits by the default model: what it writes is its own affair, what is done with it is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lookupdec.edit import Editor, apply_edits
from lookupdec.edit.engine import ModelEngine
from lookupdec.errors import ContextFullError
from lookupdec.hf import PrefixCache, load

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]
ITEMS = [
    json.loads(line) for line in (ROOT / "datasets" / "edits.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def editor():
    # How long drafts are follows no clock.
    return Editor(ModelEngine(load(measure_cost=False), PrefixCache()))


def item(task: str) -> dict[str, str]:
    return min((item for item in ITEMS if item["task"] == task), key=lambda item: len(item["input"]))


@pytest.mark.parametrize("task", ["code_edit", "config_edit", "doc_rewrite"])
def test_an_edit_by_lookup_is_that_of_plain_decoding(editor, task):
    example = item(task)
    results = [
        editor.edit(
            example["input"], example["instruction"], max_new_tokens=40, plain=plain, allow_incomplete=True
        )
        for plain in (False, True)
    ]
    lookup, plain = results
    assert (lookup.answer, lookup.text, lookup.edits) == (plain.answer, plain.text, plain.edits)
    assert lookup.stats.tokens == plain.stats.tokens
    assert lookup.stats.passes <= plain.stats.passes
    assert apply_edits(example["input"], lookup.edits) == lookup.text


def test_a_second_instruction_on_one_file_does_not_read_it_again(editor):
    text = item("code_edit")["input"]
    first = editor.edit(text, "Rename one variable.", max_new_tokens=8, allow_incomplete=True)
    second = editor.edit(text, "Add a comment.", max_new_tokens=8, allow_incomplete=True)
    assert second.usage.cached_tokens > 0.7 * first.usage.prompt_tokens
    alone = Editor(ModelEngine(editor.engine.model)).edit(
        text, "Add a comment.", max_new_tokens=8, allow_incomplete=True
    )
    assert alone.usage.cached_tokens == 0
    assert second.answer == alone.answer


def test_a_summary_by_lookup_is_that_of_plain_decoding(editor):
    text = item("summarize")["input"]
    lookup = editor.summarize(text, style="sentence", max_new_tokens=40)
    plain = editor.summarize(text, style="sentence", max_new_tokens=40, plain=True)
    assert lookup.text == plain.text != ""


def test_a_file_longer_than_the_context_is_refused_with_the_numbers(editor):
    text = "All work and no play makes a dull text.\n" * 600
    with pytest.raises(
        ContextFullError, match=r"answer needs about \d+ more, but SmolLM2-135M-Instruct holds 8192"
    ):
        editor.edit(text, "x", split=False)


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What the program shows until ``wanted`` comes, or until it ends."""
    seen = b""
    while wanted not in seen:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    return seen


def test_ctrl_c_while_the_answer_streams_leaves_the_file_untouched(tmp_path):
    pty = pytest.importorskip("pty")
    file = tmp_path / "file.txt"
    data = item("code_edit")["input"].replace("\n", "\r\n").encode()
    file.write_bytes(data)
    terminal, stderr = pty.openpty()
    command = [sys.executable, "-m", "lookupdec.cli", "edit", str(file), "-i", "Add comments.", "--in-place"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr) as process:
        os.close(stderr)
        seen = read_until(terminal, b"tokens per pass")
        process.send_signal(signal.SIGINT)
        seen += read_until(terminal, b"nothing else comes")
        stdout, _ = process.communicate(timeout=300)
    os.close(terminal)
    assert b"Traceback" not in seen
    assert b"stopped: nothing was written" in seen
    assert (process.returncode, stdout) == (130, b"")
    assert file.read_bytes() == data
    assert list(tmp_path.iterdir()) == [file]
