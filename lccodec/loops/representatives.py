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
from ..element_types import Array, add, octaves, unwork, work
from . import kernel

_NO_PLACES: Final = np.zeros(0, np.int64)


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
    compiled = is_native(kind) and table.dtype == kind.work and symbols.itemsize <= 2
    form = _settle if compiled else _settle_numpy
    return form(symbols, fits, places, table, original, reference, result, _limit(bound, kind), code)


def _limit(bound: float, kind: ElementType) -> np.floating:
    """Return the largest number that a computed difference may have.

    The computed difference is rounded to nearest. It is compared with the number just below the
    bound, so the exact difference is inside the bound too.
    """
    wide = np.promote_types(kind.work, np.float32).type
    if bound == math.inf:
        return wide(bound)
    with np.errstate(over="ignore"):
        limit = np.nextafter(wide(bound), wide(0))
    return np.nextafter(limit, wide(0)) if float(limit) > bound else limit


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
) -> Array:
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
    escaped = _NO_PLACES
    if not kept.all():
        few = np.flatnonzero(~kept)
        escaped = places.take(few)
        symbols[few] = 0
        values[few] = original.take(escaped, mode="clip")
    if not every:
        result[places] = values
    return escaped


def _settle_loop(
    symbols: Array,
    fits: Array,
    places: Array,
    table: Array,
    original: Array,
    reference: Array,
    result: Array,
    limit: np.floating,
    code: int,  # noqa: ARG001 - as the NumPy form
) -> Array:
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
    escaped = np.empty(some, np.int64)
    some = 0
    for k in range(places.size if escaped.size else 0):
        if not fits[k]:
            escaped[some] = places[k]
            some += 1
    return escaped


_settle = kernel(
    _settle_numpy,
    _settle_loop,
    *(
        f"out {s}, out u1, in i8, in {t}, in {u}, in {u}, out {u}, {t}, i8"
        for s in ("u1", "u2")
        for t, u in (("f4", "u4"), ("f8", "u8"))
    ),
)
