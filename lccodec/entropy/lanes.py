"""Huffman runs: canonical, length-limited codes for bytes, and the lanes that hold them.

A code is sent with its most significant bit first, into the lowest free bit, as in Deflate.

A run is stored as code lengths, a directory of lanes, and the bytes of the lanes. Huffman decoding
is serial within a bit stream and parallel between streams. So symbol ``i`` of a run goes to lane
``i % lanes``, and one NumPy call handles one step of every lane. A code begins in the lowest bit: a
little-endian word that is read at a lane's position starts with the next code. `stream_reader`
decodes the lanes of several runs side by side.

Order-0 entropy is about the bits that a code needs. Encoders compare it to choose a form. Reading
never needs it.

Sources: SPEC 7.2 and 7.3; Larmore & Hirschberg, "A fast algorithm for optimal length-limited
Huffman codes", J. ACM 37 (1990) (package-merge).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..constants import MAX_CODE_BITS, MAX_LANE_SYMBOLS
from ..cursor import Cursor
from ..element_types import Array, read_numbers, stored_bytes, stored_view
from ..errors import FormatError, LimitError
from ..loops import kernel
from .runs import is_filled, pack, packed_size, unpack


def entropy_bits(counts: Array) -> Array:
    """Return the order-0 entropy of all symbols together, in bits (float64), as whole numbers.

    The last dimension of `counts` has the occurrences of each symbol. Machines differ in the last
    bit of a logarithm; rounding keeps that bit from deciding anything.

    Examples
    --------
    >>> entropy_bits(np.array([[4, 4, 0], [8, 0, 0]])).tolist()
    [8.0, 0.0]
    """
    total = counts.sum(axis=-1)
    bits = total * np.log2(np.maximum(total, 1))
    rounded: Array = np.rint(bits - (counts * np.log2(np.maximum(counts, 1))).sum(axis=-1))
    return rounded


#: An encoder's choice: lookup tables of this many bits stay in the first-level cache, and codes are
#: hardly longer.
PREFERRED_CODE_BITS: Final = 12

#: Longer codes are taken if they save at least one bit in this many.
_MIN_SAVED_RATIO: Final = 500


def _reversed_numbers(bits: int) -> Array:
    """Return the numbers of so many bits with their bits in reverse order, as uint16."""
    numbers = np.zeros(1, np.uint16)
    for bit in reversed(range(bits)):
        numbers = np.concatenate([numbers, numbers | np.uint16(1 << bit)])
    return numbers


#: The 15-bit numbers with their bits in reverse order.
REVERSED: Final = _reversed_numbers(MAX_CODE_BITS)


def package_merge(counts: Array, limits: Iterable[int]) -> Iterator[Array]:
    """Yield the code lengths (uint8) of least total size, for each of some limits, which rise.

    `counts` are int64, two or more of them positive. A limit needs a list of package-merge for each
    of its bits, so a larger one begins where the one before has ended.
    """
    symbols = np.flatnonzero(counts)
    order = symbols[np.argsort(counts[symbols], kind="stable")]
    leaves = counts[order].astype(np.int64)
    items, settled = leaves, False  # settled: all lists from here on are the same
    lists = [np.ones(leaves.size, bool)]  # which items of each list are leaves
    for limit in limits:
        while len(lists) < limit:
            if settled:
                lists.append(lists[-1])
                continue
            # The next list: pairs of the last list's items (packages), merged with the leaves.
            paired = items[: items.size & ~1]
            merged = np.concatenate([leaves, paired[0::2] + paired[1::2]])
            by_weight = np.argsort(merged, kind="stable")
            before, items = items, merged.take(by_weight)
            settled = items.size == before.size and bool((items == before).all())
            lists.append(by_weight < leaves.size)
        # Walk back through the lists. Each chosen leaf adds a bit to its symbol; these leaves are
        # the smallest, so they are a prefix. Each chosen package is two items of the list before.
        bits = np.zeros(leaves.size, np.int64)
        chosen = 2 * leaves.size - 2
        for flags in reversed(lists):
            taken = int(np.count_nonzero(flags[:chosen]))
            bits[:taken] += 1
            chosen = 2 * (chosen - taken)
        lengths = np.zeros(counts.size, np.uint8)
        lengths[order] = bits
        yield lengths


def _choose_lengths(counts: Array) -> Array:
    """Return code lengths (uint8) for an encoder: short tables, or longer codes that save enough.

    `counts` are int64, two or more of them positive.
    """
    limited = package_merge(counts, (PREFERRED_CODE_BITS, MAX_CODE_BITS))
    lengths = next(limited)
    if int(lengths.max()) < PREFERRED_CODE_BITS:
        return lengths
    free = next(limited)
    saved = int(counts @ lengths) - int(counts @ free)
    return free if saved * _MIN_SAVED_RATIO > int(counts @ free) else lengths


def _choose_lengths_loop(counts: Array) -> Array:
    leaves = np.int64(np.count_nonzero(counts))
    order = np.empty(leaves, np.int64)  # symbols by their counts; of equal ones the lower first
    found = 0
    for symbol in range(counts.size):
        if counts[symbol]:
            place = found
            while place and counts[order[place - 1]] > counts[symbol]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = symbol
            found += 1
    weights = np.empty(2 * leaves, np.int64)  # of the items of a list; a leaf goes before a package
    before = np.empty(2 * leaves, np.int64)  # those of the list before
    taken = np.zeros((MAX_CODE_BITS, 2 * leaves + 1), np.int64)  # leaves among the first items
    size = np.int64(0)
    for number in range(MAX_CODE_BITS):
        leaf = package = 0
        packages = size // 2
        while leaf < leaves or package < packages:
            item = leaf + package
            pair = before[2 * package] + before[2 * package + 1] if package < packages else np.int64(0)
            if leaf < leaves and (package == packages or counts[order[leaf]] <= pair):
                weights[item] = counts[order[leaf]]
                leaf += 1
            else:
                weights[item] = pair
                package += 1
            taken[number, item + 1] = leaf
        size = leaves + packages
        weights, before = before, weights
    lengths = np.zeros((2, counts.size), np.uint8)
    bits = np.zeros(2, np.int64)
    for free in range(2):
        chosen = np.int64(2 * leaves - 2)
        for number in range((MAX_CODE_BITS if free else PREFERRED_CODE_BITS) - 1, -1, -1):
            few = taken[number, chosen]
            for place in range(few):
                lengths[free, order[place]] += 1
                bits[free] += counts[order[place]]
            chosen = 2 * (chosen - few)
    chosen_lengths: Array = lengths[1 if (bits[0] - bits[1]) * _MIN_SAVED_RATIO > bits[1] else 0]
    return chosen_lengths.copy()


choose_lengths = kernel(_choose_lengths, _choose_lengths_loop, "in i8")


def canonical_order(lengths: Array) -> Array:
    """Return the symbols that have a code, in the order of their codes: by length, then symbol."""
    order = np.argsort(lengths, kind="stable")
    return order[lengths[order] > 0]


def canonical_codes(lengths: Array) -> Array:
    """Return the code of each symbol, most significant bit first (LCC-HUF-03), as uint16."""
    codes = np.zeros(lengths.size, np.uint16)
    order = canonical_order(lengths)
    unused = MAX_CODE_BITS - lengths[order].astype(np.int64)
    spans = 1 << unused
    codes[order] = (np.cumsum(spans) - spans) >> unused
    return codes


def read_lengths(cursor: Cursor) -> Array:
    """Return a table of code lengths (uint8), up to the last symbol that has a code.

    The code must be complete (LCC-HUF-02), and the table canonical (LCC-HUF-04).
    """
    last = cursor.integer("B", "last symbol")
    stored = cursor.take(packed_size(last + 1, 4), "code lengths")
    lengths = unpack(stored, last + 1, 4)
    if lengths[last] == 0 or not is_filled(stored, last + 1, 4):
        raise FormatError("LCC-HUF-04", cursor.where, "the table of code lengths is not canonical")
    space = int((1 << (MAX_CODE_BITS - lengths[lengths > 0].astype(np.int64))).sum())
    if space != 1 << MAX_CODE_BITS:  # nor does that of a single symbol
        raise FormatError("LCC-HUF-02", cursor.where, "the code lengths do not form a complete code")
    return lengths


@dataclass(frozen=True, eq=False)
class LaneRun:
    """A Huffman run of `count` symbols as it is stored."""

    count: int
    lengths: Array  # of the codes of the symbols, uint8
    lanes: Array  # the bytes of all lanes, uint8
    starts: Array  # of each lane, in bits, int64
    ends: Array  # of each lane, in bytes, int64
    where: str  # what errors call the place of the run

    def check_ends(self, position: Array) -> None:
        """Raise ``FormatError`` unless the lanes end where they should; `position` is in bits.

        A lane ends in its last byte, and the bits behind its last code are 0 (LCC-LAN-04).
        """
        if not np.array_equal((position + 7) >> 3, self.ends):
            raise FormatError("LCC-LAN-04", self.where, "a lane does not end where its size says")
        if (self.lanes[self.ends - 1] >> ((position - 1) & 7).astype(np.uint8) > 1).any():
            raise FormatError("LCC-LAN-04", self.where, "the padding of a lane is not zero")


def read_run(cursor: Cursor, count: int) -> LaneRun:
    """Return a Huffman run of `count` symbols, at least 1; its codes are not looked at.

    A ``DataError`` says that it breaks a rule of SPEC 7.2 or 7.3.
    """
    lengths = read_lengths(cursor)
    lanes = cursor.integer("H", "lane count")
    if not lanes <= count <= lanes * MAX_LANE_SYMBOLS:
        raise LimitError("LCC-LAN-02", cursor.where, f"{lanes} lanes cannot hold {count} symbols")
    base = cursor.integer("H", "least lane size")
    width = cursor.integer("B", "width of lane sizes")
    if width > 8 and width != 16:
        raise FormatError("LCC-LAN-03", cursor.where, f"lane sizes of {width} bits")
    sizes = np.full(lanes, base, np.int64)
    if width:
        stored = cursor.take(packed_size(lanes, width), "lane sizes")
        if not is_filled(stored, lanes, width):
            raise FormatError("LCC-LAN-03", cursor.where, "the padding behind the lane sizes is not zero")
        sizes += read_numbers(stored, np.uint16) if width == 16 else unpack(stored, lanes, width)
    ends = np.cumsum(sizes)
    data = np.frombuffer(cursor.take(int(ends[-1]), "lanes"), np.uint8)
    if count > 8 * data.size:  # a code has at least one bit, so stored bytes bound the memory
        message = f"{data.size} bytes cannot hold {count} codes"
        raise FormatError("LCC-LAN-04", cursor.where, message)
    return LaneRun(count, lengths, data, 8 * (ends - sizes), ends, cursor.where)


# An encoder's choice: a lane has about this many bits or symbols, so that its entry in the
# directory takes less than 1 % of it.
LANE_BITS: Final = 1400
LANE_SYMBOLS: Final = 400
MAX_LANES: Final = 4096  # so that what is kept of every lane during writing stays in the cache

_BATCH_SYMBOLS: Final = 1 << 16  # written at a time, so that their codes stay in the cache
_STEP_COST_ENTRIES: Final = 500  # table entries that are made in the time of a step of few lanes
_STEP_COST_BITS: Final = 500  # bits of lanes that are looked at in that time
_MAX_JUMP_BITS: Final = 200_000  # bits of lanes that are looked at; arrays of more leave the cache
_FEW_LANES: Final = 32  # of fewer, jumps over four codes save more time than they take to find
_LANES_AT_A_TIME: Final = 256  # of a compiled loop, so that their rows and states stay in the cache
_PAIRED_CODES: Final = 32  # of more, a table of pairs does not stay in the cache
_BIT_PLACES: Final = np.arange(8, dtype=np.uint32)[:, None]
#: Bits of a word of `words_of` that are valid behind any position.
WORD_BITS: Final = 49
_LENGTH_BITS: Final = 6  # low bits of an entry of joined codes, which hold their length


def encode(data: Array, counts: Array, lengths: Array) -> list[bytes | memoryview]:
    """Return the parts of a Huffman run: the table, the lane directory and the lanes.

    `data` is 1-D contiguous uint8, not empty. `counts` and `lengths` are those of the 256 symbols.
    """
    bits = int(counts @ lengths)
    lanes = min(max(bits // LANE_BITS, data.size // LANE_SYMBOLS, 1), MAX_LANES)
    lanes = min(max(lanes, -(-data.size // MAX_LANE_SYMBOLS)), data.size)
    last = int(np.flatnonzero(lengths)[-1])
    lengths = lengths[: last + 1]
    codes = (REVERSED[canonical_codes(lengths)] >> (MAX_CODE_BITS - lengths)).astype(np.uint64)
    stored = np.empty(bits // 8 + lanes, np.uint8)
    sizes = write_lanes(data, codes, lengths.astype(np.uint64), lanes, stored)
    base = int(sizes.min())
    spread = int(sizes.max()) - base
    width = spread.bit_length() if spread < 256 else 16
    excess = sizes - base
    directory = excess.astype(np.uint16) if width == 16 else pack(excess.astype(np.uint8), max(width, 1))
    return [
        bytes([last]),
        stored_bytes(pack(lengths, 4)),
        struct.pack("<HHB", lanes, base, width),
        stored_bytes(directory) if width else b"",
        stored.data[: int(sizes.sum())],
    ]


def _write_lanes(data: Array, codes: Array, lengths: Array, lanes: int, stored: Array) -> Array:
    """Write the bytes of the lanes, end to end, into `stored` (uint8); return the sizes (int64).

    `codes` and `lengths` of the symbols are uint64. A code begins in its lowest bit. A lane may
    take a byte more than an eighth of its bits.
    """
    # A table of codes for several symbols at once, whose index has the symbols as digits. An entry
    # is ``code << 6 | length``.
    joined, bits, together = codes, lengths, 1
    largest = min(1 << 16, data.size // 8)
    while joined.size * codes.size <= largest and int(bits.max() + lengths.max()) <= 64 - _LENGTH_BITS:
        joined = (joined[:, None] | codes << bits[:, None]).reshape(-1)
        bits = (bits[:, None] + lengths).reshape(-1)
        together += 1
    table = joined << _LENGTH_BITS | bits
    # Rows of lookups are joined in pairs, so a batch has a power of two of them.
    lookups = -(-data.size // (lanes * together))
    batch = 1 << min(
        (lookups - 1).bit_length(), max((_BATCH_SYMBOLS // (lanes * together)).bit_length() - 1, 0)
    )
    steps = -(-lookups // batch) * batch * together
    # The last batch is padded with the symbol whose code is all zeros. Only the sizes depend on it.
    filler = int(canonical_order(lengths)[0])
    padded = np.full(steps * lanes, filler, np.uint8)
    padded[: data.size] = data
    stride = -(-steps * int(lengths.max()) // 64) + 1
    store = np.zeros(lanes * stride, np.uint64)
    start = np.arange(0, lanes * stride, stride) * 64
    position = start.astype(np.uint64)
    for rows in padded.reshape(-1, batch, together, lanes):
        index = rows[:, 0].astype(np.uint16)
        for row in range(1, together):
            index *= index.dtype.type(lengths.size)
            index += rows[:, row]
        entries = table.take(index, mode="clip")
        bits = entries & (1 << _LENGTH_BITS) - 1
        entries >>= _LENGTH_BITS
        words = entries
        while len(bits) > 1:  # neighbouring rows are joined, while every word has room for its bits
            longer = bits[0::2] + bits[1::2]
            if int(longer.max()) > 64:
                break
            high = words[1::2]
            high <<= bits[0::2]
            high |= words[0::2]
            words, bits = high, longer
        places = np.empty_like(bits)
        for place, size in zip(places, bits, strict=True):
            place[:] = position
            position += size
        # Each word sets its own bits in two neighbouring words of the store, so adding is enough.
        # A shift by 64 gives 0 in NumPy.
        used = places & 63
        at = (places >> 6).view(np.int64).reshape(-1)
        np.add.at(store, at, (words << used).reshape(-1))
        np.add.at(store[1:], at, (words >> (64 - used)).reshape(-1))
    filled = steps - (data.size + np.arange(lanes)[::-1]) // lanes
    sizes = (position.view(np.int64) - start - filled * int(lengths[filler]) + 7) >> 3
    start >>= 3
    memory, ends = stored_view(store).data, start + sizes
    parts = [memory[begin:end] for begin, end in zip(start.tolist(), ends.tolist(), strict=True)]
    written = b"".join(parts)
    stored[: len(written)] = np.frombuffer(written, np.uint8)
    return sizes


def _write_lanes_loop(  # a call in a loop would take longer
    data: Array, codes: Array, lengths: Array, lanes: int, stored: Array
) -> Array:
    # Some codes of a lane are joined in a word. Its whole bytes are written, and what is left of it
    # is at most 7 bits of the next word.
    row, longest = np.uint64(lanes), np.int64(lengths.max())
    joined = 4 if longest <= 14 else 2  # of at most 57 bits
    seven, six, three, low = np.uint64(7), np.uint64(6), np.uint64(3), np.uint64((1 << _LENGTH_BITS) - 1)
    # Of a small alphabet, two codes are looked up at a time. An entry is ``code << 6 | length``.
    symbols = np.flatnonzero(lengths)
    pairs = symbols.size <= _PAIRED_CODES
    table = np.empty(codes.size << 8 if pairs else codes.size, np.uint64)
    if pairs:
        for second in symbols:
            for first in symbols:
                code, bits = codes[second] << lengths[first] | codes[first], lengths[second] + lengths[first]
                table[second << 8 | first] = code << six | bits
    else:
        for symbol in range(codes.size):
            table[symbol] = codes[symbol] << six | lengths[symbol]
    steps = data.size // lanes // joined * joined
    room = (data.size // lanes + 1) * longest // 8 + 9
    together = min(lanes, _LANES_AT_A_TIME)
    store = np.empty(together * room, np.uint8)
    words = as_strided(store[:8].view(np.uint64), (store.size - 7,), (1,))
    sizes, end = np.empty(lanes, np.int64), 0
    position, left = np.empty(together, np.uint64), np.empty(together, np.uint64)
    for start in range(0, lanes, together):
        some = min(together, lanes - start)
        for lane in range(some):
            position[lane], left[lane] = 8 * lane * room, 0
        for step in range(0, steps, joined):
            for lane in range(some):
                a = np.uint64(step * lanes + start + lane)
                b = a + row
                c = b + row
                d = c + row
                if pairs:
                    word = table[np.uint64(data[b]) << np.uint64(8) | np.uint64(data[a])]
                    bits = word & low
                    word >>= six
                    if joined == 4:
                        entry = table[np.uint64(data[d]) << np.uint64(8) | np.uint64(data[c])]
                        word |= entry >> six << bits
                        bits += entry & low
                else:
                    word, entry = table[data[a]], table[data[b]]
                    bits = word & low
                    word = word >> six | entry >> six << bits
                    bits += entry & low
                    if joined == 4:
                        entry = table[data[c]]
                        word |= entry >> six << bits
                        bits += entry & low
                        entry = table[data[d]]
                        word |= entry >> six << bits
                        bits += entry & low
                used = position[lane] & seven
                word = left[lane] | word << used
                words[position[lane] >> three] = word
                position[lane] += bits
                left[lane] = word >> (used + bits & ~seven)
        for lane in range(some):
            at, word = position[lane], left[lane]
            for place in range(steps * lanes + start + lane, data.size, lanes):
                symbol = data[place]
                used = at & seven
                word |= codes[symbol] << used
                words[at >> three] = word
                word >>= used + lengths[symbol] & ~seven
                at += lengths[symbol]
            sizes[start + lane] = np.int64(at + seven >> three) - lane * room
            stored[end : end + sizes[start + lane]] = store[lane * room :][: sizes[start + lane]]
            end += sizes[start + lane]
    return sizes


write_lanes = kernel(_write_lanes, _write_lanes_loop, "in u1, in u8, in u8, i8, out u1")


def decode(run: LaneRun) -> Array:
    """Return the symbols of a Huffman run as uint8; its lanes must end as LCC-LAN-04 says."""
    read = _bit_by_bit if int(run.lengths.max()) == 1 else read_lanes
    symbols, position = read(run.lanes, run.starts, run.lengths, run.count)
    run.check_ends(position)
    return symbols


def _read_lanes(data: Array, starts: Array, lengths: Array, count: int) -> tuple[Array, Array]:
    """Return the symbols of lanes, and where each lane ends, in bits."""
    longest, steps = int(lengths.max()), -(-count // starts.size)
    # More symbols a lookup mean fewer steps and larger tables.
    together, least = 1, math.inf
    for k in range(1, 5):
        cost = _STEP_COST_ENTRIES * steps / k + k * (1 << longest * k)
        if cost < least and (k == 1 or longest * k <= 16):
            together, least = k, cost
    if jumps_pay(8 * data.size, steps // together):
        return _jump(data, starts, lengths, count)
    return _step(data, starts, lengths, count, together)


def _read_lanes_loop(  # four lanes side by side
    data: Array, starts: Array, lengths: Array, count: int
) -> tuple[Array, Array]:
    longest = np.int64(lengths.max())
    table = np.empty(1 << longest, np.uint16)  # symbol << 8 | length, by the next bits of a lane
    code = 0
    for length in range(1, longest + 1):
        for symbol in range(lengths.size):
            if lengths[symbol] == length:
                low = 0  # the code from its most significant bit
                for bit in range(length):
                    low |= (code >> bit & 1) << (length - 1 - bit)
                for index in range(low, 1 << longest, 1 << length):
                    table[index] = symbol << 8 | length
                code += 1
        code <<= 1
    mask, low_bits = np.uint64((1 << longest) - 1), np.uint64(63)
    one, three, seven, eight = np.uint64(1), np.uint64(3), np.uint64(7), np.uint64(8)
    padded = np.zeros(data.size + 8, np.uint8)
    padded[: data.size] = data
    words = as_strided(padded[:8].view(np.uint64), (data.size + 1,), (1,))
    end = np.uint64(data.size)  # a lane that goes on behind the data has an error: zeros will do
    symbols, position = np.empty(count, np.uint8), starts.astype(np.uint64)
    lanes, whole, row = starts.size, count // starts.size, np.uint64(starts.size)
    joined = 57 // int(longest)  # codes in a word that begins at a byte
    # All lanes have `whole` symbols, and the first ones another one.
    for begin, stop, going in ((0, whole, lanes), (whole, whole + 1, count % lanes)):
        for first in range(0, going, _LANES_AT_A_TIME):
            last = min(first + _LANES_AT_A_TIME, going)
            fours = last - (last - first) % 4
            for step in range(begin, stop, joined):
                steps = min(joined, stop - step)
                for lane in range(first, fours, 4):  # four lanes do not wait for each other
                    a = np.uint64(lane)
                    b, c, d = a + one, a + np.uint64(2), a + three
                    at_a, at_b, at_c, at_d = position[a], position[b], position[c], position[d]
                    word_a = words[min(at_a >> three, end)] >> (at_a & seven)
                    word_b = words[min(at_b >> three, end)] >> (at_b & seven)
                    word_c = words[min(at_c >> three, end)] >> (at_c & seven)
                    word_d = words[min(at_d >> three, end)] >> (at_d & seven)
                    at = np.uint64(step * lanes + lane)
                    used_a = used_b = used_c = used_d = np.uint64(0)  # in the low_bits bits: at most 57
                    for _ in range(steps):
                        entry_a, entry_b = np.uint64(table[word_a & mask]), np.uint64(table[word_b & mask])
                        entry_c, entry_d = np.uint64(table[word_c & mask]), np.uint64(table[word_d & mask])
                        symbols[at] = entry_a >> eight
                        symbols[at + one] = entry_b >> eight
                        symbols[at + np.uint64(2)] = entry_c >> eight
                        symbols[at + three] = entry_d >> eight
                        word_a >>= entry_a & low_bits
                        word_b >>= entry_b & low_bits
                        word_c >>= entry_c & low_bits
                        word_d >>= entry_d & low_bits
                        used_a += entry_a
                        used_b += entry_b
                        used_c += entry_c
                        used_d += entry_d
                        at += row
                    position[a] = at_a + (used_a & low_bits)
                    position[b] = at_b + (used_b & low_bits)
                    position[c] = at_c + (used_c & low_bits)
                    position[d] = at_d + (used_d & low_bits)
                for lane in range(fours, last):
                    word = words[min(position[lane] >> three, end)] >> (position[lane] & seven)
                    for place in range(step * lanes + lane, (step + steps) * lanes, lanes):
                        entry = np.uint64(table[word & mask])
                        symbols[place] = entry >> eight
                        word >>= entry & low_bits
                        position[lane] += entry & low_bits
    return symbols, position.view(np.int64)


read_lanes = kernel(_read_lanes, _read_lanes_loop, "in u1, in i8, in u1, i8")


def jumps_pay(bits: int, steps: int) -> bool:
    """Return whether looking at every bit of lanes takes less time than that many steps of them."""
    return bits <= min(_STEP_COST_BITS * steps, _MAX_JUMP_BITS)


def _bit_by_bit(data: Array, starts: Array, lengths: Array, count: int) -> tuple[Array, Array]:
    """Decode lanes of two symbols, each of one bit, without a step from code to code.

    Signs are such runs. Returns the symbols, and where each lane ends, in bits.
    """
    lanes = starts.size
    steps = -(-count // lanes)
    places = (starts >> 3)[:, None] + np.arange(packed_size(steps, 1))
    bits = np.unpackbits(data.take(places, mode="clip"), axis=1, count=steps, bitorder="little")
    position = starts + (count + np.arange(lanes)[::-1]) // lanes
    two = np.flatnonzero(lengths).astype(np.uint8)
    return two.take(bits.T, mode="clip").reshape(-1)[:count], position


def _jump(data: Array, starts: Array, lengths: Array, count: int) -> tuple[Array, Array]:
    """Decode few lanes: look at every bit as if a code began there, then jump from code to code.

    A step of few lanes costs the time of its calls, not of its work. Here a step is one call. If
    the lanes are very few, it jumps four codes. Returns the symbols, and where each lane ends, in
    bits.
    """
    lanes = starts.size
    tables = lookup_tables(lengths, 1)
    padded = np.zeros(data.size + 5, np.uint8)
    padded[: data.size] = data
    words = np.ndarray(data.size + 2, "<u4", padded, strides=(1,)).astype(np.uint32)
    by_bit = words >> _BIT_PLACES  # of a byte; the long dimension last, which is faster
    by_bit &= np.uint32((1 << tables.bits) - 1)
    codes = by_bit.T.reshape(-1)
    after = tables.length.view(np.int64).take(codes, mode="clip")
    after += np.arange(after.size)
    # What jumps past the data stays at a place where no lane ends.
    after[8 * data.size :] = after.size - 1
    jumps = [after]  # over one code, over two, over four
    while lanes < _FEW_LANES and len(jumps) < 3:
        jumps.append(jumps[-1].take(jumps[-1], mode="clip"))
    far = 1 << (len(jumps) - 1)
    places = np.empty((-(-count // (far * lanes)) * far, lanes), np.int64)
    places[0] = starts
    for before, here in pairwise(places[::far]):
        jumps[-1].take(before, out=here, mode="clip")
    for jump in jumps[-2::-1]:
        places[far // 2 :: far] = jump.take(places[::far], mode="clip")
        far //= 2
    used = places.reshape(-1)[:count]
    # The last symbols, one of each lane, begin with the symbol of lane `count % lanes`.
    position = np.roll(after.take(used[-lanes:], mode="clip"), count % lanes)
    return tables.symbols[0].take(codes.take(used, mode="clip"), mode="clip"), position


def _step(data: Array, starts: Array, lengths: Array, count: int, together: int) -> tuple[Array, Array]:
    """Decode all lanes in lock step; return the symbols, and where each lane ends, in bits."""
    lanes = starts.size
    words = words_of(data)
    rows = np.empty((-(-count // lanes), lanes), np.uint8)
    position = starts.astype(np.uint64)
    tables = {k: lookup_tables(lengths, k) for k in {1, together}}
    whole = count // lanes  # steps of all lanes; one more step has only the first lanes
    first = 0
    for last, going, k in ((whole, lanes, together), (whole, lanes, 1), (len(rows), count % lanes, 1)):
        lookups = (last - first) // k
        part = rows[first : first + lookups * k, :going].reshape(lookups, k, going)
        _read_rows(words, position[:going], tables[k], part)
        first += lookups * k
    return rows.reshape(-1)[:count], position.view(np.int64)


def words_of(data: Array) -> Array:
    """Return a 64-bit little-endian word from every second byte of lanes.

    The word at a bit position, shifted by up to 15, still has `WORD_BITS` valid bits, enough for
    several codes. Words from every byte would have 8 more, and would take twice the memory, which
    is read in random order.
    """
    padded = np.zeros(data.size + 9, np.uint8)
    padded[: data.size] = data
    return np.ndarray(data.size // 2 + 1, "<u8", padded, strides=(2,)).astype(np.uint64)


def _read_rows(words: Array, position: Array, tables: _Tables, rows: Array) -> None:
    """Decode a symbol of every lane into each of `rows`, (lookups, symbols a lookup, lanes).

    `position`, in bits, is moved on in place.
    """
    lookups, _, lanes = rows.shape
    mask = np.array((1 << tables.bits) - 1, np.uint64)  # as an array it is converted only once
    batch = WORD_BITS // tables.bits
    word, pair, used = (np.empty(lanes, np.uint64) for _ in range(3))
    index, length = (np.empty((batch, lanes), np.uint64) for _ in range(2))
    places = index.view(np.int64)  # the type NumPy indexes with; the same memory
    # With few lanes every call and every view takes time that matters: each view is made once.
    pair_places, each = pair.view(np.int64), list(zip(index, places, length, strict=True))
    for start in range(0, lookups, batch):
        steps = min(batch, lookups - start)
        np.right_shift(position, 4, out=pair)
        words.take(pair_places, out=word, mode="clip")
        np.bitwise_and(position, 15, out=used)
        np.right_shift(word, used, out=word)
        for code, place, size in each[:steps]:
            np.bitwise_and(word, mask, out=code)
            tables.length.take(place, out=size, mode="clip")
            np.right_shift(word, size, out=word)
        np.add.reduce(length[:steps], axis=0, out=used)
        np.add(position, used, out=position)
        for number, symbol in enumerate(tables.symbols):
            symbol.take(places[:steps], out=rows[start : start + steps, number], mode="clip")


class _Tables(NamedTuple):
    """What the next bits of a lane start with: one or several codes, one behind the other."""

    symbols: Array  # uint8 of shape (symbols a lookup, 2**bits)
    length: Array  # bits of these codes together, uint64
    bits: int  # how many are looked at


def lookup_tables(lengths: Array, together: int) -> _Tables:
    """Return the tables of `together` symbols a lookup."""
    longest = int(lengths.max())
    # In canonical order, codes fill the table with the most significant bit first. Reversing the
    # bits of its index puts the lowest bit first.
    order = canonical_order(lengths)
    by_code = np.repeat(order.astype(np.uint8), 1 << (longest - lengths[order].astype(np.int64)))
    by_bits = by_code.take(_reversed(longest))
    if together == 1:
        return _Tables(by_bits[None], lengths.astype(np.uint64).take(by_bits), longest)
    size = 1 << (longest * together)
    symbols, used = np.empty((together, size), np.uint8), np.zeros(size, np.uint64)
    bits = np.arange(size)
    for place in range(together):
        symbols[place] = by_bits[bits & ((1 << longest) - 1)]
        length = lengths[symbols[place]]
        bits >>= length
        used += length
    return _Tables(symbols, used, longest * together)


@cache
def _reversed(bits: int) -> Array:
    """Return the numbers of so many bits with their bits in reverse order, as places."""
    return (REVERSED[: 1 << bits] >> (MAX_CODE_BITS - bits)).astype(np.intp)
