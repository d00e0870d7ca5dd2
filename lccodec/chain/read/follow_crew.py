"""Who reads the frames of an update, and writes it: a follower's process alone, or with workers.

Frames say which few values they change. A worker sees the held arrays, which lie in memory that it
shares. It is sent the bytes of frames, which were verified, so it opens no file. What it finds goes
into shared memory, too.

Of few values in much memory, each write waits for the memory. So the processes that have found new
values write them, too. Whoever writes, and how often, the state becomes the same: so this process
can do again what a worker may have left half done.

Workers are started with the first state, and wait for the next update. A follower whose worker is
gone goes on alone, and starts others with the next update.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ... import errors
from ...cursor import Stored
from ...element_types import Array, stored_bytes
from ...entropy.stream_reader import Reading, finish, side_by_side
from ...errors import DataError, StorageError, WorkerError, warn
from ...frame.content import array_sum
from ...frame.decode import Changed, changed
from ...parallel import has_lock
from ...workers.crew import Bench, Crew, Done, Processes, Request, Threads
from ...workers.process import Arena, Worker, connect, place_of

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
_RESULT_SEGMENT_BYTES: Final = 1 << 24  # of shared memory, at least: each segment is an open file


def batches_for(
    items: Iterable[Item], sizes: Sequence[int], members: int, most: int = MAX_BATCH_BYTES
) -> Iterator[list[Item]]:
    """Yield lists of consecutive items, of at most about `most` bytes each."""
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
class ReadChanges:
    """Read what frames change; the result is a list with what each of them tells (`Told`).

    `frames` are verified and may tell; `totals` are the array sums of the components `held`, where
    they are known. Errors call the file `place`, and the frames `names`. `room` is shared memory
    for the result, if that is for another process; what has no room there goes into new memory.
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


class SharedRooms:
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
        return self._arena.empty(nbytes, np.dtype(np.uint8), _RESULT_SEGMENT_BYTES)

    def give_back(self, room: Array) -> None:
        """Leave a room to another task."""
        self._free.append(room)


@dataclass(eq=False)
class OfferedChanges:
    """The same task for any member; `rooms` has memory for what a worker gets and finds."""

    tell: ReadChanges
    rooms: SharedRooms
    _frames: Array | None = None
    _room: Array | None = None

    def run(self, bench: Bench) -> list[Told]:
        """Do the task in this process."""
        return self.tell.run(bench)

    def staged(self, arena: Arena) -> ReadChanges:  # noqa: ARG002 - the rooms are warm
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

    def take(self, staged: ReadChanges) -> None:
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


_MIN_PLACES: Final = 1 << 16  # of fewer, a worker takes the time of its message


class Write(NamedTuple):
    """New components of one held array; `places` are int64, rising."""

    held: Array
    places: Array
    new: Array

    @property
    def is_seen(self) -> bool:
        """Whether all of it lies in memory that can be shown to workers."""
        places = (place_of(array) for array in self)
        return all(place is not None and place[0].descriptor >= 0 for place in places)


@dataclass(frozen=True, eq=False)
class WriteChanges:
    """A task for a worker: write new components into held arrays. The lists are as in `Write`."""

    held: Sequence[Array]
    places: Sequence[Array]
    new: Sequence[Array]

    def run(self, bench: Bench) -> None:  # noqa: ARG002 - nothing is kept
        """Do the task."""
        write_all(map(Write, self.held, self.places, self.new))


def write_all(writes: Iterable[Write]) -> None:
    """Write all of some."""
    for write in writes:
        write.held[write.places] = write.new


def shares(writes: Iterable[Write], workers: int) -> tuple[list[WriteChanges], list[Write]]:
    """Return a task for each of so many workers, and what is left to this process.

    Nobody has more than an equal share, but for this process, if workers do not see the rest.
    """
    own = list(writes)
    count = sum(write.places.size for write in own)
    if not workers or count < _MIN_PLACES:
        return [], own
    share = -(-count // (workers + 1))
    tasks, some, left = list[list[Write]](), list[Write](), share
    rest = list[Write]()
    for write in own:
        held, places, new = write
        while places.size and len(tasks) < workers and write.is_seen:
            some.append(Write(held, places[:left], new[:left]))
            places, new = places[left:], new[left:]
            left -= some[-1].places.size
            if not left:
                tasks.append(some)
                some, left = [], share
        rest.append(Write(held, places, new))
    if some:
        tasks.append(some)
    return [WriteChanges(*map(list, zip(*task, strict=True))) for task in tasks], rest


_TASKS_AT_A_TIME: Final = 2  # of a worker: there are few, and each is smaller than those before
#: A worker that takes longer for a task, in seconds, counts as dead.
_TIMEOUT_SECONDS: Final = 300.0

_SEGMENT_BYTES: Final = 1 << 26  # of memory for held arrays, at least: each segment is an open file
_MAX_LOST_BYTES: Final = 1 << 26  # of arrays that got another size or are gone, beside the held ones

_TYPES: Final = (ReadChanges, WriteChanges, Request, Done)
_ERRORS: Final = (
    *(e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LccodecError)),
    MemoryError,
)


