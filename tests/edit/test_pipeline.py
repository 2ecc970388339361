import json
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lookupdec.edit import Editor
from lookupdec.edit import items as items_module
from lookupdec.edit.pipeline import edit_many
from lookupdec.edit.prompts import Templates
from lookupdec.errors import FileError, InputError
from tests.edit.scripted import ScriptedEngine

ITEMS = [{"id": f"item {number}", "text": f"text {number}\r\n", "instruction": "x"} for number in range(12)]


def upper() -> ScriptedEngine:
    return ScriptedEngine(str.upper)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_every_item_gives_one_record_in_order(tmp_path):
    out = tmp_path / "out.jsonl"
    progress = edit_many(Editor(upper()), ITEMS, out)
    assert (progress.done, progress.failed, progress.incomplete, progress.resumed) == (12, 0, 0, 0)
    found = records(out)
    assert [record["id"] for record in found] == [item["id"] for item in ITEMS]
    assert [record["text"] for record in found] == [item["text"].upper() for item in ITEMS]
    assert progress.stats.tokens == sum(record["tokens"] for record in found)


def test_a_bad_item_is_reported_and_skipped(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        '{"text": "a", "instruction": "x"}',
        "no json",
        "[1]",
        '{"instruction": "x"}',
        '{"text": "a"}',
        '{"text": "a", "instruction": " "}',
        '{"text": "a", "instruction": "x", "lines": "1:2"}',
        '{"text": "a", "instruction": "x", "lines": [1, 2]}',
        '{"text": "a", "instruction": "x", "context": "b"}',
        '{"text": "\\ud800", "instruction": "x", "id": "\\ud801"}',
        '{"input": "b", "instruction": "x", "lines": [1, 1]}',
    ]
    source.write_text("\n".join(lines) + "\n\n")
    progress = edit_many(Editor(upper()), source, out)
    found = records(out)
    assert [number for number, record in enumerate(found) if "error" not in record] == [0, 10]
    assert [record["index"] for record in found] == list(range(11))
    assert "line 2 is no JSON" in found[1]["error"]
    assert (progress.done, progress.failed) == (11, 9)
    assert found[9]["id"] == "\ud801"


def documented(section: str) -> set[str]:
    """Return the fields in a table of docs/batch.md."""
    text = (Path(__file__).parents[2] / "docs" / "batch.md").read_text().split(f"## {section}\n")[1]
    cells = [row.split("|")[1] for row in text.partition("\n## ")[0].splitlines() if row.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_documentation_names_every_field(tmp_path):
    out = tmp_path / "out.jsonl"
    items: list[dict[str, Any]] = [{"text": 5}, {"text": "a", "instruction": "x"}]
    edit_many(Editor(ScriptedEngine("a", finish_reason="length")), items, out)
    assert documented("What comes out") == {name for record in records(out) for name in record}
    assert documented("What goes in") == set(items_module._FIELDS)


def test_null_is_as_good_as_nothing(tmp_path):
    items = [{"text": None, "input": "a", "instruction": None, "path": None}]
    assert edit_many(Editor(upper()), items, tmp_path / "o", instruction="x").failed == 0


def test_a_common_instruction_fills_in(tmp_path):
    engine = upper()
    edit_many(
        Editor(engine),
        [{"text": "a"}, {"text": "b", "instruction": "own"}],
        tmp_path / "o",
        instruction="all",
    )
    assert engine.prompts[0].endswith("all")
    assert engine.prompts[1].endswith("own")
    assert engine.namespaces == ["edit_many"] * 2


def test_an_incomplete_item_keeps_its_text_and_is_counted(tmp_path):
    out = tmp_path / "out.jsonl"
    engine = ScriptedEngine("a", finish_reason="length")
    progress = edit_many(Editor(engine), ITEMS[:2], out)
    assert progress.incomplete == 2
    assert (records(out)[0]["text"], records(out)[0]["answer"]) == (ITEMS[0]["text"], "a")


def test_a_second_run_does_nothing_again(tmp_path):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS, out)
    before = out.read_bytes()
    engine = upper()
    progress = edit_many(Editor(engine), ITEMS, out)
    assert (progress.resumed, engine.prompts, out.read_bytes()) == (12, [], before)


