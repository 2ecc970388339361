"""What a model of transformers tells of itself, whichever kind it is, and a plain pass of it. Knows no request."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

CACHE_NAMES = ("cache", "past_key_values", "cache_params")
"""What a model's forward may call its cache: newer versions of transformers say the first, older ones another."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of attention: how many ask, how many keys and values there are, and the size of each."""

    queries: int
    keys: int
    size: int


def parameters_of(model: Any) -> set[str]:
    """Return the names of what a model's forward takes; those of the model inside where it is an adapter's."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return set(inspect.signature(inner.forward).parameters)


def vocabulary_size(model: Any) -> int:
    """Return how many tokens a model knows: ids lie below that."""
    return int(model.get_input_embeddings().num_embeddings)


def attention_heads(model: Any) -> Heads | None:
    """Return the heads of a model by its config; None for one without attention."""
    config = model.config.get_text_config(decoder=True)
    queries = getattr(config, "num_attention_heads", None)
    if queries is None:
        return None
    keys = getattr(config, "num_key_value_heads", None) or queries
    size = getattr(config, "head_dim", None) or config.hidden_size // queries
    return Heads(int(queries), int(keys), int(size))


def read_with_cache(model: PreTrainedModel, ids: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
    """Run one pass over ``ids`` of shape (1, n) after what the cache holds (None: nothing); return logits and cache."""
    name = next(name for name in CACHE_NAMES if name in parameters_of(model))
    output = model(input_ids=ids, use_cache=True, return_dict=True, **{name: cache})
    return output.logits, output[name]


def cached_states(cache: Any, start: int, count: int) -> list[torch.Tensor]:
    """Return the keys and values of ``count`` positions from ``start``, positions first, layer by layer."""
    return [
        states[0, :, start : start + count].transpose(0, 1)
        for layer in cache.layers
        for states in (layer.keys, layer.values)
    ]
