"""The state at a call, copied into memory that workers share, for a save in the background."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ...container.scalars import Json
from ...container.tree import Flat
from ...element_table import ELEMENT_TYPES, ElementType
from ...element_types import Array, components, element_type, from_components, in_host_order
from ...errors import ArgumentError
from ...parallel import SideThread
from ...policy.roles import Assignment, Role
from ...quantizers.base import Quantizer
from ...workers.process import Arena, address_of, place_of
from .plan import SavedState

_MIN_BYTES_OF_TWO_THREADS: Final = 1 << 24  # that are copied
_MAX_SMALL_BYTES: Final = 1 << 12  # of arrays that are copied by one call for all


#: What is asked of whoever is given a state: to save it, or what a save would do with it.
Question: TypeAlias = Literal["save", "plan", "estimates"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state to save, or to plan a save of. All of its arrays are components, in shared memory."""

    step: int
    # `tree`, `scalars`, `names`: as in `lccodec.container.tree.Flat`.
    tree: Json
    scalars: list[Json]
    names: list[str]
    # `codes`, `ranks`, `sizes`: of each array the number of its element type and its number of
    # dimensions; and the dimensions of all, one array after the other. As arrays: there may be
    # thousands, and lists take long to make and to send.
    codes: Array
    ranks: Array
    sizes: Array
    # `memory`, `places`: the bytes that arrays lie in; and of each array the number of its memory,
    # and its place there in bytes, int64 of shape ``(arrays, 2)``.
    memory: list[Array]
    places: Array
    metadata: dict[str, str]  # as for `Chain.save`
    known: dict[str, tuple[Role, str]]  # roles by name, and why
    resumed: bool  # whether the run goes on from a lossy state that it has restored
    # Quantizers of a first keyframe by name, where it is known what follows.
    first: Mapping[str, Quantizer] = field(default_factory=dict)
    judged: float | None = None  # factor of the steps of weights, once a loss has judged them
    watched: bool = False  # whether the client wants to know how far the save is
    question: Question = "save"  # what is to be done with it
    is_selection: bool = False  # whether it has some arrays of a state, to be saved over the parent's
    number: int = 0  # the number of the request

    def flat(self) -> Flat:
        """Return the arrays and scalars."""
        arrays, left = [], iter(self.sizes.tolist())
        about = zip(
            self.codes.tolist(), self.ranks.tolist(), self.places.reshape(-1, 2).tolist(), strict=True
        )
        for code, rank, (number, start) in about:
            kind, shape = ELEMENT_TYPES[code], tuple(itertools.islice(left, rank))
            nbytes = math.prod(shape) * kind.itemsize
            bits = self.memory[number][start : start + nbytes].view(kind.bits)
            arrays.append(from_components(bits, kind, shape, "bits"))
        return Flat(self.tree, arrays, self.scalars, self.names)

    def state(self) -> SavedState:
        """Return what is saved, as a saver takes it."""
        known = {name: Assignment(role, why) for name, (role, why) in self.known.items()}
        return SavedState(self.flat(), self.metadata, known, is_selection=self.is_selection)


