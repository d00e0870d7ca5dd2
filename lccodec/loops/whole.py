"""All symbols of a piece, and the values that they stand for, in one pass over it.

This is for pieces in which many differences lie outside the dead zone: there a search for them
takes longer. An encoder takes each difference, finds its symbol, and decodes it; a decoder has the
symbols. The reference is empty where there is none: then the values themselves are coded. Source:
SPEC 7.6 and 7.7.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_table import ELEMENT_TYPES
from ..element_types import Array
from . import inlined, is_compiled, kernel
from .partitions import zigzags_numpy
from .representatives import TYPES, limit_of, reconstruct, serves, settle_numpy

_CHUNK: Final = 1 << 11  # values at a time, which stay in the first-level cache
_FEW: Final = 8  # entries of a table that loops compare with instead of looking them up

#: What a bucket has in the place of a symbol if its differences are stored exactly.
UNFIT: Final = 1 << 8


def has_loops() -> bool:
    """Return whether there are compiled loops: the others take longer than a search."""
    return is_compiled(_settle_bins)


def settle_bins(
    values: Array,
    reference: Array,
    bins: tuple[Any, Any, Any, int, float],
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    bound: float,
    code: int,
) -> Array:
    """Write symbols of uniform bins and decoded values; return the places of what is exact, int64.

    Parameters
    ----------
    values, reference
        Numbers, float32 or float64.
    bins
        The bounds of the zone, and what `zigzags` gets: steps for each unit, where the last bin
        ends, and where the zone ends.
    symbols, fits
        The symbols, uint8 or uint16: 0 in the zone, and of what is stored exactly. And whether a
        difference has its symbol, uint8.
    table, original, result, bound, code
        As for :func:`lccodec.loops.representatives.settle`.
    """
    low, high, reciprocal, end, edge = bins
    limit = limit_of(bound, ELEMENT_TYPES[code])
    place = low, high, reciprocal, float(end), edge
    some = _settle_bins(values, reference, *place, symbols, fits, table, original, result, limit, code)
    return np.flatnonzero(fits == 0) if some else _NO_PLACES


_NO_PLACES: Final = np.zeros(0, np.int64)


def _settle_bins_numpy(
    values: Array,
    reference: Array,
    low: Any,
    high: Any,
    reciprocal: Any,
    end: float,
    edge: float,
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    with np.errstate(all="ignore"):
        d = values - reference if reference.size else values
    inside, past = (low < d) & (d < high), np.zeros(d.size, np.uint8)
    kept = np.where(np.isfinite(d) & ~inside, d, d.dtype.type(0))
    zigzags_numpy(kept, reciprocal, end, edge, False, symbols, past)
    symbols[inside] = 0
    fits[:] = inside | np.isfinite(d) & (past == 0)
    return _settle_numpy(reference, symbols, fits, table, original, result, limit, code)


def _settle_numpy(
    reference: Array,
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    places, before = np.arange(result.size), reference.view(original.dtype)
    return settle_numpy(symbols, fits, places, table, original, before, result, limit, code)


@inlined
def _subtract(values: Array, reference: Array, start: int, d: Array) -> None:
    own = values[start : start + _CHUNK]
    if reference.size:
        before = reference[start : start + _CHUNK]
        for k in range(own.size):
            d[k] = own[k] - before[k]
    else:
        for k in range(own.size):
            d[k] = own[k]


@inlined
def _look_up(symbols: Array, table: Array, few: Array, values: Array) -> None:
    if table.size <= few.size:
        t0, t1, t2, t3, t4, t5, t6, t7 = _entries(few)
        for k in range(symbols.size):
            symbol, value = symbols[k], t0
            value = t1 if symbol == 1 else value
            value = t2 if symbol == 2 else value
            value = t3 if symbol == 3 else value
            value = t4 if symbol == 4 else value
            value = t5 if symbol == 5 else value
            value = t6 if symbol == 6 else value
            value = t7 if symbol == 7 else value
            values[k] = value
    else:
        for k in range(symbols.size):
            values[k] = table[symbols[k]]


@inlined
def _entries(few: Array) -> tuple[Any, ...]:
    return few[0], few[1], few[2], few[3], few[4], few[5], few[6], few[7]


@inlined
def _padded(table: Array) -> Array:
    few = np.zeros(_FEW, table.dtype)
    for place in range(min(few.size, table.size)):
        few[place] = table[place]
    return few


@inlined
def _add(symbols: Array, table: Array, few: Array, reference: Array, start: int, values: Array) -> None:
    _look_up(symbols, table, few, values)
    if reference.size:
        before = reference[start : start + _CHUNK]
        for k in range(symbols.size):
            values[k] = before[k] + values[k]


@inlined
def _settle(
    chosen: Array, kept: Array, start: int, values: Array, original: Array, result: Array, limit: np.floating
) -> int:
    own, bits = original.view(values.dtype)[start : start + _CHUNK], original[start : start + _CHUNK]
    out, exact = result.view(values.dtype)[start : start + _CHUNK], result[start : start + _CHUNK]
    fit, some = 0, limit < np.inf
    for k in range(chosen.size):
        some |= not abs(values[k]) < np.inf
    for k in range(chosen.size if some else 0):
        kept[k] &= (abs(values[k]) < np.inf) & ((limit == np.inf) | (abs(values[k] - own[k]) <= limit))
    for k in range(chosen.size):
        fit += kept[k]
    for k in range(chosen.size):
        out[k] = values[k]
    for k in range(0 if fit == chosen.size else chosen.size):
        if not kept[k]:
            chosen[k], exact[k] = 0, bits[k]
    return chosen.size - fit


def _settle_bins_loop(
    values: Array,
    reference: Array,
    low: Any,
    high: Any,
    reciprocal: Any,
    end: float,
    edge: float,
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    d, few, missed = np.empty(_CHUNK, values.dtype), _padded(table), 0
    kind = values.dtype.type
    rest, last, nothing = kind(1 - edge), kind(end), kind(0)
    for start in range(0, values.size, _CHUNK):
        _subtract(values, reference, start, d)
        chosen, kept = symbols[start : start + _CHUNK], fits[start : start + _CHUNK]
        for k in range(chosen.size):
            scaled = d[k] * reciprocal
            size = abs(scaled) + rest
            zone, inside = (low < d[k]) & (d[k] < high), size < last
            index = np.int32(size if inside and not zone else nothing)
            chosen[k] = 2 * index - (index > 0 and np.signbit(scaled))
            kept[k] = zone | inside
        _add(chosen, table, few, reference, start, d)
        missed += _settle(chosen, kept, start, d, original, result, limit)
    return missed


_settle_bins = kernel(
    _settle_bins_numpy,
    _settle_bins_loop,
    *(
        f"in {t}, in {t}, {t}, {t}, {t}, f8, f8, out {s}, out u1, in {t}, in {u}, out {u}, {t}, i8"
        for s, t, u in TYPES
    ),
)


def window_of(table: Array, dtype: np.dtype[Any]) -> Array:
    """Return the symbols of buckets as three numbers, which a processor has in registers.

    They are an exponent, and what eight exponents from that one on have, four bits each: a symbol,
    or 8 if it is `UNFIT`; of positive differences, then of negative ones. Smaller exponents have
    what the first has, and larger ones what the last has. The array is empty if the table has more
    than that. `dtype` is that of patterns.
    """
    signs = np.where(table == UNFIT, 8, table).reshape(2, -1)
    base = max(int((signs != signs[:, :1]).argmax(axis=1).min()) - 1, 0)
    shown = signs[:, base : base + 8]
    if int(shown.max()) > 8 or (signs[:, base + 8 :] != shown[:, -1:]).any():
        return np.zeros(0, dtype)
    joined = (shown.astype(np.uint64) << (4 * np.arange(8, dtype=np.uint64))).sum(axis=1)
    return np.array([base, *joined.tolist()], dtype)


def settle_buckets(
    values: Array,
    reference: Array,
    buckets: tuple[int, Array, Array],
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    bound: float,
    code: int,
) -> Array:
    """Do what :func:`settle_bins` does for buckets of equal sign and exponent.

    They are given by how many bits of mantissa a pattern has, the symbol of each bucket, uint16, or
    `UNFIT`; and what `window_of` returns for these.
    """
    limit = limit_of(bound, ELEMENT_TYPES[code])
    some = _settle_buckets(values, reference, *buckets, symbols, fits, table, original, result, limit, code)
    return np.flatnonzero(fits == 0) if some else _NO_PLACES


def _settle_buckets_numpy(
    values: Array,
    reference: Array,
    shift: int,
    chosen_of: Array,
    window: Array,
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    with np.errstate(all="ignore"):
        d = values - reference if reference.size else values
    found = chosen_of.take((d.view(window.dtype) >> shift).astype(np.intp), mode="clip")
    symbols[:] = found.astype(np.uint8)
    fits[:] = found < UNFIT
    return _settle_numpy(reference, symbols, fits, table, original, result, limit, code)


def _settle_buckets_loop(
    values: Array,
    reference: Array,
    shift: int,
    chosen_of: Array,
    window: Array,
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    d, few, missed = np.empty(_CHUNK, values.dtype), _padded(table), 0
    unit, patterns = window.dtype.type, d.view(window.dtype)
    bits, top, exponents = unit(shift), unit(8 * values.itemsize - 1), unit(chosen_of.size // 2 - 1)
    one, two, three, seven = np.uint8(1), unit(2), np.uint8(3), unit(7)
    base, plus, minus = (window[0], window[1], window[2]) if window.size else (two, two, two)
    for start in range(0, values.size, _CHUNK):
        _subtract(values, reference, start, d)
        chosen, kept = symbols[start : start + _CHUNK], fits[start : start + _CHUNK]
        if window.size:
            for k in range(chosen.size):
                exponent = unit(unit(patterns[k] >> bits) & exponents)
                place = min(unit(max(exponent, base) - base), seven)
                entries = minus if patterns[k] >> top else plus
                kept[k] = entries >> unit(place << two)
            for k in range(chosen.size):
                chosen[k] = kept[k] & np.uint8(7)
            for k in range(chosen.size):
                kept[k] = ~kept[k] >> three & one
        else:
            for k in range(chosen.size):
                found = chosen_of[patterns[k] >> bits]
                chosen[k] = found & 255
                kept[k] = found < UNFIT
        _add(chosen, table, few, reference, start, d)
        missed += _settle(chosen, kept, start, d, original, result, limit)
    return missed


_settle_buckets = kernel(
    _settle_buckets_numpy,
    _settle_buckets_loop,
    *(
        f"in {t}, in {t}, i8, in u2, in {u}, out {s}, out u1, in {t}, in {u}, out {u}, {t}, i8"
        for s, t, u in TYPES
        if s == "u1"
    ),
)


def write_sums(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    """Write the values of all symbols into `out`, which may be the reference."""
    form = _write_sums if serves(table, ELEMENT_TYPES[code], symbols.itemsize) else _write_sums_numpy
    form(symbols, table, reference, out, code)


def _write_sums_numpy(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    reconstruct(table.take(symbols, mode="clip"), reference, ELEMENT_TYPES[code], out)


def _write_sums_loop(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    before, result = reference.view(table.dtype), out.view(table.dtype)
    values, few = np.empty(_CHUNK, table.dtype), _padded(table)
    for start in range(0, symbols.size, _CHUNK):
        chosen, some = symbols[start : start + _CHUNK], result[start : start + _CHUNK]
        _add(chosen, table, few, before, start, values)
        for k in range(some.size):
            some[k] = values[k]


_write_sums = kernel(
    _write_sums_numpy,
    _write_sums_loop,
    *(f"in {s}, in {t}, in {u}, out {u}, i8" for s, t, u in TYPES),
)
