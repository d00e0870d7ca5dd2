"""The state that a follower keeps, and the way from it to another step.

The way has two parts. `prepare` decodes into memory of its own: what goes wrong there leaves the
state as it was. `commit` then puts the new values in, which cannot fail. If an interrupt cuts it
short, it is done again.

One step behind, most frames say which few values they change. Then only these are decoded, frames
side by side, and the array sum goes on from that of the held array. What is decoded of another
array lies in a buffer that the next one uses again, since mostly few values differ and only these
are kept. A whole array that differs keeps the buffer. Values are compared as bit patterns, so NaNs
and zeros of both signs count as what they are.

A follower may start from arrays at hand, such as the model that an engine has loaded. Nothing of
their step is read but what tells that they are its arrays, bit for bit: the array sum at the end of
each frame (LCC-FRM-09). Arrays that share a frame with others are small; they are decoded and
compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ...constants import ElementType
from ...container.source import Source, read_ahead
from ...element_types import Array, components, element_type, from_components
from ...errors import ArgumentError, ChainError, ChecksumError, DataError
from ...frame.content import array_sum
from ...frame.decode import check_array_sum, may_tell
from ...frame.header import Shape
from ...loops.search import differing
from ...parallel import slices
from ...workers.process import place_of
from ..store.store import Store
from .checkpoint import open_step
from .follow_crew import ReadChanges, Tellers, Told, Write, batches_for
from .links import Link, array_place
from .replay import (
    DecodedArray,
    decoded_together,
    frames_of,
    placed,
    replay,
    replay_each,
)

#: If at most one component in this many differs, changing only their places is faster than a copy.
SPARSE_RATIO: Final = 8


@dataclass(frozen=True, eq=False)
class ArrayChange:
    """What is new in an array: components of flat `places`, rising int64, or all if ``None``."""

    kind: ElementType
    shape: Shape
    places: Array | None
    bits: Array

    @property
    def nbytes(self) -> int:
        """Bytes of the new values."""
        return self.bits.nbytes

    def values(self, dtype: str | None) -> Array:
        """Return the new values, 1-D; `dtype` is as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, (self.bits.size // self.kind.components,), dtype)

    def kept(self) -> ArrayChange:
        """Return the change in memory of its own, if it lies where later ones are put."""
        if not self.is_shared or self.places is None:
            return self
        return replace(self, places=self.places.copy(), bits=self.bits.copy())

    @property
    def is_shared(self) -> bool:
        """Whether it lies where later changes are put."""
        return self.places is not None and place_of(self.places) is not None

    def write(self, bits: Array) -> None:
        """Write the new values into the components of an array. Writing them again is no harm."""
        if self.places is None:
            bits[:] = self.bits
        else:
            bits[self.places] = self.bits


def change_of(before: DecodedArray, places: Array, bits: Array) -> ArrayChange | None:
    """Return what is new in an array, given its places and components; ``None`` if nothing is."""
    if not places.size:
        return None
    if places.size * SPARSE_RATIO <= before.bits.size:
        return ArrayChange(before.kind, before.shape, places, bits)
    whole = before.bits.copy()
    whole[places] = bits
    return ArrayChange(before.kind, before.shape, None, whole)


def difference(before: DecodedArray | None, after: DecodedArray) -> ArrayChange | None:
    """Return what is new in an array, ``None`` if nothing is.

    All of it is new if there was none before, or one of another type or shape.
    """
    whole = ArrayChange(after.kind, after.shape, None, after.bits)
    if before is None or before.form != after.form:
        return whole
    if after.kind.components > 1:  # places are those of elements
        return None if np.array_equal(before.bits, after.bits) else whole
    places, count = [], 0
    for part in slices(after.bits.size):
        found = differing(before.bits[part], after.bits[part])
        if not found.size:
            continue
        count += found.size
        if count * SPARSE_RATIO > after.bits.size:
            return whole
        found += part.start
        places.append(found)
    if not count:
        return None
    there = np.concatenate(places)
    return ArrayChange(after.kind, after.shape, there, after.bits.take(there, mode="clip"))


def check_target(name: str, change: ArrayChange, array: object) -> Array:
    """Return the array that a change is to be written to; refuse one that it does not fit."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"array {name!r}: must be a NumPy array; got {type(array).__name__}")
    kind = element_type(array.dtype)
    if (kind, array.shape) != (change.kind, change.shape):
        expected = f"{change.kind.name} of shape {change.shape}"
        raise ArgumentError(f"array {name!r}: must be {expected}; got {kind.name} of shape {array.shape}")
    if not array.flags.writeable:
        raise ArgumentError(f"array {name!r}: cannot be written to")
    return array


def write_into(array: Array, change: ArrayChange) -> None:
    """Write a change into an array that it fits."""
    if array.flags.c_contiguous and array.dtype.isnative:
        change.write(array.reshape(-1).view(change.kind.bits))
        return
    # Its components are a copy, which goes back as a whole.
    bits = components(array)[1].copy()
    change.write(bits)
    array[...] = from_components(bits, change.kind, change.shape, "bits").view(array.dtype.newbyteorder("="))


_CALLS_BYTES: Final = 1 << 11  # of a frame are read in the time of the calls that each frame takes


class CancelledError(Exception):
    """What `FollowedState.prepare` was to do is not wanted any more."""


@dataclass
class Prepared:
    """The way to another state: that of `link`, which is closed.

    `room` is where `Tellers` have put what they found. Arrays that are `decoded` are kept so; the
    others get their `changes`. Those that are `outdated` were not decoded again, and may have other
    values now. `sums` are array sums of the new state, where they are known.
    """

    link: Link
    room: int
    changes: dict[str, ArrayChange] = field(default_factory=dict)
    decoded: dict[str, DecodedArray] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)
    sums: dict[str, int] = field(default_factory=dict)


class FollowedState:
    """A state, as far as it is followed: its checkpoint, if it has one, and its arrays by name.

    The arrays are those that are followed, and those that share frames with them.
    """

    def __init__(self) -> None:
        self.link: Link | None = None
        self.arrays: dict[str, DecodedArray] = {}
        self._sums: dict[str, int] = {}  # array sums of some of them

    def reaches(self, links: Sequence[Link], names: Iterable[str]) -> bool:
        """Return whether arrays of the last link can be decoded from this state.

        `links` are those behind its checkpoint, parents before their children.
        """
        there = links[0].parent.names if links[0].parent is not None else {}
        needed = {name for group in groups_of(links, names) for name in group} | _gone(links)
        return self.arrays.keys() >= needed & there.keys()

    def prepare(
        self,
        links: Sequence[Link],
        names: Iterable[str],
        based: bool,
        wanted: Callable[[], bool],
        tellers: Tellers,
        known: Mapping[str, DecodedArray] | None = None,
    ) -> Prepared:
        """Decode another state, and find what differs.

        `links` are all that the last of them needs, parents first; if it is `based` on this state,
        only what lies behind its checkpoint. `wanted` is asked from time to time whether to go on.
        `known` has the other state, if it is in memory; it must not change until that is committed.

        Raises `CancelledError` if it is not wanted any more; other errors are those of `replay`.
        """
        found = Prepared(links[-1], tellers.spare)
        tellers.begin()
        buffer = _Buffer()
        touched = _touched(links) if based else {*self.arrays, *links[-1].names}
        found.outdated = self.arrays.keys() & touched
        every = groups_of(links, names)
        if known is not None:
            self._compare(known, touched.intersection(name for group in every for name in group), found)
            return found
        alone = self._candidates(links, every) if based else {}
        others = deque(group for group in every if group[0] not in alone)
        read_ahead(_spans(links, [*([name] for name in alone), *others]))

        def between() -> None:
            if not wanted():
                raise CancelledError

        def decode(group: Sequence[str]) -> None:
            new = [name for name in group if name in touched]
            if new:
                before = {name: self.arrays[name] for name in group if name in self.arrays}
                self._decode(links, new, before, based, found, buffer)
            found.outdated.difference_update(new)

        def decode_others() -> None:
            while others:
                between()
                decode(others.popleft())

        with closing(self._telling(links[-1], alone, tellers, between, decode_others)) as results:
            for some, told in results:
                between()
                done = self._take(told, found)
                for name in some:
                    if name not in done:
                        decode([name])
                found.outdated.difference_update(done)
        decode_others()
        return found

    def _compare(self, known: Mapping[str, DecodedArray], names: Iterable[str], found: Prepared) -> None:
        """Take note of what is new in a state that is in memory."""
        for name in names:
            before, after = self.arrays.get(name), known[name]
            fits = before is not None and before.form == after.form
            if before is None or not fits or not np.array_equal(before.bits, after.bits):
                found.changes[name] = ArrayChange(after.kind, after.shape, None, after.bits)
            if not fits:
                found.decoded[name] = DecodedArray(after.kind, after.shape, after.bits.copy())
            found.outdated.discard(name)

    def _candidates(self, links: Sequence[Link], groups: Iterable[Sequence[str]]) -> dict[str, int]:
        """Return arrays whose own frames may say what changes, and these frames, largest first."""
        link, found = links[-1], list[tuple[int, str, int]]()
        if len(links) > 1 or link.later is not None:
            return {}
        for group in groups:
            number = link.frame_of(link.names[group[0]])
            if len(group) == 1 and number is not None and group[0] in self.arrays:
                found.append((link.manifest.frames[number].length, group[0], number))
        found.sort(key=lambda each: each[0], reverse=True)
        return {name: number for _, name, number in found}

    def _telling(
        self,
        link: Link,
        frames: Mapping[str, int],
        tellers: Tellers,
        between: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> Generator[tuple[list[str], dict[str, Told]], None, None]:
        """Yield some arrays at a time, and what the frames of those tell that may.

        `meanwhile` is called when workers have what is left of it.
        """
        sizes = [link.manifest.frames[number].length + _CALLS_BYTES for number in frames.values()]
        batches = list(batches_for(frames, sizes, tellers.members))
        asked = list[dict[str, int]]()

        def tasks() -> Iterator[ReadChanges]:
            for number, names in enumerate(batches):
                if number == len(asked):
                    asked.append(
                        {name: frames[name] for name in names if self._may_tell(link, name, frames[name])}
                    )
                yield self._task(link, asked[number], tellers)
            meanwhile()

        with closing(tellers.told(tasks, between)) as results:
            for number, (names, told) in enumerate(zip(batches, results, strict=True)):
                yield names, dict(zip(asked[number], told, strict=True))

    def _may_tell(self, link: Link, name: str, number: int) -> bool:
        """Return whether a frame may say what it changes of a held array."""
        before, header = self.arrays[name], link.header(number)
        return (before.kind, (before.shape,)) == (header.kind, header.shapes) and may_tell(header)

    def _task(self, link: Link, frames: Mapping[str, int], tellers: Tellers) -> ReadChanges:
        """Return the task that reads frames of arrays."""
        for name in frames:
            array = self.arrays[name]
            bits = tellers.visible(name, array.bits)
            if bits is not array.bits:
                self.arrays[name] = DecodedArray(array.kind, array.shape, bits)
        stored = []
        for name, number in frames.items():
            try:
                stored.append(link.reader.frame(number))
            except DataError as error:
                raise placed(error, link, name) from None
        return ReadChanges(
            stored,
            [self.arrays[name].bits for name in frames],
            [self._sums.get(name) for name in frames],
            link.place,
            [array_place(link, name) for name in frames],
        )

    def _take(self, told: Mapping[str, Told], found: Prepared) -> set[str]:
        """Take note of what frames say that they change; return the arrays of those that do."""
        for name, changed in told.items():
            if changed is None:
                continue
            before, (places, bits, found.sums[name]) = self.arrays[name], changed
            change = change_of(before, places, bits)
            if change is not None:
                found.changes[name] = change
                if change.places is None:
                    found.decoded[name] = DecodedArray(before.kind, before.shape, change.bits)
        return {name for name, changed in told.items() if changed is not None}

    def _decode(
        self,
        links: Sequence[Link],
        names: Sequence[str],
        before: Mapping[str, DecodedArray],
        based: bool,
        found: Prepared,
        buffer: _Buffer,
    ) -> None:
        """Decode arrays that are decoded together, and take note of what is new.

        `before` has them, and what is decoded with them, as they are held.
        """
        into = {} if len(before) > 1 else {name: buffer.like(array.bits) for name, array in before.items()}
        path, known = list(links), dict[int, Mapping[str, DecodedArray]]()
        if based and links[0].parent is not None:
            gone = {name: self.arrays[name] for name in _gone(links) if name in self.arrays}
            path, known = [links[0].parent, *links], {0: {**gone, **before}}
        ((_, decoded),) = replay_each(path, {len(path) - 1: names}, into, known)
        for name, after in decoded.items():
            change = difference(before.get(name), after)
            if change is not None:
                found.changes[name] = change
            if after.bits is not into.get(name):  # it shares memory with others, or has its own
                found.decoded[name] = after
            elif change is not None and change.places is None:
                found.decoded[name] = after
                buffer.memory = np.empty(0, np.uint8)  # it has that of before

    def commit(self, prepared: Prepared, tellers: Tellers) -> None:
        """Go to a state that was prepared from this one. Doing it again does nothing."""
        tellers.write(
            Write(self.arrays[name].bits, change.places, change.bits)
            for name, change in prepared.changes.items()
            if name not in prepared.decoded and change.places is not None
        )
        for name, change in prepared.changes.items():
            if name not in prepared.decoded and change.places is None:  # of a state in memory
                change.write(self.arrays[name].bits)
        names = prepared.link.names.keys() - prepared.outdated
        kept = {name: array for name, array in self.arrays.items() if name in names}
        self.arrays = {**kept, **prepared.decoded}
        anew = prepared.changes.keys() | prepared.decoded.keys()
        sums = {name: total for name, total in self._sums.items() if name in kept and name not in anew}
        self._sums = {**sums, **prepared.sums}
        self.link = prepared.link
        self.link.release_parents()


class _Buffer:
    """Memory that arrays are decoded into, one after the other."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def like(self, bits: Array) -> Array:
        """Return memory for as many components of the same type."""
        if self.memory.size < bits.nbytes:
            self.memory = np.empty(bits.nbytes, np.uint8)
        return self.memory[: bits.nbytes].view(bits.dtype)


def _touched(links: Sequence[Link]) -> set[str]:
    """Return the arrays of the last link that some link has a frame of, or makes of others."""
    found = set[str]()
    for link in links:
        numbers = link.manifest.arrays
        found.update(name for name, index in link.names.items() if numbers[index] or name in link.copies)
    return found & links[-1].names.keys()


def _spans(links: Sequence[Link], groups: Iterable[Sequence[str]]) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of the frames of arrays, for `read_ahead`, in the order of their use."""
    for group in groups:
        for link in links:
            numbers = (link.frame_of(link.names[name]) for name in group if name in link.names)
            for number in dict.fromkeys(number for number in numbers if number is not None):
                yield link.reader.span(number)


def groups_of(links: Sequence[Link], names: Iterable[str]) -> list[list[str]]:
    """Return the arrays to decode, those together that are decoded together."""
    own, together = links[-1], decoded_together(links)
    groups = {id(group): group for group in (together[own.names[name]] for name in names)}
    return [[own.index_names[index] for index in group] for group in groups.values()]


def _gone(links: Sequence[Link]) -> set[str]:
    """Return the arrays that the last link has no more. Frames between may have them still."""
    before = {id(link.names): link.names.keys() for link in links[:-1]}  # mostly one object
    before.pop(id(links[-1].names), None)
    return set().union(*before.values()) - links[-1].names.keys()


_MAX_NAMES_SHOWN: Final = 5  # in one message


def held_from(
    store: Store,
    step: int,
    given: Mapping[str, Array],
    names: Callable[[Link], set[str]],
    root: str | None = None,
) -> FollowedState:
    """Return a step as held, from arrays at hand, whose memory is used and gets later values.

    `names` returns the arrays of the checkpoint that are followed. If the step still has the `root`
    (hexadecimal) that the arrays are known to be of, they are not compared.

    Raises ``ArgumentError`` if an array is missing or another one than that of the step,
    ``ChainError`` if there is no such step, or it is interpolated, so that no sum tells what its
    arrays are.
    """
    held = FollowedState()
    with open_step(store, step) as file:
        link, followed = file.links[-1], names(file.links[-1])
        if any(each.later is not None for each in file.links):
            raise ChainError(f"{store.path}: step {step} is interpolated, and cannot be started from")
        missing = [name for name in link.index_names if name in followed and name not in given]
        heads = file.heads()
        wrong, known = [], link.reader.root.hex() == root
        for group in groups_of(file.links, followed):
            ours = {name: given[name] for name in group if name in given and name in followed}
            found = {
                name: DecodedArray(*heads[name].form, components(array)[1])
                for name, array in ours.items()
                if (components(array)[0], array.shape) == heads[name].form
            }
            if len(group) > 1 and ours:
                decoded = replay(file.links, [link.names[name] for name in group])
                stored = {link.index_names[index]: array for index, array in decoded}
                same = {name for name in found if np.array_equal(found[name].bits, stored[name].bits)}
                held.arrays.update(stored)
            else:
                same = {n for n, array in found.items() if known or _has_sum(file.links, n, array.bits)}
                held.arrays.update(found)
            wrong += [name for name in ours if name not in same]
        if missing or wrong:
            told = _told(missing, wrong)
            raise ArgumentError(f"{store.path}: these are not the arrays of step {step}: {told}")
        held.link = link
        link.release_parents()
    return held


def _told(missing: Sequence[str], wrong: Sequence[str]) -> str:
    problems = [*(f"{name!r} is missing" for name in missing), *(f"{name!r} differs" for name in wrong)]
    more = len(problems) - _MAX_NAMES_SHOWN
    return ", ".join(problems[:_MAX_NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _has_sum(links: Sequence[Link], name: str, bits: Array) -> bool:
    """Return whether components have the sum of the newest frame of an array."""
    link, number = frames_of(links, name)[-1]
    try:
        check_array_sum(link.reader.frame(number, verify=False), array_sum(bits))
    except ChecksumError:
        return False
    return True
