"""The seam between HTTP and decoding: what the service needs of an engine. Knows neither.

EngineError
|-- EngineBusy           the queue is full: come back after ``retry_after`` seconds
|-- EngineUnavailable    the model is loading, could not be loaded, or the service is stopping
|-- RequestTimedOut      the deadline passed before the request had its first turn
|-- RequestReplaced      a newer request of the same session took its place
`-- RequestCancelled     its client is gone
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from editor_api.infill import Infill, InfillPrompt
from lookupdec.stats import Stats, Step

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]
FinishReason = Literal["stop", "length", "deadline"]
State = Literal["loading", "ready", "stopping", "failed"]

USUAL_CONTEXT = 1 << 17
"""Tokens that prompt and answer may have together, where the model does not say."""


class EngineError(Exception):
    """Base of what ends a request without being its own fault."""


class EngineBusy(EngineError):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full: try again in {retry_after} s")
        self.retry_after = retry_after


class EngineUnavailable(EngineError):
    """Nothing can be generated now."""


class RequestTimedOut(EngineError):
    """The deadline passed while the request waited."""


class RequestReplaced(EngineError):
    """A newer request of the same session took this one's place."""


class RequestCancelled(EngineError):
    """The request was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation. ``settings`` are those of ``lookupdec.hf.Settings`` by name.

    One of the texts in ``reference``, given as ids, is expected to come back, likeliest the first.
    ``namespace`` says whose past outputs may be copied, and its first part, ``tenant``, from whom drafting may
    learn. ``deadline`` is in seconds from submission; given to a ``Work``, from the arrival of what that belongs
    to. The answer fits ``json_schema`` where one is given. ``admitted`` marks the continuation of a request that
    was let in before: it is not refused for a full queue or while draining.
    """

    prompt: Sequence[int]
    settings: Mapping[str, Any]
    tenant: str
    namespace: str
    deadline: float
    reference: Sequence[Sequence[int]] = ()
    drafting: bool = True
    json_schema: str | None = None
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token's text, its log-probability, and those of the likeliest tokens in its place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one forward pass added to an answer; nothing where it read a part of the prompt.

    ``stats`` are the counts up to this pass, and stay as they are. ``pieces`` is what each of the step's tokens
    added to ``text``.
    """

    text: str
    step: Step
    stats: Stats
    finish_reason: FinishReason | None = None
    scores: tuple[TokenScore, ...] = ()
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """How busy an engine is. ``cache_bytes`` are those of past outputs, ``prefix_bytes`` of kept prefixes.

    ``failure`` says why loading failed.
    """

    state: State
    running: int = 0
    waiting: int = 0
    cache_bytes: int = 0
    prefix_bytes: int = 0
    failure: str = ""


class Job(Protocol):
    """A submitted request: an asynchronous stream of pieces that ends with the one that has a finish reason."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        """Iterate over the pieces; raises ``EngineError`` or ``LookupDecError``."""
        ...

    def cancel(self, error: EngineError | None = None) -> None:
        """Stop within one pass; iterating raises ``error``. Does nothing where the job has ended."""
        ...


class Engine(Protocol):
    """Something that generates. All but the ``encode`` and ``check`` methods are called on the event loop."""

    @property
    def model_name(self) -> str:
        """The model's name."""
        ...

    @property
    def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together; None where that is unknown."""
        ...

    @property
    def dtype(self) -> str:
        """The numbers the model computes with."""
        ...

    @property
    def chat_template(self) -> str | None:
        """How the model reads messages; None where it only continues text."""
        ...

    @property
    def capacity(self) -> Capacity:
        """How busy the engine is."""
        ...

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt. Raises ``InputError``."""
        ...

    def encode_infill(self, infill: Infill) -> InfillPrompt:
        """Return the prompt for a gap. Raises ``InputError`` where the model has no tokens for it."""
        ...

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text inside a text. Raises ``InputError``."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens."""
        ...

    def check(self, settings: Mapping[str, Any], json_schema: str | None = None) -> None:
        """Raise ``TypeError`` for unknown settings, ``InputError`` for impossible values and schemas."""
        ...

    def check_room(self) -> None:
        """Raise ``EngineBusy`` or ``EngineUnavailable`` where a new request would be refused now."""
        ...

    def submit(self, request: Request) -> Job:
        """Queue a request. Raises ``EngineBusy`` or ``EngineUnavailable``."""
        ...

    def drain(self) -> None:
        """Take no new requests from now on; those that were let in go on."""
        ...

    def abort(self) -> None:
        """End all requests with ``EngineUnavailable``, and refuse what comes, be it marked as admitted."""
        ...

    def start(self) -> None:
        """Begin to load the model; ``capacity.state`` tells when it is ready."""
        ...

    def stop(self) -> None:
        """End everything and wait until nothing runs."""
        ...
