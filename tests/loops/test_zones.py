"""Which differences lie outside a zone: both forms."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import element_types
from lccodec.constants import ELEMENT_TYPES
from lccodec.loops import search as zones

from ..support.strategies import random_array

TYPES = st.sampled_from(["float32", "float64"])
SIZES = st.integers(0, 40)
SEEDS = st.integers(0, 2**32)
SHARES = st.sampled_from([0.0, 0.3, 1.0])


def pair(name: str, size: int, seed: int, share: float, relative: bool) -> tuple[np.ndarray, np.ndarray]:
    values = random_array(name, (size,), seed, share)
    return values, random_array(name, (size if relative else 0,), seed + 1, share)


def same(forms: tuple[Any, ...], *arguments: Any) -> Any:
    """What the first form returns, once all of them return the same patterns."""
    with np.errstate(all="ignore"):
        first, *others = (form(*arguments) for form in forms)
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)
    return first


def found(marked: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    forms = zones._found_numpy, zones._found_loop, zones.found
    return same(forms, *marked)


@given(TYPES, SIZES, SEEDS, SHARES, st.booleans(), st.booleans())
def test_one_width(name: str, size: int, seed: int, share: float, relative: bool, symmetric: bool) -> None:
    values, reference = pair(name, size, seed, share, relative)
    high = values.dtype.type(np.random.default_rng(seed).random())
    low = -high if symmetric else values.dtype.type(-0.5)
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
        outside = ~((d > low) & (d < high))
    for form in (zones._outside_numpy, zones._outside_loop, zones.outside):
        with np.errstate(all="ignore"):
            places, differences = form(values, reference, low, high)
        np.testing.assert_array_equal(places, np.flatnonzero(outside))
        np.testing.assert_array_equal(differences, d[outside])
        assert places.dtype == np.int64


@given(TYPES | st.just("float16"), st.sampled_from([0, 3, 40, 700]), SEEDS, st.booleans(), st.booleans())
def test_the_largest(name: str, size: int, seed: int, relative: bool, finite: bool) -> None:
    values, reference = pair(name, size, seed, 0.0 if finite else 1.0, relative)
    with np.errstate(all="ignore"):
        expected = np.abs(values - reference if relative else values).max(initial=0)
        assert zones.largest(values, reference) == expected or not np.isfinite(expected)
        for form in (zones._largest_numpy, zones._largest_loop):
            found = np.zeros(1, name)
            form(values, reference, found.view(f"u{found.itemsize}"))
            assert found == expected or not (np.isfinite(expected) or np.isfinite(found))


@given(SIZES, SEEDS, SHARES, st.booleans())
def test_widths_by_moments(size: int, seed: int, share: float, relative: bool) -> None:
    values, reference = pair("float32", size, seed, share, relative)
    moments = random_array("float32", (size,), seed + 2, share)
    high, unit = np.random.default_rng(seed).random(2).astype(np.float32)
    rest = moments, high, unit / np.float32(0.01), np.float32(0.7) * high, 4 * high
    forms = zones._outside_weighted_numpy, zones._outside_weighted_loop, zones.outside_weighted
    masks = []
    for form in forms:
        with np.errstate(all="ignore"):
            masks.append(form(values, reference, *rest)[0])
    np.testing.assert_array_equal(masks[0], masks[1])
    np.testing.assert_array_equal(masks[0], masks[2])


@given(TYPES | st.just("float16"), SIZES, SEEDS, SHARES)
def test_octaves(name: str, size: int, seed: int, share: float) -> None:
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    values, reference = (each.view(kind.bits) for each in pair(name, size, seed, share, relative=True))
    values[: size // 4] = reference[: size // 4]
    expected = element_types.octaves(values, reference, kind)
    assert zones.octaves(values, reference, kind).dtype == expected.dtype
    np.testing.assert_array_equal(zones.octaves(values, reference, kind), expected)
    if kind.size >= 4:
        signed = values.view(f"i{kind.size}"), reference.view(f"i{kind.size}")
        scale = kind.work.type(2.0**-kind.mantissa)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(zones._octaves_loop(*signed, scale, kind.code), expected)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("size", [0, 7, 8, 1 << 15, (1 << 15) + 5])
def test_places_of_a_mask(size: int, share: float) -> None:
    rng = np.random.default_rng(size)
    mask = (rng.random(size) < share).astype(np.uint8)
    values = rng.random(size)
    places, differences = zones.found(mask, values, values[:0])
    np.testing.assert_array_equal(places, np.flatnonzero(mask))
    np.testing.assert_array_equal(differences, values[places])


@pytest.mark.parametrize("unit", [1.0, 2.0**-64])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("size", [0, 5, zones.SUMS_SIDE_BY_SIDE, 2 * zones.SUMS_SIDE_BY_SIDE + 7])
def test_squares_inside(size: int, relative: bool, unit: float) -> None:
    values, reference = pair("float32", size, size, 0.1, relative)
    forms = zones._squares_numpy, zones._squares_loop, zones._squares_inside
    with np.errstate(all="ignore"):
        d = values - reference if relative else values
        sums = [form(values, reference, np.float32(0.7), np.float32(unit)) for form in forms]
        inside = d[np.abs(d) < np.float32(0.7)].astype(float) * unit
    for other in sums[1:]:
        np.testing.assert_array_equal(other, sums[0])
    expected = np.square(inside).sum()
    assert abs(zones.squares_inside(values, reference, 0.7, unit) - expected) <= 1e-12 * expected
