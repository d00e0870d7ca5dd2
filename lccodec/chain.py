"""Keyframe and delta algebra: closed loop, unchanged arrays, runs, replay. Arrays and bytes only, no I/O.

A chain is a list of links, each a checkpoint. An array of a link is unchanged from the parent's array
of the same name, or lies in a frame, alone or in a run with others, which may be relative to the
parent's. The reference of a delta is always the parent as decoded, so that errors do not accumulate
(LC-Checkpoint, section 3.1).

Source: SPEC 9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from .bits import Stored
from .encoder import Effort, encode_components
from .errors import ArgumentError, ChainError, DataError, FormatError
from .floats import Array, ElementType, components, from_components
from .frame import decode_components
from .header import FrameHeader, Shape
from .moments import LogSteps
from .parallel import ordered
from .planes import alone_is_smaller
from .quantize import Lossless, Quantizer
from .residual import PIECE
from .trigger import Triggered

__all__ = ["DecodedArray", "Job", "Link", "array_header", "encode_jobs", "plan", "replay", "wants_keyframe"]

#: A restore replays at most this many deltas unless a chain is told otherwise (LCC-CHN-04).
KEYFRAME_EVERY: Final = 32

#: Arrays of at most so many components share a run, of at most so many together: large enough to pay
#: for the NumPy calls, small enough to be read for the sake of one of its arrays.
RUN_ARRAY: Final = 1 << 14
RUN_TOTAL: Final = 1 << 20

#: Components of an array that is large enough to be coded by several threads.
LARGE: Final = 1 << 23


@dataclass(slots=True)
class DecodedArray:
    """An array as a reader of the chain has it: the reference of the next delta.

    Parameters
    ----------
    kind, shape
        Element type and shape.
    bits
        Components, 1-D. Arrays of a run are views of one buffer.
    start
        Where the components begin in that buffer.
    """

    kind: ElementType
    shape: Shape
    bits: Array
    start: int = 0

    def array(self, dtype: str | None = None) -> Array:
        """Return it as a NumPy array that shares the memory; `dtype` as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, self.shape, dtype)


class Link(Protocol):
    """One checkpoint of a chain, as replay needs it. Frames are numbered from 0."""

    @property
    def place(self) -> str:
        """What errors call the file."""

    @property
    def names(self) -> Mapping[str, int]:
        """Index of each array by its name, the path of its first appearance."""

    @property
    def index_names(self) -> Sequence[str]:
        """The names by index."""

    def frame_of(self, index: int) -> int | None:
        """Return the number of an array's frame; ``None`` if it is unchanged from the parent's."""

    def members(self, number: int) -> Sequence[int]:
        """Return the indices of the arrays of a frame, in its order."""

    def frame(self, number: int) -> Stored:
        """Return a frame, verified."""

    def header(self, number: int) -> FrameHeader:
        """Return the header of a frame."""


@dataclass
class Job:
    """The arrays that one frame of a step will hold.

    Parameters
    ----------
    indices
        Their indices in the state, rising.
    kind, shapes, bits
        Element type, shapes and components (of each array).
    quantizer
        What to code them with.
    parents
        The arrays of the same names in the parent; ``None`` if it has none of this type and shape.
    relative
        Whether the frame is relative to them.
    size
        Components of all arrays.
    """

    indices: list[int]
    kind: ElementType
    shapes: list[Shape]
    bits: list[Array]
    quantizer: Quantizer
    parents: list[DecodedArray] | None
    relative: bool
    size: int = 0

    def encode(
        self, effort: Effort = "normal", threads: int = 1
    ) -> tuple[Iterator[bytes], list[DecodedArray]]:
        """Return the pieces of the frame, and the arrays as they decode once all pieces are made.

        The memory of the parents is reused for the result.
        """
        bits = self._components()
        out = np.empty_like(bits) if self.parents is None else _joined(self.parents)
        reference = out if self.relative else None
        return self._pieces(bits, reference, out, effort, threads), _split(out, self.kind, self.shapes)

    def encode_alone(self) -> Iterator[bytes]:
        """Yield the pieces of a frame that nothing will be relative to: without memory for a result."""
        return self._pieces(self._components(), None, None, "normal", 1)

    def _components(self) -> Array:
        return np.concatenate(self.bits) if len(self.bits) > 1 else self.bits[0]

    def _pieces(
        self, bits: Array, reference: Array | None, out: Array | None, effort: Effort, threads: int
    ) -> Iterator[bytes]:
        run = len(self.indices) > 1
        return encode_components(
            bits,
            self.kind,
            self.shapes,
            self.quantizer,
            reference,
            out,
            run=run,
            effort=effort,
            threads=threads,
        )


