"""Buckets of equal sign and exponent: the extremes of each, and its symbol. Source: SPEC 7.7.

The number of a bucket is a pattern without its `shift` bits of mantissa. Patterns of one sign rise
with the magnitude of the number.
"""

from __future__ import annotations

import numpy as np

from ..element_types import Array
from . import kernel


def widen(patterns: Array, shift: int, least: Array, most: Array) -> None:
    """Lower the least and raise the greatest pattern of each bucket by those of differences.

    Parameters
    ----------
    patterns
        Of finite differences.
    least, most
        Patterns of each bucket. They are changed.
    """
    (_widen if patterns.itemsize >= 4 else _widen_numpy)(patterns, shift, least, most)


def _widen_numpy(patterns: Array, shift: int, least: Array, most: Array) -> None:
    buckets = (patterns >> shift).astype(np.intp)
    np.minimum.at(least, buckets, patterns)
    np.maximum.at(most, buckets, patterns)


def _widen_loop(patterns: Array, shift: int, least: Array, most: Array) -> None:
    bits = patterns.dtype.type(shift)
    for i in range(patterns.size):
        pattern = patterns[i]
        bucket = pattern >> bits
        # A bucket seldom becomes wider.
        least[bucket] = min(least[bucket], pattern)
        most[bucket] = max(most[bucket], pattern)


_widen = kernel(_widen_numpy, _widen_loop, *(f"in {u}, i8, out {u}, out {u}" for u in ("u4", "u8")))


def bucket_symbols(patterns: Array, shift: int, table: Array) -> Array:
    """Return the symbol (uint8) of each difference, given that of each bucket."""
    form = _bucket_symbols if patterns.itemsize >= 4 else _bucket_symbols_numpy
    return form(patterns, shift, table)


def _bucket_symbols_numpy(patterns: Array, shift: int, table: Array) -> Array:
    return table.take((patterns >> shift).astype(np.intp), mode="clip")


def _bucket_symbols_loop(patterns: Array, shift: int, table: Array) -> Array:
    bits = patterns.dtype.type(shift)
    symbols = np.empty(patterns.size, np.uint8)
    for i in range(patterns.size):
        symbols[i] = table[patterns[i] >> bits]
    return symbols


_bucket_symbols = kernel(
    _bucket_symbols_numpy, _bucket_symbols_loop, *(f"in {u}, i8, in u1" for u in ("u4", "u8"))
)
