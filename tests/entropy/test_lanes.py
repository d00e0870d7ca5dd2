"""Huffman runs: round trips over lanes, damage, and rules (LCC-HUF, LCC-LAN). What is refused is
mostly refused before a code is looked at.

Codes of bytes, what they cost, and histograms.
"""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import lanes
from lccodec.entropy.lanes import (
    canonical_codes,
    choose_lengths,
    encode,
    entropy_bits,
    package_merge,
    read_run,
)
from lccodec.errors import DataError, FormatError, LimitError
from lccodec.loops.search import histogram

from ..support.bounds import bounded
from ..support.oracle import order0_entropy_bits
from ..support.tuning import tune


def decode(cursor: Cursor, count: int) -> np.ndarray:
    return lanes.decode(read_run(cursor, count))


def run(data: np.ndarray, lengths: np.ndarray | None = None) -> bytes:
    counts = np.bincount(data, minlength=256)
    return b"".join(encode(data, counts, choose_lengths(counts) if lengths is None else lengths))


def skewed(most: int, alphabet: int = 256) -> st.SearchStrategy[np.ndarray]:
    """Symbols of an alphabet, of which the first and the last occur."""

    def make(count: int, alphabet: int, scale: float, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        data = np.minimum(rng.exponential(scale, count), alphabet - 1).astype(np.uint8)
        data[:2] = 0, alphabet - 1
        return data

    sizes = st.integers(2, most), st.integers(2, alphabet)
    return st.builds(make, *sizes, st.floats(0.3, 60), st.integers(0, 2**32))


@given(skewed(3000))
def test_round_trip(data: np.ndarray) -> None:
    cursor = Cursor(memoryview(run(data)), "run")
    np.testing.assert_array_equal(decode(cursor, data.size), data)
    assert cursor.remaining == 0


@pytest.mark.parametrize("longest", [1, 7, 8, 9, 15])
def test_round_trip_of_every_word_form(longest: int) -> None:
    lengths = np.zeros(256, np.uint8)
    lengths[: longest + 1] = [*range(1, longest + 1), longest]
    data = np.random.default_rng(0).integers(0, longest + 1, 50_000).astype(np.uint8)
    stored = run(data, lengths)
    np.testing.assert_array_equal(decode(Cursor(memoryview(stored), "run"), data.size), data)


@pytest.mark.parametrize("count", [5_000, 13_000, 40_000, 200_000])
def test_round_trip_of_few_and_many_lanes(count: int) -> None:
    """The way to decode depends on their number: jumps of several codes, of one, steps of all."""
    data = np.minimum(np.random.default_rng(0).geometric(0.3, count), 255).astype(np.uint8)
    np.testing.assert_array_equal(decode(Cursor(memoryview(run(data)), "run"), count), data)


def test_uneven_lanes_take_wide_sizes() -> None:
    data = np.zeros(40_000, np.uint8)
    lanes_apart = 100  # what the encoder makes of it is its choice; some lanes are far longer than others
    data[::lanes_apart] = np.random.default_rng(0).integers(0, 256, data[::lanes_apart].size)
    np.testing.assert_array_equal(decode(Cursor(memoryview(run(data)), "run"), data.size), data)


def check_both(data: np.ndarray, damaged: int, name: str, ways: tuple[object, ...]) -> None:
    """Check that a run decodes alike, to data or an error, whichever way `lanes` goes."""
    stored = bytearray(run(data))
    if damaged >= 0:  # half of all bits are codes, most others sizes
        stored[-1 - damaged % (len(stored) // 2)] ^= 1 << damaged % 8
    found: list[object] = []
    for way in ways:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lanes, name, way)
            try:
                found.append(decode(Cursor(memoryview(stored), "run"), data.size).tobytes())
            except DataError as error:
                found.append(str(error))
    assert len(set(found)) == 1
    if damaged < 0:
        assert found[0] == data.tobytes()


@given(skewed(6000), st.integers(-1, 10**6))
def test_both_ways_through_the_lanes_find_the_same(data: np.ndarray, damaged: int) -> None:
    check_both(data, damaged, "_STEP_COST_BITS", (0, 1 << 20))


@given(
    st.integers(2, 6000), st.sampled_from([(0, 1), (3, 250)]), st.integers(0, 2**32), st.integers(-1, 10**6)
)
def test_symbols_of_one_bit(count: int, symbols: tuple[int, int], seed: int, damaged: int) -> None:
    """They are read without steps from code to code: the result, or the error, is that of steps."""
    data = np.array(symbols, np.uint8)[np.random.default_rng(seed).integers(0, 2, count)]
    data[:2] = symbols
    check_both(data, damaged, "_bit_by_bit", (lanes._bit_by_bit, lanes._jump))


@given(skewed(60, 200), st.integers(-1, 10**6))
def test_both_forms_of_the_lanes_are_the_same(data: np.ndarray, damaged: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "LANE_SYMBOLS", 7)
        patch.setattr(lanes, "LANE_BITS", 20)
        check_both(data, damaged, "read_lanes", (lanes._read_lanes, lanes._read_lanes_loop, lanes.read_lanes))
        written = []
        for form in (lanes._write_lanes, lanes._write_lanes_loop, lanes.write_lanes):
            patch.setattr(lanes, "write_lanes", form)
            written.append(run(data))
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("lane", [b"\x00", b"\x80"])
@pytest.mark.parametrize("places", [0, 1 << 20])
def test_a_lane_that_goes_on_behind_the_data_is_refused(
    monkeypatch: pytest.MonkeyPatch, lane: bytes, places: int
) -> None:
    tune(monkeypatch, step_cost_bits=places)
    # Codes of 1, 2 and 2 bits; a lane of two bytes, in which all symbols have room, and one of one
    # byte.
    stored = b"\x02\x21\x02" + b"\x02\x00\x01\x00\x01" + b"\x01" + b"\0\0" + lane
    for count in (18, 20, 24):
        with pytest.raises(FormatError, match="LCC-LAN-04"):
            decode(Cursor(memoryview(stored), "run"), count)


@pytest.mark.parametrize(
    ("stored", "error", "rule"),
    [
        (b"\x00\x01", FormatError, "LCC-HUF-02"),  # one symbol is no code
        (b"\x01\x21\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-02"),  # lengths 1 and 2 leave a code over
        (b"\x02\x11\x01\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-02"),  # three codes of one bit
        (b"\x03\x11\x00\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-04"),  # the last symbol has no code
        (b"\x02\x11\x12\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-04"),  # of the spare half byte
        (b"\x01\x11\x00\x00\x01\x00\x00\x00", LimitError, "LCC-LAN-02"),  # no lanes
        (b"\x01\x11\x09\x00\x01\x00\x00\x00", LimitError, "LCC-LAN-02"),  # more lanes than symbols
        (b"\x01\x11\x01\x00\x01\x00\x09\x00", FormatError, "LCC-LAN-03"),  # sizes of 9 bits
        (b"\x01\x11\x02\x00\x01\x00\x01\x04\x03\x03", FormatError, "LCC-LAN-03"),  # a bit behind the sizes
        (b"\x01\x11\x01\x00\x02\x00\x00\xff\xff", FormatError, "LCC-LAN-04"),  # a byte too many
        (b"\x01\x11\x01\x00\x01\x00\x00\x18", FormatError, "LCC-LAN-04"),  # padding that is not zero
    ],
)
def test_broken_runs_name_their_rule(stored: bytes, error: type[DataError], rule: str) -> None:
    with pytest.raises(error) as caught:
        decode(Cursor(memoryview(stored), "run"), 4)
    assert caught.value.rule == rule


def test_every_prefix_is_truncated() -> None:
    stored = run(np.random.default_rng(0).integers(0, 9, 400).astype(np.uint8))
    for length in range(len(stored)):
        with pytest.raises(DataError) as caught:
            read_run(Cursor(memoryview(stored[:length]), "run"), 400)
        assert caught.value.rule == "LCC-FRM-02"


def test_more_symbols_than_stored_bits_take_no_memory() -> None:
    stored = b"\x01\x11" + b"\x00\x20\x00\x00\x00"  # codes of one bit; 8,192 lanes of no bytes
    with bounded(60, 1 << 20), pytest.raises(FormatError, match="LCC-LAN-04"):
        read_run(Cursor(memoryview(stored), "run"), 1 << 24)


def counts_of(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    """Counts of which at least two are not 0."""
    return st.lists(numbers, min_size=2, max_size=256).filter(lambda counts: sum(map(bool, counts)) > 1)


def padded(counts: list[int]) -> np.ndarray:
    return np.array(counts + [0] * (256 - len(counts)), np.int64)


def huffman_cost(counts: np.ndarray) -> int:
    """Total bits of an unlimited Huffman code: the sum of all merged weights."""
    heap = [int(c) for c in counts if c]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        cost += merged
        heapq.heappush(heap, merged)
    return cost


def limited_cost(counts: list[int], limit: int) -> int:
    """Least total bits over every complete set of lengths up to the limit, by exhaustion."""
    best = 10**12
    for lengths in itertools.product(range(1, limit + 1), repeat=len(counts)):
        if sum(2.0**-b for b in lengths) <= 1:
            best = min(best, sum(c * b for c, b in zip(counts, lengths, strict=True)))
    return best


@given(counts_of(st.integers(0, 10_000)))
def test_lengths_are_optimal_where_the_limit_does_not_bind(counts: list[int]) -> None:
    weights = padded(counts)
    lengths = next(package_merge(weights, [15]))
    used = lengths[weights > 0].astype(int)
    assert (lengths[weights == 0] == 0).all()
    assert (2.0**-used).sum() == 1.0
    if used.max() < 15:
        assert int(weights @ lengths) == huffman_cost(weights)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.integers(3, 4))
def test_lengths_are_optimal_under_the_limit(counts: list[int], limit: int) -> None:
    (lengths,) = package_merge(padded(counts), [limit])
    assert lengths.max() <= limit
    assert int(padded(counts) @ lengths) == limited_cost(counts, limit)


@pytest.mark.parametrize("limit", [8, 12, 15])
def test_fibonacci_counts_keep_the_limit(limit: int) -> None:
    counts = [1, 1]
    while len(counts) < 40:
        counts.append(counts[-1] + counts[-2])
    (lengths,) = package_merge(padded(counts), [limit])
    assert lengths.max() == limit
    assert (2.0 ** -lengths[:40].astype(int)).sum() == 1.0


def test_canonical_codes_rise_with_length_then_symbol() -> None:
    lengths = np.array([2, 1, 3, 0, 3], np.uint8)
    assert canonical_codes(lengths).tolist() == [0b10, 0b0, 0b110, 0, 0b111]


@given(counts_of(st.integers(0, 3) | st.integers(0, 10**9)))
def test_both_forms_choose_the_same_lengths(counts: list[int]) -> None:
    weights = padded(counts)
    expected = lanes._choose_lengths(weights)
    for form in (lanes._choose_lengths_loop, choose_lengths):
        np.testing.assert_array_equal(form(weights), expected)


def test_both_forms_choose_longer_codes_where_they_save_enough() -> None:
    weights = padded([int(1.7**place) for place in range(30)])
    assert int(choose_lengths(weights).max()) == 15
    np.testing.assert_array_equal(lanes._choose_lengths_loop(weights), choose_lengths(weights))


@pytest.mark.parametrize("alphabet", [1, 2, 7, 256])
def test_entropy_is_that_of_the_oracle(alphabet: int) -> None:
    data = np.random.default_rng(alphabet).integers(0, alphabet, 5000).astype(np.uint8)
    expected = order0_entropy_bits(data.tolist())
    assert float(entropy_bits(histogram(data))) == round(expected)
    # Each row of a table has its own entropy; a row without symbols has none.
    table = np.stack([histogram(data), histogram(data[:0])])
    assert entropy_bits(table.astype(np.float64)).tolist() == [round(expected), 0]
