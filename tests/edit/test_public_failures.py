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


def test_text_turned_into_markdown_is_whole():
    # continuedev/continue #1471: it stopped at the second fence and deleted the rest
    new = "# Setup\n\n```sh\npip install x\n```\n\nThen:\n\n```py\nimport x\n```\n\nDone.\n"
    assert edited(b"Setup\npip install x\nThen\nimport x\nDone\n", new) == new.encode()


def test_what_is_inserted_behind_an_indentation_is_not_indented_twice():
    # continuedev/continue #1032, ggml-org/llama.vscode #72: the selection begins behind the indentation
    text = b"if a:\n    x()\n    if b:\n        y()\n"
    start = text.index(b"if b")
    expected = text[:start] + b"if b:\n        y()\n    else:\n        z()\n"
    for answer in (
        "if b:\n        y()\n    else:\n        z()\n",
        "if b:\n    y()\nelse:\n    z()\n",
        "    if b:\n        y()\n    else:\n        z()\n",
    ):
        assert edited(text, answer, selection=(start, len(text))) == expected


def test_one_line_without_its_indentation_gets_it_back():
    # zed-industries/zed #26326
    assert edited(b"if x:\n    y()\n    z()\n", "w()\n", lines=(3, 3)) == b"if x:\n    y()\n    w()\n"
    go = b"{\n\tif x {\n\t\ty()\n\t}\n}\n"
    assert edited(go, "if z {\n\ty()\n}\n", lines=(2, 4)) == go.replace(b"x", b"z")


def test_a_tab_before_the_selection_stays_one():
    # zed-industries/zed #14885: the first selected line begins behind its tab
    go = b"func f() {\n\tif x {\n\t\ty()\n\t}\n}\n"
    start, end = go.index(b"if"), go.rindex(b"}")
    for answer in ("if x {\n    z()\n}\n", "if x {\n\tz()\n}\n", "if x {\n\t\tz()\n\t}\n"):
        assert edited(go, answer, selection=(start, end)) == go.replace(b"y()", b"z()")


@pytest.mark.parametrize("lines", [20, 45, 90, 400])
def test_a_file_near_half_of_the_context_or_longer_is_edited(lines):
    # continuedev/continue #7544, #11435, #10491: "file/range likely too large"
    text = "".join(f"x = {number}\n" for number in range(lines))
    engine = ScriptedEngine(lambda shown: shown.replace("x = 7\n", "y = 7\n"), context_length=600)
    result = Editor(engine).edit(text, "x")
    assert (result.text, result.complete) == (text.replace("x = 7\n", "y = 7\n"), True)


@pytest.mark.parametrize("data", [b"hello\n", b"hello", b"hello\n\n", b"hello\r\n"])
def test_all_text_can_be_removed_but_not_by_mistake(data):
    # Aider-AI/aider #3737: "remove the text"; #22: a README replaced with nothing
    assert edited(data, "```\n```") == b""
    assert edited(data, "") == data


@pytest.mark.parametrize("name", ["markdown", "python", "README.md", "hello.txt"])
def test_a_name_behind_the_fence_is_not_text(name):
    # Aider-AI/aider #2879, #2886
    assert edited(b"a = 1\n", f"````{name}\na = 2\n````\n") == b"a = 2\n"


def test_a_wrapper_in_tags_is_not_text():
    # Aider-AI/aider #2498
    text = b'"""\n```\nx\n```\n"""\na = 1\n'
    assert edited(text, f"<source>\n{text.decode().replace('1', '2')}</source>\n") == text.replace(b"1", b"2")


@pytest.mark.parametrize("marker", ["{{INSERTED_CODE}}", "<|cursor|>", "<end_of_turn>"])
def test_a_marker_of_the_prompt_is_not_written(marker):
    # zed-industries/zed #19471
    assert edited(b"a = 1\n", f"{marker}\na = 2\n") == b"a = 1\n"


def test_a_half_written_line_is_not_doubled():
    # zed-industries/zed #20099: the cursor is at its end
    text = b"import os\nvalue = os.pa\nprint(value)\n"
    cursor = text.index(b"\nprint")
    for answer in ("value = os.path.sep", "value = os.path.sep\n"):
        assert edited(text, answer, selection=(cursor, cursor)) == text.replace(b"os.pa", b"os.path.sep")


