"""Linear layers whose every row is what a one-row call gives, bit for bit. Knows no attention.

A matrix product may add up the terms of one output in an order that depends on how many rows it is given.
``find_rule`` finds by trial how a shape can take many rows at once all the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

_WIDTHS = (2, 3, 4, 5, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 128, 129, 200, 256, 384, 512)
_WIDE_ENOUGH = 32
_LARGE = 2**24  # weights of a vocabulary projection: trying many rows with these takes too long
_LARGE_WIDTHS = (2, 5, 8, 17, 32, 64, 128)
_N_PROBES = 24

# oneDNN adds up the inputs in blocks: of 1024 for several rows, of 512 for one row of more than 1024 inputs.
# With zeros between the halves of every block, several rows are added up as one row is.
_ONE_ROW_BLOCK = 512


@dataclass(frozen=True, slots=True)
class LinearRule:
    """How one shape of linear layer takes many rows: at most ``width`` at a time, ``spaced`` by zeros or not.

    A ``width`` of 1 says that no way was found but one row at a time.
    """

    width: int
    spaced: bool = False

    def __str__(self) -> str:
        rows = "one row at a time" if self.width == 1 else f"up to {self.width} rows at a time"
        return f"{rows}, inputs in spaced blocks of {_ONE_ROW_BLOCK}" if self.spaced else rows


class RowLinear:
    """The ``forward`` of one linear layer, exact by row while ``is_active()``, as it was otherwise."""

    def __init__(self, layer: torch.nn.Linear, rule: LinearRule, is_active: Callable[[], bool]) -> None:
        self._layer = layer
        self._rule = rule
        self._is_active = is_active
        self._plain = layer.forward
        self._spaced_weight: torch.Tensor | None = None
        self._spaced_from: tuple[int, int] | None = None

    def install(self) -> None:
        """Stand in for the layer's ``forward``: an attribute of the instance goes before its class's method."""
        self._layer.forward = self  # type: ignore[assignment]

    def remove(self) -> None:
        """Give the layer back its own ``forward``."""
        if getattr(self._plain, "__func__", None) is type(self._layer).forward:
            del self._layer.forward
        else:
            self._layer.forward = self._plain  # type: ignore[method-assign]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layer to ``inputs`` ``[..., in_features]``."""
        rows = inputs.numel() // inputs.shape[-1]
        if rows == 1 or not self._is_active():
            return self._plain(inputs)
        if not self._rule.spaced:
            if rows <= self._rule.width:
                return self._plain(inputs)
            return _in_slices(inputs, self._layer.weight, self._layer.bias, self._rule.width)
        return _in_slices(spaced(inputs), self._weight(), self._layer.bias, self._rule.width)

    def renew(self) -> None:
        """Forget the spaced weights where the layer's are others by now.

        What is written through ``weight.data``, as adapters do when they are merged, leaves no other trace.
        """
        if self._spaced_weight is not None and not _is_spaced(self._spaced_weight, self._layer.weight):
            self._spaced_weight = None

    def _weight(self) -> torch.Tensor:
        # Made when first needed, and again where the layer was given other weights or moved.
        weight = self._layer.weight
        source = (weight.data_ptr(), weight._version)
        if self._spaced_weight is None or self._spaced_from != source:
            self._spaced_weight, self._spaced_from = spaced(weight.detach()), source
        return self._spaced_weight


