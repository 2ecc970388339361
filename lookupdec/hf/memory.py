"""Whether a model and its KV cache fit into a device's memory, asked before anything runs there. Knows no decoding."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from lookupdec.errors import ModelError
from lookupdec.hf.network import attention_heads

SHORTEST_CONTEXT = 1024
"""Tokens of context below which loading is refused, unless fewer were asked for."""
LONGEST_ON_CPU = 8192
"""Tokens of context that a static cache on a CPU has room for where nothing is asked for."""
_CACHE_SHARE = 0.5  # of what the weights leave free; activations, graphs and other requests need the rest
_SPARE_SHARE = 0.05  # of the free memory that stays free whatever is asked for


def weight_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of a model's parameters and buffers; shared ones count once."""
    tensors = {id(item): item for item in itertools.chain(model.parameters(), model.buffers())}
    return sum(item.numel() * item.element_size() for item in tensors.values())


def kv_bytes_per_token(model: Any) -> int:
    """Return the bytes that the keys and values of one token take; 0 for a model without attention."""
    states = sum(heads.keys * heads.size for heads in attention_heads(model))
    return 2 * states * int(model.dtype.itemsize)


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device, None where that is not asked for: on a CPU."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.mem_get_info(device)[0])


def check_fits(model: Any, name: str, device: torch.device, *, context: int | None = None) -> None:
    """Refuse a model, still on the CPU, that does not fit the device with the KV cache of a useful context.

    Raises ``ModelError``.
    """
    free, weights = free_bytes(device), weight_bytes(model)
    if free is None:
        return
    tokens = context or SHORTEST_CONTEXT
    cache = tokens * kv_bytes_per_token(model)
    if weights + cache > free * (1 - _SPARE_SHARE):
        raise ModelError(
            f"{name} does not fit {device}: weights {_size(weights)}, KV cache of {tokens} tokens {_size(cache)}, "
            f"free {_size(free)}; use dtype='bfloat16', a smaller model or device='cpu'"
        )


def context_that_fits(model: Any, name: str, *, asked: int | None, longest: int | None, padding: int) -> int:
    """Return how many tokens a static KV cache beside the loaded model has room for.

    ``asked`` None takes what the model allows (``longest``), as far as half of the free memory goes.
    ``padding`` is what a pass may write beyond that.

    Raises
    ------
    ModelError
        There is no room for what was asked for, or for a useful context.
    """
    if asked is not None and asked < 1:
        raise ModelError(f"context must be at least 1 token, not {asked}")
    free, each = free_bytes(model.device), kv_bytes_per_token(model)
    if free is None:
        return min(asked or LONGEST_ON_CPU, longest or LONGEST_ON_CPU)
    wanted = min(asked or longest or LONGEST_ON_CPU, longest or LONGEST_ON_CPU)
    share = _CACHE_SHARE if asked is None else 1 - _SPARE_SHARE
    room = int(free * share) // each - padding
    if room >= wanted:
        return wanted
    if asked is None and room >= min(SHORTEST_CONTEXT, wanted):
        return room
    tokens = wanted if asked is not None else min(SHORTEST_CONTEXT, wanted)
    remedy = f"context={room}" if asked is not None and room > 0 else "dtype='bfloat16'"
    raise ModelError(
        f"{name} does not fit {model.device}: weights {_size(weight_bytes(model))}, KV cache of {tokens} tokens "
        f"{_size((tokens + padding) * each)}, free beside the weights {_size(free)}; use {remedy}, a smaller "
        "model or device='cpu'"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
