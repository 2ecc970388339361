"""What llama.cpp's clients ask about tokens and templates."""

from __future__ import annotations

from pydantic import Field, model_validator

from editor_api.schemas import ChatMessage, Lenient, Listed, Parts, Utf8


class TokenizeRequest(Lenient):
    """A text, or messages, to count."""

    content: Utf8 | None = None
    prompt: Utf8 | None = None
    messages: Parts[ChatMessage] | None = None
    add_special: bool = Field(False, description="With the tokens that stand before every prompt.")
    with_pieces: bool = Field(False, description="With the text of every token.")

    @model_validator(mode="after")
    def _one(self) -> TokenizeRequest:
        if sum(value is not None for value in (self.content, self.prompt, self.messages)) != 1:
            raise ValueError("give content, prompt or messages")
        return self


class DetokenizeRequest(Lenient):
    """Tokens to read."""

    tokens: Listed[int]


class TemplateRequest(Lenient):
    """Messages to write as the model reads them."""

    messages: Parts[ChatMessage] = Field(min_length=1)
