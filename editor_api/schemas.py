"""What requests may say. Fields that are not named here are let pass unread: every client has some of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from editor_api.tools import forces_tool
from lookupdec.limits import SEEDS

_LOWEST_TEMPERATURE = 1e-5
_MOST_PARTS = 1 << 16
T = TypeVar("T")


def _unique_strings(value: object) -> object:
    """Take one string for a list of it, and leave out empty ones, which would end every answer at once."""
    if value is None:
        return []
    strings = [value] if isinstance(value, str) else value
    return [item for item in strings if item != ""] if isinstance(strings, Iterable) else value


def _seed(value: object) -> object:
    """Take -1 for none, as some clients do, and any other whole number."""
    if isinstance(value, int) and not isinstance(value, bool) and -SEEDS <= value < 2 * SEEDS:
        return None if value == -1 else value % SEEDS
    return value


def _unlimited(value: object) -> object:
    """Take -1 for no limit, as some clients do."""
    return None if value == -1 else value


def _none_for_false(value: object) -> object:
    """Take false for none, as chats spell it."""
    return None if value is False else value


def _unicode(value: str) -> str:
    """Refuse lone surrogates, which no tokenizer and no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"there is a lone surrogate at {error.start}, which is no valid Unicode") from error
    return value


def _temperature(value: float | None) -> float | None:
    """Take what is too close to 0 to divide by for 0."""
    return 0.0 if value is not None and value < _LOWEST_TEMPERATURE else value


Utf8 = Annotated[str, AfterValidator(_unicode)]
# The first wrong item is told: an error for each of millions would take minutes and gigabytes.
Listed = Annotated[list[T], Field(fail_fast=True)]
Parts = Annotated[list[T], Field(fail_fast=True, max_length=_MOST_PARTS)]
TokenLimit = Annotated[int | None, Field(ge=1), BeforeValidator(_unlimited)]
StopStrings = Annotated[Listed[Utf8], BeforeValidator(_unique_strings)]
Temperature = Annotated[float | None, Field(ge=0, le=100), AfterValidator(_temperature)]
Seed = Annotated[int | None, Field(ge=0, lt=SEEDS), BeforeValidator(_seed)]
Biases = Annotated[dict[int, Annotated[float, Field(ge=-100, le=100)]], Field(fail_fast=True)]


class Lenient(BaseModel):
    """A part of a request."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Take null for left out: clients send it for whatever they have no value for."""
        if not isinstance(value, dict):
            return value
        return {name: field for name, field in value.items() if field is not None}


KindOfText = Literal["text", "input_text", "output_text", "refusal"]


def _kind_of_part(value: object) -> object:
    if isinstance(value, str) and value not in get_args(KindOfText):
        raise ValueError(f"only text parts are read, such as {{'type': 'text', 'text': ...}}, not {value!r}")
    return value


def _kind_of_text(value: object) -> str:
    return "list[text]" if isinstance(value, list) else "str"


class TextPart(Lenient):
    """A piece of a text in parts."""

    type: Annotated[KindOfText, BeforeValidator(_kind_of_part)] = "text"
    text: Utf8


Text = Annotated[
    Annotated[Utf8, Tag("str")] | Annotated[Parts[TextPart], Tag("list[text]")],
    Discriminator(_kind_of_text),  # else parts that are wrong are told to be no string
]


def joined(text: Text | None) -> str:
    """Return a text whole."""
    return text or "" if isinstance(text, str | None) else "".join(part.text for part in text)


class ChatMessage(Lenient):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | None = None


class Prediction(Lenient):
    """Text that is expected to come back."""

    type: Literal["content"]
    content: Text


class StreamOptions(Lenient):
    """What a stream should hold besides text."""

    include_usage: bool = False


class EditStreamOptions(Lenient):
    """What a streamed edit should hold besides text."""

    include_sources: bool = False


