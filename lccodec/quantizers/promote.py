"""The promotion selector: which exponent buckets keep a representative, which fall to zero.

Source: LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority promotion"; SPEC 7.7, LCC-PRM-01.
"""

from __future__ import annotations

import numpy as np

from ..element_types import Array

__all__ = ["promote", "promotion_order"]


def promote(exponents: Array, negative: Array, bits: int) -> Array:
    """Return the indices of the promoted buckets of one array, in the order of their symbols.

    Parameters
    ----------
    exponents, negative
        As for :func:`promotion_order`.
    bits
        Bits of a symbol: ``2**bits - 1`` buckets are promoted, symbol 0 stands for all the rest.

    Returns
    -------
    ndarray
        int64, at most ``2**bits - 1`` indices.
    """
    return promotion_order(exponents, negative)[: (1 << bits) - 1]


def promotion_order(exponents: Array, negative: Array) -> Array:
    """Return the indices (int64) of buckets, those that are promoted sooner first.

    These are the ones of larger exponents, and of two with equal exponent the positive one (LCC-PRM-01).

    Parameters
    ----------
    exponents
        Exponent of each bucket, integers of shape ``(buckets,)``.
    negative
        Whether the bucket holds negative values, bool of the same shape.
    """
    return np.lexsort((negative, -exponents.astype(np.int64)))
