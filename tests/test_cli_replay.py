from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

import lookupdec.cli.replay as replay_module
from lookupdec.decode import PlainDrafter
from lookupdec.replay import Trace
from tests.test_replay import make_trace

RUNNER = CliRunner()
APP = typer.Typer()
APP.command("replay")(replay_module.replay_command)

PROMPT = [9, *range(20, 50)]
OUTPUT = [*range(20, 50), 0]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Trace]:
    """Two traces in the place of any file."""
    traces = [
        make_trace(PROMPT, OUTPUT, slice(1, 31)),
        make_trace(PROMPT, [*OUTPUT[:10], *OUTPUT], slice(1, 31)),
    ]
    monkeypatch.setattr(replay_module, "load_traces", lambda _path, limit: traces[:limit])
    return traces


def run(*options: str) -> Result:
    return RUNNER.invoke(APP, ["some.jsonl", *options])


def report_of(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    line: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
    return line


@pytest.mark.usefixtures("recorded")
class TestReport:
    def test_last_line_holds_every_figure(self) -> None:
        report = report_of(run("--drafter", "plain", "--drafter", "vllm"))
        assert (report["file"], report["traces"], report["tokens"]) == ("some.jsonl", 2, 70)
        drafters = report["drafters"]
        assert isinstance(drafters, dict)
        assert list(drafters) == ["plain", "vLLM n-gram 5-5 k=10", "vLLM n-gram 2-5 k=64"]
        assert drafters["plain"]["speedup"] == 1.0
        assert set(drafters["plain"]) == {
            "traces", "tokens", "passes", "drafted", "accepted", "seconds", "by_source", "tokens_per_pass",
            "microseconds_per_proposal", "cost", "speedup", "share_of_limit",
        }  # fmt: skip

    def test_json_prints_one_line_only(self) -> None:
        result = run("--drafter", "plain", "--json")
        assert len(result.stdout.splitlines()) == 1
        assert result.stderr == ""

    def test_table_names_each_drafter_and_its_sources(self) -> None:
        result = run("--drafter", "transformers")
        assert result.stdout.count("transformers prompt lookup n=2 k=10") == 3
        assert "copy limit" in result.stdout
        assert "context" in result.stdout

    def test_a_terminal_of_80_columns_gets_whole_words_and_no_json(
        self, monkeypatch: pytest.MonkeyPatch, recorded: list[Trace]
    ) -> None:
        terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
        monkeypatch.setattr(replay_module, "_console", lambda: terminal)
        recorded *= 20
        drafters = [f"--drafter={name}" for name in ("lookupdec", "transformers", "vllm", "plain")]
        result = run(*drafters, "--limit", "40")
        assert (result.exit_code, result.stdout) == (0, "")
        assert isinstance(terminal.file, io.StringIO)
        words = set(terminal.file.getvalue().split())
        assert {"drafter", "passes", "speed-up", "us/call", "lookupdec", "transformers", "n-gram"} <= words
        assert json.loads(run("--drafter", "plain", "--json").stdout)

    def test_limit_and_alpha_reach_the_figures(self) -> None:
        report = report_of(run("--drafter", "vllm", "--limit", "1", "--alpha", "0.5", "--json"))
        drafters = report["drafters"]
        assert isinstance(drafters, dict)
        row = drafters["vLLM n-gram 5-5 k=10"]
        assert row["traces"] == 1
        assert row["cost"] == row["passes"] + 0.5 * row["drafted"]

    def test_a_drafter_named_twice_runs_once(self) -> None:
        drafters = report_of(run("--drafter", "plain", "--drafter", "plain", "--json"))["drafters"]
        assert isinstance(drafters, dict)
        assert list(drafters) == ["plain"]


@pytest.mark.usefixtures("recorded")
class TestPlot:
    def test_is_a_png(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        file = tmp_path / "out.png"
        report_of(run("--drafter", "plain", "--drafter", "vllm", "--json", "--plot", str(file)))
        assert file.read_bytes().startswith(b"\x89PNG")

    def test_missing_matplotlib_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = run("--drafter", "plain", "--plot", str(tmp_path / "out.png"))
        assert_refused(result, "--plot needs matplotlib: pip install matplotlib")

    def test_missing_folder_is_refused_before_the_work(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        assert_refused(
            run("--drafter", "plain", "--plot", str(tmp_path / "no" / "out.png")), "folder does not exist"
        )

    def test_a_folder_in_the_way_is_refused(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        assert_refused(run("--drafter", "plain", "--plot", str(tmp_path)), "is a directory")

    def test_a_drafter_that_adapts_runs_at_every_alpha(self, recorded: Sequence[Trace]) -> None:
        alphas: list[float] = []

        def make(alpha: float) -> PlainDrafter:
            alphas.append(alpha)
            return PlainDrafter()

        chosen = [replay_module.Contender("adapting", make, adapts=True)]
        results = replay_module.run(chosen, recorded, 0.5, with_reference=False, quiet=True)
        drawn = replay_module.curves(chosen, results, recorded, with_reference=False, quiet=True)
        assert [alpha for alpha, _ in drawn["adapting"]] == alphas[1:]
        assert len(alphas) > 3


class TestBadInput:
    def test_missing_file(self, tmp_path: Path) -> None:
        result = RUNNER.invoke(APP, [str(tmp_path / "none.jsonl"), "--drafter", "plain"])
        assert_refused(result, "does not exist")

    def test_limit_of_nothing(self) -> None:
        assert_refused(run("--drafter", "plain", "--limit", "0"), "at least 1")

    @pytest.mark.parametrize("alpha", ["nan", "-1", "inf"])
    def test_alpha_that_is_no_cost(self, alpha: str) -> None:
        assert_refused(run("--drafter", "plain", "--alpha", alpha), "alpha must be")

    def test_unknown_drafter(self) -> None:
        assert run("--drafter", "magic").exit_code == 2

    @pytest.mark.usefixtures("recorded")
    def test_missing_arctic_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "arctic_inference.suffix_decoding", None)
        assert_refused(run("--drafter", "arctic", "--json"), "pip install arctic-inference")


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
