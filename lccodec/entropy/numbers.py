"""Numbers as small unsigned integers, and as streams: some low bits as they are, the rest bytewise.

Zigzag codes make differences of either sign small numbers (SPEC 7.5). The low bits of large numbers
are noise. Without them the numbers have a small alphabet, and a short table of codes (SPEC 7.8).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..byteorder import stored_bytes
from ..constants import MAX_NUMBER_BITS
from ..cursor import Cursor
from ..element_types import Array, from_ordered, to_ordered
from ..errors import FormatError
from ..parallel import slices
from .runs import Form, Sparse, dense, is_filled, pack, packed_size, unpack
from .stream_reader import read_stream
from .stream_writer import Piece, write_stream


def zigzag(bits: Array, reference: Array | None, is_float: bool) -> Array:
    """Return the zigzag of the ordered difference to the reference (LCC-PLN-02, LCC-PLN-03).

    Small differences of either sign become small unsigned integers. Without a reference the
    reference is zero, which for floating point is a rotation of the pattern by one bit: the sign
    comes last and the exponent fills the top byte.
    """
    width = 8 * bits.itemsize
    if reference is None:
        if is_float:
            return (bits << 1) | (bits >> (width - 1))
        difference = bits
    elif is_float:
        difference = to_ordered(bits)
        np.subtract(difference, to_ordered(reference), out=difference)
    else:
        difference = bits - reference
    codes: Array = (difference.view(f"i{bits.itemsize}") >> (width - 1)).view(bits.dtype)
    codes ^= difference << 1
    return codes


def unzigzag(codes: Array, reference: Array | None, is_float: bool, out: Array) -> None:
    """Write the components that :func:`zigzag` coded into `out` (which may be `reference`)."""
    if reference is None and is_float:
        np.bitwise_or(codes >> 1, codes << (8 * codes.itemsize - 1), out=out)
        return
    difference = (codes >> 1) ^ (codes.dtype.type(0) - (codes & codes.dtype.type(1)))
    if reference is None:
        out[:] = difference
    elif is_float:
        np.add(difference, to_ordered(reference), out=difference)
        out[:] = from_ordered(difference)
    else:
        np.add(difference, reference, out=out)


# An encoder's choice: the middle one of the numbers has about so many bits above the low bits.
_KEPT_BITS: Final = 6
_SAMPLE: Final = 1 << 12


def write_numbers(numbers: Array) -> list[Piece]:
    """Code unsigned integers below 2**53, uint8 or uint64, 1-D (LCC-SMO-07)."""
    if numbers.dtype == np.uint8:
        return [b"\x10", *write_stream(numbers)]
    largest = int(numbers.max(initial=0))
    low = 0
    if largest > 255:
        sample = np.sort(numbers[:: max(numbers.size // _SAMPLE, 1)])
        low = max(int(sample[sample.size // 2]).bit_length() - _KEPT_BITS, 0) % 8
    planes = max(-(-(largest.bit_length() - low) // 8), 1)
    pieces: list[Piece] = [bytes([planes << 4 | low])]
    if low:
        pieces.append(stored_bytes(pack((numbers & ((1 << low) - 1)).astype(np.uint8), low)))
    for plane in range(planes):
        pieces += write_stream((numbers >> (low + 8 * plane)).astype(np.uint8))
    return pieces


def read_numbers(cursor: Cursor, count: int) -> Array:
    """Return `count` numbers: uint8, uint16, uint32 or uint64, as the widest of them needs."""
    head = cursor.integer("B", "form of numbers")
    planes, low = head >> 4, head & 15
    if not 1 <= planes <= 7 or low > 7:
        raise FormatError("LCC-SMO-07", cursor.where, f"numbers of {planes} bytes and {low} bits")
    parts = None
    if low:
        stored = cursor.take(packed_size(count, low), "low bits of numbers")
        if not is_filled(stored, count, low):
            raise FormatError("LCC-SMO-07", cursor.where, "the padding behind the low bits is not zero")
        parts = unpack(stored, count, low)
    if planes == 1 and parts is None:
        return dense(read_stream(cursor, count), count)
    width = 8 * planes + low
    numbers = np.zeros(count, next(f"u{size}" for size in (2, 4, 8) if width <= 8 * size))
    for plane in range(planes):
        _add_plane(numbers, read_stream(cursor, count), 8 * plane)
    numbers <<= low
    if parts is not None:
        numbers |= parts
    if width > MAX_NUMBER_BITS and int(numbers.max(initial=0)) >> MAX_NUMBER_BITS:
        message = f"a number of more than {MAX_NUMBER_BITS} bits"
        raise FormatError("LCC-SMO-07", cursor.where, message)
    return numbers


def _add_plane(numbers: Array, plane: Form, shift: int) -> None:
    """Set eight bits of each number, which are 0."""
    if isinstance(plane, Sparse):
        numbers[plane.positions] |= plane.values.astype(numbers.dtype) << shift
        return
    symbols = dense(plane, numbers.size)
    for part in slices(numbers.size):
        numbers[part] |= symbols[part].astype(numbers.dtype) << shift
