"""What a prompt may be, and which of the kinds one is. Knows no tokenizer and no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lookupdec.errors import InputError

Message = Mapping[str, Any]
"""One chat message: ``role``, ``content``, and what else the model's chat template knows."""

Prompt = str | Sequence[Message] | Sequence[int] | npt.NDArray[np.integer] | torch.Tensor | Mapping[str, Any]
"""Plain text, chat messages, token ids in one row, or what a tokenizer returns for one text."""

_KINDS = "give a text, a list of messages, or ids"


def sorted_prompt(prompt: Prompt) -> str | list[Message] | list[int]:
    """Return a prompt as what it is: a text, chat messages, or ids.

    Raises ``InputError`` with the remedy for anything else.
    """
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, bytes | bytearray):
        raise InputError("the prompt is bytes: decode it to a text first")
    if isinstance(prompt, Mapping):
        return _ids(_tokenized(prompt))
    if isinstance(prompt, torch.Tensor | np.ndarray):
        return _ids(prompt)
    try:
        items: list[Any] = list(prompt)
    except TypeError as error:
        raise InputError(f"the prompt is of type {type(prompt).__name__}: {_KINDS}") from error
    messages = [item for item in items if isinstance(item, Mapping)]
    if messages and len(messages) < len(items):
        raise InputError("the prompt mixes messages and ids: give one kind")
    if messages:
        return messages
    if any(isinstance(item, str) for item in items):
        raise InputError("the prompt is a list of texts: give one text, or all of them to generate_many")
    return _ids(items)


def _tokenized(prompt: Mapping[str, Any]) -> Any:
    if "input_ids" in prompt:
        return prompt["input_ids"]
    if "role" in prompt:
        raise InputError("the prompt is one message: give a list, [message]")
    raise InputError(f"the prompt is a mapping without input_ids: {_KINDS}")


def _ids(given: Any) -> list[int]:
    if isinstance(given, list) and all(type(token) is int for token in given):
        return list(given)
    try:
        array = np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("prompt ids must be one flat row of whole numbers") from error
    if array.ndim == 2 and len(array) == 1:
        array = array[0]
    if array.ndim != 1:
        raise InputError(
            f"the prompt has ids of shape {array.shape}: give one row, or the rows to generate_many"
        )
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"prompt ids must be whole numbers, not {array.dtype}")
    return [int(token) for token in array]
