import json
from pathlib import Path

import pytest

from lookupdec.edit.answers import end_of_answer, read_answer
from lookupdec.edit.languages import language_of
from lookupdec.edit.placeholders import is_marker, placeholder_in

CODE = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
README = "# Title\n\n```js\nrun()\n```\n\nThen:\n\n```bash\nls\n```\n"
BARE = "# Title\n\n```\nrun()\n```\n\nThen:\n\n```\nls\n```\nEnd.\n"


def text_of(raw: str, original: str) -> str:
    answer = read_answer(raw, original)
    assert answer.complete, answer.warnings
    return answer.text


@pytest.mark.parametrize(
    "original", [CODE, README, BARE, "x", "  a\n\n\n", "```py\nx\n```\n", "\n\nx\n", "<think>x\n"]
)
def test_an_answer_that_is_the_text_itself_stays_word_for_word(original):
    answer = read_answer(original, original)
    assert (answer.text, answer.complete, answer.warnings) == (original, True, ())


@pytest.mark.parametrize("original", [CODE, README, BARE])
@pytest.mark.parametrize("opening", ["```", "```python", "````markdown", "~~~", "``` py"])
def test_an_outer_fence_is_unwrapped_and_inner_ones_survive(original, opening):
    closing = opening[0] * (len(opening) - len(opening.lstrip("`~")))
    assert text_of(f"{opening}\n{original}{closing}", original) == original
    assert text_of(f"{opening}\n{original}{closing}\n", original) == original


def test_a_closing_fence_may_be_longer_and_indented():
    assert text_of(f"```\n{CODE}   `````  \n", CODE) == CODE


def test_a_fence_longer_than_the_inner_ones_is_ours():
    original = "# T\n````md\n```\nx\n```\n````\n"
    assert text_of(f"`````\n{original}`````\n", original) == original


def test_a_lone_fence_inside_a_string_does_not_cut_the_answer():
    original = 'a = """\n```\n"""\nb = 2\n'
    assert text_of(f"```python\n{original}```", original) == original


def test_a_file_that_is_one_code_block_keeps_its_fence():
    original = "```py\nold\n```\n"
    assert text_of("```py\nnew\n```\n", original) == "```py\nnew\n```\n"
    assert text_of("```\n```py\nnew\n```\n```\n", original) == "```py\nnew\n```\n"


def test_a_code_block_of_the_text_itself_is_no_wrapper():
    assert text_of("```js\nrun()\n```\n", README) == "```js\nrun()\n```\n"


def test_text_turned_into_markdown_is_not_cut_at_its_code_blocks():
    original = "Install it\npip install x\nUse it\nimport x\n"
    raw = "# Install\n\n```bash\npip install x\n```\n\n# Use\n\n```python\nimport x\n```\n\nDone.\n"
    assert text_of(raw, original) == raw


def test_one_code_block_among_the_texts_own_words_is_content():
    original = "Run this:\nls\nThat is all.\n"
    raw = "Run this:\n```\nls\n```\nThat is all.\n"
    assert text_of(raw, original) == raw


def test_remarks_around_the_block_are_left_out_with_a_warning():
    answer = read_answer(f"Here is the new code:\n\n```python\n{CODE}```\n\nI changed nothing.\n", CODE)
    assert (answer.text, answer.complete) == (CODE, True)
    assert answer.warnings == ("left out what the model wrote around the text: 'Here is the new code:'",)


def test_a_preamble_without_a_fence_is_left_out_where_the_text_follows():
    assert read_answer(f"Sure, here it is:\n\n{CODE}", CODE).text == CODE
    kept = "Here is a list:\n\n- a\n"
    assert text_of(kept, "- b\n") == kept


@pytest.mark.parametrize(
    "line",
    [
        "Here is the rewritten text:",
        "Sure! Here's the updated version of the paragraph:",
        "Below is your revised document, as asked:",
        "Here\u2019s the new code:  ",
    ],
)
def test_an_announcement_is_left_out_even_where_all_is_new(line):
    answer = read_answer(f"{line}\n\nAll is new.\n", "All was old.\n")
    assert (answer.text, answer.complete, len(answer.warnings)) == ("All is new.\n", True, 1)
    kept = f"{line}\n\nAll is new.\n"
    assert text_of(kept, f"{line}\n\nAll was old.\n") == kept


@pytest.mark.parametrize("line", ["Here is the plan:", "The new text:", "Sure, this is a list of codes:"])
def test_a_first_line_that_announces_no_edit_is_content(line):
    assert text_of(f"{line}\n\n- a\n", "- b\n") == f"{line}\n\n- a\n"


