"""Who reads the frames of an update, and writes it: a follower's process alone, or with workers.

Workers are started with the first state, and wait for the next update. A follower whose worker is
gone goes on alone, and starts others with the next update.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Final

from .... import errors
from ....element_types import Array
from ....errors import StorageError, WorkerError, warn
from ....parallel import has_lock
from ....workers.crew import Crew, Done, Processes, Request, Threads
from ....workers.memory import Arena
from ....workers.process import Worker, connect
from .telling import Offer, Rooms, Tell, Told
from .writing import Put, Write, shares, write_all

_TASKS_AT_A_TIME: Final = 2  # of a worker: there are few, and each is smaller than those before
#: A worker that takes longer for a task, in seconds, counts as dead.
_TIMEOUT_SECONDS: Final = 300.0

_SEGMENT_BYTES: Final = 1 << 26  # of memory for held arrays, at least: each segment is an open file
_MAX_LOST_BYTES: Final = 1 << 26  # of arrays that got another size or are gone, beside the held ones

_TYPES: Final = (Tell, Put, Request, Done)
_ERRORS: Final = (
    *(e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LccodecError)),
    MemoryError,
)


class Tellers:
    """The members that read what frames change, and the memory that they share.

    Parameters
    ----------
    members
        How many processes, with this one.

    Attributes
    ----------
    valid
        Which of two rooms has what the valid update needs. It is to be set when an update is handed
        out that was prepared in the other one, `spare`.
    """

    def __init__(self, members: int = 1) -> None:
        self.members = members
        self._crew: Crew | None = None
        self._process = os.getpid()
        self._wanted: Callable[[], None] = lambda: None
        self._arena, self._places = Arena(), dict[str, Array]()
        self._lost_bytes = 0  # of the arena
        self._rooms = Rooms(), Rooms()  # for what is found: of the update that is valid, and the next
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
        self._rooms = Rooms(), Rooms()
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
        self, tasks: Callable[[], Iterable[Tell]], between: Callable[[], None]
    ) -> Generator[list[Told], None, None]:
        """Yield what frames tell, task by task; `between` is called now and then.

        Raises
        ------
        DataError
            As :func:`lccodec.frame.changed.changed`.
        """
        self._wanted, done = between, 0
        rooms, offers = self._rooms[self.spare], deque[Offer]()
        rooms.clear()
        if self._lost_bytes > max(_MAX_LOST_BYTES, sum(place.nbytes for place in self._places.values())):
            self._begin_anew()

        def offered() -> Iterator[Offer]:
            for task in tasks():
                offers.append(Offer(task, rooms))
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