class Tellers:
    """The members that read what frames change, with this process, and the memory they share.

    `valid` is the one of two rooms that has what the valid update needs. It is to be set when an
    update is handed out that was prepared in the other one, `spare`.
    """

    def __init__(self, members: int = 1) -> None:
        self.members = members
        self._crew: Crew | None = None
        self._process = os.getpid()
        self._wanted: Callable[[], None] = lambda: None
        self._arena, self._places = Arena(), dict[str, Array]()
        self._lost_bytes = 0  # of the arena
        self._rooms = (
            SharedRooms(),
            SharedRooms(),
        )  # for what is found: of the update that is valid, and the next
        self.valid = 0

    @property
    def spare(self) -> int:
        """The room for what is found next."""
        return 1 - self.valid

    def begin(self) -> Crew:
        """Return the members; start the workers if they are not there, which takes them a while."""
        if self._crew is not None and self._process == os.getpid() and not self._crew.broken:
            return self._crew
        self._end()
        self._process = os.getpid()
        workers: list[Worker] = []
        if self.members > 1 and has_lock():
            with suppress(WorkerError):  # the others do its share
                workers.extend(Worker(__name__, _TYPES, _ERRORS) for _ in range(self.members - 1))
        if workers:
            self._crew = Processes(workers, self._between, _TIMEOUT_SECONDS, _TASKS_AT_A_TIME)
        else:
            threads = 1 if has_lock() else self.members
            self._crew = Threads(threads, self._between)
        return self._crew

    def close(self) -> None:
        """End the workers, and give up the memory."""
        self._end()
        self._rooms = SharedRooms(), SharedRooms()
        self._begin_anew()

    def is_copied(self) -> bool:
        """Return whether held arrays lie in memory of the process that this one was forked from."""
        return bool(self._places) and self._process != os.getpid()

    def keep(self, names: Collection[str]) -> None:
        """Give up the places of all other arrays."""
        for name in self._places.keys() - names:
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        self._lost_bytes += self._places.pop(name).nbytes

    def _begin_anew(self) -> None:
        """Give up all places. The memory is freed when no array that is held lies there."""
        self._arena, self._places, self._lost_bytes = Arena(), {}, 0

    def __del__(self) -> None:
        self._end()

    def _between(self) -> None:
        self._wanted()

    def _end(self) -> None:
        if self._crew is not None and self._process == os.getpid():  # or a fork has copied it
            self._crew.close()
        self._crew = None

    def visible(self, name: str, bits: Array) -> Array:
        """Return the components of a held array in memory that workers see; each has its place."""
        if self.members == 1 or not has_lock():
            return bits
        place = self._places.get(name)
        if place is not None and (place.size, place.dtype) != (bits.size, bits.dtype):
            self._give_up(name)
            place = None
        if place is None:
            try:
                place = self._places[name] = self._arena.empty(bits.size, bits.dtype, _SEGMENT_BYTES)
            except StorageError:  # there is no memory to share: it is sent
                return bits
        if bits is not place:
            place[:] = bits
        return place

    def told(
        self, tasks: Callable[[], Iterable[ReadChanges]], between: Callable[[], None]
    ) -> Generator[list[Told], None, None]:
        """Yield what frames tell, task by task, or raise; `between` is called now and then."""
        self._wanted, done = between, 0
        rooms, offers = self._rooms[self.spare], deque[OfferedChanges]()
        rooms.clear()
        if self._lost_bytes > max(_MAX_LOST_BYTES, sum(place.nbytes for place in self._places.values())):
            self._begin_anew()

        def offered() -> Iterator[OfferedChanges]:
            for task in tasks():
                offers.append(OfferedChanges(task, rooms))
                yield offers[-1]

        try:
            with closing(self.begin().ordered(offered())) as results:
                for result in results:
                    yield offers.popleft().release(result)
                    done += 1
        except WorkerError as error:
            warn(f"{error}; this process prepares the update alone")
            for number, task in enumerate(tasks()):
                if number >= done:
                    between()
                    yield task.run({})

    def write(self, writes: Iterable[Write]) -> None:
        """Write new values into held arrays. Doing it again does nothing."""
        every, crew = list(writes), self._crew
        self._wanted = lambda: None  # it is not given up half done
        if crew is None or crew.broken or self._process != os.getpid():
            crew = Threads()
        try:
            tasks, own = shares(every, crew.begun)
            crew.beside(tasks, lambda: write_all(own))
        except (WorkerError, MemoryError) as error:
            write_all(every)
            warn(f"{error}; this process has written the update alone")


def main() -> None:
    """Read frames for the process at the other end of a socket; the argument is its descriptor."""
    channel = connect(int(sys.argv[1]), _TYPES, _ERRORS)
    with suppress(EOFError):
        while True:
            request = channel.receive()
            channel.send(request.done({}))
            del request  # or its arrays would stay
    channel.close()
