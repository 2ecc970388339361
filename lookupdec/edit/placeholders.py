"""Lines that stand for text left out, or that only a prompt has. Knows single lines."""

from __future__ import annotations

import re

DOTS = "..."
"""What a placeholder says that has no words."""

_DOTS = re.compile(r"\.\.\.|\u2026")
_NO_DOTS = " \t/#*!;%<>{}()[]'\"\\,:-@\u22ee"
_MARKS = _NO_DOTS + ".\u2026"
_MARK = re.compile(
    r"""\s* (?P<item> (?: [-+>*] | \d+[.)] ) \s+ (?=[.\u2026(\[]) )?  # a list or a quote of such remarks
    (?P<bracket> [<{(\[]* ) \s*
    (?P<comment> -- | [/#*!;%\\@\u22ee] | @?(?:rem|dnl)\b )? (?P<quote> ['"] )? (?: \s* rem\b )? \s*""",
    re.IGNORECASE | re.VERBOSE,
)
_BEHIND_CODE = re.compile(r".*\S\s+(?=//|\#|/\*|<!--|--|;|%)")
"""All of a line before the comment it ends with."""

_FILLERS = frozenset(
    re.findall(
        r"\w+",
        """
        rest remainder remaining remains remain existing previous original unchanged unmodified other same more
        stays stay kept keep omitted continues continue snip truncated no change changes exactly brevity
        code line lines text content contents section sections function functions method methods class classes
        file imports implementation document paragraph paragraphs body logic all would
        here above below before is are of the this as in and with your for goes go to
        """,
    )
)
_TELLING = re.compile(
    r"\b(rest of|remains?|remaining|unchanged|unmodified|omitted|brevity|same as|stays? the same|truncated|"
    r"snip|existing code)\b"
)
_TELLING_AMONG_DOTS = re.compile(
    r"\b(rest|existing|previous|original|other|more|continues?|same|no changes?)\b"
)

# Remarks with nouns of their own, which can be any: so many of them, and nothing else.
_NOUNS = 2
_UNCHANGED = re.compile(
    r"((and|the|all|of|your) )*(rest|remainder|remaining|other|previous)\b.*"
    r" (unchanged|unmodified|untouched|omitted|the same|as before|as is|not shown)"
    r"( (as (before|above)|for brevity|here))*"
)
_REST = re.compile(
    r"((and|with|the|all|your|any|keep|plus|\d+) )*"
    r"(rest|remainder|remaining|existing|previous|original|other|more|unchanged|omitted)\b"
    r"(?!.* (is|are|was|were|will|can|may|must|should|has|have|do|does)\b)"
)
_BEHIND_TELLS = re.compile(r"(the )?(rest|remainder|remaining)\b")

_MARKER = re.compile(r"\s*(\{\{[A-Z]+(_[A-Z]+)+\}\}|<\|[^|<>]+\|>|\[/?INST\]|</?(s|start|end)_of_\w+>)\s*")


def placeholder_in(line: str) -> str | None:
    """Return what a line says instead of text left out, None where it says no such thing.

    The line is a comment in any style, also behind code, or a remark in brackets. It has dots alone, or nothing
    but words of that kind with a telling one among them, or "the rest of" and "unchanged" around some noun: a
    comment that says more than that is content.
    """
    said = _said(line)
    if said is not None:
        return said
    code = _BEHIND_CODE.match(line)
    if code is None or (said := _said(line[code.end() :])) is None:
        return None
    begins_with_dots = _DOTS.match(line[code.end() :].lstrip(_NO_DOTS))
    return said if _BEHIND_TELLS.match(said) or (begins_with_dots and said != DOTS) else None


def _said(line: str) -> str | None:
    mark = _MARK.match(line)
    assert mark is not None, "it matches nothing, too"
    dots = _DOTS.search(line) is not None
    begins_with_dots = _DOTS.match(line[mark.end() :].lstrip(_NO_DOTS)) is not None
    if not (mark["item"] or mark["bracket"] or mark["comment"] or mark["quote"] or begins_with_dots):
        return None
    remark = line[mark.end() :].strip(_MARKS).lower()
    words = re.findall(r"[^\W_]+", remark)
    if not remark:
        return DOTS if dots and not line.strip().startswith(("...", "\u2026")) else None
    if not mark["comment"] and _is_code(remark, words, begins_with_dots or mark["quote"] is not None):
        return None
    said = " ".join(words)
    return said if _tells(said, words, dots=dots, begins_with_dots=begins_with_dots) else None


def _is_code(remark: str, words: list[str], may_be_value: bool) -> bool:
    """Whether what is no comment is a string, or ``...values`` spread in a program."""
    return may_be_value and (len(words) == 1 or re.search(r"[^\w\s'\u2026.-]|\w\.\w", remark) is not None)


def _tells(said: str, words: list[str], *, dots: bool, begins_with_dots: bool) -> bool:
    counts_lines = not {"line", "lines", "more"}.isdisjoint(words)
    nouns = sum(word not in _FILLERS and not (counts_lines and word.isdigit()) for word in words)
    if not nouns:
        return bool(_TELLING.search(said) or (dots and _TELLING_AMONG_DOTS.search(said)))
    if nouns > _NOUNS:
        return False
    return bool(_UNCHANGED.fullmatch(said) or (begins_with_dots and _REST.match(said)))


def is_marker(line: str) -> bool:
    """Whether a whole line is one that only a prompt or a chat template has, as ``{{INSERTED_CODE}}``."""
    return _MARKER.fullmatch(line) is not None
