"""Replay: decoding what a chain of links leads to, and reading no more of it than is needed.

A chain is a list of links, each a checkpoint. An array of a link is unchanged from the parent's
array of the same name, or lies in a frame: alone, or in a run with others. The frame may be
relative to the parent's arrays. Only the links read files.

The arrays of a run are views of one buffer. So a delta to all of them is coded and decoded in
place.

Source: SPEC 9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ...element_types import Array, ElementType, from_components
from ...errors import DataError, FormatError, LccodecError
from ...frame.decode import decode_components
from ...frame.header import Shape
from .links import Link, array_place, check_inherited, frame_header, member_names, part_arrays, value_or_raise


@dataclass(slots=True)
class DecodedArray:
    """An array with its decoded values."""

    kind: ElementType
    shape: Shape
    bits: Array  # its components, 1-D; for an array of a run, a view of the run's buffer
    start: int = 0  # place of its first component in that buffer

    def array(self, dtype: str | None = None) -> Array:
        """Return a NumPy array that shares the memory; `dtype` is as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, self.shape, dtype)


def joined(parts: Sequence[DecodedArray]) -> Array:
    """Return components end to end; no copy is made if they are a whole buffer in its order."""
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
    """Return the arrays of a frame, as views of its components."""
    if len(shapes) == 1:
        return [DecodedArray(kind, shapes[0], bits)]
    arrays, start = [], 0
    for shape in shapes:
        stop = start + math.prod(shape) * kind.components
        arrays.append(DecodedArray(kind, shape, bits[start:stop], start))
        start = stop
    return arrays


#: Arrays of a link with their indices, each decoded when it is asked for.
Decoding: TypeAlias = Generator[tuple[int, DecodedArray], None, None]


@dataclass(frozen=True)
class Decoded:
    """The arrays of a link, as far as they can be decoded."""

    arrays: dict[str, DecodedArray | LccodecError]  # by name; the error that an array has instead
    owned: set[str]  # arrays in no other link's memory: a delta may be decoded into them


def next_decoded(link: Link, parent: Link | None, before: Decoded, overwrite: bool) -> Decoded:
    """Decode all frames of a link, each once and with its sum, on top of its parent's arrays.

    An array that cannot be decoded does not stop this. Arrays that depend on it get its error.
    `overwrite` says that `before`, the parent's arrays, may be overwritten.
    """
    frames, inherited, broken = part_arrays(link, link.index_names, parent)
    arrays = {name: before.arrays[name] for name in inherited}
    arrays.update((name, without_traceback(error)) for name, error in broken.items())
    owned = before.owned.intersection(inherited) if overwrite else set()
    for number in frames:
        members = member_names(link, number)
        try:
            references: dict[str, DecodedArray] = {}
            if frame_header(link, number).relative:
                for name in members:
                    check_inherited(link, name, parent)
                references = {name: value_or_raise(before.arrays[name]) for name in members}
            reuse = overwrite and before.owned.issuperset(references)
            if overwrite:
                for name in members:  # no other frame needs these arrays of the parent
                    before.arrays.pop(name, None)
            arrays.update(_decode_frame(link, number, True, references, reuse))
            owned.update(members)
        except LccodecError as error:
            arrays.update(dict.fromkeys(members, without_traceback(error)))
    return Decoded(arrays, owned)


