import pytest

from lookupdec.edit.indent import reindented, retabbed

BODY = "    if x:\n        y()\n    z()\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("if x:\n    y(1)\nz()\n", "    if x:\n        y(1)\n    z()\n"),
        ("if x:\n        y(1)\n    z()\n", "    if x:\n        y(1)\n    z()\n"),
        ("    if x:\n        y(1)\n    z()\n", "    if x:\n        y(1)\n    z()\n"),
        ("if x:\n    y()\nz()\n", "if x:\n    y()\nz()\n"),
        ("other()\n", "    other()\n"),
        ("if y:\n    z()\n", "    if y:\n        z()\n"),
        ("    other()\n", "    other()\n"),
    ],
    ids=[
        "all lines lost it",
        "the first line lost it",
        "nothing lost",
        "moved left as a whole",
        "nothing in common",
        "nothing in common, in two levels",
        "nothing in common, and nothing lost",
    ],
)
def test_the_indentation_of_a_block_comes_back_where_it_was_lost(answer, expected):
    assert reindented(answer, BODY) == expected


def test_a_text_without_indentation_is_left_alone():
    assert reindented("  a\n", "a\nb\n") == "  a\n"


GO = "func f() {\n\tif x {\n\t\ty()\n\t}\n}\n"


def test_tabs_stay_tabs():
    spaces = GO.replace("y()", "y(1)").replace("\t", "    ")
    assert retabbed(spaces, GO) == GO.replace("y()", "y(1)")
    assert retabbed(spaces.replace("    ", "  "), GO) == GO.replace("y()", "y(1)")


def test_tabs_may_be_replaced_when_that_is_all_that_changes():
    spaces = GO.replace("\t", "    ")
    assert retabbed(spaces, GO) == spaces


@pytest.mark.parametrize(
    ("answer", "original"),
    [
        (" a\n\tb\n", "\tb\n"),
        ("  a\n", "  a\n\tb\n"),
        ("   a\n  b\n", "\ta\n\tb\nc\n"),
        ("a\n", "\ta\n"),
        ("  a\n", "b\n"),
    ],
)
def test_mixed_or_unclear_indentation_is_left_alone(answer, original):
    assert retabbed(answer, original) == answer
