"""The language server as an editor sees it, over a pipe, with an engine that recites."""

from tests.lsp.client import URI, as_json, editing, in_loop, selection

TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@in_loop
async def test_an_instruction_sent_along_edits_the_selection_and_nothing_else():
    async with editing({"replace": {"return": "yield"}}) as editor:
        editor.open(TEXT)
        selected = as_json(selection((4, 0), (5, 12)))
        result = await editor.command("lookupdec.edit", range=selected, instruction="Yield.")
        assert result["applied"]
        assert editor.texts[URI] == TEXT.replace("return 2", "yield 2")
        assert editor.edited_version == 1
        assert editor.messages == []
