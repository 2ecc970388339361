"""A KV cache of fixed size whose write position is told from outside. Knows no model and no decoding.

transformers' own static cache counts what was written by itself, a counter per layer, and hands its whole length
to attention. Passes over padded drafts need one position for all layers, set before each pass, and attention over
the part that is in use.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from lookupdec.hf.prefixes import States


class WritePlace:
    """Where all layers write in the next pass, and how many keys attention sees.

    ``positions`` is [rows] int64 on the device. ``visible`` is a number of the host: one graph, one value.
    """

    def __init__(self) -> None:
        self.positions: torch.Tensor | None = None
        self.visible = 0


class FixedLayer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """Keys and values of one layer, [1, key heads, length, head], allocated once at the first write."""

    is_compileable = True
    is_croppable = False
    is_sliding = False

    def __init__(self, place: WritePlace, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.place = place
        self.length = length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for states of these shapes; zeros, since masked keys are multiplied by zero."""
        self.keys = key_states.new_zeros((*key_states.shape[:2], self.length, key_states.shape[-1]))
        self.values = value_states.new_zeros((*value_states.shape[:2], self.length, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states at the place's positions; return views of the visible part."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values, positions = self.keys, self.values, self.place.positions
        assert keys is not None and values is not None and positions is not None
        keys.index_copy_(2, positions, key_states)
        values.index_copy_(2, positions, value_states)
        return keys[:, :, : self.place.visible], values[:, :, : self.place.visible]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        """Return how many keys attention sees, from position 0."""
        return self.place.visible, 0

    def get_seq_length(self) -> int:
        """Return 1: something was read. How much is known to the target alone; passes are told their positions."""
        return 1

    def get_max_length(self) -> int:
        """Return how many positions there is room for."""
        return self.length


class FixedCache(Cache):  # type: ignore[misc, unused-ignore]
    """The layers of one model, all written at one place."""

    def __init__(self, layers: int, length: int) -> None:
        self.place = WritePlace()
        self.layers: list[Any]
        super().__init__(layers=[FixedLayer(self.place, length) for _ in range(layers)])  # type: ignore[no-untyped-call, unused-ignore]

    def clear(self, count: int) -> None:
        """Zero the first ``count`` positions: an infinity left there would outlive its mask."""
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys[:, :, :count].zero_()
                layer.values[:, :, :count].zero_()

    def restore(self, states: States) -> None:
        """Write keys and values, layer by layer, from position 0."""
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys, values)
            layer.keys[:, :, : keys.shape[2]] = keys
            layer.values[:, :, : values.shape[2]] = values

    def states(self, start: int, count: int) -> States:
        """Return copies of the keys and values of ``count`` positions from ``start``, layer by layer."""
        return [
            (
                layer.keys[:, :, start : start + count].clone(),
                layer.values[:, :, start : start + count].clone(),
            )
            for layer in self.layers
        ]
