"""What the service can be told: by flags, or by EDITOR_API_* variables. Knows no HTTP and no model."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lookupdec.limits import PAST_BYTES, PREFIX_BYTES

ANY_ORIGIN = "*"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([\w.-]+|\[[0-9a-f:.]+\])(:\d+)?", re.ASCII)
_USUAL_PORTS = {"http": ":80", "https": ":443"}


class Settings(BaseSettings):
    """Serve edits and OpenAI's endpoints with one language model, by copying.

    Every flag is also an environment variable: --max-queued 8 is EDITOR_API_MAX_QUEUED=8. Flags win.
    """

    model_config = SettingsConfigDict(
        env_prefix="EDITOR_API_",
        cli_prog_name="editor-api",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        protected_namespaces=(),
    )

    host: str = Field(
        default="127.0.0.1", description="Address to listen at. Without API keys: loopback only."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen at; 0 takes a free one.")
    model: str | None = Field(
        default=None, description="A hub id, a folder or a GGUF file; the built-in model when left out."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Number format."
    )
    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:<number>.")
    exact: Literal["auto", "bitwise", "fixed", "fast"] = Field(
        default="auto", description="Arithmetic of half-precision passes."
    )
    drafting: bool = Field(default=True, description="Draft by copying; without it, decoding is plain.")

    api_keys_file: Path | None = Field(
        default=None,
        description="File with one API key a line; # begins a comment, at the start or after a space.",
    )
    cors_origins: list[str] = Field(
        default_factory=list,
        description="Web origins that may call, besides those on localhost, such as https://a.example; * "
        "lets all in; a JSON list in the variable.",
    )
    strict_model: bool = Field(default=False, description="Answer 404 to a request that names another model.")

    max_running: PositiveInt = Field(default=4, description="Requests that take turns at the same time.")
    max_queued: NonNegativeInt = Field(default=32, description="Requests that may wait; beyond it, 429.")
    kv_megabytes: PositiveInt = Field(
        default=2048, description="Memory for the KV caches of running requests."
    )
    cache_megabytes: NonNegativeInt = Field(
        default=PAST_BYTES >> 20, description="Memory for past outputs to copy from."
    )
    prefix_megabytes: NonNegativeInt = Field(
        default=PREFIX_BYTES >> 20,
        description="Memory for the KV cache of recent prompts, so that they are not read again.",
    )
    phrases: Path | None = Field(
        default=None,
        description="File with texts that often come, such as licence headers, for everyone's drafts.",
    )
    deadline: PositiveFloat = Field(
        default=600.0, description="Longest time for one request in seconds, waiting included."
    )
    drain_seconds: PositiveFloat = Field(default=30.0, description="Time for running requests after SIGTERM.")

    max_body_bytes: PositiveInt = Field(default=8 << 20, description="Largest request body; beyond it, 413.")
    max_prompt_tokens: PositiveInt | None = Field(
        default=None, description="Longest prompt, where that is less than the context."
    )
    max_stop: NonNegativeInt = Field(default=16, description="Most stop strings of one request.")
    max_n: PositiveInt = Field(default=8, description="Most answers of one request (n times prompts).")

    keepalive_seconds: PositiveFloat = Field(default=15.0, description="Silence before a keep-alive comment.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What to log."
    )
    log_bodies: bool = Field(default=False, description="Log request bodies, which hold prompts.")

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: list[str]) -> list[str]:
        return [_origin(written) for written in origins]

    @model_validator(mode="after")
    def _loopback_without_keys(self) -> Self:
        if self.api_keys_file is None and not is_loopback(self.host):
            raise ValueError(
                f"{self.host} can be reached from elsewhere: give --api-keys-file, or listen at 127.0.0.1"
            )
        return self


def _origin(written: str) -> str:
    """Return an origin as browsers write it. Raises ``ValueError`` for what is none, which would never match."""
    origin = written.strip().rstrip("/").lower()
    if origin in (ANY_ORIGIN, "null"):
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"{written!r} is no web origin: write it like https://a.example:8443, or *")
    scheme, _, _ = origin.partition("://")
    return origin.removesuffix(_USUAL_PORTS.get(scheme, "/"))


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