@pytest.mark.parametrize("cut", [0, 1, 150, 400, 1234])
def test_a_run_goes_on_behind_the_last_whole_line(tmp_path, cut):
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    edit_many(Editor(upper()), ITEMS, whole)
    out.write_bytes(whole.read_bytes()[:cut])
    engine = upper()
    progress = edit_many(Editor(engine), ITEMS, out)
    assert without_times(out) == without_times(whole)
    assert progress.resumed + len(engine.prompts) == len(ITEMS)


def test_what_an_earlier_run_finished_helps_to_draft(tmp_path):
    out = tmp_path / "out.jsonl"
    answers = iter(["A", "# ... rest of the code unchanged", "C"])
    items = [*ITEMS[:3], {"text": ""}, *ITEMS[3:5]]
    edit_many(Editor(ScriptedEngine(lambda _: next(answers))), items[:4], out)
    engine = upper()
    edit_many(Editor(engine), items, out)
    written = ["A\r\n", "# ... rest of the code unchanged", "C\r\n"]
    assert engine.remembered == [(text, "edit_many") for text in written]
    assert len(engine.prompts) == 2


@pytest.mark.parametrize(("first", "second"), [("a", "b"), (None, "b"), ("a", None), (None, None)])
def test_what_was_finished_in_another_namespace_stays_out(tmp_path, first, second):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS[:2], out, namespace=first)
    engine = upper()
    edit_many(Editor(engine), ITEMS, out, namespace=second)
    assert engine.remembered == []
    assert {record["namespace"] for record in records(out)} == {first, second}


def test_the_newest_results_are_remembered_as_far_as_they_are_of_use(tmp_path, monkeypatch):
    monkeypatch.setattr("lookupdec.edit.pipeline._REMEMBERED_CHARACTERS", 20)
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS[:5], out)
    engine = upper()
    edit_many(Editor(engine), ITEMS, out)
    assert [text for text, _ in engine.remembered] == ["TEXT 3\r\n", "TEXT 4\r\n"]


def test_a_finished_run_remembers_nothing(tmp_path):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS, out)
    engine = upper()
    edit_many(Editor(engine), ITEMS, out)
    assert engine.remembered == []


def without_times(path: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records(path)]


def test_results_of_other_items_or_settings_are_not_mixed(tmp_path):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS, out)
    before = out.read_bytes()
    others: list[tuple[list[dict[str, str]], dict[str, Any]]]
    others = [(ITEMS[1:], {}), (ITEMS, {"seed": 1}), (ITEMS[:3], {})]
    for items, settings in others:
        with pytest.raises(FileError, match="name a new file"):
            edit_many(Editor(upper()), items, out, **settings)
    assert out.read_bytes() == before


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("my diary\n")
    with pytest.raises(FileError, match="line 1 of .* is no result"):
        edit_many(Editor(upper()), ITEMS, out)
    assert out.read_text() == "my diary\n"


@pytest.mark.parametrize("tail", [b'{"my": "settings"}', b'{"index": 10, "id": "a"}', b"x", b"{ "])
def test_a_last_line_without_an_end_is_cut_off_only_where_it_is_a_result_begun(tmp_path, tail):
    out = tmp_path / "out.json"
    edit_many(Editor(upper()), ITEMS[:1], out)
    first = out.read_bytes()
    for data in (tail, first + tail):
        out.write_bytes(data)
        with pytest.raises(FileError, match="is no result: name a new file"):
            edit_many(Editor(upper()), ITEMS, out)
        assert out.read_bytes() == data


def test_results_do_not_go_into_the_file_of_the_items(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "a", "instruction": "x"}')
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(FileError, match="holds the items"):
        edit_many(Editor(upper()), source, tmp_path / "link")
    assert source.read_text() == '{"text": "a", "instruction": "x"}'


