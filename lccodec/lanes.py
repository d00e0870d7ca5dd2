"""Huffman runs: symbols dealt out to lanes, which are written and read side by side.

Huffman decoding is serial inside a bit stream and parallel across streams, so symbol ``i`` of a run goes to
lane ``i % lanes``. One NumPy call then handles a step of every lane, and of the lanes of several short runs.
A code begins in the lowest bit, so that a 64-bit little-endian word read at a lane's position starts with the
next code.

Source: SPEC 7.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from .bits import Cursor, pack, packed_size, unpack
from .constants import MAX_CODE_BITS, MAX_LANE_SYMBOLS
from .errors import FormatError, LimitError
from .floats import Array
from .huffman import REVERSED, canonical_codes, read_lengths

__all__ = ["Run", "decode", "encode", "read_run"]

# What an encoder may choose: lanes of about so many bits spend under 1 % on their directory.
LANE_BITS: Final = 1400
LANE_STEPS: Final = 400
MOST_LANES: Final = 4096  # what is kept of every lane while it is written stays in the cache

_BATCH: Final = 1 << 16  # symbols written at a time: their codes stay in the cache
_FEW_LANES: Final = 512  # runs of fewer are decoded together: their calls cost more than their work
_STEP_COST: Final = 500  # of a step of few lanes, in entries of a table made
_ENTRY_BITS: Final = 6  # of an entry of joined codes hold their length


def _lane_count(symbols: int, bits: int) -> int:
    lanes = min(max(bits // LANE_BITS, symbols // LANE_STEPS, 1), MOST_LANES)
    return min(max(lanes, -(-symbols // MAX_LANE_SYMBOLS)), symbols)


def encode(data: Array, counts: Array, lengths: Array) -> list[bytes | memoryview]:
    """Return the table, the lane directory and the lanes of a run of symbols.

    Parameters
    ----------
    data
        1-D contiguous uint8, not empty.
    counts, lengths
        Occurrences and code lengths of the 256 symbols; every symbol of `data` has a length.

    Returns
    -------
    list of bytes or memoryview
        Pieces of one Huffman run (SPEC 7.3), to be joined.
    """
    last = int(np.flatnonzero(lengths)[-1])
    table = struct.pack("<B", last) + pack(lengths[: last + 1], 4).tobytes()
    lanes = _lane_count(data.size, int(counts @ lengths))
    rows, sizes = _write_lanes(data, lengths, lanes)
    base = int(sizes.min())
    spread = int(sizes.max()) - base
    width = spread.bit_length() if spread < 256 else 16
    excess = sizes - base
    directory = excess.astype("<u2") if width == 16 else pack(excess.astype(np.uint8), max(width, 1))
    return [
        table,
        struct.pack("<HHB", lanes, base, width),
        directory.tobytes() if width else b"",
        *(row[:size] for row, size in zip(rows, sizes.tolist(), strict=True)),
    ]


def _write_lanes(data: Array, lengths: Array, lanes: int) -> tuple[list[memoryview], Array]:
    """Return a buffer for each lane, and how many bytes of each are used (int64)."""
    radix = int(np.flatnonzero(lengths)[-1]) + 1
    codes = (REVERSED[canonical_codes(lengths)] >> (MAX_CODE_BITS - lengths)).astype(np.uint64)
    table, together = _joined_codes(codes[:radix], lengths[:radix].astype(np.uint64), data.size)
    # Rows of lookups are joined in pairs, so a batch has a power of two of them.
    lookups = -(-data.size // (lanes * together))
    batch = 1 << min((lookups - 1).bit_length(), max((_BATCH // (lanes * together)).bit_length() - 1, 0))
    steps = -(-lookups // batch) * batch * together
    # The last batch is filled up with the symbol whose code is all zeros: only the sizes will show it.
    filler = int(np.lexsort((lengths, lengths == 0))[0])
    padded = np.full(steps * lanes, filler, np.uint8)
    padded[: data.size] = data
    stride = -(-steps * int(lengths.max()) // 64) + 1
    store = np.zeros(lanes * stride, "<u8")
    start = np.arange(0, lanes * stride, stride) * 64
    position = start.astype(np.uint64)
    for rows in padded.reshape(-1, batch, together, lanes):
        index = rows[:, 0].astype(np.uint16)
        for row in range(1, together):
            index *= index.dtype.type(radix)
            index += rows[:, row]
        entries = table.take(index, mode="clip")
        words, bits = _join(entries >> _ENTRY_BITS, entries & (1 << _ENTRY_BITS) - 1)
        places = np.empty_like(bits)
        for place, size in zip(places, bits, strict=True):
            place[:] = position
            position += size
        # Each word has bits of its own in two neighbours of the store, so that they can be added there.
        # A shift by 64 gives 0 in NumPy.
        used = places & 63
        at = (places >> 6).view(np.int64).reshape(-1)
        np.add.at(store, at, (words << used).reshape(-1))
        np.add.at(store[1:], at, (words >> (64 - used)).reshape(-1))
    filled = steps - (data.size + np.arange(lanes)[::-1]) // lanes
    sizes = (position.view(np.int64) - start - filled * int(lengths[filler]) + 7) >> 3
    view = store.data.cast("B")
    return [view[at : at + 8 * stride] for at in (start >> 3).tolist()], sizes


def _joined_codes(codes: Array, lengths: Array, symbols: int) -> tuple[Array, int]:
    """Return code << 6 | length of a few symbols at once, by the number they are digits of, and how many.

    The more symbols there are to code, the larger a table they are worth.
    """
    joined, bits, together = codes, lengths, 1
    largest = min(1 << 16, symbols // 8)
    while joined.size * codes.size <= largest and int(bits.max() + lengths.max()) <= 64 - _ENTRY_BITS:
        joined = (joined[:, None] | codes << bits[:, None]).reshape(-1)
        bits = (bits[:, None] + lengths).reshape(-1)
        together += 1
    return joined << _ENTRY_BITS | bits, together


def _join(words: Array, bits: Array) -> tuple[Array, Array]:
    """Join neighbouring rows of codes as long as every word has room for all of its bits."""
    while len(bits) > 1:
        together = bits[0::2] + bits[1::2]
        if int(together.max()) > 64:
            break
        high = words[1::2] << bits[0::2]
        high |= words[0::2]
        words, bits = high, together
    return words, bits


@dataclass(frozen=True)
class Run:
    """A Huffman run as it is stored.

    Parameters
    ----------
    lengths
        Of the codes, uint8.
    count
        Symbols.
    data
        The lanes, uint8.
    ends
        Where each lane ends in `data`, int64.
    where
        The place that errors name.
    """

    lengths: Array
    count: int
    data: Array
    ends: Array
    where: str


def read_run(cursor: Cursor, count: int) -> Run:
    """Read a Huffman run of `count` symbols, for :func:`decode`.

    Parameters
    ----------
    cursor
        Placed at the table of code lengths.
    count
        Number of symbols, at least 1; the caller has bounded it.

    Raises
    ------
    DataError
        If the run breaks a rule of SPEC 7.2 or 7.3.
    """
    lengths = read_lengths(cursor)
    lanes = cursor.integer("H", "lane count")
    if not (1 <= lanes <= count <= lanes * MAX_LANE_SYMBOLS):
        raise LimitError("LCC-LAN-02", cursor.where, f"{lanes} lanes cannot hold {count} symbols")
    base = cursor.integer("H", "least lane size")
    width = cursor.integer("B", "width of lane sizes")
    if width > 8 and width != 16:
        raise FormatError("LCC-LAN-03", cursor.where, f"lane sizes of {width} bits")
    sizes = np.full(lanes, base, np.int64)
    if width:
        stored = cursor.take(packed_size(lanes, width), "lane sizes")
        sizes += np.frombuffer(stored, "<u2") if width == 16 else unpack(stored, lanes, width)
    ends = np.cumsum(sizes)
    data = np.frombuffer(cursor.take(int(ends[-1]), "lanes"), np.uint8)
    return Run(lengths, count, data, ends, cursor.where)


def decode(runs: Sequence[Run]) -> list[Array]:
    """Return the symbols (uint8) of Huffman runs; those of few lanes are decoded together, in one lock step.

    Raises
    ------
    FormatError
        If a lane does not end where it has to (LCC-LAN-04).
    """
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: int(run.lengths.max())):
        group = [*groups[-1], run] if groups else [run]
        if groups and _lookups(group)[0] < _lookups(groups[-1])[0] + _lookups([run])[0]:
            groups[-1] = group
        else:
            groups.append([run])
    symbols = {
        id(run): found for group in groups for run, found in zip(group, _read_lanes(group), strict=True)
    }
    return [symbols[id(run)] for run in runs]


def _lookups(runs: Sequence[Run]) -> tuple[float, int]:
    """Return what it costs to decode runs together, and the symbols that a lookup had best give.

    The more symbols a lookup gives, the fewer are the steps and the larger the tables; many lanes
    would wait in every step for those of a run that others go on with.
    """
    longest = max(int(run.lengths.max()) for run in runs)
    steps = max(-(-run.count // run.ends.size) for run in runs)
    if len(runs) > 1 and any(run.ends.size >= _FEW_LANES for run in runs):
        return float("inf"), 1
    return min(
        (_STEP_COST * steps / k + len(runs) * k * (1 << (longest * k)), k)
        for k in range(1, 5)
        if k == 1 or longest * k <= 16
    )


def _read_lanes(runs: Sequence[Run]) -> list[Array]:
    """Decode the lanes of some runs in lock step; return the symbols of each."""
    stored = np.array([run.data.size for run in runs])
    data = np.zeros(int(stored.sum()) + 8, np.uint8)
    np.concatenate([run.data for run in runs], out=data[:-8])
    # A 64-bit little-endian word from every byte position: the word at a bit position, shifted
    # by up to 7, still holds 57 valid bits, enough for several codes.
    words = np.ndarray(data.size - 7, "<u8", data, strides=(1,)).copy()
    before = np.cumsum(stored) - stored
    ends = np.concatenate([run.ends + start for run, start in zip(runs, before.tolist(), strict=True)])
    starts = np.concatenate([[0], ends[:-1]])
    # The lanes with most symbols first: those that go on are always the first ones.
    counts = np.concatenate([(run.count - np.arange(run.ends.size) - 1) // run.ends.size + 1 for run in runs])
    order = np.argsort(-counts, kind="stable")
    counts = counts[order]
    rows = np.empty((int(counts[0]), order.size), np.uint8)
    number = np.repeat(np.arange(len(runs)), [run.ends.size for run in runs])[order]
    position = starts[order].astype(np.uint64) * np.uint64(8)
    longest = max(int(run.lengths.max()) for run in runs)
    together = _lookups(runs)[1]
    tables = {k: _lookup_tables(runs, longest, k) for k in {1, together}}
    first = 0
    for last in np.unique(counts).tolist():
        lanes = int(np.searchsorted(-counts, -last, side="right"))
        for k in (together, 1):
            count = (last - first) // k * k
            part = rows[first : first + count].reshape(-1, k, order.size)[:, :, :lanes]
            _read_rows(words, position[:lanes], tables[k], number[:lanes] if len(runs) > 1 else None, part)
            first += count
    _check_ends(data, position.view(np.int64), ends[order], runs[0].where)
    if len(runs) == 1:
        return [rows.reshape(-1)[: runs[0].count]]
    lane = np.argsort(order)
    parts = np.split(lane, np.cumsum([run.ends.size for run in runs])[:-1])
    steps = [-(-run.count // run.ends.size) for run in runs]
    return [
        rows[:step].take(part, axis=1).reshape(-1)[: run.count]
        for run, part, step in zip(runs, parts, steps, strict=True)
    ]


def _check_ends(data: Array, position: Array, ends: Array, where: str) -> None:
    """Check that lanes were used up exactly (LCC-LAN-04): to the last byte, and the bits behind are 0."""
    if not np.array_equal((position + 7) >> 3, ends):
        raise FormatError("LCC-LAN-04", where, "a lane does not end where its size says")
    if (data[ends - 1] >> ((position - 1) & 7).astype(np.uint8) > 1).any():
        raise FormatError("LCC-LAN-04", where, "the padding of a lane is not zero")


def _read_rows(words: Array, position: Array, tables: _Tables, number: Array | None, rows: Array) -> None:
    """Decode a symbol of every lane into each of `rows`, (lookups, symbols a lookup, lanes).

    `position`, in bits, goes on; `number` is that of the table of each lane, ``None`` if there is one.
    """
    lookups, _, lanes = rows.shape
    mask = np.uint64((1 << tables.bits) - 1)
    base = None if number is None else number.astype(np.uint64) << np.uint64(tables.bits)
    batch = 57 // tables.bits
    word, byte, used = (np.empty(lanes, np.uint64) for _ in range(3))
    index, length = (np.empty((batch, lanes), np.uint64) for _ in range(2))
    places = index.view(np.int64)  # the type NumPy indexes with; the same memory
    for start in range(0, lookups, batch):
        steps = min(batch, lookups - start)
        np.right_shift(position, 3, out=byte)
        words.take(byte.view(np.int64), out=word, mode="clip")
        np.bitwise_and(position, 7, out=used)
        np.right_shift(word, used, out=word)
        for step in range(steps):
            np.bitwise_and(word, mask, out=index[step])
            if base is not None:
                np.bitwise_or(index[step], base, out=index[step])
            tables.length.take(places[step], out=length[step], mode="clip")
            np.right_shift(word, length[step], out=word)
        np.add.reduce(length[:steps], axis=0, out=used)
        np.add(position, used, out=position)
        for place, symbol in enumerate(tables.symbols):
            symbol.take(places[:steps], out=rows[start : start + steps, place], mode="clip")


class _Tables(NamedTuple):
    """What the next bits of a lane begin with, for one code behind the other.

    ``symbols`` (uint8) of shape ``(symbols a lookup, entries)``, their ``length`` in bits together
    (uint64), and the ``bits`` looked at: a code has ``2**bits`` entries.
    """

    symbols: Array
    length: Array
    bits: int


def _lookup_tables(runs: Sequence[Run], longest: int, together: int) -> _Tables:
    """Return the tables of `together` symbols a lookup of some codes of at most `longest` bits."""
    size = 1 << (longest * together)
    symbols = np.empty((together, len(runs), size), np.uint8)
    used = np.zeros((len(runs), size), np.uint64)
    for number, run in enumerate(runs):
        own = int(run.lengths.max())
        # Codes in canonical order fill the table most significant bit first, and the reversal of its
        # index makes it lowest bit first.
        order = np.lexsort((np.arange(run.lengths.size), run.lengths))
        order = order[run.lengths[order] > 0]
        by_code = np.repeat(order, 1 << (own - run.lengths[order].astype(np.int64)))
        by_bits = by_code[REVERSED[: 1 << own] >> (MAX_CODE_BITS - own)]
        bits = np.arange(size)
        for place in range(together):
            symbols[place, number] = by_bits[bits & ((1 << own) - 1)]
            length = run.lengths[symbols[place, number]]
            bits >>= length
            used[number] += length
    return _Tables(symbols.reshape(together, -1), used.reshape(-1), longest * together)
