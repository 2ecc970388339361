import pytest

from lookupdec.edit.split import split
from lookupdec.errors import ContextFullError

CODE = """\
import a

class A:

    def f(self):
        one = 1

        return one

    def g(self):
        return 2


def h():
    return 3
"""

DOCUMENT = """\
# Title

Some words.

```py
# no heading

x = 1
```

- item

  still the item

## Part

More words.
"""


def parts(text: str, limit: int, language: str | None = None) -> list[str]:
    return [text[start:end] for start, end in split(text, len, limit, language=language)]


def test_code_is_cut_between_definitions_before_blank_lines_inside_them():
    assert [part.split("\n")[0] for part in parts(CODE, 120)] == ["import a", "def h():"]
    assert [part.split("\n")[0] for part in parts(CODE, 80)] == ["import a", "    def g(self):"]


def test_markdown_is_cut_before_headings_and_never_inside_a_block():
    assert [part.split("\n")[0] for part in parts(DOCUMENT, 90, "markdown")] == ["# Title", "## Part"]
    for limit in range(40, 80):
        for part in parts(DOCUMENT, limit, "markdown"):
            assert part.count("```") % 2 == 0
            assert not part.startswith("  still")


def test_a_line_that_does_not_fit_is_refused_with_the_numbers():
    with pytest.raises(
        ContextFullError, match="line 2 has 30 tokens, but a part of the text may have at most 20"
    ):
        parts("a\n" + "b" * 30, 20)