def test_a_block_that_is_never_closed_is_unwrapped_with_a_warning():
    answer = read_answer(f"```python\n{CODE}", CODE)
    assert (answer.text, answer.complete) == (CODE, True)
    assert "did not close" in answer.warnings[0]


def test_thinking_is_dropped():
    assert text_of(f"<think>\nwhat to do?\n```\n</think>\n\n{CODE}", CODE) == CODE
    assert text_of(f"<think></think>\n```\n{CODE}```", CODE) == CODE


def test_thinking_that_the_chat_template_began_is_dropped():
    assert text_of(f"what to do?\n</think>\n\n{CODE}", CODE) == CODE
    assert text_of("a </think> b\n", "a </think> c\n") == "a </think> b\n"


def test_the_first_line_after_thinking_keeps_its_indentation():
    assert text_of("<think>\nhm\n</think>\n\n    x = 2\n", "    x = 1\n") == "    x = 2\n"
    assert text_of("<think>hm</think> x = 2\n", "x = 1\n") == "x = 2\n"


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        *((f"<{name}>", f"</{name}>") for name in ("think", "Think", "thinking", "thought", "reasoning")),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("<THINK>", "</think>"),
    ],
)
def test_thinking_is_dropped_whatever_its_tags_and_however_often(opening, closing):
    once = f"{opening}\nShould it be 2?\n{closing}\n"
    for raw in (
        once + CODE,
        f"{once}\n{once}{CODE}",
        f"{opening}yes{closing}{CODE}",
        f"yes.{closing}\n{CODE}",
    ):
        assert text_of(raw, CODE) == CODE
    assert not read_answer(f"{once}{opening}\nhm", CODE).complete


def test_thinking_is_dropped_where_the_text_speaks_of_it():
    original = "TAG = '<think>'\nEND = '</think>'\n"
    new = original + "x = 1\n"
    for thoughts in ("<think>\nhm\n</think>\n\n", "hm\n</think>\n", "I should do it.</think>"):
        assert text_of(thoughts + new, original) == new
    assert text_of(new, original) == new


def test_a_text_that_begins_with_thinking_keeps_it():
    original = "<think>\na\n</think>\nb\n"
    new = original.replace("a", "A")
    assert text_of(new, original) == new
    assert text_of(f"<think>\nhm\n</think>\n{new}", original) == new
    assert text_of("x\n", "<think>\nx\n") == "x\n"
    assert text_of("<think>\n", "x\n<think>\n") == "<think>\n"


@pytest.mark.parametrize("line", ["END = '</think>'", "# ends at </think> or at </thinking>, see below"])
def test_a_new_line_that_speaks_of_thinking_is_text(line):
    assert text_of(f"{CODE}{line}\n", CODE) == f"{CODE}{line}\n"


def test_what_may_be_thinking_or_text_is_in_doubt():
    answer = read_answer(f"def f():\n</think>\n{CODE}", CODE)
    assert not answer.complete
    assert "thinking" in answer.warnings[0]


def test_an_answer_that_never_stopped_thinking_is_not_complete():
    assert not read_answer("<think>\nhm", CODE).complete


@pytest.mark.parametrize("reason", ["length", "deadline"])
def test_a_cut_answer_is_not_complete(reason):
    answer = read_answer("def f():\n", CODE, finish_reason=reason)
    assert not answer.complete
    assert "cut" in answer.warnings[0]
    in_fence = read_answer("```\ndef f():\n", CODE, finish_reason=reason)
    assert (in_fence.text, in_fence.warnings) == ("def f():\n", answer.warnings)


@pytest.mark.parametrize(
    "raw", ["", "\n", "  \n\n", "<think>\nhm\n</think>\n", "```", "```\n", "I did.\n```\n```"]
)
def test_an_empty_answer_is_not_complete(raw):
    assert not read_answer(raw, CODE).complete


@pytest.mark.parametrize("raw", ["```\n```", "```python\n\n```\n", "<think></think>\n~~~\n~~~"])
def test_an_empty_code_block_means_that_no_text_is_left(raw):
    answer = read_answer(raw, CODE)
    assert (answer.text, answer.complete) == ("", True)
    cut = read_answer(raw, CODE, finish_reason="length")
    assert not cut.complete


def test_a_text_that_is_one_code_block_can_be_emptied():
    assert text_of("```py\n```\n", "```py\nold\n```\n") == "```py\n```\n"
    assert text_of("~~~\n~~~\n", "```py\nold\n```\n") == ""


