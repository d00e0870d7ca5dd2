"""Canonical, length-limited Huffman codes over bytes, written and read in parallel lanes.

Huffman decoding is serial inside a bit stream and parallel across streams, so symbols are dealt out
to *lanes*: symbol ``i`` of a run goes to lane ``i % lanes``. One NumPy call then handles one step of
every lane. Codes are sent lowest bit first with the code's most significant bit first, as in
Deflate, so that a 64-bit little-endian word read at a lane's position starts with the next code.

Sources: SPEC 7.2 (codes), SPEC 7.3 (lanes); Larmore & Hirschberg, "A fast algorithm for optimal
length-limited Huffman codes", J. ACM 37 (1990) (package-merge).
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from .bits import Cursor, pack, packed_size, unpack
from .constants import MAX_CODE_BITS, MAX_LANE_SYMBOLS
from .errors import FormatError, LimitError
from .floats import Array

__all__ = ["code_lengths", "decode", "encode", "size_bound"]

# What an encoder may choose: tables of 2**12 entries stay in the first cache level, and cost
# next to nothing in length; lanes of about that many bits spend under 1 % on their directory.
PREFERRED_CODE_BITS: Final = 12
LANE_BITS: Final = 1400
LANE_STEPS: Final = 400
MOST_LANES: Final = 4096  # what is kept of every lane while it is written stays in the cache

_BATCH: Final = 1 << 16  # symbols written at a time: their codes stay in the cache
_ENTRY_BITS: Final = 6  # of an entry of joined codes hold their length

# The 15-bit numbers with their bits in reverse order.
_REVERSED: Final = (
    (np.arange(1 << MAX_CODE_BITS)[:, None] >> np.arange(MAX_CODE_BITS) & 1)
    @ (1 << np.arange(MAX_CODE_BITS)[::-1])
).astype(np.uint16)


def code_lengths(counts: Array, limit: int = MAX_CODE_BITS) -> Array:
    """Return the code lengths of least total size that are at most `limit` bits (package-merge).

    Parameters
    ----------
    counts
        Occurrences of each symbol, int64, at least two of them positive and no more than ``1 << limit``.
    limit
        Longest code in bits, at most 15.

    Returns
    -------
    ndarray
        uint8, 0 where the count is 0.
    """
    symbols = np.flatnonzero(counts)
    order = symbols[np.argsort(counts[symbols], kind="stable")]
    leaves = counts[order].astype(np.int64)
    # Level by level, pair up the items of the level below (packages) and merge them with the leaves.
    items, leaf_flags = leaves, []
    for level in range(limit):
        if level:
            even = items.size & ~1
            packages = items[:even].reshape(-1, 2).sum(axis=1)
            merged = np.concatenate([leaves, packages])
            by_weight = np.argsort(merged, kind="stable")
            items = merged[by_weight]
            leaf_flags.append(by_weight < leaves.size)
        else:
            leaf_flags.append(np.ones(leaves.size, bool))
    # Walk back: of the chosen items at a level, each leaf adds a bit to its symbol (the leaves are
    # the smallest ones, so a prefix of them), each package stands for two items of the level below.
    bits = np.zeros(leaves.size, np.int64)
    chosen = 2 * leaves.size - 2
    for flags in reversed(leaf_flags):
        taken = int(np.count_nonzero(flags[:chosen]))
        bits[:taken] += 1
        chosen = 2 * (chosen - taken)
    lengths = np.zeros(counts.size, np.uint8)
    lengths[order] = bits
    return lengths


def choose_lengths(counts: Array) -> Array:
    """Return code lengths for an encoder: short tables first, longer codes where they pay."""
    lengths = code_lengths(counts, PREFERRED_CODE_BITS)
    if int(lengths.max()) < PREFERRED_CODE_BITS:
        return lengths
    free = code_lengths(counts)
    saved = int(counts @ lengths) - int(counts @ free)
    return free if saved * 500 > int(counts @ free) else lengths


def canonical_codes(lengths: Array) -> Array:
    """Return the code of each symbol, most significant bit first (LCC-HUF-03), as uint16.

    Codes of one length are consecutive numbers in the order of the symbols; shorter codes come first.
    """
    codes = np.zeros(lengths.size, np.uint16)
    order = np.lexsort((np.arange(lengths.size), lengths))
    order = order[lengths[order] > 0]
    spans = 1 << (MAX_CODE_BITS - lengths[order].astype(np.int64))
    starts = np.cumsum(spans) - spans
    codes[order] = starts >> (MAX_CODE_BITS - lengths[order].astype(np.int64))
    return codes


def size_bound(counts: Array, lengths: Array) -> int:
    """Return about how many bytes :func:`encode` makes: the bits, the table, and 1 % for lanes."""
    bits = int(counts @ lengths)
    return bits * 101 // 800 + 6 + (int(np.flatnonzero(lengths)[-1]) + 2) // 2


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
    codes = (_REVERSED[canonical_codes(lengths)] >> (MAX_CODE_BITS - lengths)).astype(np.uint64)
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


def read_lengths(cursor: Cursor) -> Array:
    """Read and check a table of code lengths.

    Returns
    -------
    ndarray
        uint8 of the symbols up to the last one that has a code.

    Raises
    ------
    FormatError
        If the code is not complete (LCC-HUF-02) or the table is not canonical (LCC-HUF-04).
    """
    last = cursor.integer("B", "last symbol")
    stored = cursor.take(packed_size(last + 1, 4), "code lengths")
    lengths = unpack(stored, last + 1, 4)
    if lengths[last] == 0 or (last % 2 == 0 and stored[-1] >> 4):
        raise FormatError("LCC-HUF-04", cursor.where, "the table of code lengths is not canonical")
    space = int((1 << (MAX_CODE_BITS - lengths[lengths > 0].astype(np.int64))).sum())
    if space != 1 << MAX_CODE_BITS or last == 0:
        raise FormatError("LCC-HUF-02", cursor.where, "the code lengths do not form a complete code")
    return lengths


def decode(cursor: Cursor, count: int) -> Array:
    """Read a Huffman run of `count` symbols.

    Parameters
    ----------
    cursor
        Placed at the table of code lengths.
    count
        Number of symbols, at least 1; the caller has bounded it.

    Returns
    -------
    ndarray
        uint8 of shape ``(count,)``.

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
    total = int(sizes.sum())
    stored = cursor.take(total, "lanes")  # it is there: now memory may be taken for it
    data = np.zeros(total + 8, np.uint8)
    data[:total] = np.frombuffer(stored, np.uint8)
    ends = np.cumsum(sizes)
    out = np.empty(count, np.uint8)
    position = _read_lanes(data, (ends - sizes) * 8, lengths, out)
    # Exact consumption (LCC-LAN-04): every lane ends in its last byte, and the bits behind are 0.
    if not np.array_equal((position + 7) >> 3, ends):
        raise FormatError("LCC-LAN-04", cursor.where, "a lane does not end where its size says")
    if (data[ends - 1] >> ((position - 1) & 7).astype(np.uint8) > 1).any():
        raise FormatError("LCC-LAN-04", cursor.where, "the padding of a lane is not zero")
    return out


