"""The promotion selector: which exponent buckets keep a representative, which fall to zero.

Source: LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority promotion"; SPEC 7.7, LCC-PRM-01.
"""

from __future__ import annotations

import numpy as np

from .floats import Array

__all__ = ["promote"]


def promote(exponents: Array, negative: Array, bits: int) -> Array:
    """Return the indices of the promoted buckets, in the order of their symbols.

    Parameters
    ----------
    exponents
        Exponent of each occupied bucket, integers of shape ``(buckets,)``.
    negative
        Whether the bucket holds negative values, bool of the same shape.
    bits
        Bits of a symbol: ``2**bits - 1`` buckets are promoted, symbol 0 stands for all the rest.

    Returns
    -------
    ndarray
        int64, at most ``2**bits - 1`` indices: the largest exponents first, and of two buckets with
        equal exponent the positive one first (LCC-PRM-01).
    """
    order: Array = np.lexsort((negative, -exponents.astype(np.int64)))
    return order[: (1 << bits) - 1]
