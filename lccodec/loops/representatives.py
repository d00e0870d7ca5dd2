"""Representatives added to a reference: by the encoder, which checks them, and by the decoder.

Values are components: bit patterns. Representatives are numbers, or steps of the order-preserving
integers, of the type of components. The reference is empty where there is none. `code` is that of
the element type. Source: SPEC 7.6 (LCC-REC-03, LCC-REC-04) and 7.7.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..element_table import ELEMENT_TYPES, ElementType
from ..element_types import Array, add, add_at, octaves, unwork, work
from ..parallel import PIECE, slices
from . import kernel

_NO_PLACES: Final = np.zeros(0, np.int64)
_PLACES_AT_A_TIME: Final = 1 << 14  # that are changed, so that they and what is added stay in the cache


#: Types of symbols, of numbers and of components for which there are compiled loops.
_TYPES: Final = [(s, t, u) for s in ("u1", "u2") for t, u in (("f4", "u4"), ("f8", "u8"))]


def is_native(kind: ElementType) -> bool:
    """Return whether numbers of a type are computed as they are stored, in 32 or 64 bits."""
    return kind.work.itemsize == kind.size >= 4


def _sums(reference: Array, chosen: Array, kind: ElementType, out: Array) -> None:
    if reference.size:
        add(reference, chosen, kind, out)
    else:
        out[:] = unwork(chosen, kind)


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
    form = _settle_numpy
    if is_native(kind) and symbols.itemsize <= 2:
        form = _settle_steps if table.dtype == kind.bits else _settle
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
    if bound == math.inf:
        return wide(bound)
    with np.errstate(over="ignore"):
        limit: np.floating = np.nextafter(wide(bound), wide(0))
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
    _sums(before, table.take(symbols, mode="clip"), kind, values)
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
    # Unsigned integers of 64 bits have room for the patterns of every type.
    mantissa = 23 if table.itemsize == 4 else 52
    sign = np.uint64(1) << np.uint64(8 * table.itemsize - 1)
    every, least = sign | (sign - np.uint64(1)), np.uint64(1) << np.uint64(mantissa)
    count = sign - (least + least)
    octaves, some = np.full(1, limit), 0
    for k in range(places.size):
        i = places[k]
        exact, bits = np.uint64(original[i]), np.uint64(reference[i])
        key = (bits ^ (every if bits & sign else sign)) + np.uint64(table[symbols[k]]) & every
        value = key ^ (sign if key & sign else every)
        near = value == exact and value & (sign - np.uint64(1)) < count + least
        if value - least < count and exact - least < count:
            octaves[0] = np.int64(value) - np.int64(exact)
            octaves[0] *= 2.0**-mantissa
            near = abs(octaves[0]) <= limit
        if fits[k] and near:
            result[i] = value
        else:
            symbols[k] = 0
            result[i] = exact
            fits[k] = 0
            some += 1
    return some


_settle_steps = kernel(
    _settle_numpy,
    _settle_steps_loop,
    *(f"out {s}, out u1, in i8, in {u}, in {u}, in {u}, out {u}, {t}, i8" for s, t, u in _TYPES),
)


def write_sums(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    """Write the values of all symbols into `out`, which may be the reference."""
    kind = ELEMENT_TYPES[code]
    compiled = is_native(kind) and table.dtype == kind.work and symbols.itemsize <= 2
    (_write_sums if compiled else _write_sums_numpy)(symbols, table, reference, out, code)


def _write_sums_numpy(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    _sums(reference, table.take(symbols, mode="clip"), ELEMENT_TYPES[code], out)


def _write_sums_loop(symbols: Array, table: Array, reference: Array, out: Array, code: int) -> None:
    before, result = reference.view(table.dtype), out.view(table.dtype)
    if reference.size:
        for i in range(symbols.size):
            result[i] = before[i] + table[symbols[i]]
    else:
        for i in range(symbols.size):
            result[i] = table[symbols[i]]


_write_sums = kernel(
    _write_sums_numpy,
    _write_sums_loop,
    *(f"in {s}, in {t}, in {u}, out {u}, i8" for s, t, u in _TYPES),
)


def change(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    """Add the values of symbols, in place, to the components at places (int64, rising)."""
    kind = ELEMENT_TYPES[code]
    form = _change_numpy
    if is_native(kind) and symbols.itemsize <= 2:
        form = _change_steps if table.dtype == kind.bits else _change
    form(symbols, places, table, out, code)


def _change_numpy(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    for part in slices(places.size, _PLACES_AT_A_TIME):
        add_at(out, places[part], table.take(symbols[part], mode="clip"), ELEMENT_TYPES[code])


def _change_loop(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    result = out.view(table.dtype)
    for k in range(places.size):
        result[places[k]] += table[symbols[k]]


_change = kernel(_change_numpy, _change_loop, *(f"in {s}, in i8, in {t}, out {u}, i8" for s, t, u in _TYPES))


def _change_steps_loop(symbols: Array, places: Array, table: Array, out: Array, code: int) -> None:
    sign = np.uint64(1) << np.uint64(8 * table.itemsize - 1)
    every = sign | (sign - np.uint64(1))
    for k in range(places.size):
        bits = np.uint64(out[places[k]])
        key = (bits ^ (every if bits & sign else sign)) + np.uint64(table[symbols[k]]) & every
        out[places[k]] = key ^ (sign if key & sign else every)


_change_steps = kernel(
    _change_numpy, _change_steps_loop, *(f"in {s}, in i8, in {u}, out {u}, i8" for s, t, u in _TYPES)
)


def write_groups(groups: Array, width: int, table: Array, reference: Array, out: Array, code: int) -> None:
    """Do as :func:`write_sums` for symbols of `width` bits that are packed into bytes (LCC-BIT-01).

    `table` has a representative for every symbol of so many bits.
    """
    kind = ELEMENT_TYPES[code]
    compiled = is_native(kind) and table.dtype == kind.work
    (_write_groups if compiled else _write_groups_numpy)(groups, width, table, reference, out, code)


def _write_groups_numpy(
    groups: Array, width: int, table: Array, reference: Array, out: Array, code: int
) -> None:
    joined, kind = 8 // width, ELEMENT_TYPES[code]
    shifts = np.arange(0, 8, width)
    rows = table.take(np.arange(256)[:, None] >> shifts & ((1 << width) - 1))
    # A row of values is taken as a single item if a type of its size exists: one gather per group.
    item = {4: np.uint32, 8: np.uint64, 16: np.complex128}.get(joined * rows.itemsize)
    joint = rows if item is None else rows.view(item)[:, 0]
    for part in slices(groups.size, PIECE // joined):
        target = out[joined * part.start : joined * part.stop]
        taken = joint.take(groups[part], axis=0, mode="clip").view(rows.dtype).reshape(-1)
        before = reference[joined * part.start : joined * part.stop]
        _sums(before, taken[: target.size], kind, target)


def _write_groups_loop(
    groups: Array, width: int, table: Array, reference: Array, out: Array, code: int
) -> None:
    before, result = reference.view(table.dtype), out.view(table.dtype)
    joined, mask = 8 // width, (1 << width) - 1
    for g in range(groups.size):
        group, first = np.int64(groups[g]), g * joined
        for i in range(first, min(first + joined, result.size)):
            value = table[group & mask]
            result[i] = before[i] + value if reference.size else value
            group >>= width


_write_groups = kernel(
    _write_groups_numpy,
    _write_groups_loop,
    *(f"in u1, i8, in {t}, in {u}, out {u}, i8" for t, u in (("f4", "u4"), ("f8", "u8"))),
)