def _read_lanes(data: Array, position: Array, lengths: Array, out: Array) -> Array:
    """Decode all lanes in lock step into `out`; return the bit position each lane ends at."""
    lanes, position = position.size, position.astype(np.uint64)
    # A 64-bit little-endian word from every byte position: the word at a bit position, shifted
    # by up to 7, still holds 57 valid bits, enough for several codes.
    words = np.ndarray(data.size - 7, "<u8", data, strides=(1,)).copy()
    together = 1
    while together < 4 and int(lengths.max()) * (together + 1) <= min(16, (out.size // 32).bit_length()):
        together += 1
    grouped = out.size // (together * lanes)
    done = grouped * together * lanes
    _read_rows(words, position, lengths, out[:done].reshape(grouped, together, lanes))
    for start in range(done, out.size, lanes):
        row = out[start : start + lanes]
        _read_rows(words, position[: row.size], lengths, row.reshape(1, 1, -1))
    return position.view(np.int64)


def _read_rows(words: Array, position: Array, lengths: Array, rows: Array) -> None:
    """Decode a symbol of every lane into each of `rows`, (lookups, symbols a lookup, lanes)."""
    lookups, together, lanes = rows.shape
    symbols_of, length_of = _lookup_tables(lengths, together)
    mask = np.uint64(length_of.size - 1)
    batch = 57 // int(mask).bit_length()
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
            length_of.take(places[step], out=length[step], mode="clip")
            np.right_shift(word, length[step], out=word)
        np.add.reduce(length[:steps], axis=0, out=used)
        np.add(position, used, out=position)
        for place, symbol_of in enumerate(symbols_of):
            symbol_of.take(places[:steps], out=rows[start : start + steps, place], mode="clip")


def _lookup_tables(lengths: Array, together: int) -> tuple[Array, Array]:
    """Return the `together` symbols that every value of the next bits begins with, and their length."""
    longest = int(lengths.max())
    # Codes in canonical order fill the table most significant bit first, and the reversal of its
    # index makes it lowest bit first.
    order = np.lexsort((np.arange(lengths.size), lengths))
    order = order[lengths[order] > 0]
    by_code = np.repeat(order, 1 << (longest - lengths[order].astype(np.int64)))
    by_bits = by_code[_REVERSED[: 1 << longest] >> (MAX_CODE_BITS - longest)]
    bits = np.arange(1 << (together * longest))
    symbols = np.empty((together, bits.size), np.uint8)
    used = np.zeros(bits.size, np.uint64)
    for place in range(together):
        symbols[place] = by_bits[bits & ((1 << longest) - 1)]
        length = lengths[symbols[place]]
        bits >>= length
        used += length
    return symbols, used