def spaced(inputs: torch.Tensor) -> torch.Tensor:
    """Put as many zeros between every 512 entries of the last dimension."""
    size = inputs.shape[-1]
    n_blocks = -(-size // _ONE_ROW_BLOCK)
    blocks = functional.pad(inputs, (0, n_blocks * _ONE_ROW_BLOCK - size))
    blocks = blocks.reshape(-1, n_blocks, _ONE_ROW_BLOCK)
    out = inputs.new_zeros(len(blocks), (2 * n_blocks - 1) * _ONE_ROW_BLOCK)
    out.as_strided(blocks.shape, (out.shape[1], 2 * _ONE_ROW_BLOCK, 1)).copy_(blocks)
    return out.reshape(*inputs.shape[:-1], -1)


def _is_spaced(wide: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether ``wide`` is what ``spaced`` makes of a weight, bit for bit."""
    if wide.dtype != weight.dtype or wide.device != weight.device or not weight.is_contiguous():
        return False
    # Words are compared several times as fast as the numbers in them.
    whole = weight.shape[-1] * weight.element_size() % 8 == 0
    word = torch.int64 if whole else torch.uint8
    mine, theirs = wide.view(word), weight.detach().view(word)
    block = _ONE_ROW_BLOCK * weight.element_size() // word.itemsize
    pieces = enumerate(torch.split(theirs, block, dim=-1))
    return all(
        torch.equal(mine[:, 2 * number * block :][:, : piece.shape[1]], piece) for number, piece in pieces
    )


def _in_slices(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, width: int
) -> torch.Tensor:
    flat = inputs.reshape(-1, inputs.shape[-1])
    if len(flat) <= width:
        return functional.linear(inputs, weight, bias)
    out = inputs.new_empty(len(flat), weight.shape[0])
    for first in range(0, len(flat), width):
        out[first : first + width] = functional.linear(flat[first : first + width], weight, bias)
    return out.reshape(*inputs.shape[:-1], -1)


@torch.no_grad()
def find_rule(layer: torch.nn.Linear) -> LinearRule:
    """Find how a layer of this shape can take many rows at once."""
    weight = layer.weight
    # The number of threads may decide over the order, so a rule is found for each.
    return _find_rule(
        *weight.shape, layer.bias is not None, weight.dtype, weight.device, torch.get_num_threads()
    )


@functools.cache
def _find_rule(  # noqa: PLR0913
    n_out: int, n_in: int, has_bias: bool, dtype: torch.dtype, device: torch.device, _threads: int
) -> LinearRule:
    generator = torch.Generator().manual_seed(0)
    # Which terms cancel, and when, shows the order of the sums; the kernel is chosen by the shape alone.
    revealing = torch.full((n_out, n_in), 2.0**8, dtype=dtype, device=device)
    typical = (torch.randn(n_out, n_in, generator=generator) / n_in**0.5).to(device, dtype)
    bias = torch.ones(n_out, dtype=dtype, device=device) if has_bias else None
    cases = [
        (revealing, _revealing_rows(n_in, generator).to(device, dtype)),
        (typical, torch.randn(_N_PROBES, n_in, generator=generator).to(device, dtype)),
    ]
    found = LinearRule(_widest(cases, bias))
    if found.width < _WIDE_ENOUGH and n_in > _ONE_ROW_BLOCK:
        found = max(
            found, LinearRule(_widest(cases, bias, is_spaced=True), True), key=lambda rule: rule.width
        )
    return found


def _widest(
    cases: list[tuple[torch.Tensor, torch.Tensor]], bias: torch.Tensor | None, *, is_spaced: bool = False
) -> int:
    """Return the largest width up to which every width gives the rows of one-row calls; 1 where none does."""
    expected = [
        torch.cat([functional.linear(row[None, None], weight, bias)[0] for row in rows])
        for weight, rows in cases
    ]
    if is_spaced:
        cases = [(spaced(weight), spaced(rows)) for weight, rows in cases]
    widest = 1
    for width in _WIDTHS if cases[0][0].numel() < _LARGE else _LARGE_WIDTHS:
        order = torch.arange(width) % _N_PROBES
        for (weight, rows), wanted in zip(cases, expected, strict=True):
            if not torch.equal(functional.linear(rows[order][None], weight, bias)[0], wanted[order]):
                return widest
        widest = width
    return widest


def _revealing_rows(n_in: int, generator: torch.Generator) -> torch.Tensor:
    """Return rows of small numbers with one large number and its negative at two places.

    Whatever is added between the two is lost, so that the sum tells the order of the additions.
    """
    rows = torch.randint(-2, 3, (_N_PROBES, n_in), generator=generator) * 2.0**-10
    for row in rows:
        first, second = torch.randperm(n_in, generator=generator)[:2].tolist()
        row[first], row[second] = 2.0**15, -(2.0**15)
    return rows
