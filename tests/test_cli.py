import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lookupdec.cli import app as cli_app
from lookupdec.cli.app import app
from lookupdec.edit import Editor
from lookupdec.edit.engine import ModelEngine
from lookupdec.errors import ModelError
from lookupdec.limits import PREFIX_BYTES
from tests.edit.scripted import ScriptedEngine

TEXT = b"one\r\ntwo\r\nthree"
SHOWN = "one\ntwo\nthree"
CHANGED = TEXT.replace(b"two", b"2")


@pytest.fixture
def engine(monkeypatch):
    engine = ScriptedEngine(SHOWN.replace("two", "2"))
    monkeypatch.setattr(ModelEngine, "load", lambda *_args, **_options: engine)
    return engine


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    return path


def run(*arguments: object, stdin: bytes | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def test_the_command_alone_prints_its_help(capsys):
    assert cli_app.run([]) == 2
    told = capsys.readouterr()
    assert "Usage" in told.out + told.err
    assert "error" not in told.err


def test_edit_prints_the_diff_and_leaves_the_file_alone(engine, file):
    result = run("edit", file, "-i", "digits")
    assert result.exit_code == 0
    assert result.stdout_bytes.endswith(b" one\r\n-two\r\n+2\r\n three\n\\ No newline at end of file\n")
    assert result.stderr == ""
    assert file.read_bytes() == TEXT


def test_the_diff_has_the_bytes_of_the_file(engine, tmp_path):
    file = tmp_path / "my file.txt"
    for data, options in ((b"\xef\xbb\xbf" + TEXT, ()), (b"\xe9\n" + TEXT, ("--encoding", "latin-1"))):
        file.write_bytes(data)
        engine.answer = data.decode("latin-1" if options else "utf-8-sig").replace("two", "2")
        result = run("edit", file, "-i", "x", *options)
        assert data.split(b"\r\n")[0].split(b"\n")[0] in result.stdout_bytes
        assert b"my file.txt\t\n" in result.stdout_bytes
        assert result.stderr == ""
    file.write_bytes(TEXT.decode().encode("utf-16"))
    engine.answer = CHANGED.decode()
    result = run("edit", file, "-i", "x")
    assert "-two\r\n+2\r\n" in result.stdout_bytes.decode()
    assert result.stderr == "the diff is for reading: it is in UTF-8, the file in utf-16-le\n"


def test_a_file_in_which_nothing_changes_is_not_written(engine, file):
    os.link(file, file.with_name("other"))
    engine.answer = SHOWN
    before = file.stat()
    result = run("edit", file, "-i", "x", "--in-place")
    assert (result.exit_code, result.stderr) == (0, "nothing changed\n")
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_result_that_cannot_be_written_is_shown(engine, file, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        result = run("edit", file, "-i", "x", "--in-place")
    assert (result.exit_code, file.read_bytes()) == (2, TEXT)
    assert b"+2" in result.stdout_bytes
    assert "no space left on device" in result.stderr
    engine.answer = SHOWN.replace("two", "\u20ac")
    for name, given in ((file, None), ("-", TEXT)):
        result = run("edit", name, "-i", "x", "--encoding", "latin-1", stdin=given)
        assert result.exit_code == 2
        assert "+\u20ac" in result.stdout_bytes.decode()
        assert "which iso8859-1 cannot write" in result.stderr


def test_edit_in_place_writes_the_file_and_nothing_else(engine, file):
    result = run("edit", file, "-i", "digits", "--in-place")
    assert result.exit_code == 0
    assert "+2" in result.stdout
    assert file.read_bytes() == CHANGED
    assert list(file.parent.iterdir()) == [file]


def test_edit_output_writes_elsewhere(engine, file):
    target = file.parent / "new.txt"
    assert run("edit", file, "-i", "digits", "--output", target).exit_code == 0
    assert (file.read_bytes(), target.read_bytes()) == (TEXT, CHANGED)


def test_standard_input_gives_the_new_text_on_standard_output(engine):
    result = run("edit", "-", "-i", "digits", stdin=TEXT)
    assert (result.exit_code, result.stdout_bytes) == (0, CHANGED)


@pytest.mark.parametrize("command", ["edit", "compare"])
def test_standard_input_can_be_told_what_it_is(engine, command):
    for options, language in ((["--path", "src/a.py"], "python"), (["--language", "go"], "go"), ([], "text")):
        run(command, "-", "-i", "x", *options, stdin=b"")
        assert engine.prompts[-1].startswith(f"Write a new {language} file: x")


def test_a_path_that_is_given_names_the_diff_and_nothing_is_read_from_it(engine, file):
    engine.finish_reason = "length"
    result = run("edit", "-", "-i", "x", "--path", "src/a.py", "--json", stdin=TEXT)
    assert (result.exit_code, json.loads(result.stdout)["path"]) == (3, "src/a.py")
    engine.finish_reason = "stop"
    result = run("edit", file, "-i", "x", "--path", "src/a.py", "--in-place")
    assert (result.exit_code, file.read_bytes()) == (0, CHANGED)
    assert "--- a/src/a.py" in result.stdout


@pytest.mark.parametrize("data", [b"", b"\r\n", b"\xef\xbb\xbf \r\n"])
def test_an_empty_file_is_written_as_asked(engine, tmp_path, data):
    path = tmp_path / "hello.py"
    path.write_bytes(data)
    engine.answer = "Here is the program:\n```python\nprint('hello')\n```"
    assert run("edit", path, "-i", "greet the world", "--in-place").exit_code == 0
    ending = b"\r\n" if b"\r" in data else b"\n"
    assert path.read_bytes().removeprefix(b"\xef\xbb\xbf") == b"print('hello')" + ending
    assert engine.prompts[0].startswith("Write a new python file: greet the world")


def test_json_is_one_object_with_everything(engine, file):
    result = run("edit", file, "-i", "digits", "--json")
    (line,) = result.stdout.splitlines()
    answer = json.loads(line)
    assert answer["text"].encode() == CHANGED
    assert answer["edits"] == [
        {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}}, "newText": "2"}
    ]
    assert (answer["changed"], answer["complete"], answer["warnings"]) == (True, True, [])
    assert (answer["model"], answer["path"]) == ("scripted", str(file))
    assert answer["stats"]["tokens"] == answer["usage"]["completion_tokens"] > 0
    assert answer["stats"]["by_source"]["reference"]["accepted"] > 0