def test_a_preamble_tells_the_fence_from_content_even_where_all_is_new():
    assert read_answer("Here is the new text:\n\n```\nall is new\n```\n", CODE).text == "all is new\n"
    answer = read_answer("Here is the new text:\n\n```\nall is new\n```\nShorter now.\n", CODE)
    assert not answer.complete
    assert "more than the text" in answer.warnings[0]


@pytest.mark.parametrize(
    ("raw", "original", "text"),
    [
        ("a", "b\n", "a\n"),
        ("a\n", "b", "a"),
        ("a\n\n", "b\n", "a\n\n"),
        ("```\na\n```", "b", "a"),
        ("  a ", " b", "  a "),
    ],
)
def test_the_final_newline_is_as_in_the_original_and_nothing_is_stripped(raw, original, text):
    assert read_answer(raw, original).text == text


@pytest.mark.parametrize(
    ("raw", "original", "text"),
    [
        ("A\nb\n", "a\nb\n\n\n", "A\nb\n\n\n"),
        ("```\nA\nb\n```", "a\nb\n\n", "A\nb\n\n"),
        ("a\nB", "\n\na\nb", "\n\na\nB"),
        ("a\nb\n", "a\nb\n\n\n", "a\nb\n"),
        ("a\nB\n", "a\nb\n\n\n", "a\nB\n"),
        ("A\nb\n\n", "a\nb\n", "A\nb\n\n"),
    ],
    ids=["at the end", "in a fence", "at the start", "removed on purpose", "the last line changed", "added"],
)
def test_blank_lines_at_the_ends_are_kept_where_the_line_next_to_them_is(raw, original, text):
    assert text_of(raw, original) == text


PLACEHOLDERS = [
    "// ... existing code ...",
    "# rest of the code unchanged",
    "    # ... rest of code",
    "/* ... */",
    "# ...",
    "// rest of the code remains the same",
    "<!-- rest of the document unchanged -->",
    "[...]",
    "-- remaining code unchanged",
    "[rest of the text unchanged]",
    "// … existing code …",
    "{/* existing code */}",
    "; rest of file unchanged",
    "% rest omitted for brevity",
    "(* ... existing code ... *)",
    "# [previous code] ...",
    "# (rest of the file is unchanged)",
    "// The rest of the code stays the same.",
    "// ... (rest of the code)",
    "* rest of the text remains unchanged",
    "// ... other methods ...",
    "// rest of your code here",
    "''' rest of the code '''",
    "... existing code ...",
    "rem rest of the code unchanged",
    "//...",
    "...rest of text...",
    "// ... rest of the component",
    "# ... rest of the settings ...",
    "# ... rest of the tests ...",
    "# ... existing helpers ...",
    "// ...existing styles...",
    "// ... other props",
    "# (rest of script unchanged)",
    "# ... (rest of the tests remain unchanged)",
    "{/* ... existing JSX ... */}",
    "// ... 45 more lines ...",
    "// lines 20-80 unchanged",
    "> ...",
    "> [The rest of the document remains unchanged]",
    "- ... (other items unchanged)",
    "  1. ...",
    "dnl rest of file unchanged",
    "pass  # rest of the method unchanged",
    "function foo() { /* ... existing code ... */ }",
    "    return x  // ... rest unchanged",
    "# ... (existing fields)",
    "# the rest of the settings are unchanged",
    "// All other settings remain the same",
    "// The rest of the code would go here",
    "-- ... the rest of the query stays the same ...",
    "REM rest of the script unchanged",
    "\u22ee rest of code",
    "[unchanged]",
    "{ ... }",
]

CONTENT = [
    "# The rest of the arguments are forwarded to pip",
    "// existing users keep their id",
    "x = [...]",
    "...",
    "…",
    "- unchanged",
    "# Same as before, but sorted",
    "# no changes",
    "    return rest",
    "// the code",
    "# Imports",
    "(see above)",
    "# previous",
    "def f(): ...",
    "print('...')",
    "...args",
    "[1, ...]",
    "* other functions",
    "# 1...3",
    "",
    "    ",
    "---",
    "###",
    "// unchanged since version 2",
    "code",
    "rest of the code unchanged",
    "# ... and so on",
    "// the rest of the arguments are optional",
    "# ... the rest of the arguments are optional",
    "// ...other keys are ignored",
    "# Check the existing users...",
    "# Restore previous state...",
    "// Process the remaining items ...",
    "    {...rest}",
    "...rest,",
    "  ...existing,",
    "  ...original, name,",
    "...existing.items,",
    "[...other, ...rest]",
    '"remaining",',
    "'unchanged'",
    "timeout: 30  # unchanged",
    "value: 3  # same as above",
    "x = f(...)  # ... and so on",
    "- [Other](other.md)",
    "- [existing docs](docs.md)",
    "* Existing users are kept",
    ">>> f(x)",
    "... other = 1",
    "http://example.com/rest of the code",
    "# Unchanged in 2.0",
    "| ... | ... |",
    "catch (e) { /* ... */ }",
    "# Remaining arguments are forwarded, unchanged, to the rest",
]


