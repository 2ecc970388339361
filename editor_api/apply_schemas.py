"""What requests to merge a snippet into a text may say: Relace's shape, by its old and its new names."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from editor_api.schemas import Lenient, Seed, Temperature, TokenLimit, Utf8


class ApplyRequest(Lenient):
    """A text, and a snippet that shows what to change in it."""

    initial_code: Utf8 = Field(
        validation_alias=AliasChoices("initial_code", "initialCode"), description="The text, whole."
    )
    edit_snippet: Utf8 = Field(
        validation_alias=AliasChoices("edit_snippet", "editSnippet"),
        description="Parts of the new text; comments stand for what stays.",
    )
    instruction: Utf8 | None = Field(None, description="What the change is, in plain words.")
    model: Utf8 | None = None
    stream: bool | None = None
    max_tokens: TokenLimit = None
    temperature: Temperature = None
    seed: Seed = None
    prompt_cache_key: Utf8 | None = Field(None, max_length=512)
    session: Utf8 | None = Field(None, max_length=512)
    deadline: float | None = Field(None, gt=0)
