"""Other forms of a text: which there are, and that answers in them are copied at once."""

import json

import pytest

from lookupdec.edit import Editor
from lookupdec.edit.forms import other_forms
from tests.edit.scripted import ScriptedEngine

CODE = "def area(w, h):\n    return w * h\n"


def test_a_text_without_other_forms():
    assert other_forms(CODE, "Rename w.") == ()
    assert other_forms("", "As JSON.") == ()


def test_a_selection_without_its_indentation():
    assert other_forms("    if a:\n        b()\n", "x") == ("if a:\n    b()\n",)


def test_tabs_as_spaces_and_tabs_inside_a_line_kept():
    assert other_forms("if a:\n\tb(\t1)\n\n\t\tc()", "x") == ("if a:\n    b(\t1)\n\n        c()",)


@pytest.mark.parametrize("asked", ["Return JSON.", 'Answer as {"code": ...} in json'])
def test_json_where_it_is_asked_for(asked):
    text = 'say "é\\n"\n'
    (form,) = other_forms(text, asked)
    assert json.loads(f'"{form}"') == text


def test_an_editor_expects_the_text_first_and_then_its_other_forms():
    engine = ScriptedEngine("    b()\n")
    Editor(engine).edit("a()\n    b()\n", "x", lines=(2, 2))
    assert (engine.references, engine.other_forms) == (["    b()\n"], [["b()\n"]])
