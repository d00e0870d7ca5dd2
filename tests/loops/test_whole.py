"""All symbols of a piece and what they decode to: both forms, and the search that they replace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.constants import ELEMENT_TYPES, ElementType
from lccodec.element_types import Array
from lccodec.loops import partitions, representatives, search, whole

from ..support.representatives import CASES, Case
from ..support.strategies import random_array

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}
SHIFTS = {"float32": (23, 8), "float64": (52, 11)}


def settled(
    arrays: tuple[Array, Array, Array],
    parts: whole.Parts,
    expected: tuple[Array, Array],
    table: Array,
    kind: ElementType,
    in_place: bool,
    bound: float,
) -> tuple[Array, Array]:
    """Return the symbols and which have one, of loops that do what a search with `expected` does.

    These are the symbols, and whether a difference has one.
    """
    values, reference, original = arrays
    limit, found = representatives.limit_of(bound, kind), []
    for form in (None, whole._settle_loop, *([whole._settle] if whole.has_loops() else [])):
        before = reference.copy()
        result = before.view(kind.bits) if in_place and before.size else original ^ kind.bits.type(1)
        symbols, fits = (each.copy() for each in expected)
        escaped = np.zeros(values.size, np.int64)
        with np.errstate(all="ignore"):
            if form is None:
                rest = table, original, before.view(kind.bits), result, limit, kind.code
                some = representatives.settle_numpy(symbols, fits, np.arange(values.size), *rest)
                escaped[:some] = np.flatnonzero(fits == 0)
            else:
                some = form(values, before, *parts, symbols, table, original, result, escaped, limit)
        assert (result[escaped[:some]] == original[escaped[:some]]).all()
        found.append((symbols, result, escaped[:some]))
        fits[escaped[:some]] = 0
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, another)
    return found[0][0], fits


def arrays_of(name: str, size: int, seed: int, relative: bool) -> tuple[Array, Array, Array]:
    values, reference = (random_array(name, (size,), seed + k, 0.3) for k in (0, 1))
    return values, reference if relative else reference[:0], values.view(KINDS[name].bits)


@given(
    st.sampled_from(sorted(SHIFTS)),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([math.inf, 0.5]),
    st.integers(1, 9),
)
def test_bins(
    name: str, size: int, seed: int, relative: bool, in_place: bool, wide: bool, bound: float, bins: int
) -> None:
    kind, (values, reference, original) = KINDS[name], arrays_of(name, size, seed, relative)
    number, end = kind.work.type, float(bins + 1)
    table = np.append(-0.0 if relative else 0.0, np.arange(2 * bins) - bins).astype(kind.work)
    place = -number(0.48), number(0.48), number(1.25)
    parts = whole.Parts(np.zeros(0, np.uint64), 0, *place, end, 0.6)
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
    inside, past = (place[0] < d) & (d < place[1]), np.zeros(size, np.uint8)
    chosen = np.zeros(size, np.uint16 if wide else np.uint8)
    partitions.zigzags_numpy(
        np.where(np.isfinite(d) & ~inside, d, number(0)), place[2], end, 0.6, False, chosen, past
    )
    chosen[inside] = 0
    expected = chosen, (inside | np.isfinite(d) & (past == 0)).astype(np.uint8)
    symbols, fits = settled((values, reference, original), parts, expected, table, kind, in_place, bound)
    with np.errstate(all="ignore"):
        size_of = np.floor(np.abs(d.astype(float)) * 1.25 + 0.4)
    near = (np.abs(d) >= 0.49) & (size_of < end) & (fits > 0) & (np.abs(size_of - size_of.round()) < 0.9)
    away = np.abs(np.abs(d.astype(float)) * 1.25 + 0.4 - size_of - 0.5) < 0.49  # not beside an edge
    number_of = 2 * size_of - (d < 0)
    assert (symbols[near & away] == number_of[near & away]).all()
    assert not symbols[np.abs(d) < 0.48].any()


@given(
    st.sampled_from(sorted(SHIFTS)),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
    st.sampled_from([math.inf, 0.5]),
    st.integers(0, 5),
)
def test_buckets(
    name: str, size: int, seed: int, relative: bool, in_place: bool, bound: float, promoted: int
) -> None:
    kind, (shift, exponents) = KINDS[name], SHIFTS[name]
    values, reference, original = arrays_of(name, size, seed, relative)
    rng = np.random.default_rng(seed)
    # The buckets around that of 1.0 have symbols, smaller ones are in the zone.
    chosen, one = np.zeros((2, 1 << exponents), np.uint8), (1 << (exponents - 1)) - 1
    chosen[:, one : one + promoted] = rng.integers(0, 8, (2, promoted))
    zone = one - int(rng.integers(0, 2)), one - int(rng.integers(0, 2))
    with np.errstate(all="ignore"):
        values = np.where(np.isfinite(values), np.sign(values) * 2.0 ** (np.arange(size) % 9 - 4), values)
        values = values.astype(name)
    original = values.view(kind.bits)
    window = whole.window_of(chosen.reshape(-1), zone)
    assert window.size == 3
    nothing = kind.work.type(0)
    parts = whole.Parts(window, shift, nothing, nothing, nothing, 0.0, 0.0)
    table = np.append(-0.0 if relative else 0.0, rng.standard_normal(7)).astype(kind.work)
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
    bucket = (d.view(kind.bits) >> shift).astype(np.intp)
    symbol = chosen.reshape(-1)[bucket]
    inside = bucket % (1 << exponents) < np.array(zone)[bucket >> exponents]
    expected = symbol, ((symbol > 0) | inside).astype(np.uint8)
    settled((values, reference, original), parts, expected, table, kind, in_place, bound)


def test_windows_of_many_symbols() -> None:
    """Three numbers have no room for them."""
    few = np.zeros(512, np.uint8)
    few[[120, 121, 376]] = 1, 2, 7
    assert whole.window_of(few, (118, 118)).size == 3
    last = np.zeros(512, np.uint8)
    last[[254, 510]] = 1, 2
    assert whole.window_of(last, (254, 254)).tolist() == [248, 0x81000000, 0x82000000]
    for place, symbol in ((121, 8), (129, 1)):
        many = few.copy()
        many[place] = symbol
        assert whole.window_of(many, (118, 118)).size == 0


@pytest.mark.parametrize("loop", [whole._settle_loop, *([whole._settle] if whole.has_loops() else [])])
def test_places_of_what_is_exact(monkeypatch: pytest.MonkeyPatch, loop: Any) -> None:
    monkeypatch.setattr(whole, "_settle", loop)
    values = np.array([0.0, 5.0, np.nan, 1.0], np.float32)
    symbols, result = np.empty(4, np.uint8), np.empty(4, np.uint32)
    table, bits, code = np.array([0, -1, 1], np.float32), values.view(np.uint32), KINDS["float32"].code
    low, high, one = np.float32(-0.6), np.float32(0.6), np.float32(1)
    parts = whole.Parts(np.zeros(0, np.uint64), 0, low, high, one, 2.0, 0.6)
    rest = symbols, table, bits, result, math.inf, code
    with np.errstate(all="ignore"):
        assert whole.settle_whole(values, values[:0], parts, *rest).tolist() == [1, 2]
    assert symbols.tolist() == [0, 0, 0, 2]
    assert result.view(np.float32)[[0, 1, 3]].tolist() == [0, 5, 1]


@given(CASES, st.booleans())
def test_sums(case: Case, relative: bool) -> None:
    ordered = case.table.dtype == case.kind.bits
    relative |= ordered
    size = case.reference.size
    symbols = np.resize(case.symbols, size).astype(case.symbols.dtype) if case.symbols.size else None
    if symbols is None:
        return
    loop = [whole._write_sums_loop] if case.is_native and not ordered else []
    outs = []
    for form in (whole._write_sums_numpy, whole.write_sums, *loop):
        out = case.reference.copy()
        with np.errstate(all="ignore"):
            form(symbols, case.table, out if relative else out[:0], out, case.kind.code)
        outs.append(out.tolist())
    assert all(out == outs[0] for out in outs)


@given(
    st.sampled_from(sorted(SHIFTS)),
    st.sampled_from([0, 7, 40, 700]),
    st.integers(0, 2**32),
    st.booleans(),
    st.integers(1, 9),
)
def test_what_is_missed(name: str, size: int, seed: int, relative: bool, bins: int) -> None:
    """It is what a search for the differences outside the zone, and their symbols, leaves."""
    values, reference, _ = arrays_of(name, size, seed, relative)
    number = values.dtype.type
    table = np.append(-0.0 if relative else 0.0, np.arange(2 * bins) - bins).astype(name)
    low, high, reciprocal, end = -number(0.48), number(0.48), number(1.25), float(bins + 1)
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
        places, some = search.outside(d, d[:0], low, high)
        symbols, past = partitions.zigzags(
            np.where(np.isfinite(some), some, number(0)), reciprocal, np.int64(end), 0.6, False, False
        )
        expected = d.copy()
        fits = np.isfinite(some) & ~(np.zeros(some.size, bool) if past is None else past)
        expected[places] = np.where(fits, some - table.take(symbols), 0)
    forms = [whole._miss_loop, *([whole._miss] if whole.has_loops() else [])]
    for form in forms:
        missed, differences = np.empty((2, size), name)
        with np.errstate(all="ignore"):
            form(values, reference, low, high, reciprocal, end, 0.6, table, missed, differences)
        np.testing.assert_array_equal(missed, expected)
        np.testing.assert_array_equal(differences, d)


def test_passes_wait_for_all_of_their_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no other form: a thread may have made one ready, and not yet the next."""
    for missing in ("_settle", "_miss", "_tally_whole", ""):
        monkeypatch.setattr(
            whole, "is_compiled", lambda each, own=missing: each is not getattr(whole, own, "")
        )
        assert whole.has_loops() == (not missing)


