"""What a model of transformers tells of itself, whichever kind it is. Knows no request."""

from __future__ import annotations

from typing import Any


def vocabulary_size(model: Any) -> int:
    """Return how many tokens a model knows: ids lie below that."""
    return int(model.get_input_embeddings().num_embeddings)