class Staging:
    """An arena, and what an adapter copies there itself: that is not copied again."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._given: dict[int, Array] = {}  # by address; kept, as an address can be used again

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array of the arena; see `Arena.empty`."""
        array = self._arena.empty(count, dtype, more)
        if array.nbytes:
            self._given[address_of(array)] = array
        return array

    def _has(self, bits: Array) -> bool:
        """Whether components are the whole of an array that was given here."""
        given = self._given.get(address_of(bits))
        return given is not None and given.nbytes == bits.nbytes

    def snapshot(self, flat: Flat, *, known: Mapping[str, Assignment], **told: Any) -> Snapshot:
        """Copy a state into the arena, but for what is there; each value is read once.

        `told` are the parameters of `Snapshot` that are not of the arrays.
        """
        codes, places = np.empty(len(flat.arrays), np.uint8), np.empty((len(flat.arrays), 2), np.int64)
        dtypes = [array.dtype for array in flat.arrays]
        numbers = {dtype: number for number, dtype in enumerate(dict.fromkeys(dtypes))}
        number = np.fromiter(map(numbers.__getitem__, dtypes), np.int64, len(dtypes))
        nbytes = np.fromiter((array.nbytes for array in flat.arrays), np.int64, len(dtypes))
        small = (nbytes <= _MAX_SMALL_BYTES) & (not self._given)
        for dtype, own in numbers.items():
            chosen = np.flatnonzero(small & (number == own))
            if not chosen.size:
                continue
            try:
                kind = element_type(dtype)
            except ArgumentError as error:
                raise type(error)(f"array {flat.names[chosen[0]]!r}: {error}") from None
            codes[chosen] = kind.code
            places[chosen] = self._joined(
                [flat.arrays[index] for index in chosen.tolist()], nbytes[chosen], kind
            )
        self._apart(flat, np.flatnonzero(~small).tolist(), codes, places)
        shapes = [array.shape for array in flat.arrays]
        return Snapshot(
            tree=flat.tree,
            scalars=flat.scalars,
            names=flat.names,
            codes=codes,
            ranks=np.fromiter(map(len, shapes), np.uint8, len(shapes)),
            sizes=np.array(list(itertools.chain.from_iterable(shapes)), np.int64),
            memory=self._arena.memory(),
            places=places.reshape(-1),
            known={name: (assigned.role, assigned.why) for name, assigned in known.items()},
            **told,
        )

    def _joined(self, arrays: Sequence[Array], nbytes: Array, kind: ElementType) -> Array:
        """Copy small arrays of a dtype end to end; return their places."""
        ends = np.cumsum(nbytes)
        target = self._arena.empty(int(ends[-1]) // kind.size, kind.bits)
        dtype = arrays[0].dtype
        if kind.kind == "b":  # as in NumPy, every byte but 0 is true
            target[:] = np.concatenate(arrays, axis=None).view(np.uint8) != 0
        elif dtype.isnative:
            np.concatenate(arrays, axis=None, out=target.view(dtype))
        else:
            target[:] = in_host_order(np.concatenate(arrays, axis=None)).view(kind.bits)
        number, first = self._arena.place
        found = np.empty((len(arrays), 2), np.int64)
        found[:, 0], found[:, 1] = number, first + ends - nbytes
        return found

    def _apart(self, flat: Flat, indices: Sequence[int], codes: Array, places: Array) -> None:
        """Copy arrays one by one, but for those in the arena; set their codes and places."""
        arena = self._arena
        found: list[tuple[ElementType, Any]] = []
        for index in indices:
            try:
                found.append(components(flat.arrays[index]))
            except ArgumentError as error:
                raise type(error)(f"array {flat.names[index]!r}: {error}") from None
        staged = [self._has(bits) for _, bits in found]
        more = sum(
            bits.nbytes + arena.ALIGNMENT_BYTES
            for (_, bits), there in zip(found, staged, strict=True)
            if not there
        )
        copies = []
        for index, (kind, bits), there in zip(indices, found, staged, strict=True):
            codes[index] = kind.code
            if there and (place := place_of(bits)) is not None:
                places[index] = arena.segments.index(place[0]), place[1]
                continue
            copies.append((arena.empty(bits.size, bits.dtype, more), bits))
            places[index] = arena.place
            more -= bits.nbytes + arena.ALIGNMENT_BYTES
        _copy(copies)


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    """Copy arrays to others; two threads copy many bytes, as the caller waits for it."""
    nbytes = np.cumsum([source.nbytes for _, source in pairs])
    if not pairs or nbytes[-1] < _MIN_BYTES_OF_TWO_THREADS:
        _copy_each(pairs)
        return
    half = int(np.searchsorted(nbytes, nbytes[-1] // 2)) + 1
    with SideThread() as side:
        beside = side.call(_copy_each, pairs[half:])
        _copy_each(pairs[:half])
        beside.result()


def _copy_each(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        target[:] = source
