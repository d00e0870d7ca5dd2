"""Searching in masks: the same places as NumPy finds, at every share and size."""

import numpy as np
import pytest

from lccodec.masks import bit_places, true_places


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
