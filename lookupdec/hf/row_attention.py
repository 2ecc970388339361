"""Attention of several one-token queries at once, in the arithmetic of one-token calls. Knows no model.

On a CPU that is not Intel's, PyTorch's attention multiplies a single bfloat16 query with the keys by a slow
general routine. The same sums, added in the same order, go an order of magnitude faster when the keys are
widened to float32 once and several queries share them. The order was read off the routine's results: sums
over the head dimension run in four lanes, sums over the keys in groups of four, exponentials are a cubic
approximation for whole vectors of sixteen and the C library's for the rest, and blocks of 512 keys follow
each other. Another processor or version of PyTorch may add in another order, so ``is_same_as_torch``
compares the two before anyone relies on this.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, types
from numba.extending import intrinsic

Float32Array = npt.NDArray[np.float32]
HEAD_STEP = 16  # the head dimension must be a multiple of this

_KEYS = 512
_VECTOR = 16
_QUAD = 4
_ZERO, _ONE = np.float32(0), np.float32(1)
# Malossi et al. 2015, "Fast exponential computation on SIMD architectures", as PyTorch has it.
_LOG2_E = np.uint32(0x3FB8AA3B).view(np.float32)
_LOG_SMALLEST = np.uint32(0xC2AEAC50).view(np.float32)
_C0, _C1 = np.float32(0.00010703434948458272), np.float32(0.30354260500649682)
_C2, _C3 = np.float32(-0.22433836478672356), np.float32(-0.079204240219773236)
_EXPONENT_UNIT, _EXPONENT_BIAS = np.float32(2.0**23), np.float32(127 * 2.0**23)
_SHIFT, _UPPER = np.uint32(16), np.uint32(0xFFFF0000)
_HALF, _LOWEST_KEPT = np.uint32(0x7FFF), np.uint32(1)


def _generate_fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


# Multiplies and adds with one rounding, as the vector units do.
_fma: Any = intrinsic(_generate_fma)


@njit(cache=True, nogil=True, inline="always")
def _rounded(bits: Any) -> Any:
    """Round float32 bits to the nearest bfloat16, ties to even; the lower half becomes zero."""
    return (bits + _HALF + ((bits >> _SHIFT) & _LOWEST_KEPT)) & _UPPER


@njit(cache=True, nogil=True)
def _widen_keys(quads: Any, first: int, count: int, keys: Any) -> None:
    """Write keys ``[count, head / 4]``, four bfloat16 in a uint64, as float32 bits ``[head, count]``."""
    for low in range(0, count, 64):
        high = min(low + 64, count)
        for quad in range(quads.shape[1]):
            for i in range(low, high):
                word = quads[first + i, quad]
                lower, upper = np.uint32(word), np.uint32(word >> np.uint64(32))
                keys[4 * quad, i] = lower << _SHIFT
                keys[4 * quad + 1, i] = lower & _UPPER
                keys[4 * quad + 2, i] = upper << _SHIFT
                keys[4 * quad + 3, i] = upper & _UPPER


@njit(cache=True, nogil=True)
def _widen(narrow: Any, first: int, count: int, wide: Any) -> None:
    """Write bfloat16 rows as float32 bits."""
    for i in range(count):
        for d in range(narrow.shape[1]):
            wide[i, d] = np.uint32(narrow[first + i, d]) << _SHIFT


@njit(cache=True, nogil=True)
def _scores(query: Any, keys: Any, count: int, lanes: Any, scores: Any) -> None:
    """Multiply ``query`` ``[head]`` with ``keys`` ``[head, count]``: lane d % 4 adds up dimension d."""
    lanes[:, :count] = _ZERO
    for d in range(0, query.shape[0], HEAD_STEP):
        for lane in range(_QUAD):
            at = d + lane
            q0, q1, q2, q3 = query[at], query[at + 4], query[at + 8], query[at + 12]
            for i in range(count):
                # Products of bfloat16 are exact in float32, so only the order of the sums matters.
                total = _fma(keys[at + 4, i], q1, _fma(keys[at, i], q0, lanes[lane, i]))
                lanes[lane, i] = _fma(keys[at + 12, i], q3, _fma(keys[at + 8, i], q2, total))
    for i in range(count):
        scores[i] = (lanes[0, i] + lanes[2, i]) + (lanes[1, i] + lanes[3, i])


@njit(cache=True, nogil=True)
def _largest(scores: Any, count: int, vectors: Any) -> Any:
    vectors[0, :] = -np.inf
    whole = count // _VECTOR * _VECTOR
    for i in range(0, whole, _VECTOR):
        for j in range(_VECTOR):
            vectors[0, j] = scores[i + j] if scores[i + j] > vectors[0, j] else vectors[0, j]
    largest = vectors[0, :].max()
    for i in range(whole, count):
        largest = max(largest, scores[i])
    return largest


@njit(cache=True, nogil=True)
def _exponentials(scores: Any, count: int, bits: Any) -> None:
    for i in range(count):
        power = scores[i] * _LOG2_E
        floor = np.float32(np.int32(power))
        floor -= _ONE if floor > power else _ZERO
        fraction = power - floor
        correction = _fma(fraction, _fma(fraction, _fma(fraction, _C3, _C2), _C1), _C0)
        value = np.int32(_fma(_EXPONENT_UNIT, power - correction, _EXPONENT_BIAS))
        bits[i] = np.int32(0) if scores[i] < _LOG_SMALLEST else value


@njit(cache=True, nogil=True)
def _vector_sum(values: Any, count: int, vectors: Any) -> Any:
    """Add up whole vectors: those in pairs into two, a last odd one into a third, then halves onto halves."""
    vectors[:] = _ZERO
    paired = count // (2 * _VECTOR) * (2 * _VECTOR)
    for i in range(0, paired, 2 * _VECTOR):
        for j in range(_VECTOR):
            vectors[0, j] += values[i + j]
            vectors[1, j] += values[i + _VECTOR + j]
    if count > paired:
        for j in range(_VECTOR):
            vectors[2, j] += values[paired + j]
    for j in range(_VECTOR):
        vectors[0, j] = (vectors[0, j] + vectors[2, j]) + vectors[1, j]
    width = _VECTOR // 2
    while width:
        for j in range(width):
            vectors[0, j] += vectors[0, j + width]
        width //= 2
    return vectors[0, 0]


@njit(cache=True, nogil=True)
def _chances(scores: Any, count: int, largest: Any, vectors: Any, chances: Any) -> Any:
    """Write ``exp(scores - largest)`` as bfloat16 into ``chances``; return the sum before rounding."""
    for i in range(count):
        scores[i] -= largest
    whole = count // _VECTOR * _VECTOR
    _exponentials(scores, whole, chances.view(np.int32))
    total = _vector_sum(chances, whole, vectors)
    for i in range(whole, count):
        chances[i] = np.float32(math.exp(np.float64(scores[i])))
        total += chances[i]
    bits = chances.view(np.uint32)
    for i in range(count):
        bits[i] = _rounded(bits[i])
    return total


@njit(cache=True, nogil=True)
def _add_values(chances: Any, count: int, values: Any, out: Any) -> None:
    """Add ``chances @ values`` to ``out``: groups of four keys, then the rest backwards."""
    grouped = count // _QUAD * _QUAD
    for i in range(0, grouped, _QUAD):
        p0, p1, p2, p3 = chances[i], chances[i + 1], chances[i + 2], chances[i + 3]
        for d in range(out.shape[0]):
            even = _fma(p2, values[i + 2, d], p0 * values[i, d])
            odd = _fma(p3, values[i + 3, d], p1 * values[i + 1, d])
            out[d] += even + odd
    for i in range(count - 1, grouped - 1, -1):
        for d in range(out.shape[0]):
            out[d] = _fma(chances[i], values[i, d], out[d])


@njit(cache=True, nogil=True)
def attend_rows(  # noqa: C901
    query: Any,  # [rows, heads, head] bfloat16 as uint16
    key_quads: Any,  # [key_heads, keys, head / 4] four bfloat16 as uint64
    value: Any,  # [key_heads, keys, head] bfloat16 as uint16
    n_keys: int,  # the keys the first row sees; each row sees one more than the row before
    scaling: Any,  # float32
    out: Any,  # [rows, heads, head] bfloat16 as uint16
) -> None:
    """Let every row attend as a one-token call over its own keys would, bit for bit."""
    rows, heads, head = query.shape
    group = heads // value.shape[0]
    # Padded rows: a stride of a power of two would put all of a column into one set of the cache.
    keys = np.empty((head, _KEYS + _VECTOR), np.float32)
    values = np.empty((_KEYS, head), np.float32)
    lanes = np.empty((_QUAD, _KEYS), np.float32)
    vectors = np.empty((3, _VECTOR), np.float32)
    scores = np.empty(_KEYS, np.float32)
    chances = np.empty(_KEYS, np.float32)
    queries = np.empty((group, head), np.float32)
    sums = np.empty((rows, group), np.float32)
    largest = np.empty((rows, group), np.float32)
    totals = np.empty((rows, group, head), np.float32)
    for key_head in range(value.shape[0]):
        sums[:] = _ZERO
        largest[:] = -np.inf
        totals[:] = _ZERO
        first_head = key_head * group
        for first in range(0, n_keys + rows - 1, _KEYS):
            block = min(_KEYS, n_keys + rows - 1 - first)
            _widen_keys(key_quads[key_head], first, block, keys.view(np.uint32))
            _widen(value[key_head], first, block, values.view(np.uint32))
            for row in range(rows):
                count = min(_KEYS, n_keys + row - first)
                if count <= 0:
                    continue
                _widen(query[row, first_head : first_head + group], 0, group, queries.view(np.uint32))
                for i in range(group):
                    _scores(queries[i], keys, count, lanes, scores)
                    for j in range(count):
                        scores[j] *= scaling
                    top = max(largest[row, i], _largest(scores, count, vectors))
                    shrink = np.float32(math.exp(largest[row, i] - top))
                    total = _chances(scores, count, top, vectors, chances)
                    sums[row, i] = _fma(shrink, sums[row, i], total)
                    largest[row, i] = top
                    if first:
                        for d in range(head):
                            totals[row, i, d] *= shrink
                    _add_values(chances, count, values, totals[row, i])
        for row in range(rows):
            for i in range(group):
                inverse = _ONE / sums[row, i]
                for d in range(head):
                    totals[row, i, d] *= inverse
                bits = totals[row, i].view(np.uint32)
                for d in range(head):
                    out[row, first_head + i, d] = np.uint16(_rounded(bits[d]) >> _SHIFT)


def fits(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether ``attend`` takes these: bfloat16 on the CPU, one sequence, a usual head dimension."""
    return (
        query.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and query.shape[0] == 1
        and query.shape[-1] == value.shape[-1]
        and query.shape[-1] % HEAD_STEP == 0
    )


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    """Attend with ``query`` ``[1, heads, rows, head]``: its last row to all keys, each before to one less.

    ``key`` and ``value`` are ``[1, key heads, keys, head]``. Returns ``[1, rows, heads, head]``.
    """
    by_row = query.transpose(1, 2).contiguous()
    out = torch.empty_like(by_row)
    attend_rows(
        _words(by_row),
        _words(key.contiguous()).view(np.uint64),
        _words(value.contiguous()),
        key.shape[2] - query.shape[2] + 1,
        np.float32(scaling),
        _words(out),
    )
    return out


