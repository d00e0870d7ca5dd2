"""Buckets of equal sign and exponent: the extremes of each, and its symbol. Source: SPEC 7.7.

The number of a bucket is a pattern without its `shift` bits of mantissa. Patterns of one sign rise
with the magnitude of the number. A difference that is not finite lies in the last bucket of a sign.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from . import is_compiled, kernel

_CHUNK: Final = 1 << 10  # differences at a time, which stay in the first-level cache
_PATTERNS: Final = (("f4", "u4"), ("f8", "u8"))


def extremes(values: Array, reference: Array, shift: int, least: Array, most: Array) -> None:
    """Lower the least and raise the greatest pattern of each bucket by those of differences.

    Parameters
    ----------
    values, reference
        Floating point numbers. The reference is empty where there is none: then the values
        themselves are looked at. Differences that are not finite are left out.
    least, most
        Patterns of each bucket. They are changed.
    """
    form = _extremes if values.itemsize >= 4 else _extremes_numpy
    form(values, reference, shift, least, most)


def has_loops(work: np.dtype[Any]) -> bool:
    """Return whether there are compiled loops for differences of a type."""
    return work.itemsize >= 4 and is_compiled(_extremes)


def _extremes_numpy(values: Array, reference: Array, shift: int, least: Array, most: Array) -> None:
    with np.errstate(all="ignore"):
        d = values - reference if reference.size else values
    patterns = d[np.isfinite(d)].view(least.dtype)
    buckets = (patterns >> shift).astype(np.intp)
    np.minimum.at(least, buckets, patterns)
    np.maximum.at(most, buckets, patterns)


def _extremes_loop(values: Array, reference: Array, shift: int, least: Array, most: Array) -> None:
    d = np.empty(_CHUNK, values.dtype)
    patterns, bits = d.view(least.dtype), least.dtype.type(shift)
    last = least.size // 2 - 1
    low, high = least.copy(), most.copy()
    for bucket in (last, 2 * last + 1):  # whose patterns change nothing
        low[bucket], high[bucket] = 0, ~least.dtype.type(0)
    for start in range(0, values.size, _CHUNK):
        own = values[start : start + _CHUNK]
        if reference.size:
            before = reference[start : start + _CHUNK]
            for k in range(own.size):
                d[k] = own[k] - before[k]
        else:
            d[: own.size] = own
        for k in range(own.size):
            pattern = patterns[k]
            bucket = pattern >> bits
            # A bucket seldom becomes wider.
            if pattern < low[bucket]:  # noqa: PLR1730 - a store each time would be waited for
                low[bucket] = pattern
            if pattern > high[bucket]:  # noqa: PLR1730
                high[bucket] = pattern
    for first in (0, last + 1):
        least[first : first + last] = low[first : first + last]
        most[first : first + last] = high[first : first + last]


_extremes = kernel(
    _extremes_numpy, _extremes_loop, *(f"in {t}, in {t}, i8, out {u}, out {u}" for t, u in _PATTERNS)
)


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


def all_bucket_symbols(
    values: Array, reference: Array, shift: int, table: Array, symbols: Array, fits: Array
) -> None:
    """Write the symbols of all differences, also of those in a dead zone.

    Parameters
    ----------
    values, reference
        As for :func:`extremes`.
    table
        Of each bucket its symbol, uint16; or `UNFIT` if its differences are stored exactly.
    symbols, fits
        The symbols, uint8; and 1 where a difference has one, else 0, uint8.
    """
    form = _all_bucket_symbols if values.itemsize >= 4 else _all_bucket_symbols_numpy
    bits = np.dtype(f"u{values.itemsize}").type(shift)  # its type is that of patterns
    form(values, reference, bits, table, symbols, fits)


#: What a bucket has in the place of a symbol if its differences are stored exactly.
UNFIT: Final = 1 << 8


def _all_bucket_symbols_numpy(
    values: Array, reference: Array, shift: Any, table: Array, symbols: Array, fits: Array
) -> None:
    with np.errstate(all="ignore"):
        d = values - reference if reference.size else values
    found = table.take((d.view(shift.dtype) >> shift).astype(np.intp), mode="clip")
    symbols[:] = found.astype(np.uint8)
    fits[:] = found < UNFIT


def _all_bucket_symbols_loop(
    values: Array, reference: Array, shift: Any, table: Array, symbols: Array, fits: Array
) -> None:
    d = np.empty(_CHUNK, values.dtype)
    patterns = d.view(np.full(1, shift).dtype)
    for start in range(0, values.size, _CHUNK):
        own = values[start : start + _CHUNK]
        if reference.size:
            before = reference[start : start + _CHUNK]
            for k in range(own.size):
                d[k] = own[k] - before[k]
        else:
            d[: own.size] = own
        chosen, kept = symbols[start : start + _CHUNK], fits[start : start + _CHUNK]
        for k in range(own.size):
            found = table[patterns[k] >> shift]
            chosen[k] = found
            kept[k] = found < UNFIT


_all_bucket_symbols = kernel(
    _all_bucket_symbols_numpy,
    _all_bucket_symbols_loop,
    *(f"in {t}, in {t}, {u}, in u2, out u1, out u1" for t, u in _PATTERNS),
)
