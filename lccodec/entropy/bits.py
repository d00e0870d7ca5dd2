"""Vectorized bit packing.

The first packed value lies in the lowest bits (LCC-BIT-01). Source: SPEC 7.1.
"""

from __future__ import annotations

import numpy as np

from ..byteorder import stored_view
from ..element_types import Array


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
