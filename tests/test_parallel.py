from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError
from lccodec.parallel import SideThread, has_lock, member_count, ordered, slices, stretches, thread_count


@given(st.integers(0, 5000), st.integers(1, 700))
def test_slices_cut_an_array_into_pieces(size: int, length: int) -> None:
    array = np.arange(size)
    parts = [array[part] for part in slices(size, length)]
    assert [part.size for part in parts[:-1]] == [length] * len(parts[:-1])
    np.testing.assert_array_equal(np.concatenate([array[:0], *parts]), array)


@given(st.integers(0, 50_000), st.integers(1, 70), st.integers(1, 70))
def test_a_sample_is_of_all_parts_of_an_array(size: int, count: int, length: int) -> None:
    parts = list(stretches(size, count, length))
    starts = [part.start for part in parts]
    assert len(parts) <= count
    assert len(set(np.diff(starts))) <= 1  # evenly spread
    assert all(part.start < size and part.stop - part.start == length for part in parts)
    if size <= count * length:
        assert sum(min(part.stop, size) - part.start for part in parts) == size  # all of a small one
    elif count > 1:
        assert size - starts[-1] <= starts[1]  # the end is no further away than the next one would be


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_order_and_few_are_held(threads: int) -> None:
    started = []

    def work(item: int) -> int:
        started.append(item)
        return item * item

    for count, result in enumerate(ordered(work, range(100), threads)):
        assert result == count * count
        assert len(started) <= count + threads + 1
    assert sorted(started) == list(range(100))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_in_its_turn(threads: int) -> None:
    def work(item: int) -> int:
        if item == 5:
            raise ValueError("five")
        return item

    results = ordered(work, range(10), threads)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(results)
    assert threading.active_count() < 20


def test_numbers_of_threads() -> None:
    assert thread_count(3) == 3
    assert thread_count(0) >= 1
    for bad in (-1, 1.5, True, None):
        with pytest.raises(ArgumentError, match="threads"):
            thread_count(bad)  # type: ignore[arg-type]


def test_a_side_thread_makes_calls_in_their_order() -> None:
    made: list[int] = []
    with SideThread() as side:
        for number in range(50):
            last = side.call(made.append, number)
        last.result()
        assert made == list(range(50))
        assert side.call(threading.get_ident).result() != threading.get_ident()


def test_a_side_thread_tells_what_was_raised() -> None:
    def fail() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"), SideThread() as side:
        for _ in range(10):
            side.call(fail)


def test_numbers_of_members() -> None:
    assert member_count(3) == 3
    assert member_count(0) >= 1
    assert has_lock()
    for bad in (-1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="workers must be"):
            member_count(bad)  # type: ignore[arg-type]
