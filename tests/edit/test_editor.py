import hashlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.edit import Editor, apply_edits
from lookupdec.edit.editor import LEAST_LIMIT, LIMIT_TIMES
from lookupdec.edit.textio import Document, split_lines
from lookupdec.errors import ContextFullError, InputError
from tests.edit.scripted import ScriptedEngine

TEXT = "one\r\ntwo\r\n\tthree\r\nfour"
SHOWN = TEXT.replace("\r\n", "\n")


def editor(*args, **kwargs) -> Editor:
    return Editor(ScriptedEngine(*args, **kwargs))


def test_a_whole_text_is_edited_and_described():
    result = editor(SHOWN.replace("two", "2")).edit(TEXT, "write 2 as a digit", path="n.txt")
    assert result.text == TEXT.replace("two", "2")
    assert (result.changed, result.complete, result.warnings) == (True, True, ())
    assert apply_edits(TEXT, result.edits) == result.text
    assert result.diff.startswith("--- a/n.txt\n+++ b/n.txt\n")
    assert "-two\r\n+2\r\n" in result.diff
    assert result.base_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    assert result.usage.prompt_tokens > 10
    assert result.usage.completion_tokens == result.stats.tokens


def test_the_text_comes_before_the_instruction_and_is_the_reference():
    engine = ScriptedEngine()
    Editor(engine).edit(TEXT, "do something")
    (prompt,) = engine.prompts
    assert f"```\n{SHOWN}\n```\n" in prompt
    assert prompt.index("four") < prompt.index("do something")
    assert engine.references == [SHOWN]


def test_two_instructions_on_one_text_share_the_prompt_up_to_the_instruction():
    engine = ScriptedEngine()
    for instruction in ("first", "second `one` ```"):
        Editor(engine).edit(TEXT, instruction)
    first, second = engine.prompts
    assert first[: first.index("first")] == second[: second.index("second")]


def test_a_prediction_replaces_the_reference():
    engine = ScriptedEngine(SHOWN)
    Editor(engine).edit(TEXT, "x", prediction="a\r\nb")
    assert engine.references == ["a\nb"]


def test_a_short_prediction_does_not_make_the_answer_short():
    engine = ScriptedEngine()
    for prediction in ("", "short\n", "word " * 3000, None):
        Editor(engine).edit("word " * 1000, "x", prediction=prediction)
    # A token is a word or a space here.
    assert [given["max_new_tokens"] for given in engine.settings] == [7024, 7024, 19024, 7024]


@pytest.mark.parametrize("field", ["instruction", "context", "prediction"])
def test_what_no_tokenizer_can_read_is_refused(field):
    given: dict[str, Any] = {"instruction": "x"}
    given[field] = ["\ud800"] if field == "context" else "\ud800"
    with pytest.raises(InputError, match="lone surrogate"):
        Editor(ScriptedEngine()).edit("a", **given)


def test_the_fence_is_longer_than_any_in_the_text():
    engine = ScriptedEngine()
    Editor(engine).edit("```\n````x\n", "x", context=["`````"])
    assert "\n``````\n```\n````x\n``````\n" in engine.prompts[0]


def test_settings_go_to_the_engine_and_unknown_ones_are_refused_before_work():
    engine = ScriptedEngine()
    Editor(engine).edit(TEXT, "x", temperature=0.5, seed=3, plain=True)
    # Nobody set a limit: an answer has that of its text.
    limit = LEAST_LIMIT + LIMIT_TIMES * engine.count_text(engine.references[0])
    assert engine.settings == [{"temperature": 0.5, "seed": 3, "max_new_tokens": limit}]
    assert engine.plain == [True]
    with pytest.raises(TypeError, match="tempreature"):
        Editor(engine).edit(TEXT, "x", tempreature=1)
    assert len(engine.prompts) == 1


def test_tokens_are_told_as_they_come():
    seen = []
    result = editor().edit(TEXT, "x", on_token=lambda chunk: seen.append(chunk.text))
    assert "".join(seen) == result.answer
    assert len(seen) > 2


