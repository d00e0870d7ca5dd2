"""Parts of the real line around 0: which one a difference lies in. Source: SPEC 7.7.

**Buckets** have equal sign and exponent. The number of one is a pattern without its `shift` bits of
mantissa. Patterns of one sign rise with the magnitude of the number. A difference that is not
finite lies in the last bucket of a sign.

**Bins** have equal widths around a dead zone. Bin j of sign s has the symbol zigzag(s * j). Lengths
are in steps, the widths of a bin. The first bin begins where the zone ends.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from . import is_compiled, kernel

PATTERNS: Final = (("f4", "u4"), ("f8", "u8"))


def has_loops(work: np.dtype[Any]) -> bool:
    """Return whether there are compiled loops for differences of a type."""
    return work.itemsize >= 4 and is_compiled(extremes)


def _extremes_loop(  # what may change is found before
    values: Array, reference: Array, shift: int, plus: int, minus: int, least: Array, most: Array
) -> None:
    """Lower the least and raise the greatest pattern of each bucket by those of differences.

    Parameters
    ----------
    values, reference
        Floating point numbers. The reference is empty where there is none: then the values
        themselves are looked at. Differences that are not finite are left out.
    plus, minus
        The first exponent of positive differences that counts, and of negative ones. Buckets of
        smaller exponents may be left out.
    least, most
        Patterns of each bucket. They are changed.
    """
    d, unit = np.empty(_FEW, values.dtype), least.dtype.type
    patterns, bits = d.view(least.dtype), unit(shift)
    half = least.size // 2
    low, high = least.copy(), most.copy()
    for bucket in (half - 1, 2 * half - 1):  # whose patterns change nothing
        low[bucket], high[bucket] = 0, ~unit(0)
    # Most buckets have all mantissas from a near to a far one; others begin at an edge. Where no
    # difference has another mantissa, or lies behind the edge, nothing changes.
    magnitude, mantissa = unit(~unit(0) >> unit(1)), unit((1 << shift) - 1)
    near, far, edge, floor = unit(0), mantissa, magnitude, unit(min(plus, minus) << shift)
    for begin, end in ((plus, half - 1), (half + minus, 2 * half - 1)):
        for bucket in range(begin, end):
            lowest, highest = unit(low[bucket] & mantissa), unit(high[bucket] & mantissa)
            if low[bucket] > high[bucket] or lowest > mantissa >> _SPREAD:
                edge = min(edge, unit(unit(bucket % half) << bits))
                continue
            near = max(near, lowest)
            if unit(mantissa - highest) > mantissa >> _SPREAD:
                edge = min(edge, unit(high[bucket] & magnitude) + unit(1))
            else:
                far = min(far, highest)
    for start in range(0, values.size, _FEW):
        own = values[start : start + _FEW]
        if reference.size:
            before = reference[start : start + own.size]
            for k in range(own.size):
                d[k] = own[k] - before[k]
        else:
            for k in range(own.size):
                d[k] = own[k]
        some = False
        for k in range(own.size):
            size = unit(patterns[k] & magnitude)
            rest = unit(size & mantissa)
            some |= (size >= edge) | (size >= floor) & ((rest < near) | (rest > far))
        for k in range(own.size if some else 0):
            pattern = patterns[k]
            bucket = pattern >> bits
            # A bucket seldom becomes wider.
            if pattern < low[bucket]:  # noqa: PLR1730 - a store each time would be waited for
                low[bucket] = pattern
            if pattern > high[bucket]:  # noqa: PLR1730
                high[bucket] = pattern
    for begin in (0, half):
        least[begin : begin + half - 1] = low[begin : begin + half - 1]
        most[begin : begin + half - 1] = high[begin : begin + half - 1]


_FEW: Final = 1 << 8  # differences at a time that are looked at together
_SPREAD: Final = 12  # a bucket has nearly all mantissas if the others are one in so many, as a power of 2

extremes = kernel(
    None, _extremes_loop, *(f"in {t}, in {t}, i8, i8, i8, out {u}, out {u}" for t, u in PATTERNS)
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


def zigzags(
    differences: Array, reciprocals: Any, ends: Any, edge: float, wide: bool, narrowed: bool
) -> tuple[Array, Array | None]:
    """Return the symbols of differences, and which lie past the last bin, bool or ``None``.

    Parameters
    ----------
    differences
        Finite numbers.
    reciprocals
        Steps for each unit, at least float32: a number, or one for each difference.
    ends
        Where the last bin ends, behind the zone, plus 1; an integer, or one for each difference.
        Past it the symbol is 0.
    edge
        Where the zone ends.
    wide
        Whether symbols are uint16, and not uint8.
    narrowed
        Whether differences in the zone go to the first bin.
    """
    symbols = np.empty(differences.size, np.uint16 if wide else np.uint8)
    past = np.empty(differences.size, np.uint8)
    form = _zigzags if differences.dtype.char in "fd" and np.ndim(ends) == 0 else zigzags_numpy
    some = form(differences, reciprocals, ends, edge, narrowed, symbols, past)
    return symbols, past.view(np.bool_) if some else None


def zigzags_numpy(
    differences: Array, reciprocals: Any, ends: Any, edge: float, narrowed: bool, symbols: Array, past: Array
) -> bool:
    """Write symbols, and which differences lie past the last bin; return whether any does."""
    work = reciprocals.dtype
    with np.errstate(over="ignore"):
        scaled = np.multiply(differences, reciprocals, dtype=work)
    if narrowed:
        np.copysign(np.maximum(np.abs(scaled), edge), scaled, out=scaled)
    # Round away from zero above the zone: add the rest of a step with the sign, then truncate.
    # Making the signed constant from bits is several times as fast as copysign.
    pattern = np.dtype(f"u{work.itemsize}")
    offset = scaled.view(pattern) & pattern.type(1 << (8 * work.itemsize - 1))
    offset |= work.type(1 - edge).view(pattern)
    scaled += offset.view(work)
    some = False
    if np.ndim(ends) or not _are_below(scaled, ends):
        outside = np.logical_not(np.abs(scaled) < ends, out=past.view(np.bool_))
        some = bool(outside.any())
        scaled[outside] = 0
    index = scaled.astype(np.int8 if symbols.itemsize == 1 else np.int32)
    index = (index << 1) ^ (index >> (8 * index.itemsize - 1))
    symbols[:] = index.view(np.uint8) if symbols.itemsize == 1 else index
    return some


def _are_below(scaled: Array, end: Any) -> bool:
    # The ufunc's reduce takes half the time of the array's max, which matters for a few numbers.
    largest = np.maximum.reduce(scaled, initial=0), -np.minimum.reduce(scaled, initial=0)
    return bool(max(largest) < end)


def _zigzags_loop(
    differences: Array, reciprocals: Any, ends: Any, edge: float, narrowed: bool, symbols: Array, past: Array
) -> bool:
    kind = differences.dtype.type
    near, rest, end = kind(edge), kind(1 - edge), kind(ends)
    some = 0
    for i in range(differences.size):
        scaled = differences[i] * reciprocals
        size = abs(scaled)
        if narrowed:
            size = max(size, near)
        size += rest
        inside = size < end
        past[i] = not inside
        some |= not inside
        index = np.int32(size if inside else kind(0))
        symbols[i] = 2 * index - (index > 0 and np.signbit(scaled))
    return some != 0


_zigzags = kernel(
    zigzags_numpy,
    _zigzags_loop,
    *(f"in {t}, {t}, i8, f8, b1, out {s}, out u1" for s in ("u1", "u2") for t in ("f4", "f8")),
)
