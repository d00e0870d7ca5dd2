"""What a checkpoint stores: which arrays, each in a frame of its own or in a run with others.

An array that did not change is not stored, and one that waits for a trigger neither. The reference
of a delta is always the parent as decoded, so that errors do not accumulate (LC-Checkpoint, section
3.1).

Source: SPEC 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from ..element_types import Array, ElementType, components, from_components
from ..errors import ArgumentError
from ..frame.encode import Content, Effort, encode_content
from ..frame.header import Shape, check_shape
from ..parallel import PIECE, ordered
from ..quantizers.base import Quantizer

__all__ = ["DecodedArray", "Job", "components_of", "encode_jobs", "joined", "plan", "split"]

#: Arrays of at most so many components share a run, of at most so many together: large enough to
#: pay for the NumPy calls, small enough to be read for the sake of one of its arrays.
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
        out = np.empty_like(bits) if self.parents is None else joined(self.parents)
        reference = out if self.relative else None
        return self._pieces(bits, reference, out, effort, threads), split(out, self.kind, self.shapes)

    def encode_alone(self) -> Iterator[bytes]:
        """Yield the pieces of a frame that nothing will be relative to: without memory for a result."""
        return self._pieces(self._components(), None, None, "normal", 1)

    def _components(self) -> Array:
        return np.concatenate(self.bits) if len(self.bits) > 1 else self.bits[0]

    def _pieces(
        self, bits: Array, reference: Array | None, out: Array | None, effort: Effort, threads: int
    ) -> Iterator[bytes]:
        content = Content(bits, self.kind, tuple(self.shapes), reference, len(self.indices) > 1)
        return encode_content(content, self.quantizer, out, effort=effort, threads=threads)


def encode_jobs(
    jobs: Sequence[Job], effort: Effort, threads: int
) -> Iterator[tuple[Job, Iterable[bytes], list[DecodedArray]]]:
    """Yield each job with what it encodes to, in order.

    Several threads work on several jobs at a time, or on the blocks of one that is large. The
    pieces of a large one are made as they are asked for.
    """

    def encode(job: Job) -> tuple[Job, Iterable[bytes], list[DecodedArray]]:
        large = threads == 1 or job.size > LARGE
        pieces, arrays = job.encode(effort, threads if large else 1)
        return job, pieces if large else list(pieces), arrays

    return ordered(encode, jobs, threads)


def components_of(arrays: Sequence[Array], names: Sequence[str]) -> list[tuple[ElementType, Array]]:
    """Return the element type and the components of each array of a state; copies of those in other orders.

    Raises
    ------
    ArgumentError
        For an array that cannot be stored; names it.
    """
    found = []
    for array, name in zip(arrays, names, strict=True):
        try:
            check_shape(array.shape)
            found.append(components(array))
        except ArgumentError as error:
            raise type(error)(f"array {name!r}: {error}") from None
    return found


def plan(
    parts: Sequence[tuple[ElementType, Array]],
    shapes: Sequence[Shape],
    names: Sequence[str],
    parents: Mapping[str, DecodedArray],
    choose: Chooser,
    keyframe: bool,
) -> list[Job]:
    """Decide which arrays of a step are stored, and which share a frame.

    Parameters
    ----------
    parts, shapes, names
        Of the arrays of the state: what `components_of` returns, the shapes and the names.
    parents
        The parent's arrays as decoded, by name.
    choose
        Returns the quantizer for an array, given its name, element type, size, and whether it will
        be relative to the parent's.
    keyframe
        Whether all frames must stand alone.

    Returns
    -------
    list of Job
        In the order of their first arrays. An array in none of them is what the parent has.
    """
    jobs: list[Job] = []
    open_runs: dict[object, Job] = {}  # that more arrays may join
    for index, ((kind, bits), shape, name) in enumerate(zip(parts, shapes, names, strict=True)):
        parent = parents.get(name)
        if keyframe or parent is None or parent.kind != kind or parent.shape != shape:
            parent = None
        elif _equal(bits, parent.bits):
            continue
        quantizer = choose(name, kind, bits.size // kind.components, parent is not None)
        if parent is not None and quantizer.waits(bits, parent.bits, kind):
            continue
        quantizer = quantizer.awake
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
        job.shapes.append(shape)
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
    return quantizer.stands_alone(bits, reference, kind)


def _equal(left: Array, right: Array) -> bool:
    """Whether two arrays are the same, found out early where they are not."""
    if left.size and left.item(0) != right.item(0):  # of thousands of arrays, a comparison of all is felt
        return False
    if left.size <= RUN_ARRAY:  # and so are three calls instead of one comparison of bytes
        return left.tobytes() == right.tobytes()
    return all(
        bool((left[start : start + PIECE] == right[start : start + PIECE]).all())
        for start in range(0, left.size, PIECE)
    )


def joined(parts: Sequence[DecodedArray]) -> Array:
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


def split(bits: Array, kind: ElementType, shapes: Sequence[Shape]) -> list[DecodedArray]:
    """Return the arrays of a frame, views of its components."""
    if len(shapes) == 1:
        return [DecodedArray(kind, shapes[0], bits)]
    arrays, start = [], 0
    for shape in shapes:
        stop = start + math.prod(shape) * kind.components
        arrays.append(DecodedArray(kind, shape, bits[start:stop], start))
        start = stop
    return arrays