def test_a_callback_that_raises_ends_the_generation():
    engine = ScriptedEngine()

    def stop(_chunk):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Editor(engine).edit(TEXT, "x", on_token=stop)
    assert engine.closed == 1


@pytest.mark.parametrize("answer", ["one\n# ... rest of the code unchanged\n", ""])
def test_an_incomplete_answer_changes_nothing_unless_allowed(answer):
    result = editor(answer).edit(TEXT, "x")
    assert (result.text, result.edits, result.diff) == (TEXT, (), "")
    assert (result.changed, result.complete) == (False, False)
    assert result.warnings
    allowed = editor(answer).edit(TEXT, "x", allow_incomplete=True)
    assert (allowed.changed, allowed.complete) == (True, False)


def test_a_cut_answer_changes_nothing():
    result = editor("one\ntwo", finish_reason="length").edit(TEXT, "x")
    assert (result.text, result.complete) == (TEXT, False)


def test_lines_alone_are_rewritten():
    engine = ScriptedEngine("2\n\t3\n")
    result = Editor(engine).edit(TEXT, "digits", lines=(2, 3))
    assert result.text == "one\r\n2\r\n\t3\r\nfour"
    assert engine.references == ["two\n\tthree\n"]
    assert SHOWN in engine.prompts[0]
    assert "```\ntwo\n\tthree\n```\n" in engine.prompts[0]


def test_repeated_neighbours_are_dropped():
    assert editor("one\n2\n\tthree\nfour").edit(TEXT, "x", lines=(2, 2)).text == TEXT.replace("two", "2")


def test_the_indentation_that_the_model_dropped_comes_back():
    text = "def f():\n    if x:\n        y()\n    z()\n"
    assert editor("if x:\n    y(1)\nz()\n").edit(text, "x", lines=(2, 4)).text == text.replace("y()", "y(1)")
    first_lost = editor("if x:\n        y(1)\n    z()\n").edit(text, "x", lines=(2, 4))
    assert first_lost.text == text.replace("y()", "y(1)")


def test_moving_a_block_to_the_left_is_possible():
    text = "if x:\n\ty\n\tz\n"
    assert editor("y\nz\n").edit(text, "dedent", lines=(2, 3)).text == "if x:\ny\nz\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [((0, 1), "no range"), ((3, 2), "no range"), ((2, 5), "outside the text, which has 4 lines")],
)
def test_lines_outside_the_text_are_refused(lines, message):
    with pytest.raises(InputError, match=message):
        editor().edit(TEXT, "x", lines=lines)


def test_a_selection_inside_a_line_is_spliced_back_at_its_place():
    text = "say Hello, World!\r\n"
    result = editor("Goodbye").edit(text, "Change Hello to Goodbye", selection=(4, 9))
    assert result.text == "say Goodbye, World!\r\n"


@pytest.mark.parametrize("line", ["some line {} here\n", "the same\n"])
def test_a_selection_in_a_long_text_takes_memory_as_its_text_does(line):
    def peak(count: int) -> int:
        text = (
            "".join(line.format(number) for number in range(count)) + "say Hello, World!\n" + "tail\n" * count
        )
        start = text.index("Hello")
        tracemalloc.start()
        result = Editor(ScriptedEngine("Bye")).edit(text, "x", selection=(start, start + 5))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.text == text.replace("Hello", "Bye")
        return peak

    peak(100)
    assert peak(4000) < 6 * peak(1000)


@pytest.mark.timeout(10)
def test_many_selected_lines_take_time_as_their_number_does():
    text = "".join(f"line {number}\n" for number in range(6000))
    result = Editor(ScriptedEngine()).edit(text, "x", lines=(2000, 5000))
    assert result.text == text


def test_an_empty_selection_means_its_line():
    engine = ScriptedEngine("Goodbye, World!")
    result = Editor(engine).edit("a\r\nHello, World!\r\nb", "x", selection=(8, 8))
    assert result.text == "a\r\nGoodbye, World!\r\nb"
    assert engine.references == ["Hello, World!"]


