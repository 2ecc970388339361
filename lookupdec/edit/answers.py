"""From what a model answered to the text it meant. Knows no model, no file and no tokens.

Nothing is taken away that the original had: fences, think tags and placeholder comments count only where they
are new. Whatever casts doubt on the answer becomes a warning; an answer that lacks text is never complete.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lookupdec.edit.blocks import around, count_fences, is_remark, outer_block, unclosed
from lookupdec.edit.fences import CodeBlock, code_blocks
from lookupdec.edit.placeholders import DOTS, is_marker, placeholder_in
from lookupdec.edit.thinking import without_thinking

_WRAPPER = re.compile(
    r"\s*<(source|code|text|file|document|content|output|answer|result|response|edited|updated|rewritten)>"
    r"[ \t]*\n(.*?)\n?</\1>\s*",
    re.DOTALL | re.IGNORECASE,
)
_PREAMBLE = re.compile(
    r"(sure|certainly|of course|okay|ok|here|below|this is|the (edited|updated|rewritten|revised|new))"
    r"\b.*:\s*",
    re.IGNORECASE,
)

# A line that announces an edit, and is no text for lack of one: enough where a blank line follows.
_ANNOUNCEMENT = re.compile(
    r"((sure|certainly|of course|okay|ok)\b.*|(here|below|this)( is|'s|\u2019s) (the|your|a)\b.*)"
    r"\b(edited|updated|rewritten|revised|modified|corrected|changed|new) "
    r"(text|version|code|file|document|function|content|paragraph|part)\b.*:\s*",
    re.IGNORECASE,
)

_BIG_DELETION_LINES = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The new text; ``complete`` is False where some of it is certainly or probably missing."""

    text: str
    complete: bool
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Reading:
    """An answer on its way; every step may cut it, warn, or find it incomplete."""

    text: str
    original: str
    complete: bool = True
    warnings: list[str] = field(default_factory=list)

    def doubt(self, warning: str) -> None:
        self.complete = False
        self.warnings.append(warning)

    def leave_out(self, line: str, where: str = "around") -> None:
        self.warnings.append(f"left out what the model wrote {where} the text: {line.strip()[:60]!r}")

    def answer(self) -> Answer:
        return Answer(self.text, self.complete, tuple(self.warnings))


def read_answer(
    raw: str,
    original: str,
    *,
    language: str | None = None,
    finish_reason: str = "stop",
    asked: Sequence[str] = (),
) -> Answer:
    """Return the new text that ``raw`` gives for ``original``, which has LF line endings, as the new text has.

    ``language`` is one of ``languages``, in all but Markdown of which code blocks are no content. ``finish_reason``
    is "stop" where the model ended its answer itself, ``asked`` are the prompt's own sentences. A text without any
    word is taken for what was asked only where the model closed an empty code block around it.
    """
    if finish_reason == "stop" and raw == original:
        return Answer(original, complete=True)
    reading = _begun(raw, original, finish_reason, asked)
    _unwrap_tags(reading)
    is_emptied = _unwrap(reading)
    _drop_lone_fence(reading)
    _fit_ends(reading)
    if reading.complete and original.strip() and not (reading.text.strip() or is_emptied):
        reading.doubt("the answer is empty")
    _find_new_fences(reading, language)
    _find_placeholders(reading)
    _note_deletions(reading)
    return reading.answer()


def read_new_text(
    raw: str, *, language: str | None = None, finish_reason: str = "stop", asked: Sequence[str] = ()
) -> Answer:
    """Return the text that ``raw`` gives where there was none before, with a final newline.

    Code blocks are content in Markdown; in other languages (names from ``languages``) one holds the text. In
    doubt the answer is not complete.
    """
    reading = _begun(raw, "", finish_reason, asked)
    _unwrap_tags(reading)
    _unwrap_new(reading, language)
    if reading.complete and not reading.text.strip():
        reading.doubt("the answer is empty")
    _find_placeholders(reading)
    reading.text = reading.text.strip("\n") + "\n" if reading.text.strip("\n") else ""
    return reading.answer()


