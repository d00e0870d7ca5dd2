"""Keyframe and delta algebra: closed loop, unchanged arrays, replay. Arrays and bytes only, no I/O.

A chain is a list of links, each a checkpoint. An array of a link is unchanged from the parent's
array of the same name, or has a frame, which may be relative to it. The reference of a delta is
always the parent as decoded, so that errors do not accumulate (LC-Checkpoint, section 3.1).

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from .errors import ChainError, DataError, FormatError
from .floats import Array, ElementType, components, from_components
from .frame import FrameHeader, decode_components, encode_components, parse_header
from .quantize import PIECE, Quantizer

__all__ = ["DecodedArray", "Link", "array_header", "encode_array", "replay", "wants_keyframe"]

#: A restore replays at most this many deltas unless a chain is told otherwise (LCC-CHN-04).
KEYFRAME_EVERY: Final = 32

_HEADER_BYTES: Final = 8 + 8 * 32  # the longest frame header


@dataclass
class DecodedArray:
    """An array as a reader of the chain has it: the reference of the next delta.

    Parameters
    ----------
    kind, shape
        Element type and shape.
    bits
        Components, 1-D; owned by this object.
    """

    kind: ElementType
    shape: tuple[int, ...]
    bits: Array

    def array(self, dtype: str | None = None) -> Array:
        """Return it as a NumPy array that shares the memory; `dtype` as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, self.shape, dtype)


class Link(Protocol):
    """One checkpoint of a chain, as replay needs it."""

    @property
    def place(self) -> str:
        """What errors call the file."""

    @property
    def names(self) -> Mapping[str, int]:
        """Index of each array by its name, the path of its first appearance."""

    @property
    def index_names(self) -> Sequence[str]:
        """The names by index."""

    def has_frame(self, index: int) -> bool:
        """Whether the array is stored here; otherwise it is unchanged from the parent's."""

    def frame(self, index: int) -> bytes:
        """Return the frame of an array, verified."""

    def frame_head(self, index: int, size: int) -> bytes:
        """Return the first `size` bytes of a frame."""


def encode_array(
    array: Array, quantizer: Quantizer, parent: DecodedArray | None, *, keyframe: bool
) -> tuple[Iterator[bytes] | None, DecodedArray]:
    """Code one array of a step.

    Parameters
    ----------
    array
        The array as the user has it.
    quantizer
        For a delta; a keyframe, and an array new in this step, is given ``Lossless``.
    parent
        The array of the same name in the parent, or ``None``. Its memory may be reused for the result.
    keyframe
        Whether the frame must stand alone.

    Returns
    -------
    tuple
        The pieces of the frame, or ``None`` if the array is what the parent has; and the array as it
        decodes, which is so only once all pieces have been made.
    """
    kind, bits = components(array)
    same = parent is not None and parent.kind == kind and parent.shape == array.shape
    if parent is None or not same:
        out = np.empty_like(bits)
        return encode_components(bits, kind, array.shape, quantizer, None, out), DecodedArray(
            kind, array.shape, out
        )
    if not keyframe and _equal(bits, parent.bits):
        return None, parent
    reference = None if keyframe else parent.bits
    return encode_components(bits, kind, array.shape, quantizer, reference, parent.bits), parent


def _equal(left: Array, right: Array) -> bool:
    """Whether two arrays are the same, found out early where they are not."""
    return all(
        np.array_equal(left[start : start + PIECE], right[start : start + PIECE])
        for start in range(0, left.size, PIECE)
    )


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


def _stored_in(links: Sequence[Link], index: int) -> list[tuple[Link, int]]:
    """Return where the frames of an array lie, newest first, from the last of `links` on."""
    places = []
    for depth, link in enumerate(reversed(links)):
        name = link.index_names[index]
        if link.has_frame(index):
            places.append((link, index))
            if not parse_header(link.frame_head(index, _HEADER_BYTES), _where(link, name)).relative:
                return places
        if depth + 1 == len(links):
            raise FormatError("LCC-CHN-03", _where(link, name), "a keyframe's array needs a parent")
        parent = links[-depth - 2]
        if name not in parent.names:
            raise ChainError(f"{_where(link, name)}: {parent.place}, its parent, has no such array")
        index = parent.names[name]
    raise ChainError("an empty chain")


def array_header(links: Sequence[Link], index: int) -> FrameHeader:
    """Return the header of the newest frame of an array: its type and shape, and how it is stored."""
    link, place = _stored_in(links, index)[0]
    return parse_header(link.frame_head(place, _HEADER_BYTES), _where(link, link.index_names[place]))


def replay(links: Sequence[Link], index: int) -> DecodedArray:
    """Decode an array of the last of `links`, which lead from a keyframe to it.

    Raises
    ------
    DataError
        If a stored byte breaks a rule; the error names the file and the array.
    ChainError
        If the parent lacks the array a delta is taken against.
    """
    header: FrameHeader | None = None
    bits: Any = None
    places = _stored_in(links, index)
    for number, (link, place) in enumerate(reversed(places), start=1):
        where = _where(link, link.index_names[place])
        frame = link.frame(place)
        try:
            found = parse_header(frame)
            if header is not None and (found.kind, found.shape) != (header.kind, header.shape):
                raise FormatError("LCC-CHN-03", "frame", "not of the type and shape of the parent's array")
            bits = decode_components(frame, bits, bits, check_sum=number == len(places))
        except DataError as error:
            raise error.inside(where) from None
        header = found
    if header is None:
        raise ChainError("an empty chain")
    return DecodedArray(header.kind, header.shape, bits)


def _where(link: Link, name: str) -> str:
    return f"{link.place}: array {name!r}"
