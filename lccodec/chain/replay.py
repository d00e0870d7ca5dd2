"""Replay: what a chain of checkpoints leads to, without reading more of it than is needed. No I/O.

A chain is a list of links, each a checkpoint. An array of a link is unchanged from the parent's array
of the same name, or lies in a frame, alone or in a run with others, which may be relative to the
parent's.

Source: SPEC 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from ..entropy.bits import Stored
from ..errors import DataError, FormatError, LccodecError
from ..frame.decode import decode_components
from ..frame.header import FrameHeader, Shape
from ..parallel import ordered
from .jobs import DecodedArray, joined, split

__all__ = [
    "KEYFRAME_EVERY",
    "Decoded",
    "Head",
    "Link",
    "array_heads",
    "decoded_together",
    "kept",
    "next_decoded",
    "next_heads",
    "replay",
    "wants_keyframe",
]

#: A restore replays at most this many deltas unless a chain is told otherwise (LCC-CHN-04).
KEYFRAME_EVERY: Final = 32


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


class Head(NamedTuple):
    """The newest frame that holds an array: its header, the array's shape, whether it is in an older link."""

    header: FrameHeader
    shape: Shape
    unchanged: bool = False


def array_heads(links: Sequence[Link], indices: Iterable[int]) -> list[Head]:
    """Return the heads of arrays of the last link, reading only the headers that they need.

    Raises
    ------
    DataError
        The first problem in the order of `indices`.
    """
    names = [links[-1].index_names[index] for index in indices]
    found: dict[str, Head | LccodecError] = {}
    wanted: Iterable[str] = names
    for link, parent in zip(reversed(links), [*reversed(links[:-1]), None], strict=True):
        heads, older = _own_heads(link, parent, wanted)
        unchanged = link is not links[-1]
        for name, head in heads.items():  # with others of their runs, of which newer frames may be found
            found.setdefault(name, head._replace(unchanged=unchanged) if isinstance(head, Head) else head)
        if not older:
            break
        wanted = older
    return [_sound(found[name]) for name in names]


def next_heads(
    link: Link, parent: Link | None, before: Mapping[str, Head | LccodecError]
) -> dict[str, Head | LccodecError]:
    """Return the heads of all arrays of a link, by name, from those of its parent; or why there is none."""
    heads, older = _own_heads(link, parent, link.index_names)
    for name in older:
        head = before[name]
        heads[name] = head._replace(unchanged=True) if isinstance(head, Head) else head
    return heads


def _own_heads(
    link: Link, parent: Link | None, names: Iterable[str]
) -> tuple[dict[str, Head | LccodecError], list[str]]:
    """Return the heads of arrays that a link has frames of, and the names of those that its parent has."""
    heads: dict[str, Head | LccodecError] = {}
    numbers: dict[int, None] = {}
    older = []
    for name in names:
        number = link.frame_of(link.names[name])
        if number is not None:
            numbers[number] = None
            continue
        try:
            _check_parent(link, name, parent)
            older.append(name)
        except FormatError as error:
            heads[name] = error
    for number in numbers:  # frame by frame: a run has thousands of arrays
        members = [link.index_names[index] for index in link.members(number)]
        try:
            header = _header(link, number)
            heads.update((name, Head(header, s)) for name, s in zip(members, header.shapes, strict=True))
        except LccodecError as error:
            heads.update(dict.fromkeys(members, error))
    return heads, older


Part = TypeVar("Part")


def _sound(found: Part | LccodecError) -> Part:
    if isinstance(found, LccodecError):
        raise found
    return found


@dataclass(frozen=True)
class Decoded:
    """The arrays of a link as far as they decode.

    Parameters
    ----------
    arrays
        Each array by its name, or why it does not decode.
    owned
        The names of those whose memory no other link's arrays share: a delta may be decoded into it.
    """

    arrays: dict[str, DecodedArray | LccodecError]
    owned: set[str]


def next_decoded(link: Link, parent: Link | None, before: Decoded, spend: bool) -> Decoded:
    """Decode all frames of a link, each once, with its sum, on top of its parent's arrays.

    What does not decode is no reason to stop: the arrays that depend on it get its error.

    Parameters
    ----------
    before
        The parent's arrays; of a keyframe, none.
    spend
        Whether `before` is not needed any more, so that its memory is decoded into.
    """
    arrays: dict[str, DecodedArray | LccodecError] = {}
    owned: set[str] = set()
    numbers: dict[int, None] = {}
    for index, name in enumerate(link.index_names):
        number = link.frame_of(index)
        if number is not None:
            numbers[number] = None
            continue
        try:
            _check_parent(link, name, parent)
            arrays[name] = before.arrays[name]
            if spend and name in before.owned:
                owned.add(name)
        except FormatError as error:
            arrays[name] = kept(error)
    for number in numbers:
        members = [link.index_names[index] for index in link.members(number)]
        try:
            references: dict[str, DecodedArray] = {}
            if _header(link, number).relative:
                for name in members:
                    _check_parent(link, name, parent)
                references = {name: _sound(before.arrays[name]) for name in members}
            reuse = spend and before.owned.issuperset(references)
            if spend:
                for name in members:  # no other frame needs them
                    before.arrays.pop(name, None)
            arrays.update(_decode_frame(link, number, True, references, 1, reuse))
            owned.update(members)
        except LccodecError as error:
            arrays.update(dict.fromkeys(members, kept(error)))
    return Decoded(arrays, owned)


def kept(error: LccodecError) -> LccodecError:
    """Return an error without what it would keep in memory: the frames that it went through."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


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


def decoded_together(links: Sequence[Link]) -> list[list[int]]:
    """Return, for each array of the last link, the indices of all that are decoded together with it.

    Arrays that share a frame of any link are: to decode one of them alone decodes that frame for the others
    too. Arrays that are decoded together have one list.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.setdefault(name, name)) != name:
            leader[name] = leader[above]  # halves the way for the next
            name = above
        return name

    for link in links:
        members: dict[int, str] = {}  # the first array of each frame
        for index, name in enumerate(link.index_names):
            number = link.frame_of(index)
            if number is not None:
                leader[find(name)] = find(members.setdefault(number, name))
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(links[-1].index_names):
        groups.setdefault(find(name), []).append(index)
    return [groups[find(name)] for name in links[-1].index_names]


def _decode_frame(
    link: Link,
    number: int,
    last: bool,
    parents: Mapping[str, DecodedArray],
    threads: int,
    reuse: bool = True,
) -> dict[str, DecodedArray]:
    """Decode a frame of a link; `last` as in :func:`_needed`, `reuse` puts it in the place of its parents."""
    names = [link.index_names[index] for index in link.members(number)]
    where = _where(link, names[0])
    header = _header(link, number)
    reference = None
    if header.relative:
        found = [parents[name] for name in names]
        if any(p.kind != header.kind for p in found) or tuple(p.shape for p in found) != header.shapes:
            raise FormatError("LCC-CHN-03", where, "not of the type and shape of the parent's array")
        reference = joined(found)
    out = reference if reuse else None
    try:
        bits = decode_components(link.frame(number), reference, out, check_sum=last, threads=threads)
    except DataError as error:
        raise error if error.where.startswith(link.place) else error.inside(where) from None
    return dict(zip(names, split(bits, header.kind, header.shapes), strict=True))


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
        message = f"{parent.place}, its parent, has no such array"
        raise FormatError("LCC-CHN-03", _where(link, name), message)


def _where(link: Link, name: str) -> str:
    return f"{link.place}: array {name!r}"
