"""Runs of small symbols in memory: dense, sparse or packed. Stream forms are in `stream_writer`.

The first value that is packed into bits lies in the lowest ones (LCC-BIT-01). Source: SPEC 7.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ..element_types import Array, stored_view
from ..loops import kernel
from ..loops.search import true_places
from ..parallel import slices

#: With more than one symbol in so many, places take more memory than all symbols.
DENSE_RATIO: Final = 4


@dataclass(frozen=True)
class Sparse:
    """A run of symbols given by those that are not 0; all others are 0."""

    positions: Array  # int64, rising
    values: Array  # uint8 or uint16, one for each position


@dataclass(frozen=True)
class Packed:
    """A run of symbols of ``width`` bits each, packed into the bytes ``groups`` (uint8)."""

    groups: Array
    width: int


#: A run of symbols, in the form it is stored in.
Form: TypeAlias = Array | Sparse | Packed


class Gathered:
    """A run of `count` symbols that comes in pieces.

    It has the places of the symbols that are not 0, or all symbols once they take less memory.
    """

    def __init__(self, count: int, dtype: type[np.unsignedinteger[Any]] = np.uint8) -> None:
        self._count, self._dtype = count, dtype
        self._places: list[Array] = [np.zeros(0, np.int64)]
        self._symbols: list[Array] = [np.zeros(0, dtype)]
        self._size = 0
        self._dense: Array | None = None

    def add(self, start: int, places: Array, symbols: Array) -> None:
        """Add symbols at places behind `start`; all of them are behind those before."""
        self._size += places.size
        if self._dense is not None:
            every = places.size and places[-1] + 1 == places.size
            self._dense[start:][slice(places.size) if every else places] = symbols
            return
        self._places.append(places + start)
        self._symbols.append(symbols)
        if self._size * DENSE_RATIO > self._count:
            self._spread()

    def room(self, start: int, count: int) -> Array:
        """Return memory for all of some symbols from `start` on, also those that are 0."""
        return self._spread()[start : start + count]

    def _spread(self) -> Array:
        """Return all symbols."""
        if self._dense is None:
            self._dense = np.zeros(self._count, self._dtype)
            for each, values in zip(self._places, self._symbols, strict=True):
                self._dense[each] = values
            self._places, self._symbols = [], []
        return self._dense

    def run(self) -> Sparse | Array:
        """Return the run."""
        if self._dense is not None:
            return self._dense
        symbols = np.concatenate(self._symbols).astype(self._dtype, copy=False)
        return as_sparse(Sparse(np.concatenate(self._places), symbols), self._count)


def parts(run: Sparse | Array) -> Iterator[Sparse]:
    """Yield the symbols of a run that are not 0, some at a time: their places take much memory."""
    if isinstance(run, Sparse):
        for part in slices(run.positions.size):
            yield Sparse(run.positions[part], run.values[part])
        return
    for part in slices(run.size):
        found = as_sparse(run[part], run[part].size)
        yield Sparse(found.positions + part.start, found.values)


def as_sparse(run: Form, count: int) -> Sparse:
    """Return the symbols of a run that are not 0, with their positions."""
    if not isinstance(run, Sparse):
        symbols = dense(run, count)
        positions = true_places(symbols != 0)
        return Sparse(positions, symbols.take(positions))
    if run.values.all():
        return run
    few = np.flatnonzero(run.values != 0)
    return Sparse(run.positions.take(few), run.values.take(few))


def nonzero_count(run: Form, count: int) -> int:
    """Return how many symbols of a run of `count` are not 0."""
    return int(np.count_nonzero(run.values if isinstance(run, Sparse) else dense(run, count)))


def dense(run: Form, count: int) -> Array:
    """Return a run of `count` symbols as uint8 of shape ``(count,)``."""
    if isinstance(run, Packed):
        return unpack(run.groups, count, run.width)
    if isinstance(run, Sparse):
        symbols = np.zeros(count, np.uint8)
        symbols[run.positions] = run.values
        return symbols
    return run


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
    for low, used, apart in _MOVES[width]:
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


_MOVES: Final = {width: _pairs(width) for width in (3, 5, 6, 7)}


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
    for low, used, apart in reversed(_MOVES[width]):
        words = (words & low) | (words & low << used) << apart
    return stored_view(words)[:count]


def group_symbols(width: int) -> Array:
    """Return the symbols (uint8) that each byte packs, of shape ``(256, 8 // width)``."""
    return unpack(np.arange(256, dtype=np.uint8), 256 * 8 // width, width).reshape(256, -1)
