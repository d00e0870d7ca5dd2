"""All symbols of a piece, and the values that they stand for, in one pass over it.

This is for pieces in which many differences lie outside the dead zone: there a search for them
takes longer. An encoder takes each difference, finds its symbol, and decodes it; a decoder has the
symbols. The reference is empty where there is none: then the values themselves are coded. Source:
SPEC 7.6 and 7.7.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ..constants import ELEMENT_TYPES
from ..element_types import Array
from . import inlined, is_compiled, kernel
from .representatives import TYPES, limit_of, reconstruct, serves
from .search import SUMS_SIDE_BY_SIDE

_CHUNK: Final = 1 << 9  # values at a time: all that is made of them stays in the first-level cache
_FEW: Final = 8  # entries of a table that loops compare with instead of looking them up
_NO_PLACES: Final = np.zeros(0, np.int64)


class Parts(NamedTuple):
    """Parts of the real line, as :mod:`lccodec.loops.partitions` has them.

    Parameters
    ----------
    window, shift
        Buckets, as `window_of` returns them; and how many bits of mantissa a pattern has. The
        window is empty for bins.
    low, high, reciprocal
        Of bins: the bounds of the dead zone, and steps for each unit.
    end, edge
        Where the last bin ends, behind the zone, plus 1; and where the zone ends: in steps.
    """

    window: Array
    shift: int
    low: Any
    high: Any
    reciprocal: Any
    end: float
    edge: float


def has_loops() -> bool:
    """Return whether there are compiled loops: other forms take longer than a search.

    One of them may be ready before another is.
    """
    return all(is_compiled(each) for each in (_settle, _miss, _tally_whole))


def settle_whole(
    values: Array,
    reference: Array,
    parts: Parts,
    symbols: Array,
    table: Array,
    original: Array,
    result: Array,
    bound: float,
    code: int,
) -> Array:
    """Write all symbols and decoded values; return the places of what is stored exactly, int64.

    Parameters
    ----------
    values, reference
        Numbers, float32 or float64.
    symbols
        The symbols, uint8 or uint16: 0 in the zone, and of what is stored exactly.
    table, original, result, bound, code
        As for :func:`lccodec.loops.representatives.settle`.
    """
    escaped, limit = np.empty(values.size, np.int64), limit_of(bound, ELEMENT_TYPES[code])
    count = _settle(values, reference, *parts, symbols, table, original, result, escaped, limit)
    return escaped[:count].copy() if count else _NO_PLACES


def window_of(symbols: Array, zone: tuple[int, int]) -> Array:
    """Return the symbols of buckets as three numbers, which a processor has in registers.

    They are an exponent, and what eight exponents from that one on have, four bits each: a symbol,
    or 8 if their differences are stored exactly; of positive differences, then of negative ones.
    Smaller exponents have what the first has, and larger ones what the last has. The array (uint64)
    is empty if there is more than that.

    Parameters
    ----------
    symbols
        Of each bucket; 0 if it has none.
    zone
        The first exponent outside the zone, of positive and of negative differences.
    """
    signs = symbols.reshape(2, -1).astype(np.uint64)
    signs[(signs == 0) & (np.arange(signs.shape[1]) >= np.array(zone)[:, None])] = _FEW
    base = max(int((signs != signs[:, :1]).argmax(axis=1).min()) - 1, 0)
    base = min(base, signs.shape[1] - 8)
    shown = signs[:, base : base + 8]
    if int(symbols.max()) >= _FEW or (signs[:, base + 8 :] != shown[:, -1:]).any():
        return np.zeros(0, np.uint64)
    joined = (shown << (4 * np.arange(8, dtype=np.uint64))).sum(axis=1)
    return np.array([base, *joined.tolist()], np.uint64)


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
        t0, t1, t2, t3, t4, t5, t6, t7 = few[0], few[1], few[2], few[3], few[4], few[5], few[6], few[7]
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
def _find_bins(
    d: Array, low: Any, high: Any, reciprocal: Any, rest: Any, last: Any, symbols: Array, lost: Array
) -> None:
    """Write the symbols of differences; what lies past the last bin has 0, and is `lost`: not 0."""
    for k in range(d.size):
        scaled = d[k] * reciprocal
        length = abs(scaled) + rest
        zone, inside = (low < d[k]) & (d[k] < high), length < last
        index = np.int32(length if inside and not zone else rest - rest)
        symbols[k] = 2 * index - (index > 0 and np.signbit(scaled))
        lost[k] = 0 if zone | inside else _FEW


def _settle_loop(
    values: Array,
    reference: Array,
    window: Array,
    shift: int,
    low: Any,
    high: Any,
    reciprocal: Any,
    end: float,
    edge: float,
    symbols: Array,
    table: Array,
    original: Array,
    result: Array,
    escaped: Array,
    limit: np.floating,
) -> int:
    kind, unit, few, count = values.dtype.type, original.dtype.type, _padded(table), 0
    d, lost = np.empty(_CHUNK, values.dtype), np.empty(_CHUNK, np.uint8)
    patterns, own, out = d.view(original.dtype), original.view(values.dtype), result.view(values.dtype)
    rest, last = kind(1 - edge), kind(end)
    bits, top, two, seven = unit(shift), unit(8 * values.itemsize - 1), unit(2), unit(7)
    exponents, base, plus, minus = unit((1 << int(top) - shift) - 1), two, two, two
    if window.size:
        base, plus, minus = unit(window[0]), unit(window[1]), unit(window[2])
    for start in range(0, values.size, _CHUNK):
        _subtract(values, reference, start, d)
        chosen, exact = symbols[start : start + _CHUNK], own[start : start + _CHUNK]
        decoded, size = out[start : start + _CHUNK], exact.size
        if window.size:
            for k in range(size):
                exponent = unit(unit(patterns[k] >> bits) & exponents)
                place = min(unit(max(exponent, base) - base), seven)
                entries = minus if patterns[k] >> top else plus
                lost[k] = entries >> unit(place << two)
            for k in range(size):
                chosen[k] = lost[k] & np.uint8(7)
        else:
            _find_bins(d[:size], low, high, reciprocal, rest, last, chosen, lost)
        _add(chosen, table, few, reference, start, d)
        some, wild = np.uint8(0), False
        for k in range(size):
            some = np.uint8(some | lost[k])
        for k in range(size):
            decoded[k] = d[k]
            wild |= not abs(d[k]) < np.inf
        for k in range(size if limit < np.inf else 0):
            wild |= not abs(d[k] - exact[k]) <= limit
        for k in range(size if some & _FEW or wild else 0):
            near = limit == np.inf or abs(d[k] - exact[k]) <= limit
            if lost[k] & _FEW or not abs(d[k]) < np.inf or not near:
                chosen[k], result[start + k], escaped[count] = 0, original[start + k], start + k
                count += 1
    return count


_settle = kernel(
    None,
    _settle_loop,
    *(
        f"in {t}, in {t}, in u8, i8, {t}, {t}, {t}, f8, f8, out {s}, in {t}, in {u}, out {u}, out i8, {t}"
        for s, t, u in TYPES
    ),
)


def miss_whole(values: Array, reference: Array, parts: Parts, table: Array) -> tuple[Array, Array]:
    """Return what differences are off by from the values of their symbols, and the differences.

    Parameters are those of `settle_whole`, and `parts` has bins. What would be stored exactly is
    not off.
    """
    missed, d = np.empty(values.size, values.dtype), np.empty(values.size, values.dtype)
    bins = parts.low, parts.high, parts.reciprocal, parts.end, parts.edge
    _miss(values, reference, *bins, table, missed, d)
    return missed, d


def _miss_loop(
    values: Array,
    reference: Array,
    low: Any,
    high: Any,
    reciprocal: Any,
    end: float,
    edge: float,
    table: Array,
    missed: Array,
    differences: Array,
) -> None:
    kind, few, nothing = values.dtype.type, _padded(table), reciprocal - reciprocal
    rest, last, symbols = kind(1 - edge), kind(end), np.empty(_CHUNK, np.uint16)
    lost, chosen = np.empty(_CHUNK, np.uint8), np.empty(_CHUNK, values.dtype)
    for start in range(0, values.size, _CHUNK):
        d, own = differences[start : start + _CHUNK], missed[start : start + _CHUNK]
        _subtract(values, reference, start, d)
        _find_bins(d, low, high, reciprocal, rest, last, symbols, lost)
        _look_up(symbols[: d.size], table, few, chosen)
        for k in range(d.size):
            own[k] = nothing if lost[k] else d[k] - chosen[k]


_miss = kernel(
    None,
    _miss_loop,
    *(f"in {t}, in {t}, {t}, {t}, {t}, f8, f8, in {t}, out {t}, out {t}" for t in ("f4", "f8")),
)


class Tally(NamedTuple):
    """What `tally_whole` finds in the differences of a stretch.

    Parameters
    ----------
    counts, sums
        How many differences each symbol has, int64, and their sums, float64; symbol 0 is that of
        the zone.
    squares
        The sum of the squares in the zone, if they are wanted.
    largest
        The largest magnitude.
    """

    counts: Array
    sums: Array
    squares: float
    largest: float


def tally_whole(
    values: Array, reference: Array, parts: Parts, length: int, distance: int, *, with_squares: bool
) -> list[Tally] | None:
    """Return what there is in each stretch of `length` differences, of at most four.

    Each begins `distance` behind the one before. ``None`` is returned where a difference is in none
    of `_MOST_BINS` bins, or is not finite. Values are those of `settle_whole`, and `parts` has
    bins; the end of the last one is not used.
    The length is a multiple of `_CHUNK`.
    """
    counts, sums = np.zeros((STRETCHES, 256), np.int64), np.zeros((STRETCHES, 256))
    squares = np.zeros((STRETCHES, SUMS_SIDE_BY_SIDE if with_squares else 0))
    tops = np.zeros(STRETCHES, values.dtype)
    flat = counts.reshape(-1), sums.reshape(-1), squares.reshape(-1), tops.view(f"u{tops.itemsize}")
    zone = parts.low, parts.high, parts.reciprocal, parts.edge
    if not _tally_whole(values, reference, *zone, length, distance, *flat):
        return None
    found = zip(counts, sums, np.add.reduce(squares, axis=1).tolist(), tops.tolist(), strict=True)
    return [Tally(*each) for each in found][: -(-values.size // distance)]


#: Stretches that a call of `tally_whole` takes at most.
STRETCHES: Final = 4
_MOST_BINS: Final = 127  # on either side, so that a symbol is a byte


def _tally_whole_loop(
    values: Array,
    reference: Array,
    low: Any,
    high: Any,
    reciprocal: Any,
    edge: float,
    length: int,
    distance: int,
    counts: Array,
    sums: Array,
    squares: Array,
    tops: Array,
) -> bool:
    # Two differences of a stretch may have one symbol, and then the second waits for the sum of the
    # first. Those of four stretches do not wait for each other.
    kind, nothing, lanes = values.dtype.type, reciprocal - reciprocal, SUMS_SIDE_BY_SIDE
    rest, last, lost = kind(1 - edge), kind(_MOST_BINS + 1), np.empty(_CHUNK, np.uint8)
    d, symbols = np.empty(STRETCHES * _CHUNK, values.dtype), np.empty(STRETCHES * _CHUNK, np.uint8)
    one, two, three = np.uint64(_CHUNK), np.uint64(2 * _CHUNK), np.uint64(3 * _CHUNK)
    row, patterns, unit = np.uint64(256), d.view(tops.dtype), tops.dtype.type
    magnitude = unit(~unit(0) >> unit(1))
    for start in range(0, min(length, values.size), _CHUNK):
        together = _CHUNK
        for stretch in range(STRETCHES):
            first = stretch * distance + start
            size = max(min(_CHUNK, values.size - first), 0)
            together = min(together, size)
            own = d[stretch * _CHUNK :][:size]
            _subtract(values, reference, first, own)
            chosen = symbols[stretch * _CHUNK :]
            _find_bins(own, low, high, reciprocal, rest, last, chosen, lost)
            some, top, lane = np.uint8(0), tops[stretch], stretch * lanes + start % lanes
            for k in range(size):
                some |= lost[k]
            if some:
                return False
            part = squares[lane : lane + size]
            for k in range(part.size):
                inside = np.float64(own[k] if abs(own[k]) < high else nothing)
                part[k] += inside * inside
            for k in range(size):  # of patterns: a processor compares many at once
                top = max(top, unit(patterns[stretch * _CHUNK + k] & magnitude))
            tops[stretch] = top
        for k in range(np.uint64(together)):
            a, b = np.uint64(symbols[k]), row + np.uint64(symbols[one + k])
            c, e = row + row + np.uint64(symbols[two + k]), row + row + row + np.uint64(symbols[three + k])
            counts[a] += 1
            sums[a] += d[k]
            counts[b] += 1
            sums[b] += d[one + k]
            counts[c] += 1
            sums[c] += d[two + k]
            counts[e] += 1
            sums[e] += d[three + k]
        for stretch in range(STRETCHES):
            size = max(min(_CHUNK, values.size - stretch * distance - start), 0)
            for k in range(stretch * _CHUNK + together, stretch * _CHUNK + size):
                place = np.uint64(256 * stretch) + np.uint64(symbols[k])
                counts[place] += 1
                sums[place] += d[k]
    return True


_tally_whole = kernel(
    None,
    _tally_whole_loop,
    *(
        f"in {t}, in {t}, {t}, {t}, {t}, f8, i8, i8, out i8, out f8, out f8, out {u}"
        for t, u in (("f4", "u4"), ("f8", "u8"))
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
