"""Buckets of equal sign and exponent: both forms."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops import buckets

from ..support.strategies import random_array

TYPES = {"float16": ("u2", 10, 5), "float32": ("u4", 23, 8), "float64": ("u8", 52, 11)}


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 40), st.integers(0, 2**32))
def test_forms(name: str, size: int, seed: int) -> None:
    code, shift, exponents = TYPES[name]
    values, reference = (random_array(name, (size,), seed + k) for k in (0, 1))
    for before in (reference, reference[:0]):
        with np.errstate(all="ignore"):
            patterns = (values - before if before.size else values).view(code)
        extremes = []
        for form in (buckets._extremes_numpy, buckets._extremes_loop, buckets.extremes):
            least = np.full(2 << exponents, np.iinfo(code).max, code)
            most = np.zeros(2 << exponents, code)
            with np.errstate(all="ignore"):
                form(values, before, shift, least, most)
                form(values[:0], before[:0], shift, least, most)
            extremes.append((least, most))
        for number in set((patterns >> shift).tolist()):
            own = patterns[patterns >> shift == number]
            if number & ((1 << exponents) - 1) == (1 << exponents) - 1:  # they are not finite
                own = np.array([np.iinfo(code).max, 0], code)
            assert (extremes[0][0][number], extremes[0][1][number]) == (own.min(), own.max()) or own[-1] == 0
        for pair in extremes[1:]:
            np.testing.assert_array_equal(pair, extremes[0])
    patterns = values.view(code)
    table = np.random.default_rng(seed).integers(0, 9, 2 << exponents).astype(np.uint8)
    expected = table[patterns >> shift]
    forms = buckets._bucket_symbols_numpy, buckets._bucket_symbols_loop, buckets.bucket_symbols
    for form in forms:
        np.testing.assert_array_equal(form(patterns, shift, table), expected)


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 40), st.integers(0, 2**32))
def test_all_symbols(name: str, size: int, seed: int) -> None:
    code, shift, exponents = TYPES[name]
    values, reference = (random_array(name, (size,), seed + k) for k in (0, 1))
    table = np.random.default_rng(seed).choice([0, 1, 7, buckets.UNFIT], 2 << exponents).astype(np.uint16)
    for before in (reference, reference[:0]):
        with np.errstate(all="ignore"):
            found = table[(values - before if before.size else values).view(code) >> shift]
        for form in (
            buckets._all_bucket_symbols_numpy,
            buckets._all_bucket_symbols_loop,
            buckets.all_bucket_symbols,
        ):
            symbols, fits = np.empty((2, size), np.uint8)
            with np.errstate(all="ignore"):
                form(values, before, np.dtype(code).type(shift), table, symbols, fits)
            np.testing.assert_array_equal(symbols, found & 255)
            np.testing.assert_array_equal(fits, found < buckets.UNFIT)
