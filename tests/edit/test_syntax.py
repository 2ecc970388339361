"""Texts in many languages, cut between their units."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookupdec.edit.languages import language_of
from lookupdec.edit.split import split
from lookupdec.edit.syntax import _grammar
from lookupdec.edit.textio import split_lines

SOURCES = {
    "python": [
        '# about {0}\n@cached\n@other(\n    1,\n)\ndef f{0}(a):\n    """Say.\n\n    More.\n    """\n    b = 1\n\n'
        "    return b\n",
        "# of {0}\n\n\nclass C{0}:\n    # x\n    x = 1\n\n    @property\n    def g(self):\n        return 1\n",
    ],
    "typescript": [
        "/** About {0}. */\nexport function f{0}() {{\n  const a = `\n\n`;\n\n  return a;\n}}\n",
        "// of {0}\n@dec()\nexport class C{0} {{\n  x = 1;\n\n  // m\n  m() {{}}\n}}\n",
    ],
    "javascript": [
        "// about {0}\nexport const f{0} = () => {{\n  a();\n\n  b();\n}};\n",
        "class C{0} {{\n  x() {{}}\n\n  // y\n  y() {{}}\n}}\n",
    ],
    "go": [
        "// F{0} says\n// more\nfunc F{0}() int {{\n\ta := 1\n\n\treturn a\n}}\n",
        "// T{0} is\ntype T{0} struct {{\n\tA int\n\n\tB int\n}}\n",
    ],
    "rust": [
        "/// About\n#[inline]\n#[must_use]\nfn f{0}() -> u8 {{\n    let a = 1;\n\n    a\n}}\n",
        "// of\nimpl C{0} {{\n    /// g\n    fn g(&self) {{}}\n\n    fn h(&self) {{}}\n}}\n",
    ],
    "java": [
        "/** About. */\n@Deprecated\n@Other(1)\npublic class A{0} {{\n    int x;\n\n    // f\n    void f() {{}}\n}}\n",
        "// of\ninterface B{0} {{\n    void f();\n\n    void g();\n}}\n",
    ],
    "c": [
        "/* about\n * more */\nstatic int\nf{0}(void)\n{{\n    int x = 1;\n\n    return x;\n}}\n",
        "struct s{0} {{\n    int a;\n\n    int b;\n}};\n",
    ],
    "cpp": [
        "// about\ntemplate <typename T>\nclass C{0} {{\n public:\n  C();\n\n  void f();\n}};\n",
        "int f{0}()\n{{\n  int x = 1;\n\n  return x;\n}}\n",
    ],
    "csharp": [
        "/// <summary>x</summary>\n[Attr]\n[Other]\npublic class A{0}\n{{\n    int x;\n\n    void F() {{}}\n}}\n",
        "enum E{0}\n{{\n    A,\n\n    B,\n}}\n",
    ],
    "ruby": [
        "# about\ndef f{0}\n  a = 1\n\n  b\nend\n",
        "# of\nclass C{0}\n  # x\n  def x; end\n\n  def y\n    <<~T\n\n      a\n    T\n  end\nend\n",
    ],
    "php": [
        "/**\n * about\n */\nfunction f{0}()\n{{\n    $a = 1;\n\n    return $a;\n}}\n",
        "// of\n#[Attr]\nclass C{0}\n{{\n    public $x;\n\n    public function g() {{}}\n}}\n",
    ],
    "bash": [
        "# about\nf{0}() {{\n  a\n\n  b\n}}\n",
        "cat <<EOF\nx\n\ny {0}\nEOF\n",
    ],
    "markdown": [
        "# Part {0}\n\nWords.\n\n## Sub\n\n- a\n\n  b\n",
        "# Code {0}\n\n```\n# x\n\ny\n```\n",
    ],
}

PIECES = [
    *("\n", "\r\n", "\r", "\n\n", "  ", "\t", "word", "\u2028", "\f", "\U0001f600", "\ufeff", "\ud800", "\0"),
    *("# h\n", "```\n", "- i\n", "|a|b|\n|-|-|\n", "> q\n", "---\n", "===\n", "<b>\n"),
    *("def f():\n", "    x = 1\n", "@d\n", "class A {\n", "}\n", "/* c\n", "*/", "// c\n", "'''\n", "`", '"'),
    *("fn f() {", "#[x]\n", "func f() {\n", "<?php\n", "#if A\n", "#endif\n", "end\n", "<<EOF\n", "EOF\n"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@settings(max_examples=300)
@given(TEXTS, st.integers(0, 50), st.sampled_from([*SOURCES, "tsx", "klingon", None]), st.data())
def test_parts_of_any_text_are_the_text_and_fit(text, room, language, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    limit = max((len(content + ending) for content, ending in split_lines(text)), default=1) + room
    spans = split(text, len, limit, language=language, within=(start, end))
    assert "".join(text[span[0] : span[1]] for span in spans) == text[start:end]
    assert all(0 < span[1] - span[0] <= limit for span in spans)
    assert len(spans) <= 1 or end - start > limit


@pytest.mark.parametrize("language", SOURCES)
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@settings(max_examples=20)
@given(data=st.data())
def test_what_fits_is_not_torn_apart(language, ending, data):
    kinds = data.draw(st.lists(st.sampled_from(SOURCES[language]), min_size=2, max_size=12))
    gap = st.sampled_from(["", "\n", "\n\n"])
    pieces = [kind.format(number) + data.draw(gap) for number, kind in enumerate(kinds)]
    if language == "php":
        pieces[0] = "<?php\n" + pieces[0]
    pieces = [piece.replace("\n", ending) for piece in pieces]
    limit = max(map(len, pieces)) + data.draw(st.integers(0, 200))
    offsets = {0, *itertools.accumulate(map(len, pieces))}
    for start, end in split("".join(pieces), len, limit, language=language):
        assert {start, end} <= offsets
        assert end - start <= limit


def parts(text: str, limit: int, language: str | None) -> list[str]:
    return [text[start:end] for start, end in split(text, len, limit, language=language)]


def test_a_class_that_does_not_fit_is_cut_between_its_methods():
    method = "    # about\n    @cached\n    def f{0}(self):\n        a = 1\n\n        return a\n\n"
    text = "import a\n\n\nclass A:\n    x = 1\n\n" + "".join(method.format(number) for number in range(9))
    found = parts(text, 300, "python")
    assert len(found) == 3
    assert all(part.startswith(("import", "    # about\n")) for part in found)


def test_a_string_is_the_last_thing_to_be_cut():
    text = 'a = 1\nb = 2\nc = """\n' + "words\n\nwords\n" * 5 + '"""\nd = 4\n'
    assert [part.split("\n")[0] for part in parts(text, len(text) - 8, "python")] == ["a = 1", 'c = """']


