"""Replay: decoding what a chain of links leads to, and reading no more of it than is needed.

A chain is a list of links, each a checkpoint, parents before their children. An array of a link is
its reference, unchanged, or lies in a frame: alone, or in a run with others. The frame may be
relative to the references. The reference is the parent's array of the same name, or the
interpolation of both parents' (LCC-INT-04). Or the array is a copy of another one of the link.
Only the links read files. The arrays of a run are views of one buffer. So a delta to all of them is
coded and decoded in place.

Only the headers of frames are read to find what is needed. A store that is far is told before what
will be read, and fetches it together. A walk through a run decodes each frame of each link once, on
top of what its parents have left (`next_decoded`).

A frame is cut into blocks behind one codebook, and the blocks do not depend on each other. So
whole blocks of a large array can be decoded apart, through all links, if all of them cut it in the
same way: processes can share the work. What is left is to check that all of it is right: the bytes
of each frame once, and the array sum of the newest frame, which is the sum of those of the ranges.

Source: SPEC 6, 9.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Self, TypeAlias

import numpy as np

from ...constants import METHOD_RAW, METHOD_SMOOTH, ElementType
from ...container.checkpoint import CheckpointReader
from ...container.source import Source, read_ahead
from ...element_types import Array, from_components, rounded_copy
from ...errors import DataError, LccodecError
from ...frame.content import array_sum
from ...frame.decode import check_array_sum, decode_components, decode_range
from ...frame.header import FrameHeader, Shape
from ...loops.representatives import interpolate
from ...parallel import PIECE, slices
from ..store.store import Store
from .links import (
    HEADER_BYTES,
    MEMBER_BYTES,
    Form,
    Link,
    array_place,
    check_inherited,
    check_references,
    copied_type,
    fold,
    interpolates,
    member_names,
    part_arrays,
    reference_names,
    value_or_raise,
    with_sources,
    without_traceback,
)


def decoded_together(links: Sequence[Link]) -> list[list[int]]:
    """Return, for each array of the last link, the indices of all that are decoded with it.

    These are the arrays that share a frame of any link with it, or are a copy of it, directly or
    through others. Decoding one of them decodes that frame for all. Arrays that are decoded
    together have the same list object.
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
        for name, (source, _) in link.copies.items():
            leader[find(name)] = find(source)
    groups: dict[str, list[int]] = {}
    together = []
    for index, name in enumerate(links[-1].index_names):
        group = groups.setdefault(find(name) if leader else name, [])
        group.append(index)
        together.append(group)
    return together


def grouped(together: Sequence[list[int]], indices: Iterable[int]) -> list[list[int]]:
    """Return some arrays, those in one list that are decoded together (see `decoded_together`)."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(id(together[index]), []).append(index)
    return list(groups.values())


def frames_of(links: Sequence[Link], name: str) -> list[tuple[Link, int]]:
    """Return the frames that an array of the last link needs, those of parents first."""
    frames, _, _ = needed(links, {len(links) - 1: [name]}, ())
    return [(link, number) for link in links for number, _ in frames.get(id(link), ())]


def needed(
    links: Sequence[Link], wanted: Mapping[int, Collection[str]], known: Collection[int]
) -> tuple[dict[int, list[tuple[int, bool]]], dict[int, list[str]], dict[int, list[str]]]:
    """Return the frames that arrays of some links need, the names of their references, and copies.

    All are by the `id` of the link. Each frame comes with whether its array sum is checked. If the
    arrays of one link are wanted, this is so if some array of the frame has no frame in a delta to
    this link: a wrong value shows in the sums of that frame otherwise. What is interpolated or
    copied shows in no sum.
    """
    frames: dict[int, list[tuple[int, bool]]] = {}
    references: dict[int, list[str]] = {}
    copied: dict[int, list[str]] = {}
    names = defaultdict[int, dict[str, None]](dict)
    seen: dict[int, set[str]] = {}  # arrays that all children of a link have in frames
    for position in reversed(range(len(links))):
        link = links[position]
        if position in known:
            continue
        own = names.pop(id(link), {})
        own.update(dict.fromkeys(wanted.get(position, ())))
        own = with_sources(link, own)
        numbers, inherited, broken, copies = part_arrays(link, own)
        if broken:
            raise next(iter(broken.values()))
        newer = seen.pop(id(link), set())
        for name in copies:
            newer.discard(link.copies[name][0])
        found, needed = [], dict.fromkeys(inherited)
        for number in numbers:
            members = member_names(link, number)
            found.append((number, len(wanted) > 1 or not newer.issuperset(members)))
            newer.update(members)
            if link.header(number).relative:  # a run is decoded whole, with all of its references
                for name in members:
                    check_inherited(link, name)
                    needed[name] = None
        frames[id(link)], references[id(link)], copied[id(link)] = found[::-1], list(needed), copies
        for above in link.parents:
            names[id(above)].update(dict.fromkeys(filter(above.names.__contains__, needed)))
            shown = newer if link.later is None else set[str]()
            seen[id(above)] = seen[id(above)] & shown if id(above) in seen else set(shown)
    return frames, references, copied


def decoded_bytes(links: Sequence[Link], names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of all arrays that are decoded for some of the last link, by their names.

    A run is decoded whole, so there may be arrays that the last link does not have. Copies are left
    out. Of an array that has several frames, the largest counts.
    """
    frames, _, _ = needed(links, {len(links) - 1: list(names)}, ())
    found: dict[str, int] = {}
    for link in links:
        for number, _ in frames[id(link)]:
            header = link.header(number)
            for name, shape in zip(member_names(link, number), header.shapes, strict=True):
                found[name] = max(found.get(name, 0), header.kind.itemsize * math.prod(shape))
    return found