@pytest.mark.parametrize(
    ("selected", "answer"),
    [
        ("Hello", "Goodbye, World!"),
        ("World", "say Hello, Moon!"),
        ("World", "first\nsay Hello, Moon!\nlast"),
        ("World", "```\nMoon\n```"),
        ("World", "Moon\n"),
    ],
)
def test_the_rest_of_a_line_is_not_doubled(selected, answer):
    # ggml-org/llama.vscode #92, ggml-org/llama.vim PR #71
    text = b"first\nsay Hello, World!\nlast\n"
    start = text.index(selected.encode())
    new = {"Hello": b"Goodbye", "World": b"Moon"}[selected]
    got = edited(text, answer, selection=(start, start + 5))
    assert got == text.replace(selected.encode(), new)


def test_a_bracket_of_the_answer_itself_stays():
    # ggml-org/llama.vim PR #71, the other way round
    assert edited(b"f(\na,\n)\n", "g(\na,\n),\n", lines=(2, 2)) == b"f(\ng(\na,\n),\n)\n"
    assert edited(b"{\na()\n}\n", "if x {\na()\n}\n", lines=(2, 2)) == b"{\nif x {\na()\n}\n}\n"
    assert edited(b"f(\n  a,\n)\n", "  b,\n)\n", lines=(2, 2)) == b"f(\n  b,\n)\n"
    assert edited(b"f(a)\n", "g(a)", selection=(2, 3)) == b"f(g(a))\n"


@pytest.mark.parametrize(
    ("text", "selected", "answer", "new"),
    [
        ('x = "hello"\n', "hello", '"goodbye"', 'x = "goodbye"\n'),
        ("x = 'hello'\n", "hello", "x = 'goodbye'\n", "x = 'goodbye'\n"),
        ('x = """hello"""\n', "hello", '"""goodbye"""', 'x = """goodbye"""\n'),
        ("x = `hello`;\n", "hello", "```js\n`goodbye`\n```\n", "x = `goodbye`;\n"),
        ("| a | hello |\n|---|---|\n", "hello", "| goodbye |", "| a | goodbye |\n|---|---|\n"),
        ("| a | hello |\n|---|---|\n", "hello", "| a | goodbye |", "| a | goodbye |\n|---|---|\n"),
        ('x = "hello"\n', '"hello"', '"goodbye"', 'x = "goodbye"\n'),
        ('f("a", "hello")\n', '"a", "hello"', '"b", "c"', 'f("b", "c")\n'),
    ],
)
def test_a_selection_in_a_string_or_a_table_stays_inside_it(text, selected, answer, new):
    # continuedev/continue #738, ggml-org/llama.vscode #92
    start = text.index(selected)
    assert edited(text.encode(), answer, selection=(start, start + len(selected))) == new.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1", "shift_jis"])
def test_an_encoding_stays(encoding):
    # mistralai/mistral-vibe #674, NousResearch/hermes-agent PR #35278
    letters = "\u30c6\u30b9\u30c8" if encoding == "shift_jis" else "caf\xe9"
    data = f"{letters}\r\nb\rc\n{letters}".encode(encoding)
    name = None if encoding.startswith("utf") else encoding
    document = Document.from_bytes(data, encoding=name)
    result = Editor(ScriptedEngine(f"{letters}\nB\nc\n{letters}")).edit(document.text, "x")
    assert document.encode(result.text) == f"{letters}\r\nB\rc\n{letters}".encode(encoding)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_added_lines_end_as_the_others(ending):
    # RooCodeInc/Roo-Code PR #10288, langchain-ai/deepagents #2879, earendil-works/pi #355, #2744
    data = b"a\nb\n".replace(b"\n", ending)
    assert edited(data, "a\nnew\nnew\nb\n") == b"a\nnew\nnew\nb\n".replace(b"\n", ending)
    assert edited(data, "B\nC\n", lines=(2, 2)) == b"a\nB\nC\n".replace(b"\n", ending)
    assert edited(data, "A\nB", selection=(0, 1)) == b"A\nB\nb\n".replace(b"\n", ending)


def test_the_prompt_itself_is_not_written():
    # Aider-AI/aider #2498, zed-industries/zed #19471: what only the prompt has comes back
    asked = "Copy the text above, line by line, with this change: digits"
    part = "Copy this part, line by line, and nothing outside it, with this change: digits"
    places: list[tuple[str, dict[str, Any]]] = [(asked, {}), (part, {"lines": (1, 2)})]
    for sentence, options in places:
        for answer in (f"{sentence}\n\na\n2\n", f"a\n2\n\n{sentence}\n"):
            assert edited(b"a\ntwo\n", answer, "digits", **options) == b"a\n2\n"
    assert edited(b"a\ntwo\n", f"a\n{asked}\n2\n", "digits") == b"a\ntwo\n"
