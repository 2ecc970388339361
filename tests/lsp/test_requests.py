"""Requests under way: how far they are, what ends them, and what is said when nothing comes of them."""

import asyncio
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.lsp.client import SECONDS, URI, as_json, editing, in_loop, selection
from tests.lsp.scripted_server import FREE_PASSES

TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
TWO = as_json(selection((4, 0), (5, 12)))
YIELD = {"replace": {"return": "yield"}}
LONG = "".join(f"line {number} of a text\n" for number in range(30))


@in_loop
async def test_progress_names_the_speed():
    async with editing({"delay": 0.01, "replace": {"text": "story"}}) as editor:
        editor.open(LONG)
        result = await editor.command("lookupdec.rewrite", instruction="Tell.", token="mine")
        kinds = [bar.value.kind for bar in editor.bars if bar.token == "mine"]
        assert kinds[0] == "begin" and kinds[-1] == "end" and kinds.count("report") >= 3
        assert all("tokens per pass" in report for report in editor.reports())
        percentages = [bar.value.percentage for bar in editor.bars if bar.value.kind == "report"]
        assert percentages == sorted(percentages) and percentages[-1] > 50
        assert "4.0 tokens per pass" in result["figures"]


@in_loop
async def test_an_answer_that_is_cut_is_not_applied():
    async with editing(YIELD | {"finish_reason": "length"}) as editor:
        editor.open(TEXT)
        result = await editor.command("lookupdec.edit", range=TWO, instruction="Yield.")
        assert not result["applied"]
        assert "limit of new tokens" in result["reason"]
        assert editor.shown == [f"lookupdec: {result['reason']}"]
        assert (editor.texts[URI], editor.edits) == (TEXT, [])


@in_loop
async def test_an_answer_that_changes_nothing_is_said_to():
    async with editing() as editor:
        editor.open(TEXT)
        assert not (await editor.command("lookupdec.edit", range=TWO, instruction="Nothing."))["applied"]
        assert editor.shown == ["lookupdec: the model left everything as it is"]


@in_loop
async def test_an_instruction_in_the_text_stays_where_nothing_came_of_it():
    marked = TEXT.replace("def two", "# lookupdec: change nothing\ndef two")
    async with editing() as editor:
        editor.open(marked)
        at_two = as_json(selection((4, 0), (6, 12)))
        assert not (await editor.command("lookupdec.edit", range=at_two))["applied"]
        assert editor.shown == ["lookupdec: the model left everything as it is"]
        assert (editor.texts[URI], editor.edits) == (marked, [])


@pytest.mark.parametrize("how", ["changed", "closed", "reopened"])
@in_loop
async def test_a_document_that_changed_meanwhile_is_left_alone(how, tmp_path):
    async with editing(YIELD | {"gate": str(tmp_path / "never")}) as editor:
        editor.open(LONG)
        answer = editor.start("lookupdec.rewrite", instruction="Yield.")
        await editor.until(editor.reports)
        if how == "changed":
            editor.change(URI, LONG + "more\n")
        else:
            editor.text_document_did_close(
                types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI))
            )
        if how == "reopened":
            editor.open(LONG + "more\n")
        result = await asyncio.wait_for(answer, SECONDS)
        assert "changed meanwhile" in result["reason"]
        assert editor.shown == [f"lookupdec: {result['reason']}"]
        assert editor.edits == []


@in_loop
async def test_a_change_while_the_editor_asks_ends_the_request():
    async with editing(YIELD) as editor:
        editor.open(TEXT)

        def change_and_choose(titles: list[str]) -> str:
            editor.change(URI, TEXT + "more\n")
            return titles[0]

        editor.answer = change_and_choose
        result = await editor.command("lookupdec.edit", range=TWO)
        assert "changed meanwhile" in result["reason"]
        assert editor.edits == []


@in_loop
async def test_a_summary_goes_on_while_the_document_changes(tmp_path):
    gate = tmp_path / "gate"
    async with editing({"gate": str(gate)}) as editor:
        editor.open(LONG)
        answer = editor.start("lookupdec.summarize")
        await editor.until(editor.reports)
        editor.change(URI, LONG + "more\n")
        await editor.actions(selection((0, 0), (1, 0)))  # answered after the change was heard
        gate.touch()
        assert (await answer)["summary"] == LONG.strip()


