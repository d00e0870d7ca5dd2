"""Decoding divided among the members of a crew: groups of arrays, and ranges of large arrays.

Members open the files themselves. What a worker decodes comes through memory that it shares. The
crew is this process and workers, which are started when they are needed.

Source: SPEC 9.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...element_types import Array
from ...errors import ChainError, DataError, WorkerError
from ...parallel import batches
from ...workers.crew import Bench, Crew, Task
from ...workers.process import Arena
from .checkpoint import OpenCheckpoint, open_file
from .links import Head
from .replay import DecodedArray, Decoding, Ranges, grouped, replay

_FILE: Final = "file"  # where the open checkpoint lies on the bench

#: Bytes of a result that comes through a socket; larger ones come through shared memory.
_MAX_SENT_BYTES: Final = 1 << 16

#: Arrays of fewer bytes are decoded together: to hand them out one by one takes long.
_MIN_TASK_BYTES: Final = 1 << 21

#: An array of more components is cut into ranges of about as many.
_RANGE_COMPONENTS: Final = 1 << 22


@dataclass(frozen=True)
class Source:
    """A checkpoint on the disk: its path, and its root, which says that it is still the same."""

    path: str
    root: bytes

    def open(self, bench: Bench) -> OpenCheckpoint:
        """Return the open checkpoint, which stays open on the bench."""
        if bench.get(_FILE, (None,))[0] != self:
            CloseFile().run(bench)
            file = open_file(self.path)
            bench[_FILE] = self, file
            if file.links[-1].reader.root != self.root:
                raise ChainError(f"{file.links[-1].place}: was replaced after it was opened; open it again")
        found: OpenCheckpoint = bench[_FILE][1]
        return found


@dataclass(frozen=True)
class CloseFile:
    """Close the checkpoint on the bench."""

    def run(self, bench: Bench) -> None:
        """Do the task."""
        if _FILE in bench:
            bench.pop(_FILE)[1].close()


@dataclass(frozen=True, eq=False)
class DecodeGroup:
    """Decode arrays that are decoded together; the result is a list of their components.

    `out` says where those of each array go; ``None`` is a result that is sent.
    """

    source: Source
    indices: list[int]
    out: list[Array | None]

    def staged(self, arena: Arena) -> DecodeGroup:
        """Return the task with its output in an arena."""
        more = sum(out.nbytes + arena.ALIGNMENT_BYTES for out in self.out if out is not None)
        places = [None if out is None else arena.empty(out.size, out.dtype, more) for out in self.out]
        return replace(self, out=places)

    def take(self, staged: DecodeGroup) -> None:
        """Copy the output."""
        for out, found in zip(self.out, staged.out, strict=True):
            if out is not None:
                out[:] = found

    def run(self, bench: Bench) -> list[Array | None]:
        """Do the task."""
        file = self.source.open(bench)
        results: list[Array | None] = []
        into = {index: out for index, out in zip(self.indices, self.out, strict=True) if out is not None}
        decoded = replay(file.links, self.indices, file.together, into)
        for (_, found), out in zip(decoded, self.out, strict=True):
            if out is not None and found.bits is not out:
                out[:] = found.bits
            results.append(found.bits if out is None else None)
        return results


@dataclass(frozen=True, eq=False)
class DecodeRange:
    """Decode a range of a large array into `out`; the result is its part of the array sum."""

    source: Source
    name: str
    start: int
    stop: int
    number: int  # of the range
    count: int  # of all ranges
    out: Array

    def staged(self, arena: Arena) -> DecodeRange:
        """Return the task with its output in an arena."""
        return replace(self, out=arena.empty(self.out.size, self.out.dtype))

    def take(self, staged: DecodeRange) -> None:
        """Copy the output."""
        self.out[:] = staged.out

    def run(self, bench: Bench) -> int:
        """Do the task."""
        ranges = Ranges.of(self.source.open(bench).links, self.name)
        if ranges is None:
            raise ChainError(f"{self.source.path}: was replaced after it was opened; open it again")
        verified = range(self.number, len(ranges.frames), self.count)
        return ranges.decode(slice(self.start, self.stop), self.out, verified)


#: The classes of all tasks, and of what they are made of.
TASKS: Final = (Source, CloseFile, DecodeGroup, DecodeRange)


def replay_shared(file: OpenCheckpoint, source: Source, indices: Sequence[int], crew: Crew) -> Decoding:
    """Yield arrays with their indices, in this order and as soon as each is decoded, as `replay`.

    Raises ``WorkerError`` if a worker is gone.
    """
    heads, names = file.heads(), file.links[-1].index_names
    groups = grouped(file.together, indices)
    jobs: deque[_Job] = deque()  # those whose tasks were handed out, and whose results were not taken

    def size(group: list[int]) -> int:
        return sum(heads[names[index]].nbytes for index in group)

    def tasks() -> Iterator[Task]:
        for batch in batches(groups, size, _MIN_TASK_BYTES):
            group = [index for each in batch for index in each]
            jobs.append(_job(file, source, group, [heads[names[index]] for index in group]))
            yield from jobs[-1].tasks

    results = crew.ordered(tasks())
    try:
        ready: dict[int, DecodedArray] = {}
        for index in indices:
            while index not in ready:
                ready.update(_decoded(jobs, results))
            yield index, ready.pop(index)
    finally:
        with suppress(WorkerError):
            results.close()
            crew.everywhere(CloseFile(), begun=True)


@dataclass
class _Job:
    """A group of arrays: their heads and tasks, where their components go, and what is sent."""

    indices: list[int]
    heads: Sequence[Head]
    out: list[Array | None]
    tasks: Sequence[Task]
    ranges: Ranges | None = None


def _job(file: OpenCheckpoint, source: Source, group: list[int], heads: Sequence[Head]) -> _Job:
    """Return what is to be done for a group, with memory for what is decoded."""
    out = [
        None
        if head.nbytes <= _MAX_SENT_BYTES
        else np.empty(head.nbytes // head.header.kind.size, head.header.kind.bits)
        for head in heads
    ]
    if len(group) == 1 and out[0] is not None and out[0].size > 2 * _RANGE_COMPONENTS:
        name = file.links[-1].index_names[group[0]]
        if (ranges := Ranges.of(file.links, name)) is not None:
            parts = ranges.cut(-(-out[0].size // _RANGE_COMPONENTS))
            tasks = [
                DecodeRange(source, name, part.start, part.stop, number, len(parts), out[0][part])
                for number, part in enumerate(parts)
            ]
            return _Job(group, heads, out, tasks, ranges)
    return _Job(group, heads, out, [DecodeGroup(source, group, out)])


def _decoded(jobs: deque[_Job], results: Iterator[Any]) -> dict[int, DecodedArray]:
    """Return the arrays of the next group by index, after the checks that are left."""
    try:
        found = [next(results)]
        found += [next(results) for _ in jobs[0].tasks[1:]]
        job = jobs.popleft()
        if job.ranges is not None:
            job.ranges.check(found)
    except DataError:
        # A range is decoded before all bytes of its frames are verified, perhaps by another member.
        if jobs and (ranges := jobs[0].ranges) is not None:
            ranges.verify()
        raise
    sent = [None] if job.ranges is not None else found[0]
    arrays = {}
    for index, head, out, bits in zip(job.indices, job.heads, job.out, sent, strict=True):
        arrays[index] = DecodedArray(head.header.kind, head.shape, bits if out is None else out)
    return arrays


#: Arrays of fewer bytes in all are decoded by this process: to hand them out takes longer.
_MIN_SHARED_BYTES: Final = 1 << 23


class Restorers:
    """The crew of this process that decodes checkpoints; `begin` starts it when it is needed.

    `members` is the number of processes that decode, with this one.
    """

    def __init__(self, members: int, begin: Callable[[], Crew]) -> None:
        self._members = members
        self._begin = begin
        self._crew: Crew | None = None
        self._process = os.getpid()

    def share(self, file: OpenCheckpoint, path: Path) -> None:
        """Let the crew decode the arrays of an open checkpoint, if that is worth it."""
        if self._members == 1:
            return
        if sum(head.nbytes for head in file.heads().values()) >= _MIN_SHARED_BYTES:
            source = Source(str(path.absolute()), file.links[-1].reader.root)
            file.decode_by(partial(self._decode, source=source))

    def close(self) -> None:
        """End the workers."""
        if self._crew is not None and self._process == os.getpid():
            self._crew.close()
        self._crew = None

    def _decode(self, file: OpenCheckpoint, indices: list[int], *, source: Source) -> Decoding:
        crew = self._crew
        if crew is None or crew.broken or self._process != os.getpid():  # or a fork has copied it
            self._process = os.getpid()
            crew = self._crew = self._begin()
        return replay_shared(file, source, indices, crew)