@pytest.mark.parametrize("selection", [(-1, 2), (3, 2), (0, 99), (4, 4)])
def test_a_selection_outside_the_text_or_on_an_empty_line_is_refused(selection):
    with pytest.raises(InputError, match="selection"):
        editor().edit("one\n\ntwo", "x", selection=selection)


@pytest.mark.parametrize("text", ["\ufeffa\r\nb\r\n", "\ufeffa\nb"])
def test_a_byte_order_mark_in_the_text_stays_and_no_model_sees_it(text):
    engine = ScriptedEngine(lambda shown: shown.replace("a", "A"))
    new = text.replace("a", "A")
    places: list[dict[str, Any]]
    places = [{}, {"lines": (1, 1)}, {"selection": (0, 2)}, {"selection": (1, 2)}, {"selection": (1, 1)}]
    for place in places:
        result = Editor(engine).edit(text, "x", **place)
        assert (result.text, apply_edits(text, result.edits)) == (new, new)
        assert result.base_sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert Editor(engine).rewrite(text, "x").text == new
    Editor(engine).summarize(text)
    assert not any("\ufeff" in prompt for prompt in engine.prompts)
    with pytest.raises(InputError, match="outside the text"):
        Editor(engine).edit(text, "x", selection=(0, len(text) + 1))
    assert Editor(ScriptedEngine("new")).edit("\ufeff", "x").text == "\ufeffnew\n"


def test_an_unknown_position_encoding_is_refused_before_work():
    engine = ScriptedEngine()
    with pytest.raises(InputError, match="position encoding"):
        Editor(engine).edit("a", "x", position_encoding="utf16")  # type: ignore[arg-type]
    assert not engine.prompts


@pytest.mark.parametrize(
    ("text", "selection", "answer", "new"),
    [
        ("a\rb\nc\n", (2, 3), "```\n```", "a\r\r\nc\n"),
        ("a\rb\nc\n", (2, 3), "\nB", "a\r\r\nB\nc\n"),
        ("a\r\nb\n", (2, 4), "x", "a\rx\n"),
    ],
)
def test_a_cr_and_an_lf_around_a_selection_do_not_become_one_ending(text, selection, answer, new):
    assert Editor(ScriptedEngine(answer)).edit(text, "x", selection=selection).text == new


def test_lines_and_selection_exclude_each_other():
    with pytest.raises(InputError, match="not both"):
        editor().edit(TEXT, "x", lines=(1, 1), selection=(0, 1))


@pytest.mark.parametrize(("text", "instruction"), [("a", " \n"), ("", ""), ("\ud800", "x")])
def test_nothing_to_do_is_refused(text, instruction):
    with pytest.raises(InputError):
        editor().edit(text, instruction)


@pytest.mark.parametrize("text", ["", " \n"])
def test_there_is_nothing_to_summarise_or_rewrite_in_an_empty_text(text):
    with pytest.raises(InputError, match="text is empty"):
        editor().summarize(text)
    with pytest.raises(InputError, match="text is empty"):
        editor().rewrite(text, "x")


@pytest.mark.parametrize("text", ["", " \t\n\n"])
@pytest.mark.parametrize(
    ("path", "answer", "new"),
    [
        ("a.py", "print(1)", "print(1)\n"),
        ("a.py", "Sure, here it is:\n\n```python\nprint(1)\n```\n\nIt prints 1.", "print(1)\n"),
        ("a.md", "```markdown\n# T\n\n```sh\nls\n```\nEnd.\n```", "# T\n\n```sh\nls\n```\nEnd.\n"),
        ("a.md", "# T\n\n```sh\nls\n```\nEnd.", "# T\n\n```sh\nls\n```\nEnd.\n"),
        ("a.md", "Here is your file:\n\n```\n# T\n```\n", "# T\n"),
        (None, "Run:\n```\nls\n```\n", "Run:\n```\nls\n```\n"),
        (None, "<think>\nhm\n</think>\n\n  a\n\nb", "  a\n\nb\n"),
    ],
)
def test_where_there_is_no_text_one_is_written(text, path, answer, new):
    engine = ScriptedEngine(answer)
    result = Editor(engine).edit(text, "write it", path=path)
    assert (result.text, result.complete, result.changed) == (new, True, True)
    assert apply_edits(text, result.edits) == new
    assert "```" not in engine.prompts[0]
    assert "file: write it" in engine.prompts[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "stop"),
        ("```python\n```", "stop"),
        ("print(1)", "length"),
        ("# ... rest of the code ...\n", "stop"),
        ("A:\n```\na\n```\nB:\n```\nb\n```\n", "stop"),
    ],
)
def test_a_new_text_in_doubt_is_not_complete(answer, reason):
    result = editor(answer, finish_reason=reason).edit("", "write it", path="a.py")
    assert (result.text, result.complete) == ("", False)
    assert result.warnings