def encode_jobs(
    jobs: Sequence[Job], effort: Effort, threads: int
) -> Iterator[tuple[Job, Iterable[bytes], list[DecodedArray]]]:
    """Yield each job with what it encodes to, in order.

    Several threads work on several jobs at a time, or on the blocks of one that is large. The pieces
    of a large one are made as they are asked for.
    """

    def encode(job: Job) -> tuple[Job, Iterable[bytes], list[DecodedArray]]:
        large = threads == 1 or job.size > LARGE
        pieces, arrays = job.encode(effort, threads if large else 1)
        return job, pieces if large else list(pieces), arrays

    return ordered(encode, jobs, threads)


def plan(
    arrays: Sequence[Array],
    names: Sequence[str],
    parents: Mapping[str, DecodedArray],
    choose: Chooser,
    keyframe: bool,
) -> list[Job]:
    """Decide which arrays of a step are stored, and which share a frame.

    Parameters
    ----------
    arrays, names
        The state's.
    parents
        The parent's arrays as decoded, by name.
    choose
        Returns the quantizer for an array, given its name, element type, size, and whether it will be
        relative to the parent's.
    keyframe
        Whether all frames must stand alone.

    Returns
    -------
    list of Job
        In the order of their first arrays. An array in none of them is what the parent has.

    Raises
    ------
    ArgumentError
        For an array that cannot be stored; names it.
    """
    jobs: list[Job] = []
    open_runs: dict[object, Job] = {}  # that more arrays may join
    for index, (array, name) in enumerate(zip(arrays, names, strict=True)):
        try:
            kind, bits = components(array)
        except ArgumentError as error:
            raise type(error)(f"array {name!r}: {error}") from None
        parent = parents.get(name)
        if keyframe or parent is None or parent.kind != kind or parent.shape != array.shape:
            parent = None
        elif _equal(bits, parent.bits):
            continue
        quantizer = choose(name, kind, array.size, parent is not None)
        if isinstance(quantizer, Triggered):
            if parent is not None and quantizer.waits(bits, parent.bits, kind):
                continue
            quantizer = quantizer.then
        relative = parent is not None and not _stands_alone(quantizer, bits, parent.bits, kind)
        like = (kind, quantizer, parent is None, relative)
        small = 0 < bits.size <= RUN_ARRAY
        job = open_runs.get(like) if small else None
        if job is None or job.size + bits.size > RUN_TOTAL:
            job = Job([], kind, [], [], quantizer, None if parent is None else [], relative)
            jobs.append(job)
            if small:
                open_runs[like] = job
        job.indices.append(index)
        job.shapes.append(array.shape)
        job.bits.append(bits)
        job.size += bits.size
        if job.parents is not None and parent is not None:
            job.parents.append(parent)
    return jobs


class Chooser(Protocol):
    """Chooses the quantizer of an array."""

    def __call__(self, name: str, kind: ElementType, size: int, relative: bool) -> Quantizer:
        """Return the quantizer."""


def _stands_alone(quantizer: Quantizer, bits: Array, reference: Array, kind: ElementType) -> bool:
    """Whether an array is coded without its reference; one so small that it shares a run is not looked at."""
    if quantizer.absolute or bits.size <= RUN_ARRAY:
        return quantizer.absolute
    if isinstance(quantizer, LogSteps):
        return quantizer.alone(bits, reference, kind)
    return isinstance(quantizer, Lossless) and alone_is_smaller(bits, reference, kind)


def _equal(left: Array, right: Array) -> bool:
    """Whether two arrays are the same, found out early where they are not."""
    if left.size and left.item(0) != right.item(0):  # of thousands of arrays, a comparison of all is felt
        return False
    return all(
        bool((left[start : start + PIECE] == right[start : start + PIECE]).all())
        for start in range(0, left.size, PIECE)
    )


def _joined(parts: list[DecodedArray]) -> Array:
    """Return components end to end; without a copy where they are all of one buffer, in its order."""
    if len(parts) == 1:
        return parts[0].bits
    whole = parts[0].bits.base
    if isinstance(whole, np.ndarray) and whole.size == sum(part.bits.size for part in parts):
        end = 0
        for part in parts:
            if part.bits.base is not whole or part.start != end:
                break
            end += part.bits.size
        else:
            return whole
    return np.concatenate([part.bits for part in parts])


def _split(bits: Array, kind: ElementType, shapes: Sequence[Shape]) -> list[DecodedArray]:
    """Return the arrays of a frame, views of its components."""
    if len(shapes) == 1:
        return [DecodedArray(kind, shapes[0], bits)]
    arrays, start = [], 0
    for shape in shapes:
        stop = start + math.prod(shape) * kind.components
        arrays.append(DecodedArray(kind, shape, bits[start:stop], start))
        start = stop
    return arrays