def end_of_answer(raw: str, original: str) -> int | None:
    """Return where an answer under way is over: behind the code block around the whole text; None while it goes on.

    For texts in which code blocks are no content. Whatever a model adds behind such a block is left out by
    ``read_answer``, so it need not be written. The block counts once the original's last line has come in it as often
    as it stands in the original.
    """
    lines = raw.split("\n")[:-1]
    old_lines = original.split("\n")
    blocks = code_blocks(lines) if count_fences(old_lines) == 0 else []
    if not blocks or blocks[0].end is None:
        return None
    body, before, _ = around(blocks[0], lines)
    last_line = next((line for line in reversed(old_lines) if line.strip()), None)
    if (
        last_line is None
        or body.count(last_line) < old_lines.count(last_line)
        or not is_remark([], body, old_lines)
        or not (not before or _is_preamble(before))
    ):
        return None
    return sum(len(line) + 1 for line in lines[: blocks[0].end + 1])


def _begun(raw: str, original: str, finish_reason: str, asked: Sequence[str]) -> _Reading:
    reading = _Reading(raw.replace("\r\n", "\n"), original)
    if finish_reason != "stop":
        reading.doubt(_CUT.get(finish_reason, f"the answer was cut ({finish_reason})"))
    _drop_thinking(reading)
    _drop_prompt(reading, asked)
    return reading


_CUT = {"length": "the answer was cut: it reached the limit of new tokens"}


def read_summary(raw: str) -> str:
    """Return a text that stands for itself, without thinking, fence and space around it."""
    return read_answer(raw, "").text.strip()


def _drop_thinking(reading: _Reading) -> None:
    found = without_thinking(reading.text, reading.original)
    reading.text = found.rest
    if found.is_begun:
        reading.warnings.append("left out the model's thinking, of which the answer held the end alone")
    if found.in_doubt:
        reading.doubt("the answer may begin with the model's thinking")
    if found.is_open and reading.complete:
        reading.doubt("the answer ended before the model had finished thinking")


def _drop_prompt(reading: _Reading, asked: Sequence[str]) -> None:
    """Drop a sentence of the prompt that came back before or behind the text; within it, all is in doubt."""
    first_lines = {sentence.split("\n")[0]: sentence for sentence in asked}
    old_lines = {line.strip() for line in reading.original.split("\n")}
    lines = reading.text.split("\n")
    full = [number for number, line in enumerate(lines) if line.strip()]
    echoed = [number for number in full if lines[number].strip() in first_lines.keys() - old_lines]
    for number in reversed(echoed):
        line = lines[number]
        if number not in (full[0], full[-1]) or "\n" in first_lines[line.strip()]:
            reading.doubt(f"the answer repeats the prompt: {line.strip()[:60]!r}")
            return
        reading.leave_out(line)
        lines = lines[:number] if number == full[-1] else lines[number + 1 :]
        reading.text = "\n".join(lines).strip("\n") + "\n"


def _unwrap(reading: _Reading) -> bool:
    """Take the text out of a fence that the model put around its answer.

    True where that is closed and empty, and there is nothing else: the model means that no text is left.
    """
    lines = reading.text.split("\n")
    old_lines = reading.original.split("\n")
    block = outer_block(lines, old_lines)
    if block is None:
        _drop_preamble(reading, lines, old_lines)
        return False
    body, before, after = around(block, lines)
    outside = before + after
    is_empty = not any(line.strip() for line in body)
    if outside and not is_remark(outside, body, old_lines):
        if set(outside) & set(old_lines) or not (is_empty or _is_preamble(before)):
            return False
        if is_empty or after:
            reading.doubt(f"the model wrote more than the text: {outside[0].strip()[:60]!r}")
            return False
    if outside:
        reading.leave_out(outside[0])
    _take_out(reading, block, body)
    if is_empty and not outside and block.end is not None:
        reading.text = ""
        return True
    return False


def _unwrap_tags(reading: _Reading) -> None:
    """Take the text out of a pair of tags such as <source>, where the original has no tags at all."""
    match = _WRAPPER.fullmatch(reading.text)
    if match is not None and not re.search(r"</?\w+>", reading.original + match[2]):
        reading.text = match[2] + "\n"


def _unwrap_new(reading: _Reading, language: str | None) -> None:
    """Take a new text out of a fence around it; nothing of an original tells the fence from content."""
    lines = reading.text.split("\n")
    block = outer_block(lines, [])
    if block is None:
        _drop_preamble(reading, lines, [])
        if language not in (None, "markdown") and code_blocks(lines):
            reading.doubt("the answer holds several code blocks, and not one text")
        return
    body, before, after = around(block, lines)
    if before and not _is_preamble(before) or after:
        if language in (None, "markdown"):
            return
        reading.leave_out((before + after)[0])
    elif before:
        reading.leave_out(before[0])
    _take_out(reading, block, body)


