"""Whatever a request gives to go on from, as the model reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editor_api.engine import Engine, Prompt
from editor_api.errors import bad_value
from editor_api.infill import Infill
from lookupdec.edit import plain_prompt
from lookupdec.errors import InputError


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """The ids of a prompt.

    ``stop`` are strings that end its answer besides the usual ones, ``ends`` ids instead of the usual ones, ()
    for these. ``is_cut`` where something was left out of it.
    """

    ids: list[int]
    stop: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    is_cut: bool = False

    def settings(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a request with this prompt's own ends."""
        settings = dict(chosen)
        if self.stop:
            settings["stop"] = (*(settings.get("stop") or ()), *self.stop)
        if self.ends:
            settings["eos_token_id"] = self.ends
        return settings


def read(engine: Engine, prompt: Prompt | Infill, param: str | None = None) -> ReadPrompt:
    """Return a prompt as ids. Messages for a model without chat template become a text to continue.

    Raises ``InputError``, and ``ApiError`` for a gap that the model has no tokens for.
    """
    if isinstance(prompt, Infill):
        try:
            filling = engine.encode_infill(prompt)
        except InputError as error:
            raise bad_value(str(error), param, "unsupported_value") from error
        return ReadPrompt(filling.ids, ends=filling.ends, is_cut=filling.is_cut)
    messages = _messages(prompt)
    if messages and engine.chat_template is None:
        text, stop = plain_prompt(messages)
        return ReadPrompt(engine.encode_prompt(text), stop=(stop,))
    return ReadPrompt(engine.encode_prompt(prompt))


def _messages(prompt: Prompt) -> Sequence[Mapping[str, str]]:
    return [item for item in prompt if isinstance(item, Mapping)]
