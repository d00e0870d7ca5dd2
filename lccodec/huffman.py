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
    longest = int(lengths.max())
    joined = 8 if longest <= 8 else 4  # codes joined into one word of up to 64 bits
    words_per_lane = -(-data.size // lanes)
    words_per_lane = -(-words_per_lane // joined)
    padded = np.zeros(words_per_lane * joined * lanes, np.uint8)
    padded[: data.size] = data
    entries = _REVERSED[canonical_codes(lengths)] >> (MAX_CODE_BITS - lengths)
    entries = entries.astype(np.uint32) | (lengths.astype(np.uint32) << 16)

    stride = -(-words_per_lane * joined * longest // 64) + 1
    store = np.empty(lanes * stride, "<u8")
    first = np.arange(0, lanes * stride, stride)
    place = first.copy()
    word, filled, spill, full = (np.zeros(lanes, np.uint64) for _ in range(4))
    batch = max(1, 65536 // (joined * lanes)) * joined * lanes
    for start in range(0, padded.size, batch):
        entry = entries.take(padded[start : start + batch], mode="clip")
        if start + batch >= data.size:
            entry[data.size - start :] = 0  # places past the last symbol take no bits
        codes, bits = _join(entry.reshape(-1, lanes), joined)
        for code, size in zip(codes, bits, strict=True):
            # Append to the open word of every lane, and store it even if it is not full yet. What
            # does not fit opens the next word; where all fits, the shift leaves nothing of it (a
            # shift by 64 gives 0 in NumPy), so that no choice is needed but to drop the full word.
            np.left_shift(code, filled, out=spill)
            np.bitwise_or(word, spill, out=word)
            store[place] = word
            np.subtract(64, filled, out=spill)
            np.right_shift(code, spill, out=spill)
            np.add(filled, size, out=filled)
            np.right_shift(filled, 6, out=full)
            np.bitwise_and(filled, 63, out=filled)
            np.add(place, full.view(np.int64), out=place)
            np.subtract(full, 1, out=full)  # 0 where the word was full, else all ones
            np.bitwise_and(word, full, out=word)
            np.bitwise_or(word, spill, out=word)
    store[place] = word
    sizes = ((place - first) * 64 + filled.astype(np.int64) + 7) >> 3
    view = store.data.cast("B")
    return [view[at : at + 8 * stride] for at in (8 * first).tolist()], sizes


def _join(entries: Array, joined: int) -> tuple[Array, Array]:
    """Join every `joined` rows of table entries (code, length << 16) into words and their lengths."""
    codes, bits = entries & 0xFFFF, entries >> 16
    for width in (np.uint32, np.uint64, np.uint64)[: joined.bit_length() - 1]:
        codes, bits = codes.astype(width, copy=False), bits.astype(width, copy=False)
        codes = codes[0::2] | (codes[1::2] << bits[0::2])
        bits = bits[0::2] + bits[1::2]
    return codes, bits


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
    lanes = position.size
    longest = int(lengths.max())
    # Every possible next `longest` bits -> symbol and length: codes in canonical order fill the
    # table most significant bit first, and the reversal of its index makes it lowest bit first.
    order = np.lexsort((np.arange(lengths.size), lengths))
    order = order[lengths[order] > 0]
    by_code = np.repeat(order, 1 << (longest - lengths[order].astype(np.int64)))
    by_bits = by_code[_REVERSED[: 1 << longest] >> (MAX_CODE_BITS - longest)]
    symbol_of = by_bits.astype(np.uint8)
    length_of = lengths[by_bits].astype(np.uint64)

    # A 64-bit little-endian word from every byte position: the word at a bit position, shifted
    # by up to 7, still holds 57 valid bits, enough for several codes.
    words = np.ndarray(data.size - 7, "<u8", data, strides=(1,)).copy()
    together = 57 // longest
    word, byte, used = (np.empty(lanes, np.uint64) for _ in range(3))
    index = np.empty((together, lanes), np.uint64)
    places = index.view(np.int64)  # the type NumPy indexes with; the same memory
    length = np.empty((together, lanes), np.uint64)
    position = position.astype(np.uint64)
    mask = np.uint64((1 << longest) - 1)
    full = out.size // lanes
    for start in range(0, full, together):
        steps = min(together, full - start)
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
        rows = out[start * lanes : (start + steps) * lanes].reshape(steps, lanes)
        symbol_of.take(places[:steps], out=rows, mode="clip")
    rest = out.size - full * lanes
    if rest:
        at = position[:rest]
        bits = (np.take(words, (at >> 3).view(np.int64), mode="clip") >> (at & 7)) & mask
        position[:rest] += length_of[bits.view(np.int64)]
        out[full * lanes :] = symbol_of[bits.view(np.int64)]
    return position.view(np.int64)
