"""Numbers of any size as streams: some low bits as they are, and the bits above byte by byte.

The low bits of large numbers are noise. Without them the numbers have a small alphabet, and a short
table of codes. Source: SPEC 7.8.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..byteorder import stored_bytes
from ..constants import MAX_NUMBER_BITS
from ..cursor import Cursor
from ..element_types import Array
from ..errors import FormatError
from ..parallel import slices
from .bits import is_filled, pack, packed_size, unpack
from .runs import dense
from .stream_reader import read_stream
from .stream_writer import Piece, write_stream

# An encoder's choice: the middle one of the numbers has about so many bits above the low bits.
_KEPT_BITS: Final = 6
_SAMPLE: Final = 1 << 12


#: The numbers of the zigzag codes 0 to 255, float64.
SMALL: Final = np.array([code >> 1 ^ -(code & 1) for code in range(256)], np.float64)

# The zigzag of each number of one byte, in two's complement.
_ZIGZAG: Final = bytes((number << 1 ^ -(number >> 7)) & 255 for number in range(256))


def unsigned(numbers: Array) -> Array:
    """Return the zigzag codes of int8 as uint8, of int64 as uint64; 0, -1, 1 become 0, 1, 2."""
    if numbers.dtype == np.int8:
        return np.frombuffer(bytearray(numbers.view(np.uint8).data).translate(_ZIGZAG), np.uint8)
    codes: Array = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    return codes


def signed(codes: Array) -> Array:
    """Return the numbers (float64) of zigzag codes, uint8 or uint64 below 2**53."""
    if codes.dtype == np.uint8:
        return SMALL.take(codes, mode="clip")
    signs = (codes & 1).view(np.int64)
    numbers = (codes >> 1).view(np.int64)
    numbers ^= np.negative(signs, out=signs)
    found: Array = numbers.astype(np.float64)
    return found


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
    """Return `count` numbers, uint8 or uint64."""
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
    numbers = dense(read_stream(cursor, count), count)
    if planes == 1 and parts is None:
        return numbers
    numbers = numbers.astype(np.uint64)
    for plane in range(1, planes):
        above = dense(read_stream(cursor, count), count)
        for part in slices(count):
            numbers[part] |= above[part].astype(np.uint64) << (8 * plane)
    numbers <<= low
    if parts is not None:
        numbers |= parts
    if 8 * planes + low > MAX_NUMBER_BITS and int(numbers.max(initial=0)) >> MAX_NUMBER_BITS:
        message = f"a number of more than {MAX_NUMBER_BITS} bits"
        raise FormatError("LCC-SMO-07", cursor.where, message)
    return numbers
