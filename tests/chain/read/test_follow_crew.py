"""What frames say that they change: the same from any member, wherever it lies.

New values go to their places, whoever writes them, and each of them once.
"""

import errno
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.chain.read.follow_crew import (
    OfferedChanges,
    ReadChanges,
    SharedRooms,
    Told,
    Write,
    batches_for,
    shares,
    write_all,
)
from lccodec.errors import ChecksumError
from lccodec.frame.content import array_sum
from lccodec.workers import process as memory
from lccodec.workers.process import Arena, place_of

from ...support.tuning import tuned

BEFORE = np.arange(40_000, dtype=np.uint16)
PLACES = np.arange(0, BEFORE.size, 100)


def task(*values: int) -> ReadChanges:
    """Frames of which each puts a value at some places."""
    frames = []
    for value in values:
        after = BEFORE.copy()
        after[PLACES] = value
        frames.append(memoryview(lccodec.encode(after, "lossless", reference=BEFORE)))
    names = [f"f.h5: array '{value}'" for value in values]
    return ReadChanges(frames, [BEFORE] * len(values), [None] * len(values), "f.h5", names)


def test_known_sums_are_not_computed_again() -> None:
    known = replace(task(40_001), totals=[array_sum(BEFORE)])
    (((_, _, total),), ((_, _, again),)) = (each.run({}) for each in (task(40_001), known))
    assert total == again
    with pytest.raises(ChecksumError):
        replace(known, totals=[5]).run({})


@pytest.mark.parametrize("room", [0, 10 * PLACES.size + 100, 1 << 20])
def test_a_worker_finds_the_same_in_shared_memory(room: int) -> None:
    """Also what has no room."""
    rooms, offer = Arena(), OfferedChanges(task(40_001, 7), SharedRooms())
    staged = replace(offer.staged(Arena()), room=rooms.empty(room, np.dtype(np.uint8)))
    for here, there in zip(offer.run({}), staged.run({}), strict=True):
        assert here is not None
        assert there is not None
        for own, shared in zip(here[:2], there[:2], strict=True):
            np.testing.assert_array_equal(own, shared)
            assert place_of(shared) is not None
        assert here[2] == there[2]


def test_a_worker_without_memory_to_share_sends_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = replace(OfferedChanges(task(7), SharedRooms()).staged(Arena()), room=np.empty(0, np.uint8))

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(memory, "_nameless_file", refuse)
    ((places, bits, _),) = staged.run({})
    np.testing.assert_array_equal(places, PLACES)
    assert (bits == 7).all()


def test_errors_name_the_array() -> None:
    offer = OfferedChanges(task(7, 8), SharedRooms())
    for each in (offer.tell, offer.staged(Arena())):
        with pytest.raises(ChecksumError, match=r"^f\.h5: array '8'"):
            replace(each, held=[BEFORE, BEFORE + 1]).run({})


@pytest.mark.slow
def test_a_task_that_finds_little_leaves_its_room_to_others() -> None:
    rooms, kept = SharedRooms(), list[Told]()
    much = memoryview(lccodec.encode(BEFORE[::-1].copy(), "lossless", reference=BEFORE))
    for number in range(400):
        offer = OfferedChanges(replace(task(40_001, 7), frames=[much, task(number).frames[0]]), rooms)
        kept.append(offer.release(offer.staged(Arena()).run({}))[1])
    assert rooms.nbytes == 16 << 20  # one segment
    for number, told in enumerate(kept):
        assert told is not None
        assert (told[1] == number).all()


def test_frames_that_change_much_are_decoded_whole() -> None:
    frame = memoryview(lccodec.encode(BEFORE[::-1].copy(), "lossless", reference=BEFORE))
    assert replace(task(7), frames=[frame]).run({}) == [None]


def test_batches_have_all_items_in_order() -> None:
    sizes = [int(size) for size in np.random.default_rng(0).integers(0, 1 << 20, 100)]
    for members in (1, 2, 5):
        found = list(batches_for(range(100), sizes, members))
        assert [item for batch in found for item in batch] == list(range(100))
    assert list(batches_for([], [], 2)) == []


ARENA = Arena()


def a_write(size: int, seen: bool, value: int) -> Write:
    """Write a value to the first places, in memory that can be shown to workers or not."""
    held, places, new = np.zeros(50, np.uint16), np.arange(size), np.full(size, value, np.uint16)
    if not seen:
        return Write(held, places, new)
    shown = [ARENA.empty(array.size, array.dtype) for array in (held, places, new)]
    for own, array in zip(shown, (held, places, new), strict=True):
        own[:] = array
    return Write(*shown)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans())), st.integers(0, 5))
def test_each_value_is_written_once(kinds: list[tuple[int, bool]], workers: int) -> None:
    ARENA.clear()
    writes = [a_write(size, seen, number + 1) for number, (size, seen) in enumerate(kinds)]
    with tuned(follower_min_places=1):
        tasks, own = shares(writes, workers)
    assert len(tasks) <= workers
    share = -(-sum(size for size, _ in kinds) // (workers + 1))
    assert all(sum(places.size for places in task.places) <= share for task in tasks)
    given_away = sum(places.size for task in tasks for places in task.places)
    assert given_away == min(workers * share, sum(size for size, seen in kinds if seen))
    assert given_away + sum(write.places.size for write in own) == sum(size for size, _ in kinds)
    write_all(own)
    for task in tasks:
        task.run({})
    for number, (write, (size, _)) in enumerate(zip(writes, kinds, strict=True)):
        assert write.held.tolist() == [number + 1] * size + [0] * (50 - size)


def test_few_values_are_not_worth_a_message() -> None:
    ARENA.clear()
    write = a_write(50, True, 1)
    assert shares([write], 3) == ([], [write])
