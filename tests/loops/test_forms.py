"""Both forms of each loop give the same: bins, buckets, counts, places, sums, interpolation."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lccodec import element_types
from lccodec.constants import ELEMENT_TYPES
from lccodec.element_types import Array
from lccodec.loops import partitions, search, sums
from lccodec.loops.partitions import _zigzags_loop, zigzags, zigzags_numpy
from lccodec.loops.representatives import _interpolate_loop, interpolate, is_native
from lccodec.loops.search import _histogram, _histogram_loop, _tally_loop, _tally_numpy, histogram, tally

from ..support.strategies import REALS, random_array
from ..support.tuning import tune


@given(
    st.lists(
        st.floats(-200, 200) | st.sampled_from([0.6, -0.6, 1.6, -0.0, 1e-42, 1e300, -1e300]), max_size=40
    ),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 128),
    st.booleans(),
    st.booleans(),
)
@example([127.6, -127.6, 127.5999, 126.6], "f4", 128, False, False)
def test_bins(numbers: list[float], code: str, end: int, wide: bool, narrowed: bool) -> None:
    with np.errstate(over="ignore"):
        d = np.array(numbers, code)
    d = d[np.isfinite(d)]
    end += 1000 if wide and end else 0
    arguments = d, d.dtype.type(1.25), np.int64(end), 0.6, narrowed
    results = []
    for form in (zigzags_numpy, _zigzags_loop):
        symbols = np.empty(d.size, np.uint16 if wide else np.uint8)
        past = np.empty(d.size, np.uint8)
        with np.errstate(over="ignore"):
            some = form(*arguments, symbols, past)
        results.append((symbols.tolist(), past.tolist() if some else None))
    symbols, past = zigzags(d, d.dtype.type(1.25), np.int64(end), 0.6, wide, narrowed)
    results.append((symbols.tolist(), None if past is None else past.astype(int).tolist()))
    assert results[0] == results[1] == results[2]


def test_bins_begin_behind_the_zone() -> None:
    d = np.array([0.5, 0.61, 1.5, 1.61, -0.61, -1.7, 9.0], np.float32)
    symbols, past = zigzags(d, np.float32(1), np.int64(3), 0.6, False, False)
    assert symbols.tolist() == [0, 2, 2, 4, 1, 3, 0]
    assert past is not None and past.tolist() == [False] * 6 + [True]
    assert zigzags(d[:1], np.float32(1), np.int64(3), 0.6, False, True)[0].tolist() == [2]


def extremes_of_all(
    values: Array, reference: Array, shift: int, _plus: int, _minus: int, least: Array, most: Array
) -> None:
    """Do what `extremes` does, with each difference that is finite."""
    with np.errstate(all="ignore"):
        d = values - reference if reference.size else values
    patterns = d[np.isfinite(d)].view(least.dtype)
    buckets = (patterns >> shift).astype(np.intp)
    np.minimum.at(least, buckets, patterns)
    np.maximum.at(most, buckets, patterns)


BUCKETS = {"float16": ("u2", 10, 5), "float32": ("u4", 23, 8), "float64": ("u8", 52, 11)}


@given(st.sampled_from(sorted(BUCKETS)), st.integers(0, 40), st.integers(0, 2**32))
def test_extremes_and_symbols_of_buckets(name: str, size: int, seed: int) -> None:
    code, shift, exponents = BUCKETS[name]
    values, reference = (random_array(name, (size,), seed + k) for k in (0, 1))
    for before in (reference, reference[:0]):
        with np.errstate(all="ignore"):
            patterns = (values - before if before.size else values).view(code)
        extremes = []
        compiled = [partitions.extremes] if partitions.has_loops(values.dtype) else []
        for form in (extremes_of_all, partitions._extremes_loop, *compiled):
            least = np.full(2 << exponents, np.iinfo(code).max, code)
            most = np.zeros(2 << exponents, code)
            with np.errstate(all="ignore"):
                for some in (slice(size // 2), slice(size // 2, size), slice(0)):
                    form(values[some], before[some], shift, 0, 0, least, most)
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
    forms = partitions._bucket_symbols_numpy, partitions._bucket_symbols_loop, partitions.bucket_symbols
    for form in forms:
        np.testing.assert_array_equal(form(patterns, shift, table), expected)


@given(st.sampled_from(["float32", "float64"]), st.integers(1, 900), st.integers(0, 2**32))
def test_extremes_of_full_buckets(name: str, size: int, seed: int) -> None:
    code, shift, exponents = BUCKETS[name]
    rng, count = np.random.default_rng(seed), 2 << exponents
    values = rng.choice([1.0, 1.5, np.nextafter(2, 1), 3.9999999, 4.1], size) * rng.choice([-1, 1], size)
    values = np.where(rng.random(size) < 0.1, rng.standard_normal(size), values).astype(name)
    found = []
    for form in (extremes_of_all, partitions._extremes_loop):
        least, most = np.full(count, np.iinfo(code).max, code), np.zeros(count, code)
        for some in (slice(size // 2), slice(size // 2, size)):
            form(values[some], values[:0], shift, 0, 0, least, most)
        found.append((least.tolist(), most.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 17, (1 << 17) + 1])
def test_pairs_are_counted_as_single_symbols(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    np.testing.assert_array_equal(histogram(data), np.bincount(data, minlength=256))


@given(st.binary(max_size=50))
def test_both_forms_count_the_same(data: bytes) -> None:
    symbols = np.frombuffer(data, np.uint8)
    expected = np.bincount(symbols, minlength=256)
    for form in (_histogram, _histogram_loop, histogram):
        np.testing.assert_array_equal(form(symbols), expected)


@given(st.lists(st.integers(0, 4), max_size=30), st.sampled_from("fd"), st.sampled_from([1.0, 2.0**-64]))
def test_both_forms_add_the_same(symbols: list[int], kind: str, unit: float) -> None:
    places = np.array(symbols, np.uint8)
    numbers = np.random.default_rng(len(symbols)).standard_normal(places.size).astype(kind)
    counts, sums = tally(places, numbers, unit, 5)
    for symbol in range(5):
        its_own = (numbers * numbers.dtype.type(unit))[places == symbol].astype(float)
        assert counts[symbol] == its_own.size
        assert sums[symbol] == sum(its_own.tolist())
    for form in (_tally_numpy, _tally_loop):
        number, total = np.zeros(5, np.int64), np.zeros(5)
        form(places, numbers, numbers.dtype.type(unit), number, total)
        np.testing.assert_array_equal(number, counts)
        np.testing.assert_array_equal(total, sums)


KINDS = {kind.name: kind for kind in ELEMENT_TYPES}


@given(
    st.sampled_from(REALS),
    st.integers(0, 40),
    st.integers(0, 2**32),
    st.integers(1, 255),
    st.sampled_from([0, 0.2, 1.0]),
    st.sampled_from(["low", "high", "new"]),
)
def test_interpolated(name: str, size: int, seed: int, weight: int, share: float, into: str) -> None:
    kind = KINDS[name]
    other = "uint16" if name == "bfloat16" else name
    low, high = (random_array(other, (size,), seed + each, share).view(kind.bits) for each in range(2))
    expected = np.empty_like(low)
    element_types.interpolate(low, high, weight / 256, kind, expected)
    memory = {"low": low.copy(), "high": high.copy(), "new": np.empty_like(low)}
    interpolate(
        memory["low"] if into == "low" else low,
        memory["high"] if into == "high" else high,
        weight / 256,
        kind,
        memory[into],
    )
    np.testing.assert_array_equal(memory[into], expected)
    if is_native(kind):
        with np.errstate(all="ignore"):
            _interpolate_loop(low, high, kind.work.type(weight / 256), kind.code, memory["new"])
        np.testing.assert_array_equal(memory["new"], expected)


SIZES = [0, 1, 7, 8, 700, (1 << 15) + 3]


def numbers(dtype: str, size: int, top: int | None = None) -> Array:
    most = top or np.iinfo(dtype).max
    return np.random.default_rng(size).integers(0, most, size, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_places_that_differ(dtype: str, share: float) -> None:
    for size in SIZES:
        one = numbers(dtype, size)
        changed = np.random.default_rng(1).random(size) < share
        other = one ^ changed.astype(dtype)
        forms = [search._differing, search.differing]
        for form in [*forms, search._differing_loop][: 3 if size < 100 else 2]:
            with np.errstate(over="ignore"):
                both = form(one, other), form(one ^ other, one[:0])
            for found in both:
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, np.flatnonzero(changed))


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_places_of_sizes_between_bounds(dtype: str) -> None:
    full = int(np.iinfo(dtype).max)
    half = full >> 1
    bounds = [(0, 0), (0, 1), (0, half // 9), (half // 3, half), (5, half + 1), (0, full), (half, full)]
    forms: list[Callable[..., Array]] = [search._between, search.between]
    for size in SIZES:
        bits = numbers(dtype, size)
        bare = bits & bits.dtype.type(half)
        for low, high in bounds:
            for form in [*forms, search._between_loop][: 3 if size < 100 else 2]:
                with np.errstate(over="ignore"):
                    found = form(bits, low, high)
                assert found.dtype == np.int64
                expected = (bare >= bits.dtype.type(low)) & (bare < bits.dtype.type(high))
                np.testing.assert_array_equal(found, np.flatnonzero(expected))


MASK = (1 << 64) - 1


@given(st.lists(st.integers(0, MASK), max_size=40), st.integers(0, 1 << 50))
def test_the_weighted_sum(numbers: list[int], first: int) -> None:
    words = np.array(numbers, np.uint64)
    expected = sum((2 * (first + i) + 1) * word for i, word in enumerate(numbers)) & MASK
    for form in (sums._weighted_sum, sums._weighted_sum_loop, sums.weighted_sum):
        with np.errstate(over="ignore"):
            assert int(form(words, first)) & MASK == expected


@pytest.mark.parametrize("size", [2048, 2049, (1 << 17) + 2047])
def test_the_weighted_sum_of_rows(size: int) -> None:
    words = np.random.default_rng(size).integers(0, 1 << 63, size, np.uint64)
    with np.errstate(over="ignore"):
        expected = int((words * np.arange(1, 2 * size, 2, dtype=np.uint64)).sum())
    assert int(sums._weighted_sum(words, 0)) & MASK == int(sums.weighted_sum(words, 0)) & MASK == expected


@pytest.mark.parametrize("beyond", [1, 1927, 40_000])
def test_folded_words_have_the_crc_of_all(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(beyond).bytes(8 * (sums._FAR + beyond) + 5)
    tune(monkeypatch, crc_min_folded_bytes=0)
    monkeypatch.setattr(sums, "is_compiled", lambda _: True)
    forms = [sums._folded, sums._folded_numpy]
    if beyond == 1:  # in Python it takes long
        forms.append(sums._folded_loop)
    for form in forms:
        monkeypatch.setattr(sums, "_folded", form)
        assert sums.crc32(data) == zlib.crc32(data)
        assert sums.crc32(memoryview(data)[3:], 77) == zlib.crc32(data[3:], 77)


def test_few_bytes_are_left_to_zlib() -> None:
    assert sums.crc32(b"abc", 5) == zlib.crc32(b"abc", 5)