@pytest.mark.parametrize(
    ("given", "lines"), [("2:2", "two\n"), ("2", "two\n"), ("2:", "two\nthree"), (":2", "one\ntwo\n")]
)
def test_lines_choose_what_is_rewritten(engine, file, given, lines):
    assert run("edit", file, "-i", "x", "--lines", given).exit_code == 0
    assert engine.references == [lines]


def test_options_reach_the_engine(engine, file):
    run("edit", file, "-i", "x", "--temperature", "0.7", "--seed", 5, "--max-new-tokens", 9, "--plain")
    assert engine.settings == [{"temperature": 0.7, "seed": 5, "max_new_tokens": 9}]
    assert engine.plain == [True]


@pytest.mark.parametrize("command", ["edit", "compare", "batch"])
def test_options_reach_the_model(monkeypatch, file, command):
    asked: dict[str, object] = {}

    def load(model, **options):
        asked.update(options, model=model)
        raise ModelError("enough")

    monkeypatch.setattr(ModelEngine, "load", load)
    file.write_text('{"text": "a"}')
    more = [file.parent / "out"] if command == "batch" else []
    options = ["--model", "m", "--dtype", "bfloat16", "--device", "cpu", "--exact", "bitwise"]
    phrases = None if command == "compare" else file
    options += [] if phrases is None else ["--phrases", str(file)]
    assert run(command, file, *more, "-i", "x", *options).exit_code == 2
    # Compared runs read their prompts whole, both of them.
    assert asked.pop("prefix_bytes", 0) == (0 if command == "compare" else PREFIX_BYTES)
    assert callable(asked.pop("progress"))
    assert asked.pop("phrases") == phrases
    assert asked == {"model": "m", "dtype": "bfloat16", "device": "cpu", "exact": "bitwise"}


