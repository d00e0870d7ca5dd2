"""Vectorized bit packing.

The first packed value lies in the lowest bits (LCC-BIT-01). Source: SPEC 7.1.
"""

from __future__ import annotations

import numpy as np

from ..byteorder import stored_view
from ..element_types import Array
from ..loops import kernel


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
        return _join(values, width)[:size]
    # Eight values fill `width` bytes exactly: join them in a 64-bit word and take its low bytes.
    words = values.view("<u8")  # the first operation converts them to the host's order
    for low, used, apart in _pairs(width):
        words = (words & low) | (words >> apart) & (low << used)
    return np.ascontiguousarray(stored_view(words).reshape(-1, 8)[:, :width]).reshape(-1)[:size]


def _join_numpy(values: Array, width: int) -> Array:
    """Return bytes of two or four values each."""
    some = values.view(f"<u{8 // width}")
    for distance in (4,) if width == 4 else (6, 12):
        some = some | some >> distance
    return some.astype(np.uint8)


def _join_loop(values: Array, width: int) -> Array:
    packed = np.empty(values.size * width // 8, np.uint8)
    if width == 4:
        for k in range(packed.size):
            packed[k] = values[2 * k] | values[2 * k + 1] << 4
    else:
        for k in range(packed.size):
            low, high = values[4 * k] | values[4 * k + 1] << 2, values[4 * k + 2] | values[4 * k + 3] << 2
            packed[k] = low | high << 4
    return packed


_join = kernel(_join_numpy, _join_loop, "in u1, i8")


def _part_numpy(packed: Array, width: int) -> Array:
    """Return the values of bytes that have two or four each."""
    some = packed.astype(f"<u{8 // width}")
    for distance, mask in ((4, 0x0F0F),) if width == 4 else ((12, 0x000F000F), (6, 0x03030303)):
        some = (some | some << distance) & mask
    return stored_view(some)


def _part_loop(packed: Array, width: int) -> Array:
    values = np.empty(packed.size * 8 // width, np.uint8)
    if width == 4:
        for k in range(packed.size):
            values[2 * k], values[2 * k + 1] = packed[k] & 15, packed[k] >> 4
    else:
        for k in range(packed.size):
            for place in range(4):
                values[4 * k + place] = packed[k] >> 2 * place & 3
    return values


_part = kernel(_part_numpy, _part_loop, "in u1, i8")


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
        return _part(packed, width)[:count]
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
