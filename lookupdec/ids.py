"""Token ids at the border: any integer sequence in, contiguous int32 arrays inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lookupdec.errors import DrafterError

Ids = Sequence[int] | npt.NDArray[np.integer]
"""Token ids: any integer sequence or one-dimensional integer array."""

Int32Array = npt.NDArray[np.int32]

MAX_ID = 2**31 - 1


def as_ids(ids: Ids) -> Int32Array:
    """Return ``ids`` as a contiguous one-dimensional int32 array, without a copy where it is one already.

    Raises
    ------
    DrafterError
        The ids are not whole numbers, not one-dimensional, negative, or larger than int32 holds.
    """
    if isinstance(ids, np.ndarray) and ids.dtype == np.int32 and ids.ndim == 1 and ids.flags.c_contiguous:
        array = ids
    else:
        try:
            wide = np.asarray(ids)
            if wide.size and wide.dtype.kind not in "iu":
                raise DrafterError(f"token ids must be whole numbers, not {wide.dtype}")
            if wide.ndim != 1:
                raise DrafterError(f"token ids must be one-dimensional, not of shape {wide.shape}")
            if wide.size and wide.dtype != np.int32 and (wide.max() > MAX_ID or wide.min() < 0):
                raise DrafterError(f"token ids must lie in 0 .. {MAX_ID}, got {wide.min()} .. {wide.max()}")
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, DrafterError):
                raise
            raise DrafterError(f"token ids must be a flat sequence of whole numbers: {error}") from error
        return np.ascontiguousarray(wide, dtype=np.int32)
    if array.size and array.min() < 0:
        raise DrafterError(f"token ids must lie in 0 .. {MAX_ID}, got {array.min()}")
    return array