@pytest.mark.parametrize("line", PLACEHOLDERS)
def test_a_placeholder_is_seen_in_any_comment_style(line):
    assert placeholder_in(line) is not None


@pytest.mark.parametrize("line", CONTENT)
def test_what_says_more_is_content(line):
    assert placeholder_in(line) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{{INSERTED_CODE}}", True),
        ("  <|im_end|>", True),
        ("[/INST]", True),
        ("<end_of_turn>", True),
        ("{{ content }}", False),
        ("{{ TITLE }}", False),
        ("x = '<|im_end|>'", False),
        ("<|a|b|>", False),
        ("<s>", False),
    ],
)
def test_a_line_that_only_prompts_have_is_a_marker(line, expected):
    assert is_marker(line) is expected


def test_a_marker_makes_the_answer_incomplete_unless_the_original_had_it():
    assert not read_answer("{{INSERTED_CODE}}\nx\n", "x\n").complete
    assert read_answer("{{INSERTED_CODE}}\nx\n", "{{INSERTED_CODE}}\ny\n").complete


@pytest.mark.parametrize("tag", ["source", "code", "Text"])
def test_tags_around_the_answer_are_dropped_where_the_text_has_none(tag):
    assert text_of(f"<{tag}>\n{CODE}</{tag}>\n", CODE) == CODE
    assert text_of(f"<{tag}>\n```python\n{CODE}```\n</{tag}>", CODE) == CODE
    html = "<p>\na\n</p>\n"
    assert text_of(f"<{tag}>\n{html}</{tag}>\n", html) == f"<{tag}>\n{html}</{tag}>\n"


def test_a_placeholder_makes_the_answer_incomplete_unless_the_original_had_it():
    raw = "def f():\n    return 3\n\n# ... rest of the code unchanged ...\n"
    answer = read_answer(raw, CODE)
    assert not answer.complete
    assert "left text out" in answer.warnings[0]
    assert read_answer(raw, raw.replace("3", "1")).complete


def test_a_placeholder_of_the_original_allows_no_second_one():
    original = f"// ...\n{CODE}# rest of the method unchanged\n"
    assert read_answer(original.replace("1", "2"), original).complete
    assert read_answer(original.replace("# rest", "    pass  # rest"), original).complete
    assert not read_answer("// ...\ndef f():\n    // ...\n", original).complete
    assert read_answer("# ...\ndef f():\n", original).complete
    # An example more, where nothing has gone:
    assert read_answer(f"{original}\ndef h():\n    # ...\n", original).complete


def test_a_much_shorter_text_is_pointed_out():
    original = "".join(f"line {number}\n" for number in range(60))
    answer = read_answer("line 1\n", original)
    assert answer.complete
    assert "much shorter: 1 lines instead of 60" in answer.warnings[0]


ORIGINAL = "a = 1\nb = 2\nc = 3\n"


@pytest.mark.parametrize(
    "answer",
    [
        "```python\na = 1\nb = 20\nc = 3\n```\n",
        "\n```\na = 1\nb = 20\nc = 3\n```\n",
        "Here is the edited text:\n\n```\na = 1\nb = 20\nc = 3\n```\n",
    ],
)
def test_an_answer_is_over_where_the_block_around_the_text_closes(answer):
    for end in range(len(answer)):
        assert end_of_answer(answer[:end], ORIGINAL) is None
    assert end_of_answer(answer + "\nThis code is\n```\nx\n```\n", ORIGINAL) == len(answer)
    assert read_answer(answer, ORIGINAL).complete


@pytest.mark.parametrize(
    ("answer", "original"),
    [
        ("a = 1\nb = 20\nc = 3\n", ORIGINAL),
        ("```\na = 1\nb = 20\n```\n", ORIGINAL),  # its last line has not come
        ("```\nc = 3\n```\n", ORIGINAL),  # most of it is missing
        ("First:\nsecond:\n```\na = 1\nb = 20\nc = 3\n```\n", ORIGINAL),
        ("```\na\n```\n", "```\na\n```\n"),
        ("```\na = 1\n```sh\nls\n```\nc = 3\n", ORIGINAL),  # an inner block has closed
        ("````\na = 1\n```\nc = 3\n````\n", ORIGINAL),  # an inner fence that nothing closes
    ],
)
def test_an_answer_that_may_go_on_is_not_over(answer, original):
    assert end_of_answer(answer, original) is None