@dataclass(frozen=True)
class Ranges:
    """An array of the last link whose ranges, multiples of `block`, can be decoded apart.

    `frames` lead to it, the oldest first; `header` is that of the newest.
    """

    name: str
    frames: Sequence[tuple[Link, int]]
    header: FrameHeader
    block: int

    @classmethod
    def of(cls, links: Sequence[Link], name: str) -> Self | None:
        """Return the ranges of an array of the last link; ``None`` if it must be decoded whole.

        That is if it is empty, shares a frame, may be interpolated or a copy, or if its frames have
        blocks of different sizes, or do not fit each other, which is an error then.
        """
        if any(link.later is not None or name in link.copies for link in links):
            return None
        frames = frames_of(links, name)
        headers = [link.header(number) for link, number in frames]
        newest = headers[-1]
        if not newest.components or any(
            (h.kind, h.shapes) != (newest.kind, newest.shapes) or h.run for h in headers
        ):
            return None
        if any(header.method == METHOD_SMOOTH for header in headers):  # its blocks are rows
            return None
        blocks = {1 << header.block_log2 for header in headers if header.method != METHOD_RAW}
        if len(blocks) > 1:
            return None
        return cls(name, frames, newest, blocks.pop() if blocks else PIECE)

    def cut(self, count: int) -> list[slice]:
        """Return at most `count` ranges of about the same size that make up the array."""
        blocks = -(-self.header.components // self.block)
        ends = [blocks * i // count * self.block for i in range(count + 1)]
        ends[-1] = self.header.components
        return [slice(low, high) for low, high in pairwise(ends) if low < high]

    def decode(self, part: slice, out: Array, verified: Container[int]) -> int:
        """Decode a range of `cut` through all links into `out`; return its part of the array sum.

        `verified` are the positions of frames whose digest and CRC-32 are checked here. Each frame
        must be checked by one of those who decode a range. What is not may break another rule than
        its digest first.
        """
        for position, (link, number) in enumerate(self.frames):
            check = position in verified
            try:
                decode_range(link.reader.frame(number, verify=check), part, out, out, check_crc=check)
            except DataError as error:
                raise placed(error, link, self.name) from None
        return array_sum(out, part.start * out.itemsize // 8)

    def verify(self) -> None:
        """Raise the error of the first frame whose digest is wrong."""
        for link, number in self.frames:
            link.reader.frame(number)

    def check(self, sums: Iterable[int]) -> None:
        """Raise ``ChecksumError`` if what `decode` has returned for all ranges is not as stored."""
        link, number = self.frames[-1]
        try:
            check_array_sum(link.reader.frame(number, verify=False), sum(sums))
        except DataError as error:
            raise placed(error, link, self.name) from None


def frames_ahead(
    links: Sequence[Link], indices: Iterable[int], size: int | None = None
) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of the frames that arrays may need, for `read_ahead`, array by array.

    With `size`, only so many bytes of each, from its first on.

    Whether a frame needs its parent's array stands in its header, which is part of the frame. So
    the frames of an array are taken from all links down to the keyframe.
    """
    told = set[tuple[int, int]]()
    for index in indices:
        left, seen, row = (
            [(links[-1], links[-1].index_names[index])],
            set[tuple[int, str]](),
            list[tuple[Link, int]](),
        )
        while left:
            link, name = left.pop()
            if name not in link.names or (id(link), name) in seen:
                continue
            seen.add((id(link), name))
            if (number := link.frame_of(link.names[name])) is not None:
                row.append((link, number))
            left += [(above, name) for above in link.parents]
            left += [(link, link.copies[name][0])] if name in link.copies else []
        for link, number in reversed(row):  # parents before their children
            if (id(link), number) not in told:
                told.add((id(link), number))
                yield link.reader.span(number, size)


def headers_of(reader: CheckpointReader) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of the headers of all frames of a file, for `read_ahead`."""
    for number, members in enumerate(reader.manifest.members):
        yield reader.span(number, HEADER_BYTES + MEMBER_BYTES * len(members))


def look_ahead(store: Store, names: Collection[str], *, whole: bool) -> None:
    """Let a store that is far fetch files: all of them, or what their headers and ends say."""
    store.ahead(names)
    wanted: list[tuple[Source, int, int]] = []
    for name in names:
        with suppress(LccodecError), store.open(name) as reader:  # who opens it next raises it
            wanted += [(reader.source, 0, reader.file_size)] if whole else headers_of(reader)
    read_ahead(wanted)


@dataclass(slots=True)
class DecodedArray:
    """An array with its decoded values."""

    kind: ElementType
    shape: Shape
    bits: Array  # its components, 1-D; for an array of a run, a view of the run's buffer
    start: int = 0  # place of its first component in that buffer

    @property
    def form(self) -> Form:
        """Its type and its shape."""
        return self.kind, self.shape

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
    # Arrays that were not decoded; the hashes of all bytes that they need are right.
    verified: dict[str, Form] = field(default_factory=dict)


def interpolated(
    weight: float,
    low: Decoded,
    high: Decoded,
    names: Iterable[str],
    into: Mapping[str, Array] = MappingProxyType({}),
) -> Decoded:
    """Return the references of a checkpoint with two parents (LCC-INT-04). What is new is owned.

    An array that one of the parents could not decode has its error. `into` has memory for some.
    """
    found = Decoded({}, set())
    for name in names:
        earlier, later = low.arrays.get(name), high.arrays.get(name)
        if earlier is None:
            continue  # it has a frame without a reference
        if isinstance(earlier, DecodedArray) and isinstance(later, DecodedArray):
            if earlier is not later and interpolates(earlier.form, later.form):
                found.arrays[name] = _interpolated(earlier, later, weight, into.get(name))
                found.owned.add(name)
                continue
        elif isinstance(earlier, DecodedArray) and later is not None:
            earlier = later  # an error
        found.arrays[name] = earlier
        low.owned.discard(name)
    return found


def _interpolated(low: DecodedArray, high: DecodedArray, weight: float, out: Array | None) -> DecodedArray:
    if out is None or (out.size, out.dtype) != (low.bits.size, low.bits.dtype):
        out = np.empty_like(low.bits)
    for part in slices(out.size):
        interpolate(low.bits[part], high.bits[part], weight, low.kind, out[part])
    return DecodedArray(low.kind, low.shape, out)


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

    `together` is what `decoded_together` returns for these links, if that is known. `into` has
    memory for components of arrays. It is used for those that share no frame; their `bits` are this
    very object then. A ``DataError`` names the file and the array.
    """
    wanted, names = list(dict.fromkeys(indices)), links[-1].index_names
    if together is None:
        together = decoded_together(links)
    groups = iter(grouped(together, wanted))
    ready: dict[int, DecodedArray] = {}
    for index in wanted:
        if index not in ready:  # then it is the first of the next group
            own, memory = dict[str, int](), dict[str, Array]()
            for each in next(groups):
                own[names[each]] = each
                if each in into:
                    memory[names[each]] = into[each]
            ((_, found),) = replay_each(links, {len(links) - 1: list(own)}, memory)
            for name, array in found.items():
                ready[own[name]] = array
        yield index, ready.pop(index)


def replay_each(
    links: Sequence[Link],
    wanted: Mapping[int, Collection[str]],
    into: Mapping[str, Array] = MappingProxyType({}),
    known: Mapping[int, Mapping[str, DecodedArray]] = MappingProxyType({}),
) -> Iterator[tuple[int, dict[str, DecodedArray]]]:
    """Yield the position of each of some links, in their order, and its `wanted` arrays by name.

    Each frame that they need is decoded once, into the memory of its reference if no other link
    needs that. So the arrays of a link are valid until the next link is asked for.

    `links` are all that the wanted ones need, parents before children. `into` is as for `replay`,
    by name, if arrays of the last link alone are wanted. `known` has all arrays of some links by
    position. They are not overwritten, and the parents of those links need not be among `links`.
    """
    frames, names, copies = needed(links, wanted, known)
    single = all(link.later is None for link in links)  # then an array has one place at a time

    def decode(link: Link, before: Sequence[Decoded], alone: bool) -> Decoded:
        memory = into if single or link is links[-1] else {}
        if link.later is not None:
            low, high = before
            # What is decoded of a link may have arrays of older ones, which it has no more.
            shared = {name: high.arrays[name] for name in names[id(link)] if name in link.later.names}
            current = interpolated(link.weight, low, Decoded(shared, set()), names[id(link)], memory)
        elif before and alone:
            current = before[0]
        else:  # another link needs the parent's arrays too
            current = Decoded(dict(before[0].arrays) if before else {}, set())
            for each in before:
                each.owned.clear()
        for number, check in frames.get(id(link), ()):
            members = member_names(link, number)
            reuse = current.owned.issuperset(members)
            here = current.arrays
            current.arrays.update(decode_frame(link, number, check, here, reuse, memory))
            current.owned.update(members)
        for name in copies.get(id(link), ()):
            current.arrays[name] = copied(link, name, current.arrays, memory.get(name))
            current.owned.add(name)
        return current

    held = {id(links[position]): Decoded(dict(arrays), set()) for position, arrays in known.items()}
    for position, (_, current) in enumerate(fold(links, decode, held)):
        if position in wanted:
            yield position, {name: value_or_raise(current.arrays[name]) for name in wanted[position]}


def decode_frame(
    link: Link,
    number: int,
    last: bool,
    references: Mapping[str, DecodedArray | LccodecError],
    reuse: bool,
    into: Mapping[str, Array] = MappingProxyType({}),
) -> dict[str, DecodedArray]:
    """Decode a frame of a link; `last` says whether to check the array sum (see `needed`)."""
    names = member_names(link, number)
    header = link.header(number)
    reference, out = None, into.get(names[0]) if len(names) == 1 else None
    if out is not None and (out.size, out.dtype) != (header.components, header.kind.bits):
        out = None
    if header.relative:
        found = [value_or_raise(references[name]) for name in names]
        check_references(link, number, [(array.kind, array.shape) for array in found])
        reference = joined(found)
        if reuse:
            out = reference
        elif out is reference:  # another link needs it
            out = None
    try:
        bits = decode_components(link.reader.frame(number), reference, out, check_sum=last)
    except DataError as error:
        raise placed(error, link, names[0]) from None
    return dict(zip(names, split(bits, header.kind, header.shapes), strict=True))


def placed(error: DataError, link: Link, name: str) -> DataError:
    """Return an error that names the (first) array of a frame, unless it begins with the file."""
    return error if error.where.startswith(link.place) else error.inside(array_place(link, name))


def copied(
    link: Link,
    name: str,
    arrays: Mapping[str, DecodedArray | LccodecError],
    out: Array | None = None,
) -> DecodedArray:
    """Return a copy of another array of a link, which is decoded (LCC-CPY-02); `out` is memory."""
    source = value_or_raise(arrays[link.copies[name][0]])
    return copy_of(source, copied_type(link, name, source.kind), out)


def copy_of(source: DecodedArray, kind: ElementType, out: Array | None = None) -> DecodedArray:
    """Return a copy of an array: of its type, or of float32 rounded to another one.

    `out` is memory for its components.
    """
    if out is None or (out.size, out.dtype) != (source.bits.size, kind.bits):
        out = np.empty(source.bits.size, kind.bits)
    for part in slices(out.size):
        if kind is source.kind:
            out[part] = source.bits[part]
        else:
            rounded_copy(source.bits[part], kind, out[part])
    return DecodedArray(kind, source.shape, out)


#: Which arrays are decoded: all, none, or these.
Decode: TypeAlias = bool | Collection[str]


def next_decoded(link: Link, parents: Sequence[Decoded], overwrite: bool, decode: Decode = True) -> Decoded:
    """Decode the frames of a link, each once and with its sum, on top of its parents' arrays.

    An array that cannot be decoded does not stop this. Arrays that depend on it get its error.
    `overwrite` says that the arrays of the parent may be overwritten; those of two parents never
    are. What is not decoded is verified. If only some arrays are decoded, all that share a frame
    with one of them or are its copy, in this link or in another, must be among them.
    """
    wanted = link.names if decode is True else decode or ()
    names = [name for name in link.index_names if name in wanted]
    before = parents[0] if len(parents) == 1 else Decoded({}, set())
    if len(parents) == 2:
        low, high = parents
        before = interpolated(link.weight, low, high, names)
        overwrite = True
    frames, inherited, broken, copies = part_arrays(link, names)
    arrays = {name: before.arrays[name] for name in inherited}
    arrays.update((name, without_traceback(error)) for name, error in broken.items())
    owned = before.owned.intersection(inherited) if overwrite else set()
    if not overwrite:
        before.owned.difference_update(inherited)
    for number in frames:
        members = member_names(link, number)
        try:
            known = reference_names(link, number)
            references = {name: value_or_raise(before.arrays[name]) for name in known}
            reuse = overwrite and before.owned.issuperset(references)
            if overwrite:
                for name in members:  # no other frame needs these arrays of the parent
                    before.arrays.pop(name, None)
            arrays.update(decode_frame(link, number, True, references, reuse))
            owned.update(members)
        except LccodecError as error:
            arrays.update(dict.fromkeys(members, without_traceback(error)))
    for name in copies:
        source, rounded = link.copies[name]
        try:
            if rounded is None:  # they share memory, which then must not be overwritten
                arrays[name] = value_or_raise(arrays[source])
                owned.discard(source)
            else:
                arrays[name] = copied(link, name, arrays)
                owned.add(name)
        except LccodecError as error:
            arrays[name] = without_traceback(error)
    found = Decoded(arrays, owned)
    _verify(link, parents, [name for name in link.index_names if name not in wanted], found)
    return found


def _verify(link: Link, parents: Sequence[Decoded], names: Sequence[str], found: Decoded) -> None:
    """Add arrays of a link to what is `found`, after their hashes; an error if one is wrong."""
    failed: dict[str, LccodecError] = {}
    for above in parents:
        failed |= {name: error for name, error in above.arrays.items() if isinstance(error, LccodecError)}
    frames, inherited, broken, copies = part_arrays(link, names)
    errors = {**broken, **{name: failed[name] for name in inherited if name in failed}}
    found.verified.update((name, parents[0].verified[name]) for name in inherited if name not in failed)
    for number in frames:
        members = member_names(link, number)
        try:
            for name in reference_names(link, number):
                if name in failed:
                    raise failed[name]
            try:
                link.reader.frame(number)  # its hash is checked
            except DataError as error:
                raise placed(error, link, members[0]) from None
            header = link.header(number)
            found.verified.update((n, (header.kind, s)) for n, s in zip(members, header.shapes, strict=True))
        except LccodecError as error:
            errors.update(dict.fromkeys(members, error))
    for name in copies:
        source, _ = link.copies[name]
        try:
            if source in errors:
                raise errors[source]
            known, shape = found.verified[source]
            found.verified[name] = copied_type(link, name, known), shape
        except LccodecError as error:
            errors[name] = error
    found.arrays.update((name, without_traceback(error)) for name, error in errors.items())