def without_traceback(error: LccodecError) -> LccodecError:
    """Return an error without its traceback and cause, which would keep arrays in memory."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def replay(
    links: Sequence[Link],
    indices: Iterable[int],
    together: Sequence[list[int]] | None = None,
    into: Mapping[int, Array] = MappingProxyType({}),
) -> Decoding:
    """Yield arrays of the last of `links` with their indices, each as soon as it is decoded.

    Arrays that are decoded together go through all links before the next ones. So the first array
    is there early, and the values stay in the cache from one link to the next. Only the frames that
    these arrays need are read. Each is decoded into the memory of its reference.

    Parameters
    ----------
    links
        Links that lead from a keyframe to the last of them.
    indices
        Which arrays, in the order in which they are yielded, each once.
    together
        What `decoded_together` returns for these links, if that is known.
    into
        Memory for the components of some arrays. It is used for those that share no frame; their
        `bits` are this very object then.

    Raises
    ------
    DataError
        If a stored byte breaks a rule. The error names the file and the array.
    """
    wanted, names = list(dict.fromkeys(indices)), links[-1].index_names
    if together is None:
        together = decoded_together(links)
    groups: dict[int, list[int]] = {}
    for index in wanted:
        groups.setdefault(id(together[index]), []).append(index)

    def decode(group: list[int]) -> dict[int, DecodedArray]:
        own = {index: names[index] for index in group}
        memory = {name: into[index] for index, name in own.items() if index in into}
        ((_, found),) = replay_each(links, {len(links) - 1: list(own.values())}, memory)
        return {index: found[name] for index, name in own.items()}

    decoded = map(decode, groups.values())
    ready: dict[int, DecodedArray] = {}
    for index in wanted:
        if index not in ready:  # then it is the first of the next group
            ready.update(next(decoded))
        yield index, ready.pop(index)


def replay_each(
    links: Sequence[Link],
    wanted: Mapping[int, Collection[str]],
    into: Mapping[str, Array] = MappingProxyType({}),
) -> Iterator[tuple[int, dict[str, DecodedArray]]]:
    """Yield arrays of several of `links`, the oldest link first.

    Each frame that they need is decoded once, into the memory of its reference. So the arrays of a
    link are valid until the next link is asked for.

    Parameters
    ----------
    links
        Links that lead from a keyframe to the last of them.
    wanted
        Names of arrays by the position of their link.
    into
        As for :func:`replay`, by name.

    Yields
    ------
    tuple
        The position of a link, and its arrays by name.

    Raises
    ------
    DataError
        As :func:`replay`.
    """
    current: dict[str, DecodedArray] = {}

    frames = itertools.groupby(reversed(_needed(links, wanted)), key=lambda frame: id(frame[0]))
    together = {link: list(group) for link, group in frames}
    for position, link in enumerate(links):
        for frame in together.get(id(link), []):
            current.update(_decode_frame(*frame, current, into=into))
        if position in wanted:
            yield position, {name: current[name] for name in wanted[position]}


def decoded_together(links: Sequence[Link]) -> list[list[int]]:
    """Return, for each array of the last link, the indices of all that are decoded with it.

    These are the arrays that share a frame of any link with it, directly or through others.
    Decoding one of them decodes that frame for all. Arrays that are decoded together have the same
    list object.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.get(name, name)) != name:
            leader[name] = leader.get(above, above)  # halves the path for later calls
            name = above
        return name

    seen: set[tuple[int, tuple[int, ...]]] = set()  # deltas mostly have the runs of their parent
    for link in links:
        for run in link.runs:
            if (key := (id(link.index_names), tuple(run))) not in seen:
                seen.add(key)
                first = find(link.index_names[run[0]])
                for index in run:
                    leader[find(link.index_names[index])] = first
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(links[-1].index_names):
        groups.setdefault(find(name), []).append(index)
    return [groups[find(name)] for name in links[-1].index_names]


def frames_of(links: Sequence[Link], name: str) -> list[tuple[Link, int]]:
    """Return the frames that an array of the last link needs, the oldest first."""
    return [(link, number) for link, number, _ in reversed(_needed(links, {len(links) - 1: [name]}))]


def _decode_frame(
    link: Link,
    number: int,
    last: bool,
    parents: Mapping[str, DecodedArray],
    reuse: bool = True,
    into: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, DecodedArray]:
    """Decode a frame of a link; `last` says whether to check the array sum (see `_needed`)."""
    names = member_names(link, number)
    where = array_place(link, names[0])
    header = frame_header(link, number)
    reference, out = None, into.get(names[0]) if len(names) == 1 else None
    if out is not None and (out.size, out.dtype) != (header.components, header.kind.bits):
        out = None
    if header.relative:
        found = [parents[name] for name in names]
        if any(p.kind != header.kind for p in found) or tuple(p.shape for p in found) != header.shapes:
            raise FormatError("LCC-CHN-03", where, "not of the type and shape of the parent's array")
        reference = joined(found)
        out = reference if reuse else None
    try:
        bits = decode_components(link.frame(number), reference, out, check_sum=last)
    except DataError as error:
        raise error if error.where.startswith(link.place) else error.inside(where) from None
    return dict(zip(names, split(bits, header.kind, header.shapes), strict=True))


def _needed(links: Sequence[Link], wanted: Mapping[int, Collection[str]]) -> list[tuple[Link, int, bool]]:
    """Return the frames that arrays of some links need, the newest first; see `replay_each`.

    Each frame comes with whether its array sum is checked. If the arrays of one link are wanted,
    this is so if some array of the frame has no newer frame: a wrong value shows in the sums of the
    newer frames otherwise.
    """
    frames = []
    names: dict[str, None] = {}
    seen: set[str] = set()
    for position in reversed(range(len(links))):
        link, parent = links[position], links[position - 1] if position else None
        names.update(dict.fromkeys(wanted.get(position, ())))
        numbers, inherited, broken = part_arrays(link, names, parent)
        if broken:
            raise next(iter(broken.values()))
        names = dict.fromkeys(inherited)
        for number in numbers:
            members = member_names(link, number)
            frames.append((link, number, len(wanted) > 1 or not seen.issuperset(members)))
            seen.update(members)
            if frame_header(link, number).relative:
                for name in members:  # a run is decoded whole, with all of its references
                    check_inherited(link, name, parent)
                    names[name] = None
    return frames
