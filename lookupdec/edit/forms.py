"""Forms in which a text may come back from a model. A wrong guess costs a draft, never a token of the answer."""

from __future__ import annotations

import json
from textwrap import dedent

_TAB_WIDTH = 4


def other_forms(text: str, asked: str) -> tuple[str, ...]:
    """Return in which other forms an answer may repeat ``text``, which are drafted from as well.

    Escaped for a JSON string, where ``asked`` speaks of JSON; without the indentation that all lines share;
    indented by spaces instead of tabs. What is no other form is left out.
    """
    forms = [dedent(text), _with_spaces(text)]
    if "json" in asked.lower():
        forms.append(json.dumps(text, ensure_ascii=False)[1:-1])
    return tuple(dict.fromkeys(form for form in forms if form not in ("", text)))


def _with_spaces(text: str) -> str:
    if "\n\t" not in f"\n{text}":
        return text
    lines = text.split("\n")
    bodies = [line.lstrip("\t") for line in lines]
    return "\n".join(
        " " * _TAB_WIDTH * (len(line) - len(body)) + body for line, body in zip(lines, bodies, strict=True)
    )