def test_an_empty_selection_in_an_empty_text_is_all_of_it():
    assert editor("a").edit("", "write it", selection=(0, 0)).text == "a\n"


def test_a_new_text_that_leaves_no_room_is_refused():
    with pytest.raises(ContextFullError):
        editor("a", context_length=30).edit("", "word " * 100)


def test_a_text_that_does_not_fit_is_refused_with_the_numbers():
    small = editor(context_length=1000)
    with pytest.raises(ContextFullError) as caught:
        small.edit("word " * 300, "x", split=False)
    message = str(caught.value)
    assert "needs about 600 more, but scripted holds 1000" in message
    fits = int(message.split(" tokens of text fit")[0].rsplit(" ", 1)[1])
    assert small.edit("word " * (fits // 2 - 1), "x", split=False).complete
    with pytest.raises(ContextFullError):
        small.edit("word " * (fits // 2 + 2), "x", split=False)


LONG = "".join(f"def f{number}():\r\n    return {number}\r\n\r\n" for number in range(100))


def test_a_long_text_is_edited_in_parts_that_are_put_together_exactly():
    engine = ScriptedEngine(lambda shown: shown.replace("return 42", "return 43"), context_length=400)
    result = Editor(engine).edit(LONG, "x")
    assert result.text == LONG.replace("return 42", "return 43")
    assert "".join(engine.references) == LONG.replace("\r\n", "\n")
    assert len(engine.references) > 5
    assert all(reference.startswith("def f") for reference in engine.references)
    for prompt, reference in zip(engine.prompts, engine.references, strict=True):
        assert engine.count_text(prompt) + engine.count_text(reference) < 400
        assert prompt.count(reference) == 2  # among its neighbours, and alone
    assert result.usage.prompt_tokens == result.stats.prompt_tokens > 1000
    assert apply_edits(LONG, result.edits) == result.text


def test_the_parts_of_a_long_text_see_their_neighbours():
    engine = ScriptedEngine(context_length=400)
    Editor(engine).edit(LONG, "x")
    first_line_before = engine.references[0].rstrip("\n").split("\n")[-1]
    assert first_line_before in engine.prompts[1]
    assert engine.references[2].split("\n")[0] in engine.prompts[1]


def test_an_incomplete_part_ends_a_long_edit_and_is_named():
    answers = iter(["def f0():\n    return 0\n", "# ... rest of the code ...\n"])
    engine = ScriptedEngine(lambda _: next(answers), context_length=400)
    result = Editor(engine).edit(LONG, "x")
    assert (result.complete, result.text) == (False, LONG)
    assert any(warning.startswith("from line ") for warning in result.warnings)
    assert len(engine.prompts) == 2


def test_a_few_lines_of_a_long_text_are_edited_within_what_fits_around_them():
    engine = ScriptedEngine("def f50():\n    return 5\n\n", context_length=400)
    result = Editor(engine).edit(LONG, "x", lines=(151, 153), split=False)
    assert result.text == LONG.replace("return 50\r", "return 5\r")
    assert "def f49" in engine.prompts[0]
    assert "def f51" in engine.prompts[0]
    assert engine.count_text(engine.prompts[0]) < 400


def test_a_long_text_that_cannot_be_split_is_refused_with_the_numbers():
    with pytest.raises(ContextFullError, match="line 1 has 4000 tokens, but a part"):
        editor(context_length=400).edit("word " * 2000, "x")


def test_an_instruction_without_room_for_a_text_is_refused():
    with pytest.raises(ContextFullError, match="leaves no room"):
        editor(context_length=100).edit(LONG, "word " * 100)


def test_rewriting_uses_its_own_prompt_and_cuts_markdown_at_headings():
    text = "".join(f"# Part {number}\n\n{'some words ' * 20}\n\n" for number in range(20))
    engine = ScriptedEngine(context_length=600)
    result = Editor(engine).rewrite(text, "be friendlier", path="doc.md")
    assert result.text == text
    assert "Rewrite the text above: be friendlier" in engine.prompts[0]
    assert len(engine.references) > 2
    assert all(reference.startswith("# Part") for reference in engine.references)


def test_summaries_have_styles():
    engine = ScriptedEngine("```\nshort\n```\n")
    summary = Editor(engine).summarize("long " * 50, style="bullets")
    assert (summary.text, summary.complete, summary.warnings) == ("short", True, ())
    assert "at most five bullet points" in engine.prompts[0]
    Editor(engine).summarize("long " * 50, style="as a haiku")
    assert "Summarize the text above: as a haiku" in engine.prompts[1]


def test_a_long_document_is_summarised_in_parts_and_then_as_a_whole():
    engine = ScriptedEngine("a summary", context_length=600)
    summary = Editor(engine).summarize("some words of a paragraph\n\n" * 100)
    assert summary.text == "a summary"
    assert engine.references[-1] == "\n\n".join(["a summary"] * (len(engine.references) - 1))
    assert summary.stats.prompt_tokens > 1000


@pytest.mark.parametrize(("answer", "reason"), [("cut", "length"), ("", "stop")])
def test_a_cut_or_empty_summary_is_not_complete(answer, reason):
    summary = editor(answer, finish_reason=reason).summarize("long " * 50)
    assert (summary.complete, len(summary.warnings)) == (False, 1)


def test_a_limit_of_new_tokens_counts_instead_of_the_text():
    assert editor("x", context_length=900).edit("word " * 300, "x", max_new_tokens=5).complete


PIECES = st.sampled_from(
    ["\n", "\r\n", "\r", " ", "\t", "a", "b", "é", "\u2028", "\f", "```", "~~~\n", "- x", "..."]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=25).map("".join).filter(str.strip)


@given(TEXTS)
def test_an_identity_answer_changes_nothing(text):
    result = editor().edit(text, "x")
    assert (result.text, result.changed, result.complete) == (text, False, True)


@given(TEXTS, st.data())
def test_an_identity_answer_for_some_lines_changes_nothing(text, data):
    count = len(split_lines(text))
    first = data.draw(st.integers(1, count))
    last = data.draw(st.integers(first, count))
    result = editor().edit(text, "x", lines=(first, last), allow_incomplete=True)
    assert result.text == text


@given(TEXTS, st.text(st.sampled_from("xy\n"), min_size=1, max_size=8), st.data())
def test_what_stands_outside_a_selection_never_changes(text, answer, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    result = editor(answer).edit(text, "x", selection=(start, end), allow_incomplete=True)
    assert result.text.startswith(text[:start])
    assert result.text.endswith(text[end:])
    assert "\r" not in Document(result.text).shown


def test_what_a_model_says_behind_its_code_block_is_not_waited_for():
    text = "a = 1\nb = 2\nc = 3\n"
    engine = ScriptedEngine(
        "```python\na = 1\nb = 20\nc = 3\n```\n\nThis changes b and leaves the rest as it is."
    )
    seen = []
    result = Editor(engine).edit(text, "x", path="a.py", on_token=lambda chunk: seen.append(chunk.text))
    assert (result.text, result.complete, result.warnings) == (text.replace("2", "20"), True, ())
    assert "leaves" not in "".join(seen)
    assert engine.closed == 1
    # What came in the same pass behind it counts for nothing.
    assert result.usage.completion_tokens == engine.count_text(result.answer)
    assert Editor(engine).edit(text, "x").warnings == ()
    # In Markdown a block may be content.
    result = Editor(engine).edit(text, "x", path="a.md")
    assert result.text == text.replace("2", "20")
    assert "left out" in result.warnings[0]