def wants_keyframe(deltas: int, delta_bytes: int, keyframe_bytes: int, every: int) -> bool:
    """Return whether the next checkpoint should be a keyframe (an encoder's choice, LCC-CHN-04).

    Parameters
    ----------
    deltas, delta_bytes
        Number and size of the deltas since the last keyframe.
    keyframe_bytes
        Size of that keyframe.
    every
        Most deltas a restore may replay.
    """
    return deltas >= every or delta_bytes > keyframe_bytes


def array_header(links: Sequence[Link], index: int) -> tuple[FrameHeader, Shape]:
    """Return the header of the newest frame that holds an array of the last link, and the array's shape."""
    name = links[-1].index_names[index]
    for link, parent in zip(reversed(links), [*reversed(links[:-1]), None], strict=True):
        found = link.names[name]
        number = link.frame_of(found)
        if number is not None:
            header = _header(link, number)
            return header, header.shapes[link.members(number).index(found)]
        _check_parent(link, name, parent)
    raise ChainError("an empty chain")


def replay(links: Sequence[Link], indices: Iterable[int], threads: int = 1) -> dict[int, DecodedArray]:
    """Decode arrays of the last of `links`, which lead from a keyframe to it.

    Only frames that these arrays need are read; each is decoded into the memory of its reference.

    Returns
    -------
    dict
        The arrays by index.

    Raises
    ------
    DataError
        If a stored byte breaks a rule; the error names the file and the array.
    ChainError
        If the parent lacks the array a delta is taken against.
    """
    wanted = {index: links[-1].index_names[index] for index in indices}
    current: dict[str, DecodedArray] = {}

    def decode(frame: tuple[Link, int, bool]) -> dict[str, DecodedArray]:
        return _decode_frame(*frame, current, inner)

    frames = _needed(links, list(wanted.values()))
    for _, group in itertools.groupby(reversed(frames), key=lambda frame: id(frame[0])):
        # The frames of one link do not depend on each other.
        together = list(group)
        inner = threads if len(together) == 1 else 1
        for arrays in ordered(decode, together, threads if len(together) > 1 else 1):
            current.update(arrays)
    return {index: current[name] for index, name in wanted.items()}


def _decode_frame(
    link: Link, number: int, last: bool, parents: Mapping[str, DecodedArray], threads: int
) -> dict[str, DecodedArray]:
    """Decode a frame of a link in the place of its parents; `last` as in :func:`_needed`."""
    names = [link.index_names[index] for index in link.members(number)]
    where = _where(link, names[0])
    header = _header(link, number)
    reference = None
    if header.relative:
        found = [parents[name] for name in names]
        if any(p.kind != header.kind for p in found) or tuple(p.shape for p in found) != header.shapes:
            raise FormatError("LCC-CHN-03", where, "not of the type and shape of the parent's array")
        reference = _joined(found)
    try:
        bits = decode_components(link.frame(number), reference, reference, check_sum=last, threads=threads)
    except DataError as error:
        raise error if error.where.startswith(link.place) else error.inside(where) from None
    return dict(zip(names, _split(bits, header.kind, header.shapes), strict=True))


def _needed(links: Sequence[Link], names: Iterable[str]) -> list[tuple[Link, int, bool]]:
    """Return the frames that arrays of the last link need, the newest first.

    With each frame comes whether an array's values are its own in the end: if later frames are
    applied to all of them, a wrong value shows there.
    """
    frames = []
    wanted = dict.fromkeys(names)
    seen: set[str] = set()
    for link, parent in zip(reversed(links), [*reversed(links[:-1]), None], strict=True):
        older: dict[str, None] = {}
        numbers: dict[int, None] = {}
        for name in wanted:
            number = link.frame_of(link.names[name])
            if number is None:
                _check_parent(link, name, parent)
                older[name] = None
            else:
                numbers[number] = None
        for number in numbers:
            members = [link.index_names[index] for index in link.members(number)]
            frames.append((link, number, not seen.issuperset(members)))
            seen.update(members)
            if _header(link, number).relative:
                for name in members:  # a run is decoded whole, and so are its references
                    _check_parent(link, name, parent)
                    older[name] = None
        wanted = older
    return frames


def _header(link: Link, number: int) -> FrameHeader:
    header = link.header(number)
    members = len(link.members(number))
    if len(header.shapes) != members:
        message = f"{len(header.shapes)} arrays in a frame of {members}"
        raise FormatError("LCC-CHN-03", f"{link.place}: frame {number}", message)
    return header


def _check_parent(link: Link, name: str, parent: Link | None) -> None:
    if parent is None:
        raise FormatError("LCC-CHN-03", _where(link, name), "a keyframe's array needs a parent")
    if name not in parent.names:
        raise ChainError(f"{_where(link, name)}: {parent.place}, its parent, has no such array")


def _where(link: Link, name: str) -> str:
    return f"{link.place}: array {name!r}"
