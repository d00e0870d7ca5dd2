"""Messages: what is sent arrives, in shared memory where it lies there."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import DataError, FormatError, StorageError, WorkerError
from lccodec.element_table import ELEMENT_TYPES
from lccodec.workers.memory import Arena, place_of, shared_empty
from lccodec.workers.messages import Channel


@dataclass(frozen=True)
class Point:
    place: tuple[int, ...]
    note: Any = None


def pair() -> tuple[Channel, Channel]:
    ends = socket.socketpair()
    return Channel(ends[0], (Point,), (FormatError, StorageError)), Channel(
        ends[1], (Point,), (FormatError, StorageError)
    )


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    both = pair()
    yield both
    for end in both:
        end.close()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner)
        | st.builds(Point, st.tuples(st.integers()), inner)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    ours, theirs = pair()
    ours.send(value)
    assert repr(theirs.receive()) == repr(value)
    ours.close()
    theirs.close()


def test_arrays_and_element_types(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    shared = shared_empty(1000, np.dtype(np.int32))
    shared[:] = np.arange(1000)
    ours.send([shared[10:20], np.arange(6.0)[::2], ELEMENT_TYPES[5]])
    near, far, kind = theirs.receive()
    assert kind is ELEMENT_TYPES[5]
    assert far.tolist() == [0, 2, 4]
    shared[10] = 77
    assert near.tolist() == [77, *range(11, 20)]  # the same memory
    theirs.send(near)  # and back, to where it came from
    assert place_of(ours.receive()) == (place_of(shared)[0], 40)  # type: ignore[index]


def test_a_segment_is_passed_once_and_dropped_with_its_last_array(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    for _ in range(3):
        shared = shared_empty(100, np.dtype(np.uint8))
        for _ in range(3):
            ours.send(shared)
            assert theirs.receive().size == 100
            assert len(theirs._theirs) == 1
        del shared
        gc.collect()
        ours.send(None)
        theirs.receive()
        assert theirs._theirs == {}


def test_many_segments_and_much_data(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    arrays = [shared_empty(10, np.dtype(np.uint8)) for _ in range(450)]
    for number, array in enumerate(arrays):
        array[:] = number % 250
    found: list[Any] = []
    receiver = threading.Thread(target=lambda: found.append(theirs.receive()))
    receiver.start()
    ours.send([arrays, bytes(5_000_000)])
    receiver.join()
    assert [int(array[3]) for array in found[0][0]] == [number % 250 for number in range(450)]
    assert len(found[0][1]) == 5_000_000


def test_errors(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    ours.send([FormatError("LCC-FRM-01", "here", "wrong"), StorageError(28, "No space left", "file")])
    first, second = theirs.receive()
    assert isinstance(first, DataError)
    assert str(first) == "here: wrong [LCC-FRM-01]"
    assert (second.errno, second.filename) == (28, "file")
    ours.send(KeyError("a bug"))
    failed = theirs.receive()
    assert isinstance(failed, WorkerError)
    assert "KeyError: 'a bug'" in str(failed)


def test_what_cannot_be_sent(channels: tuple[Channel, Channel]) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        channels[0].send(object())


def test_the_end_of_the_other_side(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    assert not theirs.is_ended()
    ours.send("last words")
    ours.close()
    assert theirs.receive() == "last words"
    assert theirs.is_ended()
    with pytest.raises(EOFError):
        theirs.receive()
    with pytest.raises(EOFError):
        theirs.send("anybody?")


def test_a_side_that_does_nothing(channels: tuple[Channel, Channel]) -> None:
    ours, _ = channels
    ours.limit(0.05)
    with pytest.raises(TimeoutError):
        ours.receive()
    with pytest.raises(TimeoutError):
        ours.send(bytes(50_000_000))


def test_a_message_that_is_cut_off() -> None:
    ends = socket.socketpair()
    channel = Channel(ends[0], ())
    ends[1].sendall(b"\1\2\3")
    ends[1].close()
    with pytest.raises(EOFError):
        channel.receive()
    channel.close()


def test_an_arena_is_passed_once(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    arena = Arena()
    for value in range(3):
        arena.clear()
        array = arena.empty(10, np.dtype(np.int64))
        array[:] = value
        ours.send(array)
        assert theirs.receive().tolist() == [value] * 10
    assert len(theirs._theirs) == 1