def _words(tensor: torch.Tensor) -> npt.NDArray[np.uint16]:
    words: npt.NDArray[np.uint16] = tensor.detach()[0].view(torch.uint16).numpy()
    return words


@functools.cache
@torch.no_grad()
def is_same_as_torch(heads: int, key_heads: int, head: int, scaling: float) -> bool:
    """Compare ``attend`` with PyTorch's one-token calls, on random numbers, at lengths around its blocks."""
    if head % HEAD_STEP or not hasattr(attend_rows, "signatures"):  # plain Python where numba is switched off
        return False
    generator = torch.Generator().manual_seed(0)
    for n_keys in (1, 2, 7, 16, 31, 48, 129, 400, 511, 514, 700, 1025, 1540):
        rows = min(n_keys, 4)
        query, key, value = (
            (3 * torch.randn(1, n_heads, length, head, generator=generator)).to(torch.bfloat16)
            for n_heads, length in ((heads, rows), (key_heads, n_keys), (key_heads, n_keys))
        )
        ours = attend(query, key, value, scaling)
        for row in range(rows):
            end = n_keys - rows + 1 + row
            theirs = torch.nn.functional.scaled_dot_product_attention(
                query[:, :, row : row + 1],
                key[:, :, :end],
                value[:, :, :end],
                scale=scaling,
                enable_gqa=heads != key_heads,
            )
            if not torch.equal(ours[:, row : row + 1], theirs.transpose(1, 2)):
                return False
    return True
