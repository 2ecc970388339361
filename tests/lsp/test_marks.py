"""Instructions in the text, and which piece of it is meant."""

from typing import Any

import pytest

from lookupdec.lsp.marks import Piece, piece_of

CODE = "import os\n\n# lookupdec: use pathlib\ndef one():\n    return os\n\ndef two():\n    return 2\n"
ONE = "def one():\n    return os"


def piece(text: str, selected: str, **options: Any):
    start = text.index(selected)
    return piece_of(text, start, start + len(selected), **options)


def chosen(found: Piece) -> str:
    return found.text[found.start : found.end]


@pytest.mark.parametrize(
    "line",
    [
        "# lookupdec: be brief",
        "// lookupdec: be brief",
        "    //@edit be brief",
        "/* lookupdec: be brief */",
        "<!-- lookupdec: be brief -->",
        "-- @edit: be brief",
        "\t;; LOOKUPDEC:  be brief  ",
        "% lookupdec:be brief",
        "(* lookupdec: be brief *)",
        "{- lookupdec: be brief -}",
        " * @edit be brief",
        "REM lookupdec: be brief",
    ],
)
def test_a_comment_line_above_is_an_instruction_and_is_taken_out(line):
    text = f"first\n{line}\nsecond line\nthird\n"
    found = piece(text, "second line")
    assert found.instruction == "be brief"
    assert (found.text, chosen(found)) == ("first\nsecond line\nthird\n", "second line")


@pytest.mark.parametrize(
    "line",
    [
        "lookupdec: be brief",
        "@edit be brief",
        "# lookupdec:",
        "# lookupdec be brief",
        "# @editor be brief",
        "x = 1  # lookupdec: be brief",
        "# please lookupdec: be brief",
    ],
)
def test_other_lines_are_text(line):
    text = f"{line}\nsecond line\n"
    found = piece(text, "second line")
    assert (found.instruction, found.text) == ("", text)


@pytest.mark.parametrize(("mark", "language"), [('"', "vim"), ("'", "vb"), ("!", "fortran")])
def test_a_quote_begins_a_comment_in_its_own_language_alone(mark, language):
    text = f"{mark} lookupdec: be brief\nsecond line\n"
    assert piece(text, "second line", language=language).instruction == "be brief"
    for other in ("python", "fortran" if language == "vim" else "vim", None):
        assert piece(text, "second line", language=other).text == text


def test_a_string_of_a_program_is_no_instruction():
    text = 'LOG = [\n    "lookupdec: no return",\n    "return b",\n]\n'
    found = piece_of(text, 0, len(text), language="python")
    assert (found.instruction, found.text) == ("", text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "line",
    ["# lookupdec: a{}b", "{}#{}", "# lookupdec:{}", "#{}lookupdec: a", "# @edit a{}", "/* lookupdec: a{}"],
)
@pytest.mark.parametrize("filler", [" ", "-", "*", "*/ ", "-> "])
def test_a_long_line_is_read_at_once(line, filler):
    text = f"{line.replace('{}', filler * 20_000)}\nsecond line\n"
    piece(text, "second line", prose=True)


def test_prose_needs_no_comment_mark():
    found = piece("lookupdec: be brief\nA long story.\n", "A long story.", prose=True)
    assert (found.instruction, found.text) == ("be brief", "A long story.\n")


def test_several_lines_are_one_instruction():
    text = "# @edit be brief\n# @edit and polite\nsecond line\n# lookupdec: in French\nlast\n"
    found = piece(text, "second line\n# lookupdec: in French\nlast")
    assert found.instruction == "be brief\nand polite\nin French"
    assert (found.text, found.selection) == ("second line\nlast\n", (0, 16))


def test_a_mark_further_away_does_not_count():
    text = "# lookupdec: be brief\nfirst\nsecond line\n"
    assert piece(text, "second line").instruction == ""


def test_marks_stay_where_the_instruction_comes_from_elsewhere():
    found = piece(CODE, ONE, take_marks=False)
    assert (found.instruction, found.text, chosen(found)) == ("", CODE, ONE)


def test_a_cursor_means_the_paragraph_around_it():
    cursor = CODE.index("return 2")
    found = piece_of(CODE, cursor, cursor)
    assert (found.instruction, chosen(found)) == ("", "def two():\n    return 2")


def test_a_cursor_in_the_paragraph_of_a_mark_takes_it():
    for place in ("return os", "lookupdec"):
        cursor = CODE.index(place)
        found = piece_of(CODE, cursor, cursor + 1)
        assert (found.instruction, chosen(found)) == ("use pathlib", ONE)
        assert "lookupdec" not in found.text


def test_a_mark_alone_is_about_the_paragraph_below():
    text = "before\n\n# lookupdec: be brief\n\nafter one\nafter two\n\nlast\n"
    for selected in ("# lookupdec: be brief", "# lookupdec: be brief\n", "\n# lookupdec: be brief\n\n"):
        found = piece(text, selected)
        assert (found.instruction, chosen(found).strip()) == ("be brief", "after one\nafter two")
    assert found.text == "before\n\n\nafter one\nafter two\n\nlast\n"


def test_a_mark_in_the_last_line_leaves_nothing_to_edit():
    assert piece("before\n\n# lookupdec: be brief", "# lookupdec").is_blank


def test_a_cursor_in_a_blank_line_means_nothing():
    assert piece_of("a\n\nb\n", 2, 2).is_blank


def test_all_of_a_text_loses_its_marks_and_needs_no_selection():
    found = piece_of(CODE, 0, len(CODE))
    assert found.instruction == "use pathlib"
    assert found.selection is None
    assert found.text == CODE.replace("# lookupdec: use pathlib\n", "")


def test_line_endings_and_a_byte_order_mark_stay():
    text = "\ufeff# lookupdec: be brief\r\nfirst\r\nsecond\r\n"
    found = piece(text, "first")
    assert (found.text, chosen(found)) == ("\ufefffirst\r\nsecond\r\n", "first")
    assert piece_of(text, 0, len(text)).selection is None


def test_a_selection_that_begins_inside_the_mark():
    found = piece(CODE, "pathlib\ndef one():")
    assert (found.instruction, chosen(found)) == ("use pathlib", "def one():")


@pytest.mark.parametrize("text", ["x", "x\n", "# lookupdec: y", "\ufeff", "", "x\r\n# lookupdec: y\n"])
def test_the_smallest_texts(text):
    for start in range(len(text) + 1):
        for end in range(start, len(text) + 1):
            found = piece_of(text, start, end)
            assert 0 <= found.start <= found.end <= len(found.text)