def test_options_reach_the_model_of_the_language_server(monkeypatch, file):
    asked: list[tuple[object, dict[str, object]]] = []
    monkeypatch.setattr(Editor, "load", lambda model, **options: asked.append((model, options)))
    monkeypatch.setattr("lookupdec.lsp.transport.serve", lambda load, *_arguments, **_options: load())
    options = ["--model", "m", "--dtype", "bfloat16", "--device", "cpu", "--exact", "fast"]
    assert run("lsp", *options, "--phrases", file).exit_code == 0
    assert asked == [("m", {"dtype": "bfloat16", "device": "cpu", "exact": "fast", "phrases": file})]


def test_an_encoding_can_be_named(engine, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9\r\n")
    engine.answer = "caf\xe9s\n"
    assert run("edit", path, "-i", "x", "--in-place", "--encoding", "latin-1").exit_code == 0
    assert path.read_bytes() == b"caf\xe9s\r\n"


def test_templates_can_be_replaced(engine, file, tmp_path):
    (tmp_path / "whole.txt").write_text("$text -- $instruction")
    assert run("edit", file, "-i", "x", "--templates", tmp_path).exit_code == 0
    assert engine.prompts == [SHOWN + "\n -- x"]


@pytest.mark.parametrize("how", [["--in-place"], ["--output", "OUT"], ["--in-place", "--json"]])
def test_an_incomplete_answer_exits_with_3_and_writes_nothing(engine, file, how):
    engine.answer = "one\n# ... rest of the code ...\n"
    how = [part.replace("OUT", str(file.parent / "out")) for part in how]
    result = run("edit", file, "-i", "x", *how)
    assert result.exit_code == 3
    assert "warning: the model left text out" in result.stderr
    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == TEXT
    if "--json" in how:
        assert json.loads(result.stdout)["complete"] is False


def test_an_incomplete_answer_from_standard_input_prints_no_text(engine):
    engine.finish_reason = "length"
    result = run("edit", "-", "-i", "x", stdin=TEXT)
    assert (result.exit_code, result.stdout) == (3, "")


def test_an_incomplete_answer_can_be_allowed(engine, file):
    engine.finish_reason = "length"
    assert run("edit", file, "-i", "x", "--in-place", "--allow-incomplete").exit_code == 0
    assert file.read_bytes() == CHANGED


def test_ctrl_c_exits_with_130_and_leaves_the_file_untouched(engine, file):
    engine.interrupt_after = 2
    result = run("edit", file, "-i", "x", "--in-place")
    assert (result.exit_code, result.stderr.strip()) == (130, "stopped: nothing was written")
    assert file.read_bytes() == TEXT
    assert list(file.parent.iterdir()) == [file]


def test_a_file_changed_meanwhile_is_not_overwritten(engine, file):
    engine.answer = lambda reference: file.write_bytes(b"theirs") and "ours"
    result = run("edit", file, "-i", "x", "--in-place")
    assert result.exit_code == 2
    assert "changed while it was being edited" in result.stderr
    assert file.read_bytes() == b"theirs"


FILES = {
    "a.bin": b"\x7fELF\0\0",
    "latin.txt": b"caf\xe9\n",
    "empty.txt": b"",
    "blank.txt": b" \r\n\n",
    "good.txt": TEXT,
}
BAD_INPUT = [
    ("none -i x", "does not exist"),
    (". -i x", "is a directory"),
    ("empty.txt -i x --lines 1:1", "outside the text, which has 0 lines"),
    ("a.bin -i x", "is binary"),
    ("latin.txt -i x", "is not UTF-8"),
    ("latin.txt -i x --encoding klingon", "unknown encoding"),
    (f"{'n' * 300} -i x", "cannot be read"),
    ("a\0b -i x", "cannot be read"),
    ("good.txt", "Missing option '--instruction' / '-i': see lookupdec "),
    ("good.txt -i \t", "instruction is empty"),
    ("good.txt -i x --lines 2:9", "outside the text, which has 3 lines"),
    ("good.txt -i x --lines 3:1", "no range"),
    ("good.txt -i x --lines a:b", "'a:b' is no line range"),
    ("good.txt -i x --temperature -1", "--temperature"),
    ("good.txt -i x --max-new-tokens 0", "--max-new-tokens"),
    ("good.txt -i x --frobnicate", "--frobnicate"),
    ("good.txt -i x --templates none", "no folder"),
]
BAD_OUTPUT = [
    ("good.txt -i x --output none/x", "folder does not exist"),
    ("good.txt -i x --output .", "is a directory"),
    ("good.txt -i x --output x --in-place", "not both"),
    ("- -i x --in-place", "cannot be edited in place"),
    ("none -i x --in-place", "does not exist"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], message: str
) -> None:
    code = cli_app.run(arguments)
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [("edit", *case) for case in BAD_INPUT + BAD_OUTPUT] + [("compare", *case) for case in BAD_INPUT],
)
def test_bad_input_is_one_line_and_exit_code_2(engine, folder, capsys, command, arguments, message):
    check_refused(capsys, folder, [command, *arguments.split(" ")], message)
    assert not engine.prompts


