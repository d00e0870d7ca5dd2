"""Elements as bits, types and numbers, and places in masks: as NumPy has them."""

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import BFLOAT16_BITS, DependencyError
from lccodec.element_table import ELEMENT_TYPES
from lccodec.element_types import components, from_components, narrow, rounded_copy, subtract, widen
from lccodec.loops.search import bit_places, true_places

from .support.strategies import ALL_DTYPES, Pair, array_and_reference, bits_of, random_array

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_codes_are_the_positions_in_the_table() -> None:
    assert [kind.code for kind in ELEMENT_TYPES] == list(range(len(ELEMENT_TYPES)))


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_components_and_back(name: str) -> None:
    array = random_array(name, (3, 4, 5), 1)
    kind, bits = components(array)
    assert kind.name == name
    assert bits.shape == (60 * kind.components,)
    np.testing.assert_array_equal(bits_of(from_components(bits, kind, (3, 4, 5), None)), bits_of(array))


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_layout_and_byte_order_do_not_matter(name: str) -> None:
    array = random_array(name, (4, 6), 2)
    expected = components(array)[1]
    same = [np.asfortranarray(array), np.repeat(array, 2, axis=0)[::2], array[::-1][::-1]]
    if name not in ("bool", "bfloat16", "int8", "uint8"):
        same.append(array.astype(array.dtype.newbyteorder("S")))
    for other in same:
        np.testing.assert_array_equal(components(other)[1], expected)


def test_a_bool_of_any_true_byte_is_one() -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert components(odd)[1].tolist() == [0, 1, 1, 1]


@given(st.lists(st.floats(width=32), max_size=50))
def test_narrow_rounds_as_ml_dtypes_does(values: list[float]) -> None:
    array = np.array(values, np.float32)
    finite = ~np.isnan(array)
    with np.errstate(all="ignore"):
        expected = array.astype(BFLOAT16).view(np.uint16)
    np.testing.assert_array_equal(narrow(array)[finite], expected[finite])
    assert np.isnan(narrow(array)[~finite].view(BFLOAT16).astype(np.float32)).all()


def test_every_bfloat16_survives_widening() -> None:
    every = np.arange(65536, dtype=np.uint16)
    number = ~np.isnan(widen(every))
    np.testing.assert_array_equal(narrow(widen(every))[number], every[number])
    np.testing.assert_array_equal(
        widen(every).view(np.uint32)[number], every.view(BFLOAT16).astype(np.float32).view(np.uint32)[number]
    )


@given(array_and_reference(["bfloat16", "float16"], special=0.0))
def test_differences_are_those_of_the_type(pair: Pair) -> None:
    array, reference = pair
    kind, x = components(array)
    r = None if reference is None else components(reference)[1]
    with np.errstate(all="ignore"):
        expected = array if reference is None else array - reference
    np.testing.assert_array_equal(
        subtract(x, r, kind).astype(np.float64), expected.astype(np.float64).reshape(-1)
    )


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.array([0x3F80, 0xC000], np.uint16)
    kind, stored = components(bits.view(BFLOAT16_BITS))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DependencyError, match=r"lccodec\[bfloat16\]"):
        from_components(stored, kind, (2,), None)
    assert from_components(stored, kind, (2,), "float32").tolist() == [1.0, -2.0]
    assert from_components(stored, kind, (2,), "bits").dtype == BFLOAT16_BITS


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.sampled_from(["float16", "bfloat16"]))
def test_a_copy_is_rounded_once_to_nearest_even(patterns: list[int], name: str) -> None:
    bits = np.array(patterns, np.uint32)
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    out = np.empty(bits.size, np.uint16)
    rounded_copy(bits, kind, out)
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16 if name == "float16" else BFLOAT16).view(np.uint16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(out[number], expected[number])
    own, made = bits[~number], out[~number].astype(np.uint32)
    top = 23 - kind.mantissa
    assert (made >> 15 == own >> 31).all()
    assert (
        made & 0x7FFF
        == own >> top & (1 << kind.mantissa) - 1 | 0x7FFF >> kind.mantissa - 1 << kind.mantissa - 1
    ).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40_000, 40_001, 40_007, 1 << 17])
@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.05, 0.099, 0.101, 0.5, 1])
def test_the_places_are_numpys(size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    found = true_places(mask)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(mask))


@pytest.mark.parametrize("place", [0, 7, 8, 40_000, 40_006])
def test_one_place(place: int) -> None:
    mask = np.zeros(40_007, bool)
    mask[place] = True
    assert true_places(mask).tolist() == [place]


def test_a_part_of_a_mask_that_begins_anywhere() -> None:
    mask = np.random.default_rng(0).random(50_000) < 0.03
    for start in range(9):
        np.testing.assert_array_equal(true_places(mask[start:]), np.flatnonzero(mask[start:]))


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 17, 40_000, 40_001])
@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.04, 0.3, 1])
def test_the_places_of_bits_are_those_of_their_mask(size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    found = bit_places(np.packbits(mask, bitorder="little"))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(mask))
