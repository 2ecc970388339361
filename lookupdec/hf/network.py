"""What a model of transformers tells of itself, whichever kind it is. Knows no request."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

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


def attention_heads(model: Any) -> Heads | None:
    """Return the heads of a model by its config; None for one without attention."""
    config = model.config.get_text_config(decoder=True)
    queries = getattr(config, "num_attention_heads", None)
    if queries is None:
        return None
    keys = getattr(config, "num_key_value_heads", None) or queries
    size = getattr(config, "head_dim", None) or config.hidden_size // queries
    return Heads(int(queries), int(keys), int(size))
