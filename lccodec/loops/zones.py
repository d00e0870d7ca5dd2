"""Which differences lie outside a dead zone, and how large they are. Source: SPEC 7.7.

A difference that is not a number lies outside. The reference is empty where there is none: then the
values themselves are looked at.

A search has two steps. The first marks what is outside. It returns the mask, and the two arrays
that the second takes differences of: the NumPy form has computed the differences by then.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from .. import element_types
from ..element_table import ELEMENT_TYPES, ElementType
from ..element_types import Array
from . import kernel
from .search import true_places

#: A mask (uint8), values and their reference.
Marked: TypeAlias = tuple[Array, Array, Array]


def outside(values: Array, reference: Array, low: Any, high: Any) -> Marked:
    """Mark the differences that are not strictly between two bounds.

    All are of one floating point type.
    """
    form, number = _outside if values.dtype.char in "fd" else _outside_numpy, values.dtype.type
    return form(values, reference, number(low), number(high))


def _differences(values: Array, reference: Array) -> Array:
    if not reference.size:
        return values
    with np.errstate(all="ignore"):
        return np.asarray(np.subtract(values, reference))


def _outside_numpy(values: Array, reference: Array, low: Any, high: Any) -> Marked:
    d = _differences(values, reference)
    if low == -high:
        inside = np.abs(d) < high  # faster than two comparisons
    else:
        inside = d < high
        inside &= d > low
    return np.logical_not(inside, out=inside).view(np.uint8), d, d[:0]


def _outside_loop(values: Array, reference: Array, low: Any, high: Any) -> Marked:
    mask = np.empty(values.size, np.uint8)
    if reference.size:
        for i in range(values.size):
            d = values[i] - reference[i]
            mask[i] = not (low < d < high)
    else:
        for i in range(values.size):
            mask[i] = not (low < values[i] and values[i] < high)
    return mask, values, reference


_outside = kernel(_outside_numpy, _outside_loop, *(f"in {t}, in {t}, {t}, {t}" for t in ("f4", "f8")))


def outside_weighted(
    values: Array, reference: Array, moments: Array, high: Any, unit: Any, narrowest: Any, widest: Any
) -> Marked:
    """Mark the differences outside zones that are narrower where a moment is large.

    The product of a size and `unit`, raised to the 8th power and multiplied by the moment, is below
    1 inside; products are faster than roots. Every size below `narrowest` is inside, and none from
    `widest` on. A moment that is negative or NaN leaves the zone that ends at `high`.
    """
    compiled = values.dtype.char == moments.dtype.char == "f"
    form = _outside_weighted if compiled else _outside_weighted_numpy
    return form(values, reference, moments, high, unit, narrowest, widest)


def _outside_weighted_numpy(
    values: Array, reference: Array, moments: Array, high: Any, unit: Any, narrowest: Any, widest: Any
) -> Marked:
    d = _differences(values, reference)
    sizes = np.abs(d)
    with np.errstate(all="ignore"):
        power = np.multiply(sizes, unit, dtype=np.promote_types(sizes.dtype, np.float32))
        for _ in range(3):
            np.square(power, out=power)
        power *= moments
        inside: Array = power < 1
        inside &= sizes < widest
        inside |= sizes < narrowest
        if not np.minimum.reduce(moments, initial=0) >= 0:
            np.copyto(inside, sizes < high, where=np.logical_not(moments >= 0))
    return np.logical_not(inside, out=inside).view(np.uint8), d, d[:0]


def _outside_weighted_loop(
    values: Array, reference: Array, moments: Array, high: Any, unit: Any, narrowest: Any, widest: Any
) -> Marked:
    mask = np.empty(values.size, np.uint8)
    for i in range(values.size):
        size = abs(values[i] - reference[i]) if reference.size else abs(values[i])
        power = size * unit
        power *= power
        power *= power
        power *= power
        power *= moments[i]
        inside = (power < 1 and size < widest) or size < narrowest
        if not moments[i] >= 0:
            inside = size < high
        mask[i] = not inside
    return mask, values, reference


_outside_weighted = kernel(
    _outside_weighted_numpy, _outside_weighted_loop, "in f4, in f4, in f4, f4, f4, f4, f4"
)


def squares_inside(values: Array, reference: Array, high: Any, unit: float) -> float:
    """Return the sum of the squares of the differences in a zone, each multiplied by `unit` before.

    The zone has the width `high` on both sides of 0.
    """
    form, number = _squares_inside if values.dtype.char in "fd" else _squares_numpy, values.dtype.type
    return float(np.add.reduce(form(values, reference, number(high), number(unit))))


def _squares_numpy(values: Array, reference: Array, high: Any, unit: Any) -> Array:
    d = _differences(values, reference)
    with np.errstate(under="ignore"):
        d = np.where(np.abs(d) < high, d, 0)  # NaN is not inside
        squares = np.square(d if unit == 1 else d * unit, dtype=np.float64)
    whole = squares.size - squares.size % _LANES
    sums: Array = np.add.reduce(squares[:whole].reshape(-1, _LANES), axis=0)
    sums[: squares.size - whole] += squares[whole:]
    return sums


def _squares_loop(values: Array, reference: Array, high: Any, unit: Any) -> Array:
    sums, nothing = np.zeros(_LANES), unit - unit
    for first in range(0, values.size, _LANES):
        for lane in range(min(_LANES, values.size - first)):
            d = values[first + lane]
            if reference.size:
                d -= reference[first + lane]
            d = d * unit if abs(d) < high else nothing
            sums[lane] += np.float64(d) * np.float64(d)
    return sums


#: So many sums are made side by side: their order is the same in both forms.
_LANES: Final = 1024

_squares_inside = kernel(_squares_numpy, _squares_loop, *(f"in {t}, in {t}, {t}, {t}" for t in ("f4", "f8")))


def octaves(bits: Array, reference: Array, kind: ElementType) -> Array:
    """Return what :func:`lccodec.element_types.octaves` does."""
    signed, wide = f"i{kind.size}", np.promote_types(kind.work, np.float32).type
    form = _octaves if kind.size >= 4 else _octaves_numpy
    d: Array = form(bits.view(signed), reference.view(signed), wide(2.0**-kind.mantissa), kind.code)
    return d


def _octaves_numpy(bits: Array, reference: Array, scale: Any, code: int) -> Array:
    kind = ELEMENT_TYPES[code]
    return element_types.octaves(bits.view(kind.bits), reference.view(kind.bits), kind)


def _octaves_loop(bits: Array, reference: Array, scale: Any, code: int) -> Array:
    least = int(1 / scale)  # a one behind the mantissa
    infinity = (1 << (8 * bits.itemsize - 1)) - least
    d = np.full(bits.size, scale)
    for i in range(bits.size):
        number, before = bits[i], reference[i]
        d[i] = number - before
        d[i] *= scale
        normal = least <= number < infinity and least <= before < infinity
        if not normal and number != before:
            d[i] = np.nan
    return d


_octaves = kernel(_octaves_numpy, _octaves_loop, *(f"in i{n}, in i{n}, f{n}, i8" for n in (4, 8)))


def found(mask: Array, values: Array, reference: Array) -> tuple[Array, Array]:
    """Return the places that a mask (uint8) marks, int64 and rising, and the differences there."""
    return (_found if values.dtype.char in "fd" else _found_numpy)(mask, values, reference)


def _found_numpy(mask: Array, values: Array, reference: Array) -> tuple[Array, Array]:
    places = true_places(mask.view(np.bool_))
    before = reference.take(places, mode="clip") if reference.size else reference
    return places, _differences(values.take(places, mode="clip"), before)


def _found_loop(mask: Array, values: Array, reference: Array) -> tuple[Array, Array]:
    # Without a branch: a processor cannot guess where the next place is.
    words = mask[: mask.size & ~7].view(np.uint64)
    some = np.empty(words.size + 1, np.uint32)
    total = count = end = 0
    for i in range(mask.size):
        total += mask[i]
    for word in range(words.size):
        some[count] = word
        count += words[word] != 0
    places = np.empty(total + 1, np.int64)
    for k in range(count):
        first = 8 * some[k]
        for i in range(first, first + 8):
            places[end] = i
            end += mask[i]
    for i in range(8 * words.size, mask.size):
        places[end] = i
        end += mask[i]
    d = np.empty(end, values.dtype)
    if reference.size:
        for k in range(end):
            d[k] = values[places[k]] - reference[places[k]]
    else:
        for k in range(end):
            d[k] = values[places[k]]
    return places[:end], d


_found = kernel(_found_numpy, _found_loop, *(f"in u1, in {t}, in {t}" for t in ("f4", "f8")))
