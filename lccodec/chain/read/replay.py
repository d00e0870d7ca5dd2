"""Replay: decoding what a chain of links leads to, and reading no more of it than is needed.

A chain is a list of links, each a checkpoint, parents before their children. An array of a link is
its reference, unchanged, or lies in a frame: alone, or in a run with others. The frame may be
relative to the references. The reference is the parent's array of the same name, or the
interpolation of both parents' (LCC-INT-04). Or the array is a copy of another one of the link.
Only the links read files.

The arrays of a run are views of one buffer. So a delta to all of them is coded and decoded in
place.

Source: SPEC 9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, from_components, interpolate, rounded_copy
from ...errors import DataError, LccodecError
from ...frame.decode import decode_components
from ...frame.header import Shape
from ...parallel import slices
from .heads import Form, check_references, interpolates
from .links import Link, array_place, copied_type, fold, member_names, value_or_raise
from .needed import decoded_together, needed


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

    Parameters
    ----------
    links
        All links that the last of them needs, parents before their children.
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
    known: Mapping[int, Mapping[str, DecodedArray]] = MappingProxyType({}),
) -> Iterator[tuple[int, dict[str, DecodedArray]]]:
    """Yield arrays of several of `links`, in their order.

    Each frame that they need is decoded once, into the memory of its reference if no other link
    needs that. So the arrays of a link are valid until the next link is asked for.

    Parameters
    ----------
    links
        All links that those with wanted arrays need, parents before their children.
    wanted
        Names of arrays by the position of their link.
    into
        As for :func:`replay`, by name, if arrays of the last link alone are wanted.
    known
        All arrays of some links that the wanted ones need, by the position of the link. Their own
        parents need not be among `links`. They are not overwritten.

    Yields
    ------
    tuple
        The position of a link, and its arrays by name.

    Raises
    ------
    DataError
        As :func:`replay`.
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
        if position in wanted and position not in known:
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
        check_references(link, number, [each.form for each in found])
        reference = joined(found)
        if reuse:
            out = reference
        elif out is reference:  # another link needs it
            out = None
    with within_frame(link, number):
        bits = decode_components(link.frame(number), reference, out, check_sum=last)
    return dict(zip(names, split(bits, header.kind, header.shapes), strict=True))


@contextmanager
def within_frame(link: Link, number: int) -> Iterator[None]:
    """Let errors name the first array of a frame, if they do not begin with the file."""
    try:
        yield
    except DataError as error:
        where = array_place(link, member_names(link, number)[0])
        raise error if error.where.startswith(link.place) else error.inside(where) from None


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
