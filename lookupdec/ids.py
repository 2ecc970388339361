"""Token ids at the border: any integer sequence in, contiguous int32 arrays inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookupdec.errors import DrafterError

Ids = Sequence[int] | npt.NDArray[np.integer]
"""Token ids: any integer sequence or one-dimensional integer array."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Text that is expected to come back: ids, or a span of the prompt.

    ``variants`` are other forms in which it may come: escaped, say, or with another indentation.
    """

    ids: Ids | slice
    variants: Sequence[Ids] = ()


Int32Array = npt.NDArray[np.int32]

MAX_ID = 2**31 - 2
"""The largest token id; the next one separates documents."""

FEW = 16  # about what a pass emits: checked faster one by one


def as_ids(ids: Ids) -> Int32Array:
    """Return ``ids`` as a contiguous one-dimensional int32 array, without a copy where it is one already.

    Raises
    ------
    DrafterError
        The ids are not whole numbers, not one-dimensional, negative, or larger than ``MAX_ID``.
    """
    few = isinstance(ids, tuple | list) and len(ids) <= FEW
    if few and all(type(token) is int and 0 <= token <= MAX_ID for token in ids):
        return np.array(ids, np.int32)
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise DrafterError(f"token ids must be a flat sequence of whole numbers: {error}") from error
    if array.ndim != 1:
        raise DrafterError(f"token ids must be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise DrafterError(f"token ids must be whole numbers in 0 .. {MAX_ID}, not {array.dtype}")
    if array.min() < 0 or array.max() > MAX_ID:
        raise DrafterError(f"token ids must lie in 0 .. {MAX_ID}, got {array.min()} .. {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int32)