class JsonSchema(Lenient):
    """A schema under OpenAI's wrapping."""

    content: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Lenient):
    """What the answer should look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _with_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("give json_schema with a schema in it")
        return self

    @property
    def schema_text(self) -> str | None:
        """The JSON schema that answers must fit, None for any answer."""
        if self.type == "text":
            return None
        wrapped = self.json_schema if self.type == "json_schema" else None
        return json.dumps(wrapped.content if wrapped else {"type": "object"})


class GenerationRequest(Lenient):
    """What chat and plain completions have in common."""

    model: Utf8 | None = Field(None, description="Any name; there is one model.")
    max_tokens: TokenLimit = Field(None, description="Longest answer; what the context leaves when left out.")
    n_predict: int | None = Field(None, ge=-1, description="The same, as llama.cpp spells it.")
    temperature: Temperature = Field(None, description="0, or left out: the likeliest token.")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=1 << 30)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Biases | None = None
    seed: Seed = None
    stop: StopStrings = Field(default_factory=list, description="A string or several.")
    n: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prediction: Prediction | None = Field(None, description="Text that is expected to come back.")
    prompt_cache_key: Utf8 | None = Field(None, max_length=512, description="Apart from other past outputs.")
    session: Utf8 | None = Field(
        None, max_length=512, description="A newer request of the same session replaces this one."
    )
    deadline: float | None = Field(None, gt=0, description="Longest time in seconds.")

    @property
    def limit(self) -> int | None:
        """The longest answer asked for. ``n_predict: 0`` warms up a cache elsewhere: here it costs one token."""
        if self.max_tokens is None and self.n_predict is not None and self.n_predict >= 0:
            return max(1, self.n_predict)
        return self.max_tokens


class ChatRequest(GenerationRequest):
    """A conversation to go on with. Where its last message is the assistant's, the answer continues it."""

    messages: Parts[ChatMessage] = Field(min_length=1)
    max_completion_tokens: TokenLimit = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    tools: Any = Field(None, description="Let pass unread.")
    tool_choice: Any = Field(None, description="Anything that does not force a tool to be called.")

    @property
    def json_schema(self) -> str | None:
        """The JSON schema that answers must fit, None for any answer."""
        return self.response_format.schema_text if self.response_format else None

    @property
    def forces_tool(self) -> bool:
        """Whether the answer must be a tool call."""
        return forces_tool(self.tool_choice)

    @property
    def limit(self) -> int | None:
        """The longest answer asked for."""
        return super().limit if self.max_completion_tokens is None else self.max_completion_tokens


def _kind_of_prompt(value: object) -> str:
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, list):
        return "list[list[int]]"
    if isinstance(value, list):
        return "list[str]" if isinstance(first, str) else "list[int]"
    return "str"


Prompt = Annotated[
    Annotated[Utf8, Tag("str")]
    | Annotated[Listed[int], Tag("list[int]")]
    | Annotated[Parts[Utf8], Tag("list[str]")]
    | Annotated[Parts[Listed[int]], Tag("list[list[int]]")],
    Discriminator(_kind_of_prompt),  # else each kind is tried, and tells its own errors
]


class CompletionRequest(GenerationRequest):
    """Texts to continue: one or several, as strings or as token ids."""

    prompt: Prompt
    logprobs: Annotated[int | None, Field(ge=0, le=20), BeforeValidator(_none_for_false)] = None
    echo: bool | None = None
    suffix: Utf8 | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one."""
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if given and isinstance(given[0], int):
            return [[item for item in given if isinstance(item, int)]]
        return [item for item in given if not isinstance(item, int)]


class TextPosition(Lenient):
    """A place in a text, counted from zero."""

    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Selection(Lenient):
    """What stands between two places."""

    start: TextPosition
    end: TextPosition


class EditRequest(Lenient):
    """A text to change."""

    input: Utf8 = Field(description="The text to edit, whole.")
    instruction: Utf8 = Field(description="What to change, in plain words.")
    language: Utf8 | None = None
    path: Utf8 | None = Field(None, description="Names the text in the diff; nothing is read from it.")
    selection: Selection | tuple[int, int] | None = Field(
        None, description="Rewrite this only: two positions, or two offsets in characters."
    )
    lines: tuple[int, int] | None = Field(None, description="Rewrite these lines only, counted from 1.")
    context: Parts[Utf8] = Field(default_factory=list, description="Other texts to know.")
    prediction: Text | Prediction | None = Field(None, description="What the answer is expected to repeat.")
    position_encoding: Literal["utf-8", "utf-16", "utf-32"] = "utf-16"
    wanted: Parts[Literal["text", "edits", "diff"]] = Field(
        ["text", "edits", "diff"], alias="return", description="What the result should hold."
    )
    allow_incomplete: bool = Field(False, description="Use an answer that was cut, too.")
    drafting: bool = Field(True, description="False decodes plainly: the same answer, a pass for each token.")
    stream: bool | None = None
    stream_options: EditStreamOptions | None = Field(
        None, description="With include_sources, every delta tells where its tokens were copied from."
    )
    max_tokens: TokenLimit = None
    temperature: Temperature = None
    seed: Seed = None
    model: Utf8 | None = None
    prompt_cache_key: Utf8 | None = Field(None, max_length=512)
    session: Utf8 | None = Field(None, max_length=512)
    deadline: float | None = Field(None, gt=0)