@in_loop
async def test_an_action_on_an_older_version_is_refused():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        (found, *_) = await editor.actions(selection((4, 0), (5, 12)))
        editor.change(URI, "\n" + TEXT)
        result = await editor.command(found.command.command, **found.command.arguments[0])
        assert "changed meanwhile" in result["reason"]


@in_loop
async def test_an_edit_that_the_editor_refuses_is_said_to_be():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        editor.applies = False
        assert not (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert editor.shown[0].startswith("lookupdec: the editor did not apply the edit")


@pytest.mark.parametrize("how", ["request", "progress"])
@in_loop
async def test_a_cancelled_request_stops_within_a_pass(how, tmp_path):
    passes, gate = tmp_path / "passes", tmp_path / "gate"
    async with editing({"gate": str(gate), "passes": str(passes)}) as editor:
        editor.open(LONG)
        answer = editor.start("lookupdec.rewrite", request="mine", instruction="Tell.")
        await editor.until(editor.reports)
        if how == "request":
            editor.cancel_request(types.CancelParams("mine"))
            with pytest.raises(JsonRpcException, match="cancel"):
                await answer
        else:
            editor.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(editor.bars[-1].token))
            assert (await answer)["reason"] == "cancelled"
        await editor.until(lambda: editor.bars[-1].value.kind == "end")
        gate.touch()
        assert (await editor.command("lookupdec.summarize"))["summary"]
        # The pass that waited was the last before those of the summary.
        numbers = [int(line) for line in passes.read_text().split()]
        assert numbers.index(0, 1) <= FREE_PASSES + 1
        assert editor.texts[URI] == LONG and editor.edits == []


@in_loop
async def test_a_request_that_waits_can_be_cancelled(tmp_path):
    passes, load = tmp_path / "passes", tmp_path / "load"
    async with editing(YIELD | {"load": str(load), "passes": str(passes)}) as editor:
        editor.open(TEXT)
        answer = editor.start("lookupdec.rewrite", request="mine", instruction="Yield.")
        await editor.until(lambda: len(editor.bars) == 2)
        editor.cancel_request(types.CancelParams("mine"))
        with pytest.raises(JsonRpcException, match="cancel"):
            await answer
        load.touch()
        await editor.until(lambda: [bar.value.kind for bar in editor.bars].count("end") == 2)
        assert (await editor.command("lookupdec.summarize"))["summary"]
        assert passes.read_text().split().count("0") == 1


