"""Linear layers for passes over few tokens in float32 on a CPU. Knows no attention and no decoding.

PyTorch multiplies a few rows with a matrix of weights as it multiplies many: it rearranges all weights first, so that
two tokens take longer than one and a half one-token passes. With the two sides exchanged the weights are read once, as
they lie: up to four tokens then take less time than one did. The sums are the same but for rounding in float32.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional

MOST_ROWS = 128  # beyond, rearranging the weights pays for itself
WORTH_IT = 0.9  # of the usual time: what the exchanged product must need at most to be used
_TRIED_ROWS, _ROUNDS = 4, 3
_TRIED_BYTES = 64 << 20  # more than caches hold, as a pass reads them
# Where a product of so many rows is quicker than one of fewer. Measured on AMD and for the library PyTorch uses there.
_PADDED = {1: 2, 3: 4} | dict.fromkeys(range(9, 16), 16)


class _Thread(threading.local):
    is_active = False


_thread = _Thread()
_tried: weakref.WeakKeyDictionary[torch.nn.Module, bool] = weakref.WeakKeyDictionary()


@contextmanager
def quick_passes() -> Iterator[None]:
    """Let the prepared layers be quick in this thread; a model's own ``generate`` computes as it always did."""
    before, _thread.is_active = _thread.is_active, True
    try:
        yield
    finally:
        _thread.is_active = before


def prepare_quick(model: torch.nn.Module) -> bool:
    """Make the linear layers of a model quick within ``quick_passes`` where that is found to save time here.

    Tries it on some of the layers, which takes a fraction of a second. Nothing is changed for a model in another
    dtype, on another device, or so small that it would not matter. A second call costs nothing.
    """
    if model in _tried:
        return _tried[model]
    _tried[model] = False
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, LINEAR)
        and type(layer) in LINEAR
        and _is_plain(layer.weight)
        and "forward" not in vars(layer)
    ]
    if not _is_quicker(layers):
        return False
    for layer in layers:
        layer.__class__ = QuickLinear
    _tried[model] = True
    return True


def restore(model: torch.nn.Module) -> None:
    """Give all layers of a model the class back that they had before ``prepare_quick``."""
    for layer in model.modules():
        if type(layer) is QuickLinear:
            layer.__class__ = torch.nn.Linear  # type: ignore[assignment]
    _tried.pop(model, None)


class QuickLinear(torch.nn.Linear):
    """A linear layer that exchanges the sides of its product where that is quicker.

    Layers become one by their class alone, so that saved files and adapters see the layer that it was. Copies and
    pickles are of that layer, so that what goes by its class, as quantisation does, takes them for it; what works on
    the model itself needs ``restore`` first.
    """

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Describe the layer that it was: ``copy`` and ``pickle`` go by this."""
        # Newer protocols insist on the object's own class.
        made: Any = super().__reduce_ex__(1)
        make, (_, *arguments), *state = made
        return make, (torch.nn.Linear, *arguments), *state

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer to ``input`` ``[..., in_features]``."""
        weight, bias = self.weight, self.bias
        # Where something stands in for this method and calls it, that decides how to compute.
        is_meant = (
            _thread.is_active and "forward" not in vars(self) and _is_meant(input) and _is_plain(weight)
        )
        if is_meant and 0 < input.shape[:-1].numel() <= MOST_ROWS:
            return exchanged(input, weight, bias)
        return functional.linear(input, weight, bias)


def exchanged(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``functional.linear`` of inputs ``[..., in_features]``, computed as weights times inputs."""
    flat = inputs.reshape(-1, inputs.shape[-1])
    rows = len(flat)
    if (padded := _PADDED.get(rows, rows)) != rows:
        flat = functional.pad(flat, (0, 0, 0, padded - rows))
    columns = torch.mm(weight, flat.t())
    # Rows of their own again: what comes next is quicker with them.
    out = columns[:, :rows].t().contiguous()
    if bias is not None:
        out += bias
    return out.reshape(*inputs.shape[:-1], weight.shape[0])


LINEAR = (torch.nn.Linear, QuickLinear)
"""The classes of layers that compute as plain linear layers do; other subclasses have ways of their own."""


def _is_plain(weight: torch.Tensor) -> bool:
    # Quantised weights are tensors of classes of their own, which know how to be multiplied.
    return type(weight) is torch.nn.Parameter and _is_meant(weight)


def _is_meant(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


@torch.no_grad()
def _is_quicker(layers: Sequence[torch.nn.Linear]) -> bool:
    by_shape: dict[torch.Size, list[torch.Tensor]] = defaultdict(list)
    for layer in layers:
        by_shape[layer.weight.shape].append(layer.weight)
    weights = max(by_shape.values(), key=lambda of: of[0].numel() * len(of), default=[])
    size = weights[0].numel() * 4 if weights else 0
    tried = weights[: -(-_TRIED_BYTES // max(size, 1))]
    if size * len(tried) < _TRIED_BYTES:
        return False
    inputs = torch.ones(_TRIED_ROWS, weights[0].shape[1])
    usual: list[float] = []
    quick: list[float] = []
    for _ in range(_ROUNDS + 1):
        for seconds, product in ((usual, functional.linear), (quick, exchanged)):
            began = perf_counter()
            for weight in tried:
                product(inputs, weight, None)
            seconds.append(perf_counter() - began)
    # The first round of each warms up.
    return median(quick[1:]) < WORTH_IT * median(usual[1:])
