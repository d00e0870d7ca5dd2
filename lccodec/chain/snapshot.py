"""The state at a call, copied into memory that workers share, for a save in the background."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..container.scalars import Json
from ..container.tree import Flat
from ..element_types import ELEMENT_TYPES, Array, ElementType, components, from_components
from ..errors import ArgumentError
from ..policy.roles import Assignment, Role
from ..workers.memory import Arena, place_of

_MIN_BYTES_OF_TWO_THREADS: Final = 1 << 24  # that are copied


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state to save. All of its arrays are components, in shared memory.

    Parameters
    ----------
    step, metadata
        As for `Chain.save`.
    tree, scalars, names
        As in `lccodec.container.tree.Flat`.
    codes, shapes
        Of each array the number of its element type, and its shape.
    memory, places
        The bytes that arrays lie in; and of each array the number of its memory, and its place
        there in bytes. There may be thousands of arrays, and numbers are fast to send.
    known
        Roles by name, and why.
    resumed
        Whether the run goes on from a lossy state that it has restored.
    watched
        Whether the client wants to know how far the save is.
    """

    step: int
    tree: Json
    scalars: list[Json]
    names: list[str]
    codes: list[int]
    shapes: list[list[int]]
    memory: list[Array]
    places: list[list[int]]
    metadata: dict[str, str]
    known: dict[str, tuple[Role, str]]
    resumed: bool
    watched: bool

    def flat(self) -> Flat:
        """Return the state as a saver takes it."""
        arrays = []
        for code, shape, (number, start) in zip(self.codes, self.shapes, self.places, strict=True):
            kind = ELEMENT_TYPES[code]
            nbytes = math.prod(shape) * kind.itemsize
            bits = self.memory[number][start : start + nbytes].view(kind.bits)
            arrays.append(from_components(bits, kind, tuple(shape), "bits"))
        return Flat(self.tree, arrays, self.scalars, self.names)

    def assignments(self) -> dict[str, Assignment]:
        """Return the known roles."""
        return {name: Assignment(role, why) for name, (role, why) in self.known.items()}


class Staging:
    """An arena, and what an adapter copies there itself: that is not copied again."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._given: dict[int, Array] = {}  # by address; kept, as an address can be used again

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array of the arena; see `Arena.empty`."""
        array = self._arena.empty(count, dtype, more)
        if array.nbytes:
            self._given[_address(array)] = array
        return array

    def _has(self, bits: Array) -> bool:
        """Whether components are the whole of an array that was given here."""
        given = self._given.get(_address(bits))
        return given is not None and given.nbytes == bits.nbytes

    def snapshot(  # all that a save is told of a state
        self,
        flat: Flat,
        *,
        step: int,
        metadata: dict[str, str],
        known: Mapping[str, Assignment],
        resumed: bool,
        watched: bool = False,
    ) -> Snapshot:
        """Copy a state into the arena, but for what is there; each value is read once."""
        arena = self._arena
        found: list[tuple[ElementType, Any]] = []
        for name, array in zip(flat.names, flat.arrays, strict=True):
            try:
                found.append(components(array))
            except ArgumentError as error:
                raise type(error)(f"array {name!r}: {error}") from None
        staged = [self._has(bits) for _, bits in found]
        more = sum(
            bits.nbytes + arena.ALIGNMENT_BYTES
            for (_, bits), there in zip(found, staged, strict=True)
            if not there
        )
        copies, places = [], []
        for (_, bits), there in zip(found, staged, strict=True):
            if there and (place := place_of(bits)) is not None:
                places.append([arena.segments.index(place[0]), place[1]])
                continue
            copies.append((arena.empty(bits.size, bits.dtype, more), bits))
            places.append([*arena.place])
            more -= bits.nbytes + arena.ALIGNMENT_BYTES
        _copy(copies)
        return Snapshot(
            step,
            flat.tree,
            flat.scalars,
            flat.names,
            [kind.code for kind, _ in found],
            [list(array.shape) for array in flat.arrays],
            arena.memory(),
            places,
            metadata,
            {name: (assigned.role, assigned.why) for name, assigned in known.items()},
            resumed,
            watched,
        )


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    """Copy arrays to others; two threads copy many bytes, as the caller waits for it."""
    nbytes = np.cumsum([source.nbytes for _, source in pairs])
    if not pairs or nbytes[-1] < _MIN_BYTES_OF_TWO_THREADS:
        _copy_each(pairs)
        return
    half = int(np.searchsorted(nbytes, nbytes[-1] // 2)) + 1
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(_copy_each, pairs[half:])
        _copy_each(pairs[:half])
        beside.result()


def _copy_each(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        target[:] = source
