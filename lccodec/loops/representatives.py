"""Representatives added to a reference: by the encoder, which checks them, and by the decoder.

Values are components: bit patterns. Representatives are numbers, or steps of the order-preserving
integers, of the type of components. The reference is empty where there is none. `code` is that of
the element type. Source: SPEC 7.6 (LCC-REC-03, LCC-REC-04) and 7.7.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ..element_table import ELEMENT_TYPES, ElementType
from ..element_types import Array, add, add_at, octaves, unwork, work
from ..parallel import slices
from . import inlined, kernel

_NO_PLACES: Final = np.zeros(0, np.int64)


#: Types of symbols, of numbers and of components for which there are compiled loops.
_TYPES: Final = [(s, t, u) for s in ("u1", "u2") for t, u in (("f4", "u4"), ("f8", "u8"))]


def is_native(kind: ElementType) -> bool:
    """Return whether numbers of a type are computed as they are stored, in 32 or 64 bits."""
    return kind.work.itemsize == kind.size >= 4


def serves(table: Array, kind: ElementType) -> bool:
    """Return whether there are compiled loops; few values move in steps of order."""
    return is_native(kind) and table.dtype == kind.work


def _is_served(symbols: Array, table: Array, kind: ElementType) -> bool:
    return serves(table, kind) and symbols.itemsize <= 2


def reconstruct(values: Array, reference: Array, kind: ElementType, out: Array) -> None:
    """Write reference + values to `out` (LCC-REC-03); without a reference, the values."""
    if reference.size:
        add(reference, values, kind, out)
    else:
        out[:] = unwork(values, kind)


def settle(
    symbols: Array,
    fits: Array,
    places: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    bound: float,
    code: int,
) -> Array:
    """Decode the symbols of an encoder; store what they cannot stand for exactly, with symbol 0.

    Parameters
    ----------
    symbols
        Symbols at places. Those of values that are stored exactly become 0.
    fits
        Whether a difference has its symbol, uint8. It is changed.
    places
        Places of the symbols in the three arrays that follow, int64, rising.
    table
        Representative of each symbol.
    original, reference, result
        Values, their reference, and where decoded values are written; it may be the reference.
        Other places of the result are not changed.
    bound
        The largest error that is allowed, infinite for no bound.
    code
        Code of the element type.

    Returns
    -------
    ndarray
        Places of the values that are stored exactly, int64.
    """
    kind = ELEMENT_TYPES[code]
    form = _settle if _is_served(symbols, table, kind) else _settle_numpy
    limit = _limit(bound, kind)
    if form(symbols, fits, places, table, original, reference, result, limit, code):
        escaped: Array = places.take(np.flatnonzero(fits == 0))
        return escaped
    return _NO_PLACES


def _limit(bound: float, kind: ElementType) -> np.floating:
    """Return the largest number that a computed difference may have.

    The computed difference is rounded to nearest. It is compared with the number just below the
    bound, so the exact difference is inside the bound too.
    """
    wide = np.promote_types(kind.work, np.float32).type
    with np.errstate(over="ignore"):
        limit: np.floating = wide(bound)
        if bound < math.inf:
            limit = np.nextafter(limit, wide(0))
    if float(limit) > bound:  # the bound itself was rounded up
        limit = np.nextafter(limit, wide(0))
    return limit


def _settle_numpy(
    symbols: Array,
    fits: Array,
    places: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    kind, kept = ELEMENT_TYPES[code], fits.view(np.bool_)
    every = places.size == result.size
    values = result if every else np.empty(places.size, result.dtype)
    before = reference if every or not reference.size else reference.take(places, mode="clip")
    reconstruct(table.take(symbols, mode="clip"), before, kind, values)
    kept &= np.isfinite(work(values, kind))  # the sum can overflow where the difference did not
    if limit < math.inf:
        near = original.take(places, mode="clip")
        with np.errstate(all="ignore"):
            if table.dtype == kind.bits:
                distance = np.abs(octaves(values, near, kind))
            else:
                distance = np.abs(work(values, kind).astype(limit.dtype, copy=False) - work(near, kind))
        kept &= distance <= limit
    few = _NO_PLACES if kept.all() else np.flatnonzero(~kept)
    if few.size:
        symbols[few] = 0
        values[few] = original.take(places.take(few), mode="clip")
    if not every:
        result[places] = values
    return few.size


def _settle_loop(
    symbols: Array,
    fits: Array,
    places: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    before, out, exact = reference.view(table.dtype), result.view(table.dtype), original.view(table.dtype)
    some, unbound = 0, limit == np.inf
    for k in range(places.size):
        i = places[k]
        value = table[symbols[k]]
        if reference.size:
            value = before[i] + value
        near = unbound or abs(value - exact[i]) <= limit
        if fits[k] and np.isfinite(value) and near:
            out[i] = value
        else:
            symbols[k] = 0
            result[i] = original[i]
            fits[k] = 0
            some += 1
    return some


_settle = kernel(
    _settle_numpy,
    _settle_loop,
    *(f"out {s}, out u1, in i8, in {t}, in {u}, in {u}, out {u}, {t}, i8" for s, t, u in _TYPES),
)


_PLACES_AT_A_TIME: Final = 1 << 14  # that are changed, so that they and what is added stay in the cache
_CHUNK: Final = 1 << 10  # values at a time, which stay in the first-level cache


def settle_all(
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    bound: float,
    code: int,
) -> Array:
    """Do what :func:`settle` does, with the symbols of all values, for which `serves` is true."""
    limit = _limit(bound, ELEMENT_TYPES[code])
    if _settle_all(symbols, fits, table, original, reference, result, limit, code):
        return np.flatnonzero(fits == 0)
    return _NO_PLACES


def _settle_all_numpy(
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    places = np.arange(result.size)
    return _settle_numpy(symbols, fits, places, table, original, reference, result, limit, code)


@inlined
def _look_up(symbols: Array, table: Array, eight: Array, values: Array) -> None:
    # Of a small table, all entries are in registers, and are compared.
    if table.size <= eight.size:
        t0, t1, t2, t3, t4, t5, t6, t7 = _entries(eight)
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
def _entries(eight: Array) -> tuple[Any, ...]:
    return eight[0], eight[1], eight[2], eight[3], eight[4], eight[5], eight[6], eight[7]


@inlined
def _padded(table: Array) -> Array:
    eight = np.zeros(8, table.dtype)
    for place in range(min(eight.size, table.size)):
        eight[place] = table[place]
    return eight


def _settle_all_loop(
    symbols: Array,
    fits: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    limit: np.floating,
    code: int,
) -> int:
    before, decoded, exact = reference.view(table.dtype), result.view(table.dtype), original.view(table.dtype)
    values, eight, some, unbound = np.empty(_CHUNK, table.dtype), _padded(table), 0, limit == np.inf
    for start in range(0, symbols.size, _CHUNK):
        chosen, kept = symbols[start : start + _CHUNK], fits[start : start + _CHUNK]
        own, out = exact[start : start + _CHUNK], decoded[start : start + _CHUNK]
        _look_up(chosen, table, eight, values)
        if reference.size:
            base = before[start : start + _CHUNK]
            for k in range(chosen.size):
                values[k] = base[k] + values[k]
        missed = 0
        for k in range(chosen.size):
            near = unbound | (abs(values[k] - own[k]) <= limit)
            fit = kept[k] & (abs(values[k]) < np.inf) & near
            kept[k] = fit
            missed += not fit
        for k in range(out.size):
            out[k] = values[k]
        if missed:
            some += missed
            for k in range(chosen.size):
                if not kept[k]:
                    chosen[k], result[start + k] = 0, original[start + k]
    return some


_settle_all = kernel(
    _settle_all_numpy,
    _settle_all_loop,
    *(f"out {s}, out u1, in {t}, in {u}, in {u}, out {u}, {t}, i8" for s, t, u in _TYPES),
)


def write_sums(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    """Write the values of all symbols into `out`, which may be the reference."""
    form = _write_sums if _is_served(symbols, table, ELEMENT_TYPES[code]) else _write_sums_numpy
    form(symbols, table, reference, out, code)


def _write_sums_numpy(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    reconstruct(table.take(symbols, mode="clip"), reference, ELEMENT_TYPES[code], out)


def _write_sums_loop(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    before, result = reference.view(table.dtype), out.view(table.dtype)
    values, eight = np.empty(_CHUNK, table.dtype), _padded(table)
    for start in range(0, symbols.size, _CHUNK):
        chosen, some = symbols[start : start + _CHUNK], result[start : start + _CHUNK]
        _look_up(chosen, table, eight, values)
        if reference.size:
            base = before[start : start + _CHUNK]
            for k in range(chosen.size):
                values[k] = base[k] + values[k]
        for k in range(some.size):
            some[k] = values[k]


_write_sums = kernel(
    _write_sums_numpy,
    _write_sums_loop,
    *(f"in {s}, in {t}, in {u}, out {u}, i8" for s, t, u in _TYPES),
)


def add_sums(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    """Add the values of symbols to the components at places (int64, rising), in place."""
    form = _add_sums if _is_served(symbols, table, ELEMENT_TYPES[code]) else _add_sums_numpy
    form(symbols, places, table, out, code)


def _add_sums_numpy(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    for part in slices(places.size, _PLACES_AT_A_TIME):
        add_at(out, places[part], table.take(symbols[part], mode="clip"), ELEMENT_TYPES[code])


def _add_sums_loop(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    result = out.view(table.dtype)
    for k in range(places.size):
        i = np.uint64(places[k])
        result[i] = result[i] + table[symbols[k]]


_add_sums = kernel(
    _add_sums_numpy, _add_sums_loop, *(f"in {s}, in i8, in {t}, out {u}, i8" for s, t, u in _TYPES)
)
