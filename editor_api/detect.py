"""Finds the text to edit in the prompts that editors send, so that it is drafted from without being named.

What is found is only a guess about what comes back: a wrong one costs a draft, never a token of the answer. Every
search is for plain strings, so that it takes linear time whatever is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

_CURSORS = re.compile(r"<\|(?:cursor|user_cursor|user_cursor_is_here)\|>")
"""Where the cursor is in the text under edit; answers lack it."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A text between two strings: from the first ``begin`` to the last ``end``.

    ``skips_line``: the rest of the line, such as the language of a code block, is no text. ``at_start``: nothing
    but white space stands before. ``nearest``: up to the first ``end``, as what follows has such strings, too.
    """

    begin: str
    end: str
    skips_line: bool = False
    at_start: bool = False
    nearest: bool = False

    def find(self, content: str) -> str | None:
        """Return the text, None where there is no such form."""
        start = content.find(self.begin)
        if start < 0 or (self.at_start and content[:start].strip()):
            return None
        start += len(self.begin)
        if self.skips_line:
            start = content.find("\n", start) + 1
            if not start:
                return None
        end = content.find(self.end, start) if self.nearest else content.rfind(self.end, start)
        return content[start:end] if end >= 0 else None


_FORMS = (
    # Morph, Relace, and what copies them. Code may hold such tags itself.
    _Form("<code>", "</code>\n<update>"),
    _Form("<code>", "</code><update>"),
    _Form("<code>", "</code>\n\n<update>"),
    # Mercury: apply, next edit.
    _Form("<|original_code|>", "<|/original_code|>"),
    _Form("<|code_to_edit|>", "<|/code_to_edit|>"),
    # Zeta 2; Zeta 1 and Instinct.
    _Form("<|fim_middle|>current\n", "<|fim_middle|>updated"),
    _Form("<|editable_region_start|>", "<|editable_region_end|>"),
    # Continue: apply, a selection, a whole file.
    _Form("ORIGINAL CODE:\n```", "\n```\n\nSUGGESTED EDIT:", skips_line=True),
    _Form("This is the code to rewrite:\n```", "\n```", skips_line=True, nearest=True),
    _Form("```", "\n```\n\nPlease rewrite the above file", skips_line=True, at_start=True),
    # llama.vscode; llama.vim.
    _Form("original code:\n", "\n\nmodified code:"),
    _Form("--- SELECTION ---", "\n---", skips_line=True, nearest=True),
)
_JSON_ASKED = ("valid JSON", '"code"', '"language"')
"""What codecompanion's prompt says where the answer is to be an object with the code in it."""

_AIDER = "added these files to the chat"


def text_to_edit(contents: Sequence[str]) -> str | None:
    """Return the text that an answer is likely to repeat, None where none is known.

    ``contents`` are the texts of a conversation, oldest first. The newest that holds a known form counts.
    """
    if found := _inside_json(contents):
        return found
    for content in reversed(contents):
        for form in _FORMS:
            found = form.find(content)
            if found is not None and found.strip():
                return _CURSORS.sub("", found).removeprefix("\n")
    for content in reversed(contents):
        if found := _aider_file(content):
            return found
    return None


def _inside_json(contents: Sequence[str]) -> str | None:
    """Return the object that codecompanion asks for, with the newest code block in it as JSON writes it."""
    asked = next((content for content in contents if all(part in content for part in _JSON_ASKED)), None)
    if asked is None:
        return None
    for content in reversed(contents):
        start = content.find("```")
        line_end, end = content.find("\n", start), content.rfind("\n```")
        if content is asked or start < 0 or not start < line_end < end:
            continue
        fields = {"code": content[line_end + 1 : end], "language": content[start + 3 : line_end].strip()}
        if '"placement"' in asked:
            fields["placement"] = "replace"
        return json.dumps(fields, ensure_ascii=False, indent=2)
    return None


def _aider_file(content: str) -> str | None:
    """Return the first file that aider shows, with its path and its fences, as its answers have it."""
    said = content.find(_AIDER)
    fence = "\n```"
    opening = content.find(fence, said)
    if said < 0 or opening < 0:
        return None
    path = content.rfind("\n", said, opening) + 1
    end = content.find(fence, opening + len(fence))
    return content[path : end + len(fence)] + "\n" if path and end >= 0 else None
