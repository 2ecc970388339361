"""Finds the text to edit in the prompts that editors send, so that it is drafted from without being named.

What is found is only a guess about what comes back: a wrong one costs a draft, never a token of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKERS = re.compile(r"<\|(?:cursor|user_cursor|user_cursor_is_here)\|>")
"""Where the cursor is, in the text under edit; answers lack it."""

_FENCED = r"(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<text>.*?)\n?(?P=fence)"

_FORMS = tuple(
    re.compile(form, re.DOTALL)
    for form in (
        # Morph, Relace and what copies them; code may hold such tags itself.
        r"<code>\n?(?P<text>.*)\n?</code>\s*<update>",
        # Mercury: apply, next edit.
        r"<\|original_code\|>\n?(?P<text>.*)<\|/original_code\|>",
        r"<\|code_to_edit\|>\n?(?P<text>.*)<\|/code_to_edit\|>",
        # Zeta 2; Zeta 1 and Instinct.
        r"<\|fim_middle\|>current\n(?P<text>.*)\n?<\|fim_middle\|>updated",
        r"<\|editable_region_start\|>\n?(?P<text>.*?)<\|editable_region_end\|>(?!.*<\|editable_region_end\|>)",
        # Continue: apply, a selection, a whole file.
        r"ORIGINAL CODE:\n(?P<fence>`{3,})[^\n]*\n(?P<text>.*)\n(?P=fence)\n\nSUGGESTED EDIT:",
        r"This is the code to rewrite:\n" + _FENCED,
        r"\A\s*(?P<fence>`{3,})[^\n]*\n(?P<text>.*)\n(?P=fence)\n\nPlease rewrite the above file",
        # llama.vscode; llama.vim.
        r"original code:\n(?P<text>.*)\n\nmodified code:",
        r"(?i:---+ *selection *-+)\n(?P<text>.*?)\n?(?=---|\Z)",
    )
)
_AIDER = re.compile(
    r"added these files to the chat.*?\n\n(?P<text>[^\n]+\n(?P<fence>`{3,})[^\n]*\n.*?\n(?P=fence)\n?)",
    re.DOTALL,
)


def text_to_edit(contents: Sequence[str]) -> str | None:
    """Return the text that an answer is likely to repeat, None where none is known.

    ``contents`` are the texts of a conversation, oldest first. The newest that holds a known form counts.
    """
    for content in reversed(contents):
        for form in _FORMS:
            if (found := form.search(content)) and found["text"].strip():
                return _MARKERS.sub("", found["text"])
    for content in reversed(contents):
        if found := _AIDER.search(content):
            return found["text"]
    return None
