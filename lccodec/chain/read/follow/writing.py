"""New values that go into the held state, by several processes.

Of few values in much memory, each write waits for the memory. So the processes that have found new
values write them, too. Whoever writes, and how often, the state becomes the same: so this process
can do again what a worker may have left half done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....element_types import Array
from ....workers.crew import Bench
from ....workers.memory import place_of

_MIN_PLACES: Final = 1 << 16  # of fewer, a worker takes the time of its message


class Write(NamedTuple):
    """New components of one held array.

    Parameters
    ----------
    held
        The components of the array.
    places
        Where the new ones go: int64, rising.
    new
        The new components.
    """

    held: Array
    places: Array
    new: Array

    @property
    def is_seen(self) -> bool:
        """Whether all of it lies in memory that can be shown to workers."""
        places = (place_of(array) for array in self)
        return all(place is not None and place[0].descriptor >= 0 for place in places)


@dataclass(frozen=True, eq=False)
class Put:
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


def shares(writes: Iterable[Write], workers: int) -> tuple[list[Put], list[Write]]:
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
    return [Put(*map(list, zip(*task, strict=True))) for task in tasks], rest
