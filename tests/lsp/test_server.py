"""The language server as an editor sees it, over a pipe, with an engine that recites."""

import json

import pytest
from lsprotocol import types

from tests.lsp.client import EVERYTHING, URI, as_json, editing, in_loop, selection

TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
TWO = as_json(selection((4, 0), (5, 12)))
YIELD = {"replace": {"return": "yield"}}
WITHOUT_MENU = EVERYTHING | {"window": {"workDoneProgress": True}}


@in_loop
async def test_an_instruction_sent_along_edits_the_selection_and_nothing_else():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        result = await editor.command("lookupdec.edit", range=TWO, instruction="Yield.")
        assert result["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2")
        assert editor.edited_version == 1
        assert editor.messages == []


@pytest.mark.parametrize("language", ["python", "markdown"])
@in_loop
async def test_rewriting_a_file_changes_all_of_it(language, tmp_path):
    async with editing(YIELD | {"prompts": str(tmp_path / "prompts")}) as editor:
        editor.open(TEXT, language=language)
        assert (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert editor.texts[URI] == TEXT.replace("return", "yield")
        assert "Yield." in (tmp_path / "prompts").read_text()


@in_loop
async def test_a_summary_is_shown_and_returned():
    async with editing({"answer": "Two functions."}) as editor:
        editor.open(TEXT)
        result = await editor.command("lookupdec.summarize")
        assert result["summary"] == "Two functions."
        assert editor.shown == ["Two functions."]
        assert editor.edits == []


@in_loop
async def test_an_instruction_in_the_text_is_carried_out_and_taken_away(tmp_path):
    marked = TEXT.replace("def two", "# lookupdec: yield it\ndef two")
    async with editing(YIELD | {"prompts": str(tmp_path / "prompts")}) as editor:
        editor.open(marked)
        (found, *_) = await editor.actions(selection((5, 0), (6, 12)))
        assert found.title == "Edit selection: yield it"
        result = await editor.command(found.command.command, **found.command.arguments[0])
        assert result["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2")
        prompt = json.loads((tmp_path / "prompts").read_text())
        assert prompt.count("yield it") == 1
        assert "lookupdec:" not in prompt


@in_loop
async def test_without_an_instruction_the_editor_is_asked_to_choose_one(tmp_path):
    async with editing(
        YIELD | {"prompts": str(tmp_path / "prompts")}, initialization={"instructions": ["First.", "Second."]}
    ) as editor:
        editor.open(TEXT)
        editor.answer = lambda titles: titles[1]
        assert (await editor.command("lookupdec.edit", range=TWO))["applied"]
        assert [action.title for action in editor.questions[0].actions or []] == ["First.", "Second."]
        assert "Second." in (tmp_path / "prompts").read_text()


@in_loop
async def test_choosing_nothing_does_nothing():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        editor.answer = lambda titles: None
        assert not (await editor.command("lookupdec.edit", range=TWO))["applied"]
        assert (editor.texts[URI], editor.messages, editor.edits) == (TEXT, [], [])


@in_loop
async def test_the_settings_of_the_editor_come_before_what_it_started_with():
    capabilities = EVERYTHING | {"workspace": EVERYTHING["workspace"] | {"configuration": True}}
    async with editing(YIELD, capabilities=capabilities, initialization={"instructions": ["Old."]}) as editor:
        editor.open(TEXT)
        editor.settings = {"instructions": ["New."]}
        await editor.command("lookupdec.edit", range=TWO)
        editor.settings = None
        await editor.command("lookupdec.rewrite")
        editor.settings = {"instructions": "no list"}
        await editor.command("lookupdec.rewrite")
        asked = [[action.title for action in question.actions or []] for question in editor.questions]
        assert asked == [["New."], ["Old."]]
        assert editor.shown == [
            "lookupdec: the setting lookupdec.instructions must be a list of texts: correct it"
        ]


@in_loop
async def test_an_editor_that_cannot_ask_is_given_the_instructions_as_actions():
    async with editing(
        YIELD, capabilities=WITHOUT_MENU, initialization={"instructions": ["Yield."]}
    ) as editor:
        editor.open(TEXT)
        found = {action.title: action for action in await editor.actions(selection((4, 0), (5, 12)))}
        assert list(found) == [
            "Edit selection with instruction...",
            "Edit selection: Yield.",
            "Rewrite file with instruction...",
            "Summarize file",
        ]
        command = found["Edit selection: Yield."].command
        assert (await editor.command(command.command, **command.arguments[0]))["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2")
        assert not (await editor.command("lookupdec.rewrite"))["applied"]
        assert "write one above the selection" in editor.shown[0]


@in_loop
async def test_actions_are_those_of_the_kinds_that_are_asked_for():
    async with editing() as editor:
        editor.open(TEXT)
        selected = selection((4, 0), (5, 12))
        for only, kinds in {
            None: ["refactor.rewrite", "refactor.rewrite", "source.lookupdec"],
            "refactor": ["refactor.rewrite", "refactor.rewrite"],
            "refactor.rewrite": ["refactor.rewrite", "refactor.rewrite"],
            "source": ["source.lookupdec"],
            "quickfix": [],
        }.items():
            found = await editor.actions(selected, only=None if only is None else [only])
            assert [action.kind for action in found] == kinds
        automatic = types.CodeActionTriggerKind.Automatic
        assert await editor.actions(selected, trigger_kind=automatic) == []
        editor.change(URI, "# lookupdec: yield\n" + TEXT)
        (found,) = await editor.actions(selection((1, 0), (1, 0)), trigger_kind=automatic)
        assert found.title == "Edit selection: yield"


@in_loop
async def test_an_editor_that_knows_no_actions_is_given_commands():
    async with editing(capabilities={}) as editor:
        editor.open(TEXT)
        found = await editor.actions(selection((4, 0), (5, 12)))
        assert [command.command for command in found][-2:] == ["lookupdec.rewrite", "lookupdec.summarize"]


@in_loop
async def test_an_editor_without_versions_or_progress_is_served():
    async with editing(YIELD, capabilities={"workspace": {"applyEdit": True}}) as editor:
        editor.open(TEXT)
        assert (await editor.command("lookupdec.rewrite", instruction="Yield."))["applied"]
        assert editor.edits[0].changes and editor.edits[0].document_changes is None
        assert editor.texts[URI] == TEXT.replace("return", "yield")
        assert editor.bars == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@in_loop
async def test_positions_count_what_was_agreed_on(encoding):
    before = "x = '\U0001f600\u00e9'; "
    width = {"utf-8": 14, "utf-16": 11, "utf-32": 10}[encoding]
    async with editing({"replace": {"return": "yield"}}, encoding=encoding) as editor:
        editor.open(f"{before}return 1; return 2\n")
        selected = as_json(selection((0, width), (0, width + len("return 1"))))
        assert (await editor.command("lookupdec.edit", range=selected, instruction="Yield."))["applied"]
        assert editor.texts[URI] == f"{before}yield 1; return 2\n"


@in_loop
async def test_crlf_form_feeds_and_a_byte_order_mark_stay():
    text = "\ufeffa = 1\r\n\x0cb = 2\r\n\u2028c = 3\r\n"
    async with editing({"replace": {"c": "d", "a": "e"}}) as editor:
        editor.open("other")
        editor.change(URI, text)
        selected = as_json(selection((2, 0), (2, 7)))
        assert (await editor.command("lookupdec.edit", range=selected, instruction="Rename."))["applied"]
        assert editor.texts[URI] == text.replace("c", "d")
        assert (await editor.command("lookupdec.rewrite", instruction="Rename."))["applied"]
        assert editor.texts[URI] == text.replace("c", "d").replace("a", "e")


@in_loop
async def test_a_range_beyond_the_text_ends_with_it():
    async with editing(YIELD) as editor:
        editor.open(TEXT)
        selected = as_json(selection((4, 0), (99, 2**31 - 1)))
        assert (await editor.command("lookupdec.edit", range=selected, instruction="Yield."))["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2")
