"""Reconstruction: representatives added to a reference, and arrays between two known ones.

The decoder adds them, and so does the encoder, which checks them. Values are components: bit
patterns. Representatives are numbers, or steps of the order-preserving integers, of the type of
components. The reference is empty where there is none. `code` is that of the element type.

Source: SPEC 7.6 (LCC-REC-03, LCC-REC-04, LCC-INT-04) and 7.7.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from .. import element_types
from ..constants import ELEMENT_TYPES, ElementType
from ..element_types import Array, add, add_at, octaves, unwork, work
from ..parallel import slices
from . import kernel

_NO_PLACES: Final = np.zeros(0, np.int64)


#: Types of symbols, of numbers and of components for which there are compiled loops.
TYPES: Final = [(s, t, u) for s in ("u1", "u2") for t, u in (("f4", "u4"), ("f8", "u8"))]


def is_native(kind: ElementType) -> bool:
    """Return whether numbers of a type are computed as they are stored, in 32 or 64 bits."""
    return kind.work.itemsize == kind.size >= 4


def serves(table: Array, kind: ElementType, symbol_bytes: int = 1) -> bool:
    """Return whether there are compiled loops; few values move in steps of order."""
    return is_native(kind) and table.dtype == kind.work and symbol_bytes <= 2


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
    form = settle_numpy
    if serves(table, kind, symbols.itemsize):
        form = _settle
    elif is_native(kind) and table.dtype == kind.bits and symbols.itemsize <= 2:
        form = _settle_steps
    limit = limit_of(bound, kind)
    if form(symbols, fits, places, table, original, reference, result, limit, code):
        escaped: Array = places.take(np.flatnonzero(fits == 0))
        return escaped
    return _NO_PLACES


@lru_cache(maxsize=256)  # each piece of an array asks for the same
def limit_of(bound: float, kind: ElementType) -> np.floating:
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


def settle_numpy(
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
    """Do what :func:`settle` does; return how many values are stored exactly."""
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
    settle_numpy,
    _settle_loop,
    *(f"out {s}, out u1, in i8, in {t}, in {u}, in {u}, out {u}, {t}, i8" for s, t, u in TYPES),
)


def _settle_steps_loop(
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
    # A pattern of a positive number has the top bit in order, and one of a negative is the inverse.
    unit, wide, some = table.dtype.type, np.full(1, limit).dtype.type, 0
    full, mantissa = unit(~unit(0)), 23 if table.itemsize == 4 else 52
    magnitude = unit(full >> unit(1))
    top, least, scale = unit(~magnitude), unit(1 << mantissa), wide(2.0**-mantissa)
    count = unit(magnitude + unit(1) - least - least)  # patterns of normal numbers
    for k in range(places.size):
        i = np.uint64(places[k])
        before, exact = reference[i], original[i]
        key = unit(unit(before ^ (full if before & top else top)) + table[symbols[k]])
        value = unit(key ^ (top if key & top else full))
        is_normal = (unit(value - least) < count) & (unit(exact - least) < count)
        distance = unit(value - exact) if value >= exact else unit(exact - value)
        near = value == exact or (is_normal and wide(distance) * scale <= limit)
        if fits[k] and (value & magnitude) < unit(count + least) and (near or limit == np.inf):
            result[i] = value
        else:
            symbols[k], result[i], fits[k] = 0, exact, 0
            some += 1
    return some


_settle_steps = kernel(
    settle_numpy,
    _settle_steps_loop,
    *(f"out {s}, out u1, in i8, in {u}, in {u}, in {u}, out {u}, {t}, i8" for s, t, u in TYPES),
)


_PLACES_AT_A_TIME: Final = 1 << 14  # that are changed, so that they and what is added stay in the cache


def add_sums(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    """Add the values of symbols to the components at places (int64, rising), in place."""
    form = _add_sums if serves(table, ELEMENT_TYPES[code], symbols.itemsize) else _add_sums_numpy
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
    _add_sums_numpy, _add_sums_loop, *(f"in {s}, in i8, in {t}, out {u}, i8" for s, t, u in TYPES)
)


def interpolate(low: Array, high: Array, weight: float, kind: ElementType, out: Array) -> None:
    """Do what :func:`lccodec.element_types.interpolate` does."""
    form = _interpolate if is_native(kind) else _interpolate_numpy
    form(low, high, kind.work.type(weight), kind.code, out)


def _interpolate_numpy(low: Array, high: Array, weight: Any, code: int, out: Array) -> None:
    element_types.interpolate(low, high, float(weight), ELEMENT_TYPES[code], out)


def _interpolate_loop(low: Array, high: Array, weight: Any, code: int, out: Array) -> None:
    number = np.full(1, weight).dtype
    first, last, result = low.view(number), high.view(number), out.view(number)
    for i in range(out.size):
        value = first[i] - (first[i] - last[i]) * weight
        if np.isfinite(value):
            result[i] = value
        else:
            out[i] = low[i]


_interpolate = kernel(
    _interpolate_numpy, _interpolate_loop, *(f"in u{n}, in u{n}, f{n}, i8, out u{n}" for n in (4, 8))
)
