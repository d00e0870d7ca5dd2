"""Replay: what a chain of checkpoints leads to, without reading more of it than is needed. No I/O.

A chain is a list of links, each a checkpoint. An array of a link is unchanged from the parent's array
of the same name, or lies in a frame, alone or in a run with others, which may be relative to the
parent's.

Source: SPEC 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from .bits import Stored
from .errors import ChainError, DataError, FormatError
from .frame import decode_components
from .header import FrameHeader, Shape
from .jobs import DecodedArray, joined, split
from .parallel import ordered

__all__ = ["KEYFRAME_EVERY", "Link", "array_header", "replay", "wants_keyframe"]

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
        reference = joined(found)
    try:
        bits = decode_components(link.frame(number), reference, reference, check_sum=last, threads=threads)
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
