"""Lines that stand for text left out, or that only a prompt has. Knows single lines."""

from __future__ import annotations

import re

_MARKED = re.compile(r"\s*(?:--|[/#*!;%<{(\['\"\\.\u2026]|rem\b)(?:\s*rem\b)?", re.IGNORECASE)
_MARKS = " \t/#*!;%<>{}()[]'\"\\.\u2026,:-"
_DOTS = re.compile(r"\.\.\.|\u2026")

_FILLERS = frozenset(
    re.findall(
        r"\w+",
        """
        rest remainder remaining remains remain existing previous original unchanged unmodified other same
        stays stay kept keep omitted continues continue snip truncated no change changes exactly brevity
        code line lines text content contents section sections function functions method methods class classes
        file imports implementation document paragraph paragraphs body logic
        here above below before is are of the this as in and with your for goes go to
        """,
    )
)
_TELLING = re.compile(
    r"\b(rest of|remains?|remaining|unchanged|unmodified|omitted|brevity|same as|stays? the same|truncated|"
    r"snip|existing code)\b"
)
_TELLING_AMONG_DOTS = re.compile(r"\b(rest|existing|previous|original|other|continues?|same|no changes?)\b")

_MARKER = re.compile(r"\s*(\{\{[A-Z]+(_[A-Z]+)+\}\}|<\|[^|<>]+\|>|\[/?INST\]|</?(s|start|end)_of_\w+>)\s*")


def is_placeholder(line: str) -> bool:
    """Whether a whole line stands for text left out: a comment in any style, or a bracketed remark.

    Dots alone, or nothing but words of that kind with a telling one among them: a comment that says more than
    "the rest is unchanged" is content.
    """
    mark = _MARKED.match(line)
    if mark is None:
        return False
    dots = _DOTS.search(line) is not None
    remark = line[mark.end() :].strip(_MARKS).lower()
    if not remark:
        return dots and not line.strip().startswith(("...", "\u2026"))
    if not all(word in _FILLERS for word in re.findall(r"[^\W_]+", remark)):
        return False
    return bool(_TELLING.search(remark) or (dots and _TELLING_AMONG_DOTS.search(remark)))


def is_marker(line: str) -> bool:
    """Whether a whole line is one that only a prompt or a chat template has, as ``{{INSERTED_CODE}}``."""
    return _MARKER.fullmatch(line) is not None