def test_a_file_that_cannot_be_split_is_refused_with_the_numbers(engine, folder, capsys):
    engine.context_length = 20
    check_refused(capsys, folder, ["edit", "good.txt", "-i", "x"], "no room for a text in the 20")
    check_refused(capsys, folder, ["edit", "good.txt", "-i", "x", "--no-split"], "scripted holds 20")


LONG = b"".join(b"def f%d():\r\n    return %d\r\n\r\n" % (number, number) for number in range(100))


def test_a_file_longer_than_the_context_is_edited_in_parts(engine, file):
    file.write_bytes(LONG)
    engine.answer, engine.context_length = lambda shown: shown.replace("return 42", "return 43"), 400
    result = run("edit", file, "-i", "x", "--in-place")
    assert result.exit_code == 0
    assert f"edited in {len(engine.prompts)} parts" in result.stderr
    assert "+    return 43" in result.stdout
    assert file.read_bytes() == LONG.replace(b"return 42", b"return 43")


def test_a_file_longer_than_the_context_can_be_refused(engine, file):
    file.write_bytes(LONG)
    engine.context_length = 400
    result = run("edit", file, "-i", "x", "--no-split")
    assert (result.exit_code, engine.prompts) == (2, [])
    assert "tokens of text fit" in result.stderr


def test_json_says_in_how_many_parts_a_file_was_edited(engine, file):
    file.write_bytes(LONG)
    engine.answer, engine.context_length = str, 400
    assert json.loads(run("edit", file, "-i", "x", "--json").stdout)["parts"] == len(engine.prompts) > 1


def test_a_model_that_cannot_be_loaded_is_one_line(folder, capsys, monkeypatch):
    def load(*_args, **_options):
        raise ModelError("no such model:\nchoose another")

    monkeypatch.setattr(ModelEngine, "load", load)
    check_refused(capsys, folder, ["edit", "good.txt", "-i", "x"], "error: no such model: choose another")


def test_a_remedy_is_spelt_as_on_the_command_line(folder, capsys, monkeypatch):
    def load(*_args, **_options):
        raise ModelError("it does not fit: use dtype='bfloat16', a smaller model or device='cpu'")

    monkeypatch.setattr(ModelEngine, "load", load)
    remedy = "use --dtype bfloat16, a smaller model or --device cpu"
    check_refused(capsys, folder, ["edit", "good.txt", "-i", "x"], remedy)


def test_compare_prints_both_and_whether_they_agree(engine, file):
    result = run("compare", file, "-i", "digits")
    assert result.exit_code == 0
    assert "+2" in result.stdout
    assert result.stdout.rstrip().endswith("yes")
    assert engine.plain[-2:] == [False, True]
    assert file.read_bytes() == TEXT


