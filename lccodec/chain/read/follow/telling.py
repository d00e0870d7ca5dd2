"""What frames say that they change of the held arrays, read by this process or by a worker.

A worker sees the held arrays, which lie in memory that it shares. It is sent the bytes of frames,
which were verified, so it opens no file. What it finds goes into shared memory, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from ....byteorder import stored_bytes
from ....cursor import Stored
from ....element_types import Array
from ....entropy.lockstep import Reading, finish, side_by_side
from ....errors import DataError, StorageError
from ....frame.changed import Changed, changed
from ....frame.content import array_sum
from ....workers.crew import Bench
from ....workers.memory import Arena

Item = TypeVar("Item")

#: Of one frame: places, new components, and the array sum; ``None`` if it is to be decoded whole.
Told: TypeAlias = tuple[Array, Array, int] | None

#: Returns memory for so many components of a type.
Empty: TypeAlias = Callable[[int, "np.dtype[Any]"], Array]

#: Frames that are read together: what is made of them takes memory.
MAX_BATCH_BYTES: Final = 1 << 20
_MIN_BATCH_BYTES: Final = 1 << 17  # of less, a task takes the time of its calls
_BATCHES_LEFT: Final = 2.5  # for each member, of what is left: so that all are done at about one time
_ROOM_RATIO: Final = 12  # bytes of places and components for a byte of frames: mostly 6 to 10
_TOLD_RATIO: Final = 4  # components for one that is told: of more changes, nothing is told
_PLACE_BYTES: Final = 8
_FULL_RATIO: Final = 3  # a room is kept for a result that takes a third of it
_SEGMENT_BYTES: Final = 1 << 24  # of shared memory, at least: each segment is an open file


def batches_for(
    items: Iterable[Item], sizes: Sequence[int], members: int, most: int = MAX_BATCH_BYTES
) -> Iterator[list[Item]]:
    """Yield lists of consecutive items, of at most about `most` bytes each.

    For several members they become smaller towards the end, so that none waits long for the others.

    Examples
    --------
    >>> [len(batch) for batch in batches_for(range(32), [1 << 18] * 32, 1)]
    [4, 4, 4, 4, 4, 4, 4, 4]
    >>> [len(batch) for batch in batches_for(range(32), [1 << 18] * 32, 2)]
    [4, 4, 4, 4, 4, 3, 2, 2, 1, 1, 1, 1, 1]
    """
    left, batch, together = sum(sizes), list[Item](), 0
    for item, size in zip(items, sizes, strict=True):
        batch.append(item)
        together += size
        share = most if members == 1 else max(left / (_BATCHES_LEFT * members), _MIN_BATCH_BYTES)
        if together >= min(share, most):
            yield batch
            left, batch, together = left - together, [], 0
    if batch:
        yield batch


@dataclass(frozen=True, eq=False)
class Tell:
    """Read what frames change; the result is a list with what each of them tells (`Told`).

    Parameters
    ----------
    frames
        Verified bytes of frames that may tell.
    held
        The components of the held arrays.
    totals
        Their array sums, where they are known.
    place, names
        What errors call the file and the frames.
    room
        Bytes of shared memory for places and components, if the result is for another process. What
        has no room there goes into new memory.
    """

    frames: Sequence[Stored | Array]
    held: Sequence[Array]
    totals: Sequence[int | None]
    place: str
    names: Sequence[str]
    room: Array | None = None

    def run(self, bench: Bench) -> list[Told]:  # noqa: ARG002 - nothing is kept
        """Do the task."""
        empty = np.empty if self.room is None else _Room(self.room).empty
        told = side_by_side(
            self._told(
                memoryview(stored_bytes(frame)) if isinstance(frame, np.ndarray) else frame, number, empty
            )
            for number, frame in enumerate(self.frames)
        )
        return finish(told)

    def _told(self, frame: Stored, number: int, empty: Empty) -> Reading[Told]:
        bits, total = self.held[number], self.totals[number]
        if total is None:
            total = array_sum(bits)
        try:
            found: Changed | None = yield from changed(frame, bits, total, empty)
        except DataError as error:
            own = error.where.startswith(self.place)
            raise error if own else error.inside(self.names[number]) from None
        return None if found is None else (found.places, found.bits, found.total)


class _Room:
    """Shared memory for results: a place that is there, and more where it is full."""

    def __init__(self, room: Array) -> None:
        self._left, self._more = room, Arena()

    def empty(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return a 1-D array with undefined values."""
        nbytes = count * dtype.itemsize
        if nbytes > self._left.size:
            try:
                return self._more.empty(count, dtype)
            except StorageError:  # there is no memory to share: it is sent
                return np.empty(count, dtype)
        found = self._left[:nbytes].view(dtype)
        self._left = self._left[-(-nbytes // Arena.ALIGNMENT_BYTES) * Arena.ALIGNMENT_BYTES :]
        return found


class Rooms:
    """Shared memory for what workers find: a room for each task."""

    def __init__(self) -> None:
        self._arena, self._free = Arena(), list[Array]()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return sum(map(len, self._arena.segments))

    def clear(self) -> None:
        """Give up all that was found."""
        self._arena.clear()
        self._free.clear()

    def take(self, nbytes: int) -> Array:
        """Return a room of so many bytes; raise ``StorageError`` if there is no memory."""
        for number, room in enumerate(self._free):
            if room.size >= nbytes:
                return self._free.pop(number)
        return self._arena.empty(nbytes, np.dtype(np.uint8), _SEGMENT_BYTES)

    def give_back(self, room: Array) -> None:
        """Leave a room to another task."""
        self._free.append(room)


@dataclass(eq=False)
class Offer:
    """The same task for any member; `rooms` has memory for what a worker gets and finds."""

    tell: Tell
    rooms: Rooms
    _frames: Array | None = None
    _room: Array | None = None

    def run(self, bench: Bench) -> list[Told]:
        """Do the task in this process."""
        return self.tell.run(bench)

    def staged(self, arena: Arena) -> Tell:  # noqa: ARG002 - the rooms are warm
        """Return the task for a worker."""
        left = self._frames = self.rooms.take(sum(map(len, self.tell.frames)))
        frames = list[Stored | Array]()
        for frame in self.tell.frames:
            copy, left = left[: len(frame)], left[len(frame) :]
            copy[:] = np.frombuffer(frame[:], np.uint8)
            frames.append(copy)
        given = zip(self.tell.frames, self.tell.held, strict=True)
        self._room = self.rooms.take(sum(_room_for(len(frame), bits) for frame, bits in given))
        return replace(self.tell, frames=frames, room=self._room)

    def take(self, staged: Tell) -> None:
        """Do nothing: the result says where it lies."""

    def release(self, result: list[Told]) -> list[Told]:
        """Return a result: a copy if it takes little of its room, which is free again then."""
        if self._frames is not None:
            self.rooms.give_back(self._frames)
        room, self._frames, self._room = self._room, None, None
        used = sum(told[0].nbytes + told[1].nbytes for told in result if told is not None)
        if room is None or _FULL_RATIO * used > room.size:
            return result
        self.rooms.give_back(room)
        return [None if told is None else (told[0].copy(), told[1].copy(), told[2]) for told in result]


def _room_for(nbytes: int, held: Array) -> int:
    """Return the bytes that what a frame of `nbytes` tells takes, as a rule."""
    most = held.size // _TOLD_RATIO * (_PLACE_BYTES + held.itemsize)
    return min(_ROOM_RATIO * nbytes, most + 2 * Arena.ALIGNMENT_BYTES)