def test_a_last_line_that_stands_earlier_too_does_not_end_an_answer():
    old = "main() {\n  usage\n}\nusage() {\n  echo hi\n}\nrest() {\n  true\n}\n"
    new = old.replace("  echo hi\n", "  cat <<EOF\n```\nuse it\n```\nEOF\n")
    answer = f"```sh\n{new}```\n"
    ends = [end_of_answer(answer[:end], old) for end in range(len(answer) + 1)]
    # The blocks within pair up with the one around: read as a whole.
    assert ends == [None] * (len(answer) + 1)
    assert read_answer(answer, old, language="bash").complete is False


TALK = "I rewrote it as a class.\n\n```python\nclass F:\n    pass\n```\n"
TWO_BLOCKS = "```python\ndef f():\n    return 2\n```\n\nAnd call it so:\n\n```python\nprint(f())\n```\n"


@pytest.mark.parametrize("raw", [TALK, TWO_BLOCKS])
def test_talk_and_code_blocks_are_never_written_into_source_code(raw):
    original = "def f():\n    return 1\n\n\nprint(f())\n"
    answer = read_answer(raw, original, language="python")
    assert not answer.complete
    assert "code blocks" in answer.warnings[0]
    # Nor into anything else that has no code blocks.
    for path in (
        "a.yaml",
        "a.yml",
        "a.json",
        "a.toml",
        "a.ini",
        "a.html",
        "a.css",
        "a.sql",
        "a.xml",
        "Makefile",
    ):
        assert not read_answer(raw, original, language=language_of(None, path)).complete
    # Nobody says what it is: it may be meant.
    answer = read_answer(raw, original)
    assert answer.complete
    assert "code blocks" in answer.warnings[0]
    assert read_answer(raw, original, language="markdown").warnings == ()


@pytest.mark.parametrize("language", [None, "python", "yaml", "markdown"])
def test_a_fence_that_closes_nothing_is_left_out(language):
    answer = read_answer(CODE + "```\n", CODE, language=language)
    assert (answer.text, answer.complete, len(answer.warnings)) == (CODE, True, 1)
    assert text_of(README.replace("Then", "So") + "```\n", README) == README.replace("Then", "So")
    assert not read_answer(CODE.replace("\n\n\n", "\n```\n"), CODE, language=language).complete
    assert not read_answer(
        README.replace("ls\n```\n", "```bash\nls\n```\n"), README, language=language
    ).complete


def test_a_text_with_a_lone_fence_keeps_it():
    original = "a\n```\nb\n"
    assert text_of("a\n```\nB\n```py\nc\n```\n", original) == "a\n```\nB\n```py\nc\n```\n"
    assert text_of("```\na\n", "```\na\n```\n") == "```\na\n"


def test_an_answer_may_have_other_line_endings():
    crlf = CODE.replace("\n", "\r\n")
    assert text_of(f"```python\r\n{crlf}```\r\n", CODE) == CODE


ASKED = ["Copy the text above, line by line, with this change: x", "Two lines say:\nthis"]


@pytest.mark.parametrize(
    "raw", [f"{ASKED[0]}\n\n{CODE}", f"{CODE}\n{ASKED[0]}\n", f"{ASKED[0]}\n{CODE}{ASKED[0]}"]
)
def test_the_prompt_around_the_text_is_left_out(raw):
    answer = read_answer(raw, CODE, asked=ASKED)
    assert (answer.text, answer.complete) == (CODE, True)
    assert "left out" in answer.warnings[0]
    own = f"{ASKED[0]}\n{CODE}"
    assert read_answer(own.replace("1", "2"), own, asked=ASKED).text == own.replace("1", "2")


@pytest.mark.parametrize("raw", [f"a\n{ASKED[0]}\nb\n", "Two lines say:\nthis\nb\n", f"{ASKED[0]}\n"])
def test_the_prompt_within_the_text_casts_doubt(raw):
    assert not read_answer(raw, CODE, asked=ASKED).complete


def test_what_people_wrote_is_taken_at_its_word():
    edits = Path(__file__).parents[2] / "datasets" / "edits.jsonl"
    for line in edits.read_text("utf-8").split("\n")[:-1]:
        edit = json.loads(line)
        if edit["task"] != "summarize":
            answer = read_answer(edit["output"], edit["input"], language=language_of(edit["lang"], None))
            assert (answer.text, answer.complete) == (edit["output"], True), edit["id"]
