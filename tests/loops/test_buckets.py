"""Buckets of equal sign and exponent: both forms."""

from __future__ import annotations

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
                first = [(0, 0)] if form is buckets.extremes else [0, 0]
                for some in (slice(size // 2), slice(size // 2, size), slice(0)):
                    form(values[some], before[some], shift, *first, least, most)
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


@given(st.sampled_from(["float32", "float64"]), st.integers(1, 900), st.integers(0, 2**32))
def test_extremes_of_full_buckets(name: str, size: int, seed: int) -> None:
    code, shift, exponents = TYPES[name]
    rng, count = np.random.default_rng(seed), 2 << exponents
    values = rng.choice([1.0, 1.5, np.nextafter(2, 1), 3.9999999, 4.1], size) * rng.choice([-1, 1], size)
    values = np.where(rng.random(size) < 0.1, rng.standard_normal(size), values).astype(name)
    found = []
    for form in (buckets._extremes_numpy, buckets._extremes_loop):
        least, most = np.full(count, np.iinfo(code).max, code), np.zeros(count, code)
        for some in (slice(size // 2), slice(size // 2, size)):
            form(values[some], values[:0], shift, 0, 0, least, most)
        found.append((least.tolist(), most.tolist()))
    assert found[0] == found[1]