def _take_out(reading: _Reading, block: CodeBlock, body: list[str]) -> None:
    if block.end is None:
        if reading.complete:
            reading.warnings.append("the model did not close the code block of its answer")
        reading.text = "\n".join(body)
    else:
        reading.text = "".join(line + "\n" for line in body)


def _is_preamble(lines: list[str]) -> bool:
    return len(lines) == 1 and _PREAMBLE.fullmatch(lines[0]) is not None


def _drop_preamble(reading: _Reading, lines: list[str], old_lines: list[str]) -> None:
    """Drop "Here is the edited text:" where the original's first line follows it."""
    if len(lines) < 2 or lines[0] in old_lines or not _PREAMBLE.fullmatch(lines[0]):
        return
    start = next((number for number, line in enumerate(lines) if number and line.strip()), len(lines))
    first_old = next((line for line in old_lines if line.strip()), None)
    is_announced = _ANNOUNCEMENT.fullmatch(lines[0]) is not None and not lines[1].strip()
    if start < len(lines) and (is_announced or lines[start] == first_old):
        reading.leave_out(lines[0], "before")
        reading.text = "\n".join(lines[start:])


def _fit_ends(reading: _Reading) -> None:
    """End the text with a newline exactly where the original does, and keep the blank lines at its ends.

    Models drop those. Where nothing else differs, that is what was asked for.
    """
    old, new = reading.original, reading.text
    if not old or not new.strip("\n"):
        return
    if not old.endswith("\n"):
        new = new.rstrip("\n")
    elif not new.endswith("\n"):
        new += "\n"
    old_core, new_core = old.strip("\n"), new.strip("\n")
    if old_core != new_core:
        head, tail = _newlines_around(old)
        new_head, new_tail = _newlines_around(new)
        if old_core.split("\n")[-1] == new_core.split("\n")[-1]:
            new_tail = max(tail, new_tail)
        if old_core.split("\n")[0] == new_core.split("\n")[0]:
            new_head = max(head, new_head)
        new = "\n" * new_head + new_core + "\n" * new_tail
    reading.text = new


def _newlines_around(text: str) -> tuple[int, int]:
    return len(text) - len(text.lstrip("\n")), len(text) - len(text.rstrip("\n"))


def _find_placeholders(reading: _Reading) -> None:
    lines, old_lines = reading.text.split("\n"), reading.original.split("\n")
    known = Counter(said for line in old_lines if (said := placeholder_in(line)) is not None)
    if known[DOTS] and len(lines) >= len(old_lines):
        known[DOTS] += len(lines)  # examples in a document, say: one more is no loss
    old_markers = {line.strip() for line in old_lines if is_marker(line)}
    for line in lines:
        said = placeholder_in(line)
        if said is not None:
            known[said] -= 1
            if known[said] < 0:
                reading.doubt(f"the model left text out: {line.strip()[:60]!r} stands for it")
                return
        elif is_marker(line) and line.strip() not in old_markers:
            reading.doubt(f"the answer holds a marker of a prompt: {line.strip()[:60]!r}")
            return


def _drop_lone_fence(reading: _Reading) -> None:
    """Drop a fence behind the text that closes nothing; one that opens a block without end casts doubt."""
    lines, old_lines = reading.text.split("\n"), reading.original.split("\n")
    start = unclosed(lines)
    if start is None or unclosed(old_lines) is not None or count_fences(lines) <= count_fences(old_lines):
        return
    if not any(line.strip() for line in lines[start + 1 :]):
        reading.leave_out(lines[start])
        reading.text = "".join(line + "\n" for line in lines[:start])
    elif reading.complete:
        reading.doubt("the answer holds a code block without an end")


def _find_new_fences(reading: _Reading, language: str | None) -> None:
    """Talk and code blocks are no source code; in a text of which nobody says what it is they may be meant."""
    lines = reading.text.split("\n")
    if language == "markdown" or not count_fences(lines) or count_fences(reading.original.split("\n")):
        return
    if language is None:
        reading.warnings.append("the answer holds code blocks, which the text did not")
    elif reading.complete:
        reading.doubt("the answer holds code blocks with other text around them, and not one text")


def _note_deletions(reading: _Reading) -> None:
    """A rewrite that loses half of a text should not pass unseen."""
    old_count, new_count = reading.original.count("\n"), reading.text.count("\n")
    if reading.complete and old_count - new_count > _BIG_DELETION_LINES and 2 * new_count < old_count:
        reading.warnings.append(f"the new text is much shorter: {new_count} lines instead of {old_count}")
