"""The promotion selector: which exponent buckets keep a representative, which fall to zero.

Source: LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority promotion"; SPEC 7.7, LCC-PRM-01.
"""

from __future__ import annotations

import numpy as np

from .floats import Array

__all__ = ["promote", "promote_each"]


def promote(exponents: Array, negative: Array, bits: int) -> Array:
    """Return the indices of the promoted buckets of one array, in the order of their symbols.

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
    return promote_each(np.zeros(exponents.size, np.int64), exponents, negative, bits)[0]


def promote_each(owners: Array, exponents: Array, negative: Array, bits: int) -> tuple[Array, Array]:
    """Promote the buckets of several arrays at once, each array for itself.

    Parameters
    ----------
    owners
        Number of the array that each bucket belongs to, int64.
    exponents, negative, bits
        As for :func:`promote`.

    Returns
    -------
    tuple of ndarray
        Indices of the promoted buckets (int64), those of one array adjacent and in the order of their
        symbols; and their symbols (uint8), from 1 on in each array.
    """
    exponents = exponents.astype(np.int64)
    largest = int(exponents.max(initial=0))
    order = np.argsort((owners * (largest + 1) + largest - exponents) * 2 + negative)
    owner = owners[order]
    place = np.arange(order.size)
    first = np.concatenate([[True], owner[1:] != owner[:-1]])[: order.size]
    rank = place - np.maximum.accumulate(np.where(first, place, 0))
    kept = np.flatnonzero(rank < (1 << bits) - 1)
    return order[kept], (rank[kept] + 1).astype(np.uint8)
