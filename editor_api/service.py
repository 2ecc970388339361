"""What routes are given: the parts of the service, and what is known about one call."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request as HttpRequest

from editor_api.detect import text_to_edit
from editor_api.engine import Engine
from editor_api.errors import ApiError
from editor_api.metrics import Metrics
from editor_api.settings import Settings
from editor_api.work import Sessions, Work

FAST_APPLY = "Fast-Apply"
"""Part of a second name of the model: some clients send predictions to models of such names only."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of the service; one for each app."""

    settings: Settings
    engine: Engine
    metrics: Metrics
    sessions: Sessions

    @property
    def model_names(self) -> tuple[str, str]:
        """The names the model answers to."""
        name = self.engine.model_name
        return name, f"{name}-{FAST_APPLY}"


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. ``created`` is its time of day in seconds, ``arrived`` that of ``time.monotonic``."""

    service: Service
    http: HttpRequest
    tenant: str
    identity: str
    created: int
    arrived: float

    def check_model(self, name: str | None) -> None:
        """Raise ``ApiError`` where another model than the one here is asked for and names matter."""
        if name and self.service.settings.strict_model and name not in self.service.model_names:
            message = f"there is no model {name!r} here, but {self.service.engine.model_name!r}"
            raise ApiError(404, message, "model_not_found", param="model")

    def work(self, session: str | None) -> Work:
        """Begin what the engine is to do, in the place of what the session has asked for before.

        Raises ``RequestReplaced`` where the session has asked for something else since.
        """
        self.http.scope["state"]["generates"] = True  # for who measures it
        work = Work(self.service.engine, self.service.metrics, arrived=self.arrived)
        self.service.sessions.begin(self.tenant, session, work)
        return work

    def namespace(self, session: str | None, prompt_cache_key: str | None) -> str:
        """Return the name under which this caller's past outputs are kept: each pair has one of its own."""
        return f"{self.tenant}/{json.dumps([session, prompt_cache_key])}"

    def text_to_edit(self, contents: Sequence[str]) -> str | None:
        """Return the text that the answer is likely to repeat."""
        return text_to_edit(contents) if self.service.settings.drafting else None


async def _call(request: HttpRequest) -> Call:
    state = request.scope["state"]
    return Call(
        service=request.app.state.service,
        http=request,
        tenant=state["tenant"],
        identity=state["request_id"],
        created=int(time.time()),
        arrived=state["arrived"],
    )


CallDep = Annotated[Call, Depends(_call)]