def test_items_that_cannot_be_read_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        edit_many(Editor(upper()), tmp_path / "none", tmp_path / "out.jsonl")
    assert not list(tmp_path.iterdir())


GOOD: dict[Any, Any] = {"text": "a", "instruction": "x"}
ODD: dict[Any, Any] = {1: 2, None: 3, "error": None, "deep": {(1, 2): 3}}


@pytest.mark.parametrize(
    ("item", "identity"),
    [
        ({**GOOD, "id": uuid.UUID(int=5)}, "00000000-0000-0000-0000-000000000005"),
        ({**GOOD, "id": Path("a/b")}, "a/b"),
        ({**GOOD, "id": np.int64(7)}, 7),
        ({**GOOD, "id": np.float32(0.5)}, 0.5),
        ({**GOOD, **ODD}, None),
        ({**GOOD, "error": "the owner's own column"}, None),
    ],
)
def test_an_item_may_have_any_id_and_columns_of_its_own(tmp_path, item, identity):
    out = tmp_path / "out.jsonl"
    for resumed in (0, 1):
        progress = edit_many(Editor(upper()), [item], out)
        assert (progress.resumed, progress.failed) == (resumed, 0)
    assert [(record["id"], record["text"]) for record in records(out)] == [(identity, "A")]


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    "item",
    [
        "a text",
        None,
        {**GOOD, "id": deep(100_000)},
        {**GOOD, "id": {(1, 2): 3}},
        {**GOOD, "context": ["\ud800"]},
    ],
)
def test_an_item_that_nobody_can_read_does_not_stop_the_others(tmp_path, item):
    out = tmp_path / "out.jsonl"
    for resumed in (0, 2):
        progress = edit_many(Editor(upper()), [item, GOOD], out)
        assert (progress.done, progress.failed, progress.resumed) == (2, 1, resumed)


def test_a_line_of_brackets_does_not_stop_the_others(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("[" * 200_000 + "\n" + json.dumps(GOOD) + "\n")
    progress = edit_many(Editor(upper()), source, out)
    assert (progress.done, progress.failed) == (2, 1)


def test_what_watches_a_run_does_not_count(tmp_path):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS[:1], out, on_token=lambda chunk: None)
    assert edit_many(Editor(upper()), ITEMS, out, on_token=print, seed=None).resumed == 1


@pytest.mark.parametrize("name", ["name", "dtype", "arithmetic", "templates"])
def test_what_changes_answers_counts(tmp_path, name):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(upper()), ITEMS, out)
    engine, templates = upper(), Templates.load()
    if name == "templates":
        templates = replace(templates, system="You are brief.")
    else:
        setattr(engine, name, "another")
    with pytest.raises(FileError, match="other settings"):
        edit_many(Editor(engine, templates=templates), ITEMS, out)


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit for files")
def test_a_full_disk_is_one_clear_error_and_what_is_finished_is_kept(tmp_path):
    import resource

    out = tmp_path / "out.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises(FileError, match="cannot be written, what is finished is kept"):
            edit_many(Editor(upper()), ITEMS, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(records(out)) > 1
    edit_many(Editor(upper()), ITEMS, out)
    assert [record["id"] for record in records(out)] == [item["id"] for item in ITEMS]


def shaky(fails: set[str]) -> ScriptedEngine:
    """An engine whose answers to some texts are not complete."""
    return ScriptedEngine(lambda text: "" if text.strip() in fails else text.upper())


def test_bad_results_are_made_again_when_asked_for(tmp_path):
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    items = [*ITEMS[:4], {"id": "bad", "text": ""}]
    edit_many(Editor(shaky({"text 1", "text 3"})), items, out)
    engine = shaky({"text 3"})
    progress = edit_many(Editor(engine), items, out, retry=True)
    assert (len(engine.prompts), progress.resumed, progress.failed, progress.incomplete) == (2, 2, 1, 1)
    edit_many(Editor(shaky({"text 3"})), items, whole)
    assert without_times(out) == without_times(whole)
    assert list(tmp_path.iterdir()).count(out) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "whole.jsonl"}


