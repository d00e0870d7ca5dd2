"""Counting and searching: how often values occur, and where an array has what is looked for.

That may be what is true in a mask, where two arrays differ, or components of a size, by their
patterns without the top bit. Masks are bool arrays, or packed bits (LCC-BIT-01).

Or it is what lies outside a dead zone. A difference that is not a number lies outside. The
reference is empty where there is none: then the values themselves are looked at. In zones that are
wider for some components, one function marks what is outside, and another takes the differences
there. The NumPy form has computed all differences by then, so the first returns them.

Source: SPEC 7.1, 7.2, 7.4 and 7.7.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from .. import element_types
from ..constants import ELEMENT_TYPES, ElementType
from ..element_types import Array
from ..parallel import PIECE, slices
from . import inlined, kernel

#: From this many symbols on, counting pairs of bytes takes less time than counting bytes.
_MIN_PAIRED_SYMBOLS: Final = 1 << 17
_PAIRS_AT_A_TIME: Final = 1 << 18  # NumPy makes eight bytes of each


def _histogram(data: Array) -> Array:
    """Return how often each of the 256 byte values occurs in `data` (uint8), as int64."""
    if data.size < _MIN_PAIRED_SYMBOLS:
        return np.bincount(data, minlength=256)
    whole = data[: data.size & ~1].view(np.uint16)
    pairs = np.zeros((256, 256), np.int64)
    for part in slices(whole.size, _PAIRS_AT_A_TIME):
        pairs += np.bincount(whole[part], minlength=1 << 16).reshape(256, 256)
    counts: Array = pairs.sum(axis=0) + pairs.sum(axis=1)
    if data.size & 1:
        counts[data[-1]] += 1
    return counts


def _histogram_loop(data: Array) -> Array:
    # Equal symbols next to each other do not wait for each other in eight tables.
    counts, unit, low = np.zeros((8, 256), np.int64), np.uint64, np.uint64(255)
    a, b, c, d = counts[0], counts[1], counts[2], counts[3]
    e, f, g, h = counts[4], counts[5], counts[6], counts[7]
    words = data[: data.size & ~7].view(unit)
    for place in range(words.size):
        word = words[place]
        a[word & low] += 1
        b[word >> unit(8) & low] += 1
        c[word >> unit(16) & low] += 1
        d[word >> unit(24) & low] += 1
        e[word >> unit(32) & low] += 1
        f[word >> unit(40) & low] += 1
        g[word >> unit(48) & low] += 1
        h[word >> unit(56)] += 1
    for place in range(8 * words.size, data.size):
        a[data[place]] += 1
    total: Array = counts.sum(axis=0)
    return total


histogram = kernel(_histogram, _histogram_loop, "in u1")


def tally(symbols: Array, numbers: Array, unit: float, count: int) -> tuple[Array, Array]:
    """Return how many numbers have each of `count` symbols, and the sums of these, float64.

    Numbers are multiplied by `unit` before.
    """
    counts, sums = np.zeros(count, np.int64), np.zeros(count)
    form = _tally if symbols.itemsize <= 2 and numbers.dtype.char in "fd" else _tally_numpy
    form(symbols, numbers, numbers.dtype.type(unit), counts, sums)
    return counts, sums


def _tally_numpy(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    places = symbols.astype(np.intp)  # once for both
    counts += np.bincount(places, minlength=counts.size)
    sums += np.bincount(places, numbers if unit == 1 else numbers * unit, minlength=sums.size)


def _tally_loop(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    for place in range(symbols.size):
        counts[symbols[place]] += 1
        sums[symbols[place]] += numbers[place] * unit


_tally = kernel(
    _tally_numpy,
    _tally_loop,
    *(f"in {s}, in {t}, {t}, out i8, out f8" for s in ("u1", "u2") for t in ("f4", "f8")),
)


_DENSE: Final = 10  # if more than one element in so many is true, NumPy looks at each without a jump
_DENSE_BYTES: Final = 4  # the same for bytes of packed bits
_MIN_ELEMENTS: Final = 1 << 15  # of fewer, the additional calls take longer than the search

#: The place of the lowest bit that is set in each byte.
_LOWEST_BIT: Final = np.array([0, *(((byte & -byte).bit_length() - 1) for byte in range(1, 256))], np.uint8)


def _true_places(mask: Array) -> Array:
    """Return the places where a 1-D bool array is true: int64, rising, as ``np.flatnonzero`` does.

    Where few elements are true, NumPy jumps from one to the next, and a processor cannot guess how
    far. So this looks first which words of eight have any, and then at all elements of these words.
    """
    if mask.size < _MIN_ELEMENTS or _DENSE * np.count_nonzero(mask) > mask.size:
        return mask.nonzero()[0]
    whole = mask.size & ~7
    words = mask[:whole].view(np.uint64)
    some = (words != 0).nonzero()[0]
    found = words.take(some, mode="clip").view(np.bool_).nonzero()[0]
    some <<= 3
    result: Array = some.take(found >> 3, mode="clip")
    found &= 7
    result += found
    if mask[whole:].any():
        result = np.append(result, mask[whole:].nonzero()[0] + whole)
    return result


_MASKED: Final = 1 << 9  # elements at a time that a loop marks: all of them stay in the cache
#: The places of the bits that are set in each byte: eight numbers a byte, of which the first count.
_SET_BITS: Final = np.sort(
    np.where(np.arange(256)[:, None] >> np.arange(8) & 1, np.arange(8), 8), axis=1
).reshape(-1)


@inlined
def _add_places(mask: Array, some: Array, first: int, places: Array, found: Any) -> Any:
    """Write where a mask (0 or 1, uint8) is 1 behind some places; return how many there are now.

    Places count from `first`. The mask has a multiple of eight elements, and there is room for
    eight places more than it has. `some` is memory (uint8) for the numbers of its words.
    """
    # Without a branch: a processor cannot guess where the next place is.
    words, unit, count = mask.view(np.uint64), np.uint64, np.uint64(0)
    for word in range(words.size):
        some[count] = word
        count += unit(words[word] != unit(0))
    for k in range(count):
        word = words[some[k]]
        bits, start = word * unit(0x0102040810204080) >> unit(56) << unit(3), first + 8 * np.int64(some[k])
        for j in range(unit(8)):
            places[found + j] = start + _SET_BITS[bits + j]
        found += word * unit(0x0101010101010101) >> unit(56)
    return found


@inlined
def _with_room(places: Array, found: Any) -> Array:
    """Return places with room for those of a mask of `_MASKED` elements."""
    if found + np.uint64(_MASKED + 8) <= np.uint64(places.size):
        return places
    more = np.empty(2 * places.size + _MASKED + 8, np.int64)
    more[:found] = places[:found]
    return more


@inlined
def _places_of(mask: Array) -> Array:
    """Return the places where a mask (0 or 1, uint8) is 1: int64, rising."""
    places, found, whole = np.empty(mask.size + 8, np.int64), np.uint64(0), mask.size & ~7
    some = np.empty(_MASKED // 8 + 1, np.uint8)
    for first in range(0, whole, _MASKED):
        found = _add_places(mask[first : min(first + _MASKED, whole)], some, first, places, found)
    for place in range(whole, mask.size):
        places[found] = place
        found += np.uint64(mask[place])
    return places[:found]


def _true_places_loop(mask: Array) -> Array:
    places: Array = _places_of(mask.view(np.uint8)).copy()
    return places


true_places = kernel(_true_places, _true_places_loop, "in ?")


def bit_places(bits: Array) -> Array:
    """Return the places of the bits that are set in bytes (LCC-BIT-01): int64, rising.

    Where few are set, most bytes that are not 0 have one. It is looked up, and the others again.
    """
    if bits.size % 2:
        bits = np.append(bits, np.uint8(0))
    if np.count_nonzero(bits) * _DENSE_BYTES > bits.size:
        return true_places(np.unpackbits(bits, bitorder="little").view(np.bool_))
    some = (bits.view(np.uint16) != 0).nonzero()[0]
    pairs = bits.reshape(-1, 2).take(some, axis=0, mode="clip").reshape(-1)
    which = (pairs != 0).nonzero()[0]
    left = pairs.take(which, mode="clip")
    place = some.take(which >> 1, mode="clip")
    place <<= 1
    which &= 1
    place += which
    place <<= 3
    found = []
    while left.size:
        found.append(place + _LOWEST_BIT.take(left))
        left &= left - np.uint8(1)
        some = left.nonzero()[0]
        place, left = place.take(some, mode="clip"), left.take(some, mode="clip")
    result: Array = np.concatenate([np.zeros(0, np.int64), *found])
    result.sort(kind="stable")  # a few rising runs: that is fast
    return result


_WORD_BYTES: Final = 8
_FEW_BYTES: Final = 1 << 12  # of fewer, the calls of a search by words take longer than the search


def _differing(one: Array, other: Array) -> Array:
    """Return the places where two 1-D arrays of unsigned integers differ: int64, rising.

    With an empty second array, these are the places of what is not 0. Words of eight bytes are
    compared first: where few values differ, most words are the same.
    """
    if one.nbytes <= _FEW_BYTES:
        places: Array = (one != other if other.size else one).nonzero()[0]
        return places
    ratio = _WORD_BYTES // one.itemsize
    end = one.size - one.size % ratio
    left = one[:end].view(np.uint64)
    if other.size:
        right = other[:end].view(np.uint64)
        words = true_places(left != right)
        some = left.take(words, mode="clip") ^ right.take(words, mode="clip")
        rest = (one[end:] != other[end:]).nonzero()[0]
    else:
        words = true_places(left != 0)
        some = left.take(words, mode="clip")
        rest = one[end:].nonzero()[0]
    inside = some.view(one.dtype).nonzero()[0]
    found: Array = words.take(inside // ratio, mode="clip")
    found *= ratio
    found += inside % ratio
    return np.append(found, rest + end) if rest.size else found


def _differing_loop(one: Array, other: Array) -> Array:
    mask, zero = np.zeros(_MASKED, np.uint8), one.dtype.type(0)
    some, places = np.empty(_MASKED // 8 + 1, np.uint8), np.empty(_MASKED + 8, np.int64)
    found = np.uint64(0)
    for first in range(0, one.size, _MASKED):
        own, before = one[first : first + _MASKED], other[first : first + _MASKED]
        if other.size:
            for k in range(own.size):
                mask[k] = own[k] != before[k]
        else:
            for k in range(own.size):
                mask[k] = own[k] != zero
        mask[own.size :] = 0
        places = _with_room(places, found)
        found = _add_places(mask, some, first, places, found)
    return places[:found].copy()


differing = kernel(_differing, _differing_loop, *(f"in u{n}, in u{n}" for n in (1, 2, 4, 8)))


def without_top_bit(bits: Array, out: Array | None = None) -> Array:
    """Return components without their top bits; they are also written into `out`."""
    size: Array = np.bitwise_and(bits, bits.dtype.type((1 << (8 * bits.itemsize - 1)) - 1), out=out)
    return size


def _tally_sizes(bits: Array, reference: Array, row: int, distance: int, shift: int) -> tuple[Array, Array]:
    """Return how many components have each size in the reference, and how many of these moved.

    Of rows, one in `distance` is looked at. Sizes are patterns without the top bit, shifted.
    """
    rows = bits.size // row
    own, before = (
        each[: rows * row].reshape(rows, row)[::distance].reshape(-1) for each in (bits, reference)
    )
    size = without_top_bit(before)
    size >>= shift
    buckets = size.astype(np.intp)
    count = 1 << (8 * bits.itemsize - 1 - shift)
    return np.bincount(buckets, minlength=count), np.bincount(buckets[own != before], minlength=count)


def _tally_sizes_loop(
    bits: Array, reference: Array, row: int, distance: int, shift: int
) -> tuple[Array, Array]:
    width = np.uint64(8 * bits.itemsize - 1)
    sizes, moved = np.zeros((2, 1 << np.int64(width) - shift), np.int64)
    magnitude, low = (np.uint64(1) << width) - np.uint64(1), np.uint64(shift)
    for first in range(0, bits.size // row * row, row * distance):
        own, before = bits[first : first + row], reference[first : first + row]
        for k in range(row):
            size = (np.uint64(before[k]) & magnitude) >> low
            sizes[size] += 1
            moved[size] += own[k] != before[k]
    return sizes, moved


tally_sizes = kernel(
    _tally_sizes, _tally_sizes_loop, *(f"in u{n}, in u{n}, i8, i8, i8" for n in (1, 2, 4, 8))
)


def below(bits: Array, bounds: Array) -> Array:
    """Return which components are below each bound: a row of packed bits each (LCC-BIT-01)."""
    rows = np.empty((bounds.size, -(-bits.size // 8)), np.uint8)
    size, mask = np.empty(min(bits.size, PIECE), bits.dtype), np.empty(min(bits.size, PIECE), bool)
    for part in slices(bits.size):
        some = bits[part]
        without_top_bit(some, size[: some.size])
        for row, bound in zip(rows, bounds, strict=True):
            found = np.packbits(np.less(size[: some.size], bound, out=mask[: some.size]), bitorder="little")
            row[part.start // 8 :][: found.size] = found
    return rows


def _between(bits: Array, low: int, high: int) -> Array:
    """Return the places (int64, rising) of components from one bound on, and below another."""
    bounds = np.array([low, high][not low :], bits.dtype)
    found: Array = np.bitwise_xor.reduce(below(bits, bounds), axis=0)
    return bit_places(found)


def _between_loop(bits: Array, low: int, high: int) -> Array:
    unit, mask = bits.dtype.type, np.zeros(_MASKED, np.uint8)
    least, end, magnitude = unit(low), unit(high), unit((1 << np.uint64(8 * bits.itemsize - 1)) - 1)
    some, places = np.empty(_MASKED // 8 + 1, np.uint8), np.empty(_MASKED + 8, np.int64)
    found = np.uint64(0)
    for first in range(0, bits.size, _MASKED):
        own = bits[first : first + _MASKED]
        for k in range(own.size):
            size = unit(own[k] & magnitude)
            mask[k] = (size >= least) & (size < end)
        mask[own.size :] = 0
        places = _with_room(places, found)
        found = _add_places(mask, some, first, places, found)
    return places[:found].copy()


between = kernel(_between, _between_loop, *(f"in u{n}, u8, u8" for n in (1, 2, 4, 8)))


#: A mask (uint8), values and their reference.
Marked: TypeAlias = tuple[Array, Array, Array]


def outside(values: Array, reference: Array, low: Any, high: Any) -> tuple[Array, Array]:
    """Return the places of differences that are not strictly between two bounds, and these.

    All are of one floating point type. The places are int64 and rise.
    """
    form, number = _outside if values.dtype.char in "fd" else _outside_numpy, values.dtype.type
    return form(values, reference, number(low), number(high))


def _differences(values: Array, reference: Array) -> Array:
    if not reference.size:
        return values
    with np.errstate(all="ignore"):
        return np.asarray(np.subtract(values, reference))


def _outside_numpy(values: Array, reference: Array, low: Any, high: Any) -> tuple[Array, Array]:
    d = _differences(values, reference)
    if low == -high:
        inside = np.abs(d) < high  # faster than two comparisons
    else:
        inside = d < high
        inside &= d > low
    places = true_places(np.logical_not(inside, out=inside))
    return places, d.take(places, mode="clip")


def _outside_loop(values: Array, reference: Array, low: Any, high: Any) -> tuple[Array, Array]:
    mask, some = np.zeros(_MASKED, np.uint8), np.empty(_MASKED // 8 + 1, np.uint8)
    places, found = np.empty(values.size + _MASKED + 8, np.int64), np.uint64(0)
    for start in range(0, values.size, _MASKED):
        own = values[start : start + _MASKED]
        if reference.size:
            before = reference[start : start + _MASKED]
            for k in range(own.size):
                d = own[k] - before[k]
                mask[k] = not ((low < d) & (d < high))
        else:
            for k in range(own.size):
                mask[k] = not ((low < own[k]) & (own[k] < high))
        mask[own.size :] = 0
        found = _add_places(mask, some, start, places, found)
    return places[:found], _differences_at(values, reference, places[:found])


@inlined
def _differences_at(values: Array, reference: Array, places: Array) -> Array:
    d = np.empty(places.size, values.dtype)
    if reference.size:
        for k in range(d.size):
            place = np.uint64(places[k])
            d[k] = values[place] - reference[place]
    else:
        for k in range(d.size):
            d[k] = values[np.uint64(places[k])]
    return d


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
    whole = squares.size - squares.size % SUMS_SIDE_BY_SIDE
    sums: Array = np.add.reduce(squares[:whole].reshape(-1, SUMS_SIDE_BY_SIDE), axis=0)
    sums[: squares.size - whole] += squares[whole:]
    return sums


def _squares_loop(values: Array, reference: Array, high: Any, unit: Any) -> Array:
    sums, d, nothing = np.zeros(SUMS_SIDE_BY_SIDE), np.empty(SUMS_SIDE_BY_SIDE, values.dtype), unit - unit
    for first in range(0, values.size, SUMS_SIDE_BY_SIDE):
        own = values[first : first + SUMS_SIDE_BY_SIDE]
        if reference.size:
            before = reference[first : first + SUMS_SIDE_BY_SIDE]
            for k in range(own.size):
                d[k] = own[k] - before[k]
        else:
            for k in range(own.size):
                d[k] = own[k]
        for k in range(own.size):
            inside = np.float64(d[k] * unit if abs(d[k]) < high else nothing)
            sums[k] += inside * inside
    return sums


def largest(values: Array, reference: Array) -> float:
    """Return the largest magnitude of differences; NaN or infinite if one of them is."""
    top = np.zeros(1, values.dtype)
    form = _largest if values.dtype.char in "fd" else _largest_numpy
    form(values, reference, top.view(f"u{top.itemsize}"))
    return float(top[0])


def _largest_numpy(values: Array, reference: Array, most: Array) -> None:
    d = _differences(values, reference)
    top = np.maximum(np.maximum.reduce(d, initial=0), -np.minimum.reduce(d, initial=0))
    most[:] = top.view(most.dtype)


def _largest_loop(values: Array, reference: Array, most: Array) -> None:
    # Of patterns: a processor compares many at once, and those of NaN are above all others.
    d, unit = np.empty(_MASKED, values.dtype), most.dtype.type
    patterns, magnitude, top = d.view(most.dtype), unit(~unit(0) >> unit(1)), unit(0)
    for start in range(0, values.size, _MASKED):
        own = values[start : start + _MASKED]
        if reference.size:
            before = reference[start : start + _MASKED]
            for k in range(own.size):
                d[k] = own[k] - before[k]
        else:
            for k in range(own.size):
                d[k] = own[k]
        for k in range(own.size):
            top = max(top, unit(patterns[k] & magnitude))
    most[0] = top


_largest = kernel(_largest_numpy, _largest_loop, *(f"in f{n}, in f{n}, out u{n}" for n in (4, 8)))

#: So many sums are made side by side: their order is the same in both forms.
SUMS_SIDE_BY_SIDE: Final = 1024

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
    places = _places_of(mask)
    return places, _differences_at(values, reference, places)


_found = kernel(_found_numpy, _found_loop, *(f"in u1, in {t}, in {t}" for t in ("f4", "f8")))