@in_loop
async def test_an_answer_to_a_question_of_the_past_is_let_be():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        editor.may_answer.clear()
        older = editor.start("lookupdec.edit", range=TWO)
        await editor.until(lambda: editor.questions)
        assert (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert (await older)["reason"] == "replaced by a newer request"
        editor.may_answer.set()
        assert (await editor.command("lookupdec.summarize"))["summary"]
        assert len(editor.edits) == 1 and len(editor.messages) == 1


@in_loop
async def test_a_newer_request_replaces_the_older_one_on_the_same_document(tmp_path):
    gate = tmp_path / "gate"
    async with editing(YIELD | {"gate": str(gate)}) as editor:
        editor.open(TEXT * 20)
        older = editor.start("lookupdec.rewrite", instruction="Old.")
        await editor.until(editor.reports)
        newer = editor.start("lookupdec.edit", range=TWO, instruction="New.")
        assert (await older)["reason"] == "replaced by a newer request"
        gate.touch()
        assert (await newer)["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2") + TEXT * 19
        assert len(editor.edits) == 1


@in_loop
async def test_requests_on_two_documents_run_one_after_the_other(tmp_path):
    passes, gate = tmp_path / "passes", tmp_path / "gate"
    other = "file:///somewhere/other.py"
    async with editing(YIELD | {"gate": str(gate), "passes": str(passes)}) as editor:
        editor.open(TEXT)
        editor.open(TEXT, other)
        answers = [
            editor.start("lookupdec.rewrite", instruction="Yield."),
            editor.start("lookupdec.rewrite", instruction="Yield.", uri=other),
        ]
        await editor.until(lambda: [bar.value.kind for bar in editor.bars].count("begin") == 3)
        await editor.until(editor.reports)
        gate.touch()
        assert all([(await answer)["applied"] for answer in answers])
        numbers = [int(line) for line in passes.read_text().split()]
        assert numbers == [*range(len(numbers) // 2)] * 2


@in_loop
async def test_two_requests_in_a_row_build_on_each_other():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        first = as_json(selection((0, 0), (1, 12)))
        for selected in (first, TWO):
            assert (await editor.command("lookupdec.edit", range=selected, instruction="Yield."))["applied"]
        assert editor.texts[URI] == TEXT.replace("return", "yield")


@in_loop
async def test_a_request_waits_for_the_model(tmp_path):
    load = tmp_path / "load"
    async with editing(YIELD | {"load": str(load)}) as editor:
        editor.open(TEXT)
        answer = editor.start("lookupdec.rewrite", instruction="Yield.")
        assert len(await editor.actions(selection((0, 0), (1, 0)))) == 3
        assert not answer.done()
        load.touch()
        assert (await answer)["applied"]
        begun = [bar.value.message for bar in editor.bars if bar.value.kind == "begin"]
        assert sorted(begun) == ["loading the model", "waiting for the model"]


@in_loop
async def test_a_model_that_cannot_be_loaded_is_one_line():
    async with editing({"error": "there is no model x: check the name"}) as editor:
        editor.open(TEXT)
        await editor.until(lambda: editor.messages)
        assert not (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert editor.shown == ["lookupdec: there is no model x: check the name"] * 2


@in_loop
async def test_a_bad_request_is_one_line_with_the_remedy():
    async with editing() as editor:
        editor.open(TEXT)
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("lookupdec.edit", {"range": TWO, "instruction": " "}, "the instruction is empty"),
            ("lookupdec.edit", {"instruction": "x"}, 'needs a "range"'),
            ("lookupdec.edit", {"range": {"start": 1}, "instruction": "x"}, "takes one argument"),
            ("lookupdec.edit", {"range": TWO, "instruction": 5}, "takes one argument"),
            (
                "lookupdec.edit",
                {"range": as_json(selection((2, 0), (2, 0)))},
                "there is nothing to edit here",
            ),
            ("lookupdec.rewrite", {"version": "x"}, "takes one argument"),
            ("lookupdec.rewrite", {"uri": None}, "takes one argument"),
            ("lookupdec.rewrite", {"uri": "file:///closed"}, "open it first"),
        ]
        for command, argument, message in cases:
            editor.messages.clear()
            result = await editor.command(command, **argument)
            assert not result["applied"]
            assert message in editor.shown[0] and "\n" not in editor.shown[0]


@pytest.mark.parametrize("language", ["python", "markdown"])
@in_loop
async def test_a_rewrite_of_a_range_leaves_the_rest_alone(language):
    async with editing(YIELD) as editor:
        editor.open("return 1\n\nreturn 2\n\nreturn 3\n", language=language)
        lines = as_json(selection((2, 0), (2, 8)))
        assert (await editor.command("lookupdec.rewrite", range=lines, instruction="Yield."))["applied"]
        assert editor.texts[URI] == "return 1\n\nyield 2\n\nreturn 3\n"


@in_loop
async def test_a_request_that_is_refused_does_not_end_another(tmp_path):
    async with editing(YIELD | {"delay": 0.3, "passes": str(tmp_path / "passes")}) as editor:
        editor.open(TEXT)
        answer = editor.start("lookupdec.rewrite", instruction="Yield.")
        await editor.until(lambda: (tmp_path / "passes").exists())
        blank = as_json(selection((2, 0), (2, 0)))
        for given in ({"version": 99, "instruction": "x"}, {"range": blank, "instruction": "x"}):
            assert not (await editor.command("lookupdec.edit", range=given.pop("range", TWO), **given))[
                "applied"
            ]
        assert (await answer)["applied"]


@in_loop
async def test_an_unknown_command_is_an_error_of_the_protocol():
    async with editing() as editor:
        editor.open(TEXT)
        with pytest.raises(JsonRpcException, match="there is no command lookupdec.nothing"):
            await editor.command("lookupdec.nothing")


@in_loop
async def test_a_message_that_is_none_does_not_end_the_server():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        assert editor.process.stdin is not None
        for body in (
            b"{no json",
            b"[]",
            b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": 5}',
        ):
            editor.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert all("Traceback" not in message and "\n" not in message for message in editor.shown)
