"""A model that answers exactly what it should is taken at its word, wherever the piece lies in the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec.edit import Editor
from lookupdec.edit.fences import fence_around
from lookupdec.edit.region import Region
from lookupdec.edit.textio import Document, split_lines
from tests.edit.scripted import ScriptedEngine

LINES = st.sampled_from(
    [
        *(
            "def f(a):",
            "    if x:",
            "        y()",
            "    z()",
            "    }",
            "}",
            "\tif x {",
            "\t\ty()",
            "\t}",
            ")",
            "end",
        ),
        *("", "   ", "# T", "- a", "  - b", "> q", "```", "```js", "````md", "~~~", "| a | b |", "|---|---|"),
        *('s = "text"', "s = 'it''s'", '"""', "<b>x</b>", "\U0001f600 e\u0301", "a\u2028b", "\x0c", "tail  "),
        *("Here is the text:", "x = [1,", "2]", "else:", "...", "<think>", "</think>", "&lt;", "{{ x }}"),
    ]
)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])
CHANGES = st.sampled_from(["keep", "change", "insert", "delete"])


@st.composite
def texts(draw):
    ending = draw(ENDINGS)
    lines = draw(st.lists(LINES, min_size=1, max_size=12))
    text = ending.join(lines) + draw(st.sampled_from(["", ending]))
    return text if text.strip() else "x" + text


def changed(draw, shown: str) -> str:
    """The piece with one line changed, added or removed, as a model would show it."""
    lines = shown.split("\n")
    number = draw(st.integers(0, len(lines) - 1))
    line = lines[number]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    change = draw(CHANGES)
    if change == "change" and line.strip():
        lines[number] = indent + "changed"
    elif change == "insert":
        lines.insert(number, indent + "added")
    elif change == "delete" and len(lines) > 2:
        del lines[number]
    return "\n".join(lines)


def check(text: str, start: int, end: int, draw, **options) -> None:
    piece = Document(text[start:end])
    answer = changed(draw, piece.shown)
    if not answer.strip() or answer.endswith("\n") != piece.shown.endswith("\n"):
        return
    raw = answer
    if draw(st.booleans()):
        fence = fence_around(text.replace("~", "`"))
        raw = f"{fence}\n{answer}" + ("" if answer.endswith("\n") else "\n") + fence
    result = Editor(ScriptedEngine(raw)).edit(text, "x", **options)
    assert result.complete, result.warnings
    assert result.text.startswith(text[:start])
    assert result.text.endswith(text[end:])
    new = result.text[start : len(result.text) - len(text) + end]
    got, expected = ([line for line, _ in split_lines(some)] for some in (new, answer))
    if Region(text, start, end).line_before.isspace():
        # The lines may get the indentation that the first one has outside the selection.
        got, expected = [line.strip() for line in got], [line.strip() for line in expected]
    assert got == expected


@settings(max_examples=100)
@given(texts(), st.data())
def test_the_answer_for_some_lines_is_what_they_become(text, data):
    lines = split_lines(text)
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    sizes = [len(content + ending) for content, ending in lines]
    if not "".join(content for content, _ in lines[first - 1 : last]).strip():
        return
    check(text, sum(sizes[: first - 1]), sum(sizes[:last]), data.draw, lines=(first, last))


@settings(max_examples=100)
@given(texts(), st.data())
def test_the_answer_for_a_selection_is_what_it_becomes(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    if not text[start:end].strip():
        return
    check(text, start, end, data.draw, selection=(start, end))


@settings(max_examples=100)
@given(texts(), st.sampled_from(["a.py", "a.md", "a.ts", None]), st.integers(0, 60))
def test_parts_that_need_no_change_come_back_as_they_were(text, path, room):
    engine = ScriptedEngine(context_length=250 + room)
    text = (text + "\n") * 12 + "a b c\n" * 40
    result = Editor(engine).edit(text, "x", path=path)
    assert result.parts == len(engine.prompts) > 1
    assert (result.text, result.changed, result.complete) == (text, False, True)


@settings(max_examples=100)
@given(texts(), st.data())
def test_the_answer_for_a_whole_text_is_what_it_becomes(text, data):
    check(text, 0, len(text), data.draw)
