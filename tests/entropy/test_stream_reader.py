"""Streams that are read: hostile ones, and any bytes (LCC-STR)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import stream_reader
from lccodec.entropy.runs import dense
from lccodec.entropy.stream_reader import decode_runs, read_stream, reading
from lccodec.entropy.stream_writer import write_stream
from lccodec.errors import DataError, FormatError, LimitError, UnsupportedError


@pytest.mark.parametrize(
    ("stored", "count", "error", "rule"),
    [
        (b"\x09", 4, UnsupportedError, "LCC-STR-01"),
        (b"\x02", 0, FormatError, "LCC-STR-02"),
        (b"\x04\x03\x01\xff\xff", 4, FormatError, "LCC-STR-05"),  # packing width
        (b"\x04\x02\x01\xff", 3, FormatError, "LCC-STR-05"),  # filling not zero
        (b"\x04\x02" * 5, 4, LimitError, "LCC-STR-03"),
        (b"\x03\x09\x00\x00\x00\x00", 4, FormatError, "LCC-STR-06"),  # low bits
        (b"\x03\x00\x05\x00\x00\x00", 4, FormatError, "LCC-STR-06"),  # more gaps than symbols
        (b"\x03\x00\x01\x00\x00\x00\x00\x04\x00\x01", 4, FormatError, "LCC-STR-06"),  # past the end
        (b"\x03\x01\x01\x00\x00\x00\x00\x00\x02\x00\x01", 4, FormatError, "LCC-STR-06"),  # a bit behind
    ],
)
def test_broken_streams_name_their_rule(stored: bytes, count: int, error: type[DataError], rule: str) -> None:
    with pytest.raises(error) as caught:
        read_stream(Cursor(memoryview(stored), "stream"), count)
    assert caught.value.rule == rule


#: A Huffman run of four symbols of one bit, behind which a bit of its lane is not 0.
FULL_LANE = b"\x02\x01\x11\x01\x00\x01\x00\x00\xff"


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        (FULL_LANE + b"\x09", "LCC-LAN-04"),  # and values of an unknown form
        (b"\x00\xff\x09", "LCC-STR-06"),  # gaps that lead past the end, and these values
        (b"\x00\x00\x09", "LCC-STR-01"),
        (b"\x03\x00\x04\x00\x00\x00" + FULL_LANE + b"\x00\x00\x09", "LCC-LAN-04"),  # gaps of the gaps
    ],
)
def test_the_first_error_in_the_order_of_the_bytes_counts(stored: bytes, rule: str) -> None:
    """Although the runs of a sparse stream are decoded when all of it has been looked at."""
    with pytest.raises(DataError) as caught:
        read_stream(Cursor(memoryview(b"\x03\x00\x04\x00\x00\x00" + stored), "stream"), 50)
    assert caught.value.rule == rule


def test_all_runs_of_sparse_streams_inside_each_other_are_wanted_at_once() -> None:
    rng = np.random.default_rng(0)
    symbols = np.where(rng.random(300_000) < 0.3, rng.geometric(0.4, 300_000), 0).astype(np.uint8)
    symbols[: 1 << 18] *= np.arange(1 << 18) % 4096 == 0  # most gaps are 0, and few are long
    stored = b"".join(write_stream(symbols))
    cursor = Cursor(memoryview(stored), "stream")
    stream = reading(cursor, symbols.size)
    runs = next(stream)
    assert len(runs) > 2
    assert cursor.remaining == 0
    with pytest.raises(StopIteration) as done:
        stream.send(decode_runs(runs))
    np.testing.assert_array_equal(dense(done.value.value, symbols.size), symbols)


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=20), st.integers(0, 8)
)
def test_both_forms_place_symbols_alike(parts: list[tuple[int, int]], low: int) -> None:
    high, lows = (np.array(each, np.uint8) for each in zip(*parts, strict=True))
    lows = lows & np.uint8((1 << low) - 1) if low else lows[:0]
    places = stream_reader._positions(high, lows, low, 0)
    values = np.arange(1, places.size + 1, dtype=np.uint8)
    expected = np.zeros(int(places[-1]) + 1, np.uint8)
    expected[places] = values
    for form in (stream_reader._positions_loop, stream_reader.positions):
        np.testing.assert_array_equal(form(high, lows, low, 0), places)
        np.testing.assert_array_equal(form(high, lows, low, 7), places + 7)
    for write in (stream_reader._scatter, stream_reader._scatter_loop, stream_reader.scatter):
        symbols = np.zeros_like(expected)
        write(values, high, lows, low, symbols)
        np.testing.assert_array_equal(symbols, expected)
