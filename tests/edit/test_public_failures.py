"""Failures that users of other editing tools reported: each kind once, from the file to its new bytes."""

from typing import Any

import pytest

from lookupdec.edit import Editor
from lookupdec.edit.textio import Document
from tests.edit.scripted import ScriptedEngine


def edited(data: bytes, answer: str, instruction: str = "x", **options: Any) -> bytes:
    """The new bytes of a file for an answer of the model; the file's own where that is not complete."""
    document = Document.from_bytes(data)
    result = Editor(ScriptedEngine(answer)).edit(document.text, instruction, **options)
    return document.encode(result.text)


README = (
    b"# Install\n\n```bash\npip install x\n```\n\n## Use\n\n````md\n```js\nrun()\n```\n````\n\nThe end.\n"
)


@pytest.mark.parametrize("fence", ["```", "```markdown", "````", "`````md", "~~~~"])
def test_a_readme_full_of_fences_is_not_cut_at_an_inner_one(fence):
    # continuedev/continue #5842, #5427, #738, #1471, PR #12594; Aider-AI/aider #22, #2498
    new = README.decode().replace("The end.", "Done.")
    closing = fence.rstrip("markdown")
    assert edited(README, f"{fence}\n{new}{closing}\n") == new.encode()


def test_a_result_wrapped_in_fences_is_not_inserted_literally():
    # continuedev/continue PR #8056
    assert edited(b"a = 1\n", "```python\na = 2\n```") == b"a = 2\n"


def test_a_code_block_edited_inside_markdown_stays_in_its_fence():
    # continuedev/continue #738
    for answer in ("npm install x\n", "```bash\nnpm install x\n```\n"):
        assert edited(README, answer, lines=(4, 4)) == README.replace(b"pip install", b"npm install")
    whole_block = edited(README, "```bash\nnpm install x\n```\n", lines=(3, 5))
    assert whole_block == README.replace(b"pip install", b"npm install")


def test_the_line_above_a_selection_stays():
    # continuedev/continue #2520
    assert edited(b"a\nb\nc\n", "B\n", lines=(2, 2)) == b"a\nB\nc\n"


def test_a_change_of_indentation_alone_can_be_made():
    # continuedev/continue #6197
    assert edited(b"if x:\n  y\n", "if x:\n    y\n") == b"if x:\n    y\n"
    assert edited(b"if x:\n  y\n", "    y\n", lines=(2, 2)) == b"if x:\n    y\n"


def test_a_selected_body_is_not_shifted():
    # continuedev/continue #1032, zed-industries/zed #26326
    elm = b"view model =\n    div []\n        [ text model ]\n"
    assert edited(elm, "div []\n    [ text model.name ]\n", lines=(2, 3)) == elm.replace(
        b"model ]", b"model.name ]"
    )


def test_tabs_are_not_replaced_by_spaces():
    # zed-industries/zed #21885
    go = b"func f() {\n\tif x {\n\t\ty()\n\t}\n}\n"
    assert edited(go, "if x {\n    z()\n}\n", lines=(2, 4)) == go.replace(b"y()", b"z()")


def test_a_file_of_one_line_can_be_edited_without_a_final_newline():
    # Aider-AI/aider #3737
    assert edited(b"hello", "hello world\n") == b"hello world"
    assert edited(b"hello\n", "hello world") == b"hello world\n"


def test_a_lone_surrogate_is_a_clear_error():
    # Aider-AI/aider #3693, #3460
    with pytest.raises(ValueError, match="lone surrogate"):
        Editor(ScriptedEngine()).edit("a\udc80", "x")


def test_a_result_is_spliced_at_the_right_column():
    # zed-industries/zed #32041, ggml-org/llama.vscode #92
    assert edited(b"Hello, World!\n", "Goodbye", selection=(0, 5)) == b"Goodbye, World!\n"
    assert edited(b"Hello, World!\n", "Goodbye, World!", selection=(3, 3)) == b"Goodbye, World!\n"


def test_neighbours_are_not_doubled():
    # zed-industries/zed #20099, ggml-org/llama.vim PR #71
    text = b"f(\n    a,\n    b,\n)\n"
    assert edited(text, "f(\n    a,\n    c,\n)\n", lines=(3, 3)) == b"f(\n    a,\n    c,\n)\n"


def test_no_newline_is_added():
    # zed-industries/zed PR #52661
    assert edited(b"a\nb\nc", "B", lines=(2, 2)) == b"a\nB\nc"
    assert edited(b"a\nb\nc", "B\n\n", selection=(2, 3)) == b"a\nB\nc"


def test_changes_that_move_lines_land_where_they_belong():
    # avante-corp/avante.nvim #1179: the edits are against the original
    old = "a\nb\nc\nd\n"
    result = Editor(ScriptedEngine("a\nnew\nnew\nb\nc\nD\n")).edit(old, "x")
    assert [edit.start.line for edit in result.edits] == [1, 3]


def test_thinking_is_not_part_of_the_text():
    # olimorris/codecompanion.nvim #2159
    assert edited(b"a\n", "<think>\nlet me see\n</think>\n\nb\n") == b"b\n"


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_endings_and_byte_order_mark_stay(bom):
    # MoonshotAI/kimi-cli #2191, mistralai/mistral-vibe #674, MoonshotAI/kimi-code #3825,
    # github/copilot-cli #3389
    assert edited(bom + b"a\r\nb\nc\rd", "a\nB\nc\nd\n") == bom + b"a\r\nB\nc\rd"


def test_nothing_is_unescaped_or_normalised():
    text = "&lt;b&gt; \u201cquoted\u201d e\u0301 \u2028 \x0c\ttail  \n"
    assert edited(text.encode() + b"x\n", text + "y\n") == text.encode() + b"y\n"


@pytest.mark.parametrize(
    "line", ["// ... rest of code", "# ... existing code ...", "<!-- rest unchanged -->"]
)
def test_a_placeholder_never_replaces_code(line):
    # google-gemini/gemini-cli #4836, QwenLM/qwen-code #2575, stackblitz/bolt.new #419
    data = b"one\ntwo\nthree\n"
    assert edited(data, f"ONE\n{line}\n") == data


def test_a_big_deletion_is_visible():
    # openai/codex #34515
    old = "".join(f"line {number}\n" for number in range(100))
    result = Editor(ScriptedEngine("line 1\nline 2\n")).edit(old, "x")
    assert any("much shorter" in warning for warning in result.warnings)
    assert result.diff.count("\n-") == 98