@pytest.mark.parametrize("name", sorted(SHIFTS))
@pytest.mark.parametrize("distance", [512, 1500])
@pytest.mark.parametrize(("size", "wild"), [(0, None), (700, None), (1700, None), (600, 490), (600, 3)])
def test_tallies_of_stretches(name: str, size: int, wild: int | None, distance: int) -> None:
    rng, kind = np.random.default_rng(size), KINDS[name].work.type
    values, reference = (rng.standard_normal(size).astype(name) for _ in range(2))
    if wild is not None:
        values[wild] = kind(np.nan) if wild > 9 else kind(1e9)
    number = kind(0.7)
    parts = whole.Parts(np.zeros(0, np.uint64), 0, -number, number, kind(2), 0.0, 0.6)
    for before in (reference, reference[:0]):
        found = []
        for form in (whole._tally_whole_loop, *([whole._tally_whole] if whole.has_loops() else [])):
            counts, sums = np.zeros(4 * 256, np.int64), np.zeros(4 * 256)
            squares, tops = np.zeros(4 * search.SUMS_SIDE_BY_SIDE), np.zeros(4, f"u{number.itemsize}")
            zone = parts.low, parts.high, parts.reciprocal, parts.edge
            with np.errstate(invalid="ignore"):
                fits = form(values, before, *zone, 512, distance, counts, sums, squares, tops)
            assert fits == (wild is None)
            found.append((counts, sums, squares, tops) if fits else ())
        for other in found[1:]:
            for one, another in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, another)
        if wild is not None:
            continue
        for stretch, first in enumerate(range(0, size, distance)):
            part = slice(first, first + 512)
            d = values[part] - before[part] if before.size else values[part]
            places, outside = search.outside(d, d[:0], -number, number)
            assert places.size or not d.size
            symbols, _ = partitions.zigzags(outside, kind(2), np.int64(128), 0.6, False, False)
            own = slice(256 * stretch + 1, 256 * stretch + 256)
            expected = search.tally(symbols, outside, 1.0, 256)
            for one, another in zip(found[0], expected, strict=False):
                np.testing.assert_array_equal(one[own], another[1:])
            lanes = found[0][2][search.SUMS_SIDE_BY_SIDE * stretch :][: search.SUMS_SIDE_BY_SIDE]
            assert np.add.reduce(lanes) == search.squares_inside(d, d[:0], number, 1.0)
            assert found[0][3].view(name)[stretch] == np.abs(d).max()
