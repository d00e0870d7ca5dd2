"""Vectorized bit packing, and a cursor that never reads past the end of stored bytes.

The first packed value lies in the lowest bits (LCC-BIT-01). Source: SPEC 7.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from ..byteorder import stored_view
from ..element_types import Array
from ..errors import TruncatedError

_CHUNK_BYTES: Final = 1 << 22


def packed_size(count: int, width: int) -> int:
    """Return the bytes that `count` values of `width` bits take."""
    return -(-count * width // 8)


def is_filled(data: memoryview | Array, count: int, width: int) -> bool:
    """Return whether the unused bits of the last byte of `count` packed values are all 0."""
    used = count * width % 8
    return used == 0 or int(data[-1]) >> used == 0


def pack(values: Array, width: int) -> Array:
    """Pack values (1-D contiguous uint8) of 1 to 8 bits each into bytes (uint8).

    The first value is in the lowest bits of the first byte. Unused bits of the last byte are 0.
    """
    if width == 8:
        return values
    if width == 1:
        return np.packbits(values, bitorder="little")
    size = packed_size(values.size, width)
    if values.size % 8:
        values = np.concatenate([values, np.zeros(-values.size % 8, np.uint8)])
    if width in (2, 4):  # two or four values fill one byte
        some = values.view(f"<u{8 // width}")
        for distance in (4,) if width == 4 else (6, 12):
            some = some | some >> distance
        return some.astype(np.uint8)[:size]
    # Eight values fill `width` bytes exactly: join them in a 64-bit word and take its low bytes.
    words = values.view("<u8")  # the first operation converts them to the host's order
    for low, used, apart in _pairs(width):
        words = (words & low) | (words >> apart) & (low << used)
    return np.ascontiguousarray(stored_view(words).reshape(-1, 8)[:, :width]).reshape(-1)[:size]


def _pairs(width: int) -> list[tuple[np.uint64, np.uint64, np.uint64]]:
    """Return the moves that join eight fields of a word: in twos, then in fours, then all.

    Each is the mask of every pair's lower field, a field's bits, and how far the fields are apart.
    """
    moves = []
    for half in (8, 16, 32):
        used = width * half // 8
        low = sum(((1 << used) - 1) << start for start in range(0, 64, 2 * half))
        moves.append((np.uint64(low), np.uint64(used), np.uint64(half - used)))
    return moves


def unpack(data: bytes | memoryview | Array, count: int, width: int) -> Array:
    """Return the `count` values (uint8) that :func:`pack` packed into `data`."""
    packed = np.frombuffer(data, np.uint8)
    if width == 8:
        return packed[:count]
    if width == 1:
        return np.unpackbits(packed, count=count, bitorder="little")
    if width in (2, 4):
        some = packed.astype(f"<u{8 // width}")
        for distance, mask in ((4, 0x0F0F),) if width == 4 else ((12, 0x000F000F), (6, 0x03030303)):
            some = (some | some << distance) & mask
        return stored_view(some)[:count]
    rows = -(-count // 8)
    padded = np.zeros(rows * width, np.uint8)
    padded[: packed.size] = packed
    fields = np.zeros((rows, 8), np.uint8)
    fields[:, :width] = padded.reshape(rows, width)
    words = fields.view("<u8")[:, 0]
    for low, used, apart in reversed(_pairs(width)):
        words = (words & low) | (words & low << used) << apart
    return stored_view(words)[:count]


def group_symbols(width: int) -> Array:
    """Return the symbols (uint8) that each byte packs, of shape ``(256, 8 // width)``."""
    return unpack(np.arange(256, dtype=np.uint8), 256 * 8 // width, width).reshape(256, -1)


class Stored(Protocol):
    """Stored bytes: a memoryview, or an object that reads each part when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class Cursor:
    """Reads little-endian integers and slices from stored bytes, in order; errors name `where`.

    It reads from `position` up to `end`, by default all bytes.
    """

    def __init__(self, data: Stored, where: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.where = where
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        """Bytes that have not been read yet."""
        return self.end - self.position

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes; raise ``TruncatedError`` if fewer are left (LCC-FRM-02)."""
        self.skip(size, what)
        return self.data[self.position - size : self.position]

    def next_byte(self) -> int | None:
        """Return the next byte without moving on; ``None`` at the end."""
        return self.data[self.position : self.position + 1][0] if self.remaining else None

    def skip(self, size: int, what: str) -> None:
        """Move on as `take` does, without reading."""
        if size > self.remaining:
            message = f"{what} takes {size} bytes at {self.position}, {self.remaining} left"
            raise TruncatedError("LCC-FRM-02", self.where, message)
        self.position += size

    def chunks(self, size: int, what: str) -> Iterator[memoryview]:
        """Yield the next `size` bytes, at most 4 MiB at a time."""
        if size > self.remaining:
            self.take(size, what)  # raises the error before the first chunk
        end = self.position + size
        while self.position < end:
            yield self.take(min(_CHUNK_BYTES, end - self.position), what)

    def integer(self, form: str, what: str) -> int:
        """Return the next integer of a :mod:`struct` format such as ``"H"``, little-endian."""
        form = "<" + form
        return int(struct.unpack(form, self.take(struct.calcsize(form), what))[0])
