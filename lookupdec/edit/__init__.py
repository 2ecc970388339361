"""Edit, rewrite and summarise texts and files by copying; exact to the byte where nothing changed."""

from lookupdec.edit.diff import TextEdit, apply_edits, text_edits, unified_diff
from lookupdec.edit.editor import Editor
from lookupdec.edit.fences import fence_around
from lookupdec.edit.forms import other_forms
from lookupdec.edit.pipeline import edit_many
from lookupdec.edit.positions import Position, Positions
from lookupdec.edit.prompts import plain_prompt
from lookupdec.edit.results import EditResult, Summary, Usage
from lookupdec.edit.textio import Document, read_document

__all__ = [
    "Document",
    "EditResult",
    "Editor",
    "Position",
    "Positions",
    "Summary",
    "TextEdit",
    "Usage",
    "apply_edits",
    "edit_many",
    "fence_around",
    "other_forms",
    "plain_prompt",
    "read_document",
    "text_edits",
    "unified_diff",
]
