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


def inner_model(model: Any) -> Any:
    """Return the model inside where one is an adapter's, else the model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def parameters_of(model: Any) -> set[str]:
    """Return the names of what a model's forward takes; those of the model inside where it is an adapter's."""
    return set(inspect.signature(inner_model(model).forward).parameters)


def vocabulary_size(model: Any) -> int:
    """Return how many tokens a model knows: ids lie below that."""
    return int(model.get_input_embeddings().num_embeddings)


def by_layer(config: Any, name: str) -> list[Any]:
    """Return what a config says by a name, layer by layer; None where it says nothing.

    A config whose layers vary refuses to be asked for all at once.
    """
    if name in (getattr(config, "per_layer_attributes", None) or ()):
        return [getattr(layer, name, None) for layer in config.per_layer_config]
    return [getattr(config, name, None)] * int(getattr(config, "num_hidden_layers", 1))


def attention_heads(model: Any) -> list[Heads]:
    """Return the heads of each layer of a model by its config; empty for one without attention."""
    config = model.config.get_text_config(decoder=True)
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
    layers = zip(*(by_layer(config, name) for name in names), strict=True)
    return [
        Heads(int(queries), int(keys or queries), int(size or hidden // queries))
        for queries, keys, size, hidden in layers
        if queries is not None
    ]


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