def test_some_lines_of_a_text_are_cut_by_what_they_are_in_it():
    text = 's = """\ndef no():\n\n\n"""\n\n\ndef f():\n    a\n\n    b\n\n\ndef g():\n    c\n'
    start = text.index("def no")
    spans = split(text, len, 40, language="python", within=(start, len(text)))
    assert [text[span[0] :].split("\n")[0] for span in spans] == ["def no():", "def f():"]


def test_without_a_grammar_blank_lines_are_the_borders(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    _grammar.cache_clear()
    text = "".join(f"def f{number}():\n    return 1\n\n" for number in range(9))
    assert parts(text, 60, "python") == parts(text, 60, None)
    _grammar.cache_clear()


def test_deep_nesting_is_no_recursion():
    text = "f(\n" * 5000 + ")\n" * 5000
    assert "".join(parts(text, 100, "javascript")) == text


@pytest.mark.parametrize(
    ("language", "path", "expected"),
    [
        (None, "a.md", "markdown"),
        (None, Path("A.MDX"), "markdown"),
        ("markdown", "a.txt", "markdown"),
        (None, "src/a.py", "python"),
        ("JavaScript", None, "javascript"),
        (None, "Makefile", "makefile"),
        (None, "a/.gitignore", "gitignore"),
        (None, "a.YML", "yaml"),
        (None, "html.txt", None),
        ("klingon", "a.py", None),
        (None, None, None),
    ],
)
def test_a_language_is_known_by_its_name_or_that_of_its_file(language, path, expected):
    assert language_of(language, path) == expected