def test_compare_json_is_one_object(engine, file):
    result = run("compare", file, "-i", "digits", "--json")
    figures = json.loads(result.stdout)
    assert figures["identical"] is True
    assert figures["plain"]["tokens"] == figures["lookup"]["tokens"]
    assert figures["plain"]["passes"] > figures["lookup"]["passes"]


@pytest.mark.parametrize(("dtype", "code"), [("float32", 1), ("bfloat16", 0)])
def test_compare_fails_where_the_answers_differ_in_float32(engine, file, dtype, code):
    engine.dtype = dtype
    answers = iter(["", "", "one", "two"])
    engine.answer = lambda _reference: next(answers)
    result = run("compare", file, "-i", "x")
    assert result.exit_code == code
    assert result.stdout.rstrip().endswith("no")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lookupdec.cli", *map(str, arguments)]


def test_the_installed_command_reports_bad_input_in_one_line(tmp_path):
    done = subprocess.run(command("edit", tmp_path / "none", "-i", "x"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / 'none'} does not exist: check the path\n"


def test_help_lists_the_commands_without_importing_torch():
    code = "import sys; from lookupdec.cli.app import run; run(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("edit", "compare", "replay"):
        assert name in done.stdout


@pytest.mark.parametrize("name", ["edit", "compare", "batch", "lsp", "replay", "verify", ""])
def test_help_has_every_name_whole_at_80_columns(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    cli_app.run([*name.split(), "--help"])
    shown = capsys.readouterr().out
    command = typer.main.get_group(app)
    for parameter in (command.commands[name] if name else command).params:
        for option in parameter.opts + parameter.secondary_opts:
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown) or option[:1] != "-", option
    assert "..." not in shown.replace("COMMAND [ARGS]...", "").replace("cp1252, ...", "")


def test_an_unknown_model_is_one_line(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(TEXT)
    done = subprocess.run(
        command("edit", file, "-i", "x", "--model", tmp_path / "none"), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "no file or folder" in done.stderr


def batch_files(folder: Path) -> tuple[Path, Path]:
    (folder / "in.jsonl").write_text('{"text": "a b\\n"}\n{"text": 5, "instruction": "x"}\n')
    return folder / "in.jsonl", folder / "out.jsonl"


def test_batch_edits_every_item_and_reports_the_bad_one(engine, tmp_path):
    source, out = batch_files(tmp_path)
    engine.answer = str.upper
    result = run("batch", source, out, "-i", "shout")
    assert result.exit_code == 3
    assert result.stderr.startswith("2 items, 1 failed: ")
    good, bad = (json.loads(line) for line in out.read_text().splitlines())
    assert (good["text"], bad["error"]) == ("A B\n", "the item's text is no string")
    again = run("batch", source, out, "-i", "shout")
    assert again.stderr.startswith("2 items, 2 done before, 1 failed")
    assert len(engine.prompts) == 1


def test_batch_counts_answers_of_one_token(engine, tmp_path):
    source, out = batch_files(tmp_path)
    engine.answer = ""
    result = run("batch", source, out, "-i", "x")
    assert result.exit_code == 3
    assert "1 tokens · 1.0 tokens per pass" in result.stderr


def test_batch_tells_how_far_it_is_where_no_terminal_is(engine, tmp_path, monkeypatch):
    now = 0.0

    def answer(text: str) -> str:
        nonlocal now
        now += 4.0
        return text

    monkeypatch.setattr("lookupdec.cli.show.perf_counter", lambda: now)
    source, out = batch_files(tmp_path)
    source.write_text('{"text": "a b\\n"}\n' * 9)
    engine.answer = answer
    result = run("batch", source, out, "-i", "x")
    assert [line.partition(" · ")[0] for line in result.stderr.splitlines()] == [
        "4 of 9 items: 20 tokens",
        "8 of 9 items: 40 tokens",
        "9 items: 45 tokens",
    ]
    assert result.stdout == ""


def test_batch_keeps_what_is_finished_on_ctrl_c(engine, tmp_path):
    source, out = batch_files(tmp_path)
    engine.interrupt_after = 2
    result = run("batch", source, out, "-i", "x")
    assert result.exit_code == 130
    assert result.stderr.strip() == "stopped: what is finished is kept, run it again to go on"
    assert out.read_bytes() == b""


def test_batch_makes_bad_results_again_when_asked_for(engine, tmp_path):
    source, out = batch_files(tmp_path)
    engine.answer = ""
    assert run("batch", source, out, "-i", "x").stderr.startswith("2 items, 1 failed, 1 not complete")
    engine.answer = str.upper
    assert run("batch", source, out, "-i", "x").stderr.startswith("2 items, 2 done before, 1 failed, 1 not")
    assert run("batch", source, out, "-i", "x", "--retry").stderr.startswith("2 items, 1 failed: ")
    assert json.loads(out.read_text().splitlines()[0])["text"] == "A B\n"
    assert "--retry" in run("batch", "--help").stdout


def test_what_the_system_refuses_is_one_line(engine, tmp_path, monkeypatch):
    source, out = batch_files(tmp_path)

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = run("batch", source, out, "-i", "x")
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"error: {out} cannot be written, what is finished is kept: no space left on device\n"
    )
    monkeypatch.setattr("lookupdec.edit.editor.Editor.edit", full)
    result = run("edit", source, "-i", "x")
    assert (result.exit_code, result.stderr) == (2, "error: [Errno 28] No space left on device\n")


def test_batch_writes_a_text_where_there_is_none(engine, tmp_path):
    source, out = batch_files(tmp_path)
    source.write_text('{"text": "", "path": "hello.py"}\n')
    engine.answer = "```python\nprint('hello')\n```"
    assert run("batch", source, out, "-i", "greet the world").exit_code == 0
    assert json.loads(out.read_text())["text"] == "print('hello')\n"
    assert engine.prompts[0].startswith("Write a new python file: greet the world")


def test_batch_tells_the_first_error_and_how_many_are_like_it(engine, tmp_path):
    source, out = batch_files(tmp_path)
    source.write_text('name,age\n{"text": "a", "instruction": 1}\nx,1\n{"text": "a"}\n')
    result = run("batch", source, out, "-i", "x")
    assert result.exit_code == 3
    summary, told = result.stderr.splitlines()
    assert summary.startswith("4 items, 3 failed")
    assert told.startswith("the first error, and 1 more like it: line 1 is no JSON: Expecting value")


@pytest.mark.parametrize("data", ["# notes\n\nsome text\n", "[1]\n2\n"])
def test_batch_does_not_start_where_no_line_is_an_object(folder, capsys, data):
    items = folder / "good.txt"
    items.write_text(data)
    assert cli_app.run(["batch", "good.txt", "out.jsonl", "-i", "x", "--model", "none"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: good.txt holds no items: line 1 is no JSON")
    assert '{"text": "...", "instruction": "..."}' in line
    assert not (folder / "out.jsonl").exists()


def test_batch_names_fields_once_that_look_like_its_own_and_are_not_read(engine, tmp_path):
    source, out = batch_files(tmp_path)
    item = {
        "text": "a",
        "lines": [1, 1],
        "languge": "go",
        "max_tokens": 5,
        "lang": "go",
        "output": "",
        "task": 1,
    }
    source.write_text(f"{json.dumps(item)}\n" * 2)
    result = run("batch", source, out, "-i", "x")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[:-1] == [
        "warning: the field 'languge' of items is not read: is 'language' meant?",
        "warning: the field 'max_tokens' of items is not read: it is one setting for all of them, or none",
    ]


def test_batch_refuses_a_missing_file_before_loading_a_model(folder, capsys):
    check_refused(capsys, folder, ["batch", "none", "out.jsonl"], "does not exist")