def test_a_bad_item_may_be_mended_before_it_is_tried_again(tmp_path):
    out = tmp_path / "out.jsonl"
    items: list[dict[str, Any]] = [ITEMS[0], {"id": 1, "text": 5, "instruction": "x"}, ITEMS[2]]
    edit_many(Editor(upper()), items, out)
    items[1] = {**items[1], "text": "mended"}
    assert edit_many(Editor(upper()), items, out, retry=True).resumed == 2
    assert [record["text"] for record in records(out)][1] == "MENDED"
    with pytest.raises(FileError, match="line 2 of .* is the result of another item"):
        edit_many(Editor(upper()), [items[0], ITEMS[1], items[2]], out, retry=True)


def test_a_stopped_retry_keeps_the_old_results_and_goes_on(tmp_path):
    out = tmp_path / "out.jsonl"
    edit_many(Editor(shaky({"text 1", "text 3", "text 5"})), ITEMS[:6], out)
    before = out.read_bytes()

    def stop(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edit_many(Editor(upper()), ITEMS, out, retry=True, on_item=stop)
    assert out.read_bytes() == before
    engine = upper()
    progress = edit_many(Editor(engine), ITEMS, out, retry=True)
    assert (progress.done, progress.resumed, progress.incomplete) == (12, 4, 0)
    assert len(engine.prompts) == 8
    assert [record["text"] for record in records(out)] == [item["text"].upper() for item in ITEMS]


def test_two_runs_cannot_write_one_file(tmp_path):
    out = tmp_path / "out.jsonl"

    def second_run(_progress):
        with pytest.raises(FileError, match="being written by another run"):
            edit_many(Editor(upper()), ITEMS, out)

    edit_many(Editor(upper()), ITEMS[:1], out, on_item=second_run)


def test_an_output_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        edit_many(Editor(upper()), ITEMS, tmp_path / "none" / "out.jsonl")


def test_an_unknown_setting_is_no_bad_item(tmp_path):
    with pytest.raises(TypeError, match="tempreature"):
        edit_many(Editor(upper()), ITEMS, tmp_path / "out.jsonl", tempreature=1)
    assert issubclass(FileError, InputError)


WORKER = """
import sys, time
from pathlib import Path
from typing import Any
from lookupdec.edit import Editor
from lookupdec.edit.pipeline import edit_many
from tests.edit.scripted import ScriptedEngine

items = int(sys.argv[3])  # then it waits to be killed

def slowly(text):
    global items
    items -= 1
    time.sleep(0.01 if items >= 0 else 3600)
    return text.upper() * 20

print("ready", flush=True)
edit_many(Editor(ScriptedEngine(slowly)), Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_at_random_points_a_run_ends_as_if_it_had_not_been(tmp_path):
    source = tmp_path / "in.jsonl"
    items = [
        {"id": number, "text": f"a text with the number {number}\n", "instruction": "x"}
        for number in range(60)
    ]
    source.write_text("".join(json.dumps(item) + "\n" for item in items))
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"

    def command(place: Path, n_items: int) -> list[str]:
        return [sys.executable, "-c", WORKER, str(source), str(place), str(n_items)]

    subprocess.run(command(whole, 60), check=True, stdout=subprocess.DEVNULL)
    chance = random.Random(0)
    for _ in range(7):
        enough = len(whole_lines(out)) + chance.randint(0, 6)
        with subprocess.Popen(command(out, 8), stdout=subprocess.PIPE) as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            while len(whole_lines(out)) < enough and worker.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.03))  # somewhere between two results, or in one
            worker.kill()
        assert worker.returncode == -signal.SIGKILL
        seen = [record["id"] for record in map(json.loads, whole_lines(out))]
        assert seen == list(range(len(seen)))
        assert len(seen) >= enough
    subprocess.run(command(out, 60), check=True, stdout=subprocess.DEVNULL)
    assert without_times(out) == without_times(whole)


def whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
