"""``lookupdec verify``: prompts, table, JSON line and exit codes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lookupdec.cli import verify, verify_prompts
from lookupdec.cli.app import app
from lookupdec.cli.verify import _progress_bar
from lookupdec.errors import FileError, ModelError
from lookupdec.hf import LanguageModel
from lookupdec.hf.passes import FixedPasses
from lookupdec.hf.proof import Run
from lookupdec.hf.target import ModelTarget
from lookupdec.stats import Stats
from tests.hf.tiny import byte_tokenizer, tiny_model


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    shape = {"vocab_size": 257, "eos_token_id": 256, "max_position_embeddings": 2048}
    model = LanguageModel(tiny_model("llama", 3, **shape), byte_tokenizer(), "tiny")
    monkeypatch.setattr("lookupdec.hf.load", lambda *_args, **_options: model)
    return model


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = ['"one two one"', '{"prompt": "ab ab ab"}', "", '{"instruction": "copy", "input": "x = 1"}']
    lines.append('{"messages": [{"role": "user", "content": "hi hi"}]}')
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


@pytest.mark.parametrize(
    ("one_width", "said"), [(True, "fixed passes,"), (False, "fast passes of fixed widths,")]
)
def test_passes_of_fixed_widths_are_named(
    one_width: bool, said: str, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"vocab_size": 257, "eos_token_id": 256, "max_position_embeddings": 512}
    network = tiny_model("llama", 3, **shape)
    passes = FixedPasses(network, one_width=one_width)
    model = LanguageModel(network, byte_tokenizer(), "tiny", passes=passes)
    monkeypatch.setattr("lookupdec.hf.load", lambda *_args, **_options: model)
    result = run("--prompts", prompts, "--max-new-tokens", 8)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"tiny, float32 on cpu, {said} transformers ")
    report = json.loads(run("--prompts", prompts, "--max-new-tokens", 8, "--json").stdout)
    assert (report["arithmetic"], report["passes"]) == ("fixed" if one_width else "fast", "fixed")


def break_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    rewind = ModelTarget.rewind
    monkeypatch.setattr(ModelTarget, "rewind", lambda self, count: rewind(self, max(0, count - 1)))


def test_a_sound_model_gives_a_table_and_exit_code_0(
    tiny: LanguageModel, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lookupdec.cli.show._SECONDS_A_LINE", 1e9)
    result = run("--prompts", prompts, "--max-new-tokens", 12)
    assert result.exit_code == 0
    assert result.stdout.startswith("tiny, float32 on cpu, fast passes, transformers ")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:6] for row in rows if row[:1] in (["greedy"], ["sampled"])] == [
        ["greedy", "4", "48", "4", "0", "0"],
        ["sampled", "4", "48", "4", "0", "0"],
    ]
    assert result.stderr == ""


def test_long_work_tells_how_far_it_is_where_there_is_no_terminal(
    tiny: LanguageModel, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lookupdec.cli.show._SECONDS_A_LINE", 0.0)
    result = run("--prompts", prompts, "--max-new-tokens", 2)
    assert result.stderr.splitlines()[-1] == "8 of 8 runs, 8 identical"
    assert re.fullmatch(r"4 of 8 runs, 4 identical, about \d+ s left", result.stderr.splitlines()[-5])


def test_a_bar_says_how_long_it_still_takes_however_long_a_run_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("lookupdec.cli.verify.perf_counter", lambda: now)
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with _progress_bar(console, 4) as show:
        now = 90.0
        show([Run(0, None, "identical", 1, 0.0, Stats())])
    assert isinstance(console.file, io.StringIO)
    assert "1/4 1 identical, about 4 min left" in console.file.getvalue()


def test_the_help_says_how_long_it_takes() -> None:
    assert "minutes" in run("--help").stdout


def test_json_is_one_line_with_every_run(tiny: LanguageModel, prompts: Path) -> None:
    result = run("--prompts", prompts, "--max-new-tokens", 8, "--samples", 2, "--json")
    (line,) = result.stdout.splitlines()
    report = json.loads(line)
    counts = [report[name] for name in ("runs", "identical", "near_ties", "faults")]
    assert (result.exit_code, counts) == (0, [12, 12, 0, 0])
    assert (report["model"], report["dtype"], report["near_tie_threshold"]) == ("tiny", "float32", 0.001)
    assert [(run["prompt"], run["mode"], run["seed"]) for run in report["results"][:4]] == [
        (0, "greedy", None),
        (0, "sampled", 0),
        (0, "sampled", 1),
        (1, "greedy", None),
    ]
    assert all(run["lookup"]["tokens"] == run["plain"]["tokens"] == 8 for run in report["results"])


def test_a_fault_is_named_and_ends_with_exit_code_1(
    tiny: LanguageModel, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_the_cache(monkeypatch)
    result = run("--prompts", prompts, "--max-new-tokens", 24, "--samples", 0)
    assert result.exit_code == 1
    (line, *_) = [line for line in result.stdout.splitlines() if line.startswith("fault: ")]
    assert "greedy, token " in line
    assert "below the model's own choice" in line
    result = run("--prompts", prompts, "--max-new-tokens", 24, "--samples", 0, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["faults"] > 0


def test_a_crash_is_a_fault_and_its_json_is_valid(
    tiny: LanguageModel, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ModelTarget, "step", crash)
    result = run("--prompts", prompts, "--max-new-tokens", 4, "--samples", 0, "--json")
    assert result.exit_code == 1
    first = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))["results"][0]
    assert (first["lookup"], first["difference"]["gap"]) == (None, None)
    assert first["difference"]["why"] == "lookup decoding failed: broken"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "prompts.jsonl:1 is no JSON"),
        ('"ok"\n{"text": "x"}', "prompts.jsonl:2 is no prompt: give each line messages"),
        ('{"messages": []}', "prompts.jsonl:1 is no prompt"),
        ("\n\n", "holds no prompts"),
        ('"\\ud800"', "lone surrogate"),
        (json.dumps("x" * 3000), "the prompt has 3000 tokens"),
    ],
)
def test_prompts_that_cannot_be_read_end_with_exit_code_2(
    tiny: LanguageModel, prompts: Path, content: str, message: str
) -> None:
    prompts.write_text(content, encoding="utf-8")
    result = run("--prompts", prompts)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_file_that_is_not_there_is_told_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_load", lambda *_, **__: pytest.fail("the model was loaded"))
    assert run("--prompts", "nowhere.jsonl").exit_code == 2
    assert run("--samples", -1).exit_code == 2
    with pytest.raises(FileError, match="nowhere.jsonl does not exist"):
        verify_prompts.read_prompts(Path("nowhere.jsonl"))


def test_options_reach_the_loader(prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(model: str | None, **options: str) -> None:
        raise ModelError(f"{model} {options}")

    monkeypatch.setattr("lookupdec.hf.load", load)
    options = {"dtype": "bfloat16", "device": "cpu", "exact": "bitwise"}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    result = run("--prompts", prompts, "--model", "folder", *given)
    assert (result.exit_code, result.stderr) == (2, f"error: folder {options}\n")


def test_a_model_that_cannot_be_loaded_ends_with_exit_code_2(prompts: Path) -> None:
    result = run("--prompts", prompts, "--model", "./nowhere")
    assert result.exit_code == 2
    assert "there is no file or folder" in result.stderr


def test_the_default_prompts_are_the_projects_data_or_those_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    data = verify_prompts.read_prompts(None)
    assert len(data) >= 5
    monkeypatch.setattr(verify_prompts, "_DATA", Path("nowhere"))
    built_in = verify_prompts.read_prompts(None)
    assert len(built_in) == 5
    assert all(isinstance(prompt, list) and prompt[0]["content"] for prompt in data + built_in)


def test_a_model_without_a_chat_template_reads_messages_as_text(tiny: LanguageModel, prompts: Path) -> None:
    tiny.tokenizer.chat_template = None  # type: ignore[assignment, unused-ignore]
    assert run("--prompts", prompts, "--max-new-tokens", 3, "--samples", 0).exit_code == 0


@pytest.mark.model
def test_the_default_model_is_identical_in_float32(tmp_path: Path) -> None:
    items = [
        {"instruction": instruction, "input": text} for instruction, text in verify_prompts._BUILT_IN[1:3]
    ]
    prompts = tmp_path / "two.jsonl"
    prompts.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    result = run("--prompts", prompts, "--max-new-tokens", 20, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["dtype"]) == (0, "float32")
    assert (report["runs"], report["identical"]) == (4, 4)
    assert sum(run["lookup"]["accepted"] for run in report["results"]) > 10
