"""All symbols of a piece and what they decode to: both forms, and the search that they replace."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_table import ELEMENT_TYPES, ElementType
from lccodec.element_types import Array
from lccodec.loops import representatives, whole

from ..support.strategies import random_array
from .test_representatives import CASES, Case

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}
SHIFTS = {"float32": (23, 8), "float64": (52, 11)}


def forms_agree(
    forms: list,
    arrays: tuple[Array, Array, Array],
    wide: bool,
    table: Array,
    kind: ElementType,
    in_place: bool,
    bound: float,
) -> tuple[Array, Array, Array]:
    """Return the symbols, which have one, and the decoded values, which all forms give."""
    values, reference, original = arrays
    limit, found = representatives.limit_of(bound, kind), []
    for form in forms:
        before = reference.copy()
        result = before.view(kind.bits) if in_place and before.size else original ^ kind.bits.type(1)
        symbols = np.empty(values.size, np.uint16 if wide else np.uint8)
        fits = np.empty(values.size, np.uint8)
        with np.errstate(all="ignore"):
            some = form(values, before, symbols, fits, table, original, result, limit, kind.code)
        assert int(some) == np.count_nonzero(fits == 0)
        assert (result[fits == 0] == original[fits == 0]).all()
        found.append((symbols, fits, result))
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, another)
    return found[0]


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
    place = -number(0.48), number(0.48), number(1.25), end, 0.6
    forms = [
        lambda values, before, *rest, form=form: form(values, before, *place, *rest)
        for form in (whole._settle_bins_numpy, whole._settle_bins_loop, whole._settle_bins)
    ]
    symbols, fits, _ = forms_agree(forms, (values, reference, original), wide, table, kind, in_place, bound)
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
        size_of = np.floor(np.abs(d.astype(float)) * 1.25 + 0.4)
    near = (np.abs(d) >= 0.49) & (size_of < end) & (fits > 0) & (np.abs(size_of - size_of.round()) < 0.9)
    away = np.abs(np.abs(d.astype(float)) * 1.25 + 0.4 - size_of - 0.5) < 0.49  # not beside an edge
    expected = 2 * size_of - (d < 0)
    assert (symbols[near & away] == expected[near & away]).all()
    assert not symbols[np.abs(d) < 0.48].any()


@given(
    st.sampled_from(sorted(SHIFTS)),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([math.inf, 0.5]),
)
def test_buckets(
    name: str, size: int, seed: int, relative: bool, in_place: bool, few: bool, bound: float
) -> None:
    kind, (shift, exponents) = KINDS[name], SHIFTS[name]
    values, reference, original = arrays_of(name, size, seed, relative)
    rng = np.random.default_rng(seed)
    chosen = rng.choice([0, 1, 7, whole.UNFIT], 2 << exponents).astype(np.uint16)
    if few:  # the buckets around that of 1.0 have symbols, smaller ones are in the zone
        chosen, one = chosen.reshape(2, -1), (1 << (exponents - 1)) - 1
        chosen[:, : one - 3], chosen[:, one + 3 :] = 0, whole.UNFIT
        values = np.where(np.isfinite(values), np.sign(values) * 2.0 ** (np.arange(size) % 9 - 4), values)
        values, chosen = values.astype(name), chosen.reshape(-1)
        original = values.view(kind.bits)
    window = whole.window_of(chosen, kind.bits)
    assert (window.size == 3) == few
    table = np.append(-0.0 if relative else 0.0, rng.standard_normal(7)).astype(kind.work)
    forms = [
        lambda values, before, *rest, form=form: form(values, before, shift, chosen, window, *rest)
        for form in (whole._settle_buckets_numpy, whole._settle_buckets_loop, whole._settle_buckets)
    ]
    symbols, fits, _ = forms_agree(forms, (values, reference, original), False, table, kind, in_place, bound)
    with np.errstate(all="ignore"):
        found = chosen[(values - reference if relative else values).view(kind.bits) >> shift]
    assert (symbols == np.where(fits > 0, found & 255, 0)).all()
    assert not fits[found == whole.UNFIT].any()


@pytest.mark.parametrize("form", [whole.settle_bins, whole.settle_buckets])
def test_places_of_what_is_exact(form: object) -> None:
    values = np.array([0.0, 5.0, np.nan, 1.0], np.float32)
    symbols, fits, result = np.empty(4, np.uint8), np.empty(4, np.uint8), np.empty(4, np.uint32)
    table, bits, code = np.array([0, -1, 1], np.float32), values.view(np.uint32), KINDS["float32"].code
    rest = symbols, fits, table, bits, result, math.inf, code
    if form is whole.settle_bins:
        low, high = np.float32(-0.6), np.float32(0.6)
        escaped = whole.settle_bins(values, values[:0], (low, high, np.float32(1), 2, 0.6), *rest)
    else:
        chosen = np.full(512, whole.UNFIT, np.uint16)
        chosen[:127], chosen[256:383], chosen[127] = 0, 0, 2
        buckets = 23, chosen, whole.window_of(chosen, np.dtype(np.uint32))
        escaped = whole.settle_buckets(values, values[:0], buckets, *rest)
    assert escaped.tolist() == [1, 2]
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
