"""Streams that are read: hostile ones, and any bytes (LCC-STR).

Runs and streams read side by side have the symbols, or the error, that each has alone.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import lanes, stream_reader
from lccodec.entropy.lanes import LaneRun, choose_lengths, encode, read_run
from lccodec.entropy.runs import dense
from lccodec.entropy.stream_reader import Reading, decode_runs, finish, read_stream, reading, side_by_side
from lccodec.entropy.stream_writer import write_stream
from lccodec.errors import DataError, FormatError, LimitError, UnsupportedError

from ..support.bounds import bounded
from ..support.tuning import tuned


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


@pytest.fixture(autouse=True, scope="module")
def no_jumps() -> Iterator[None]:
    """Let few lanes go step by step, too."""
    with tuned(max_jump_bits=0):
        yield


def stored_run(count: int, alphabet: int, scale: float, seed: int) -> tuple[LaneRun, np.ndarray]:
    data = np.minimum(np.random.default_rng(seed).exponential(scale, count), alphabet - 1).astype(np.uint8)
    data[:2] = 0, alphabet - 1
    counts = np.bincount(data, minlength=256)
    stored = bytearray(b"".join(encode(data, counts, choose_lengths(counts))))
    return read_run(Cursor(memoryview(stored), f"run {seed}"), count), data


def damaged(run: LaneRun, place: int) -> LaneRun:
    data = run.lanes.copy()
    data[place % data.size] ^= 1 << place % 8
    return LaneRun(run.count, run.lengths, data, run.starts, run.ends, run.where)


SKEWED = st.integers(2, 9000), st.integers(2, 256), st.floats(0.1, 60), st.integers(0, 2**32)


@given(st.lists(st.tuples(*SKEWED, st.booleans()), max_size=6), st.integers(0, 10**6))
def test_each_run_as_alone(kinds: list[tuple[int, int, float, int, bool]], place: int) -> None:
    runs = list[LaneRun]()
    for *kind, wrong in kinds:
        run, data = stored_run(*kind)
        if wrong:
            run = damaged(run, place)
        else:
            np.testing.assert_array_equal(lanes.decode(run), data)
        runs.append(run)
    for run, found in zip(runs, decode_runs(runs), strict=True):
        try:
            alone = lanes.decode(run)
        except DataError as error:
            assert str(found) == str(error)
        else:
            assert not isinstance(found, DataError)
            np.testing.assert_array_equal(found, alone)


def test_long_lanes_do_not_go_with_many_short_ones() -> None:
    """Or all steps of all lanes would take the memory of the longest."""
    few, many = stored_run(1600, 9, 2.0, 1), stored_run(200_000, 9, 2.0, 2)
    lane = LaneRun(2, many[0].lengths, many[0].lanes[:1] * 0, np.zeros(1, int), np.ones(1, int), "short")
    for (run, data), found in zip((few, many), decode_runs([few[0], many[0], lane])[:2], strict=True):
        assert not isinstance(found, DataError)
        np.testing.assert_array_equal(found, data)
        np.testing.assert_array_equal(found, lanes.decode(run))


def test_tables_of_many_runs_take_little_memory() -> None:
    """A run of 17 bytes may ask for a table of 2**15 entries."""
    lengths = np.zeros(256, np.uint8)
    lengths[:16] = [*range(1, 16), 15]
    data = np.zeros(20, np.uint8)
    stored = memoryview(b"".join(encode(data, np.bincount(data, minlength=256), lengths)))
    assert len(stored) == 17
    runs = [read_run(Cursor(stored, "run"), data.size) for _ in range(300)]
    with bounded(60, 40 << 20):
        found = decode_runs(runs)
    assert all(np.array_equal(each, data) for each in found)


def test_streams_of_every_form() -> None:
    rng = np.random.default_rng(0)
    many = [
        np.where(rng.random(20_000) < share, rng.geometric(0.3, 20_000), 0).astype(np.uint8)
        for share in (0.0, 0.001, 0.05, 0.3, 1.0)
    ]
    many += [rng.integers(0, 2, 9000).astype(np.uint8), rng.integers(0, 256, 300).astype(np.uint8)]
    cursors = [Cursor(memoryview(b"".join(write_stream(each))), "stream") for each in many]
    both = zip(cursors, many, strict=True)
    found = finish(side_by_side(reading(cursor, each.size) for cursor, each in both))
    for form, cursor, each in zip(found, cursors, many, strict=True):
        np.testing.assert_array_equal(dense(form, each.size), each)
        assert cursor.remaining == 0


def symbols_of(run: LaneRun) -> Reading[np.ndarray]:
    (symbols,) = yield [run]
    if isinstance(symbols, DataError):
        raise symbols
    return symbols


def test_the_error_of_one_is_raised() -> None:
    run, _ = stored_run(3000, 20, 2.0, 3)
    fine, _ = stored_run(3000, 20, 2.0, 4)
    broken = LaneRun(run.count, run.lengths, run.lanes, run.starts, run.ends + 1, "broken run")
    with pytest.raises(FormatError, match="LCC-LAN-04") as caught:
        finish(side_by_side([symbols_of(fine), symbols_of(broken), symbols_of(fine)]))
    assert caught.value.where == "broken run"


def test_one_may_need_more_than_another() -> None:
    run, data = stored_run(3000, 20, 2.0, 5)

    def several(times: int) -> Reading[int]:
        for _ in range(times):
            np.testing.assert_array_equal((yield from symbols_of(run)), data)
        return times

    assert finish(side_by_side([])) == []
    assert finish(side_by_side(several(times) for times in (0, 3, 1, 2))) == [0, 3, 1, 2]
