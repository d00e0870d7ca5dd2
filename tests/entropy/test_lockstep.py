"""Runs and streams read side by side have the symbols, or the error, that each has alone."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.entropy import lanes
from lccodec.entropy.lanes import LaneRun, choose_lengths, encode, read_run
from lccodec.entropy.runs import dense
from lccodec.entropy.stream_reader import Reading, decode_runs, finish, reading, side_by_side
from lccodec.entropy.stream_writer import write_stream
from lccodec.errors import DataError, FormatError

from ..support.bounds import bounded
from ..support.tuning import tuned


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
