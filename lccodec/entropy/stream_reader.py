"""Streams to symbols: constant, raw, Huffman, sparse, packed, classed or split. Source: SPEC 7.4.

Streams may be read side by side: a step of few lanes takes the time of its NumPy calls, not of its
work. So the lanes of the Huffman runs of many streams go step by step together, each with the table
of its run. For that, reading a stream is a generator. It yields the Huffman runs that it needs
decoded, and gets their symbols, or the error that one has instead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np

from ..constants import (
    MAX_CLASSES,
    MAX_LEVEL,
    MAX_PARTS,
    MAX_SIDE,
    MAX_SPLIT_SYMBOLS,
    MAX_STREAM_DEPTH,
    MAX_STREAM_PLACES,
    STREAM_CLASSED,
    STREAM_CONSTANT,
    STREAM_HUFFMAN,
    STREAM_PACKED,
    STREAM_RAW,
    STREAM_SPARSE,
    STREAM_SPLIT,
)
from ..cursor import Cursor
from ..element_types import Array, read_numbers
from ..errors import ChecksumError, DataError, FormatError, LimitError, UnsupportedError
from ..loops import is_compiled, kernel
from ..parallel import PIECE, slices
from . import lanes
from .classes import Classes
from .lanes import LaneRun, read_run
from .runs import (
    DENSE_RATIO,
    Form,
    Packed,
    Sparse,
    as_sparse,
    dense,
    is_filled,
    nonzero_count,
    packed_size,
    unpack,
)
from .split import References

Result = TypeVar("Result")

#: What was decoded of a run: its symbols (uint8), or the error that it has instead.
Symbols: TypeAlias = Array | DataError

#: Reading that stops where it needs runs decoded; it gets what was decoded of each.
Reading: TypeAlias = Generator[list[LaneRun], list[Symbols], Result]

_NOTHING: Final = np.empty(0, np.uint8)
_MANY_LANES: Final = 1 << 11  # of more, a step takes the time of its work
_MAX_LANES: Final = 1 << 12  # that go together, so that what is kept of each lane stays in the cache
_MAX_ENTRIES: Final = 1 << 22  # of their tables: stored bytes do not bound these, 17 may ask for 2**15
_STEPS_RATIO: Final = 4  # of runs that go together: all steps of all lanes have room in memory


def finish(reading: Reading[Result]) -> Result:
    """Decode what a reading needs, until it is done; return what it returns."""
    try:
        runs = next(reading)
        while True:
            runs = reading.send(decode_runs(runs))
    except StopIteration as done:
        result: Result = done.value
        return result


def side_by_side(readings: Iterable[Reading[Result]]) -> Reading[list[Result]]:
    """Read all of some, so that what they need at a time is decoded together.

    The error of one of them is raised, and the others are given up.
    """
    results: dict[int, Result] = {}
    waiting: list[tuple[int, Reading[Result], list[LaneRun]]] = []
    for number, reading in enumerate(readings):
        try:
            waiting.append((number, reading, next(reading)))
        except StopIteration as done:
            results[number] = done.value
    while waiting:
        found = iter((yield [run for _, _, runs in waiting for run in runs]))
        before, waiting = waiting, []
        for number, reading, runs in before:
            try:
                waiting.append((number, reading, reading.send([next(found) for _ in runs])))
            except StopIteration as done:
                results[number] = done.value
    return [results[number] for number in sorted(results)]


def decode_runs(runs: Sequence[LaneRun]) -> list[Symbols]:
    """Decode runs, those together whose lanes are few, or each alone by a compiled loop."""
    found: list[Symbols] = [_NOTHING] * len(runs)
    alone, few, whole = list[int](), list[int](), list[int]()
    compiled = is_compiled(lanes.read_lanes)
    for number, run in enumerate(runs):
        whole.append(run.count // run.starts.size)  # steps of all lanes; one more may have the first
        if compiled or int(run.lengths.max()) == 1 or run.starts.size >= _MANY_LANES:
            alone.append(number)
        else:
            few.append(number)
    # Runs of about as many steps go together: a step has the lanes that are not at their end.
    few.sort(key=whole.__getitem__, reverse=True)
    while few:
        some, together, entries, least = 0, 0, 0, whole[few[0]] // _STEPS_RATIO
        size = 0
        while some < len(few) and together < _MAX_LANES and entries < _MAX_ENTRIES:
            run = runs[few[some]]
            if whole[few[some]] < least:
                break
            together += run.starts.size
            entries += 1 << int(run.lengths.max())
            size += run.lanes.size
            some += 1
        if some == 1 or lanes.jumps_pay(8 * size, whole[few[0]]):
            alone += few[:some]
        else:
            for number, decoded in zip(few, _decode_few([runs[n] for n in few[:some]]), strict=False):
                found[number] = decoded
        del few[:some]
    for number in alone:
        try:
            found[number] = lanes.decode(runs[number])
        except DataError as error:
            found[number] = error
    return found


def _decode_few(runs: Sequence[LaneRun]) -> list[Symbols]:
    """Decode runs together, those with most steps first."""
    symbols, position, found = *_step(runs), list[Symbols]()
    first, start = 0, 0
    for run, own in zip(runs, symbols, strict=True):
        last = first + run.starts.size
        try:
            run.check_ends(position[first:last] - 8 * start)
            found.append(own)
        except DataError as error:
            found.append(error)
        first, start = last, start + run.lanes.size
    return found


def _step(runs: Sequence[LaneRun]) -> tuple[list[Array], Array]:
    """Decode runs, those with most steps first; return their symbols, and where lanes end, in bits.

    The bytes of the runs lie end to end.
    """
    words = lanes.words_of(np.concatenate([run.lanes for run in runs]))
    begins = np.cumsum([0, *(run.lanes.size for run in runs)])
    position = np.concatenate([run.starts + 8 * begin for run, begin in zip(runs, begins[:-1], strict=True)])
    position = position.astype(np.uint64)
    sizes = [run.starts.size for run in runs]
    tables, edges = _RunTables([run.lengths for run in runs], sizes), np.cumsum([0, *sizes])
    whole = [run.count // run.starts.size for run in runs]
    rows = np.empty((whole[0], position.size), np.uint8)
    first = 0
    for number in range(len(runs) - 1, -1, -1):
        last, going = whole[number], slice(edges[number + 1])
        tables.read(words, position[going], rows[first:last, going], going)
        first = last
    left = [run.count % run.starts.size for run in runs]
    some = np.concatenate([np.arange(edge, edge + more) for edge, more in zip(edges[:-1], left, strict=True)])
    at, ends = position[some], np.empty((1, some.size), np.uint8)
    tables.read(words, at, ends, some)
    position[some] = at
    rest = np.split(ends[0], np.cumsum(left[:-1]))
    return [
        np.concatenate([rows[: whole[n], edges[n] : edges[n + 1]].reshape(-1), rest[n]])
        for n in range(len(runs))
    ], position.view(np.int64)


class _RunTables:
    """What the next bits of a lane start with, by the code of its run; tables lie end to end.

    `codes` are the code lengths of each run, and `sizes` how many lanes each has.
    """

    def __init__(self, codes: Sequence[Array], sizes: Sequence[int]) -> None:
        bits = [int(lengths.max()) for lengths in codes]
        entries = np.array([1 << each for each in bits], np.uint64)
        self._symbols = np.empty(int(entries.sum()), np.uint8)
        self._lengths = np.empty_like(self._symbols)  # bytes stay in the cache
        start = 0
        for lengths in codes:
            table = lanes.lookup_tables(lengths, 1)
            here = slice(start, start := start + table.length.size)
            self._symbols[here], self._lengths[here] = table.symbols[0], table.length
        self._mask = np.repeat(entries - 1, sizes)  # of the bits that are looked at, by lane
        self._begin = np.repeat(np.cumsum(entries) - entries, sizes)  # of its table
        self._lookups = lanes.WORD_BITS // max(bits)  # in a word

    def read(self, words: Array, position: Array, rows: Array, which: slice | Array) -> None:
        """Decode a symbol of some lanes into each of `rows`; `position`, in bits, is moved on."""
        mask, begin = self._mask[which], self._begin[which]
        word, used, code, length = (np.empty(position.size, np.uint64) for _ in range(4))
        place, bits = code.view(np.int64), np.empty(position.size, np.uint8)
        for start in range(0, len(rows), self._lookups):
            np.right_shift(position, 4, out=code)
            words.take(place, out=word, mode="clip")
            np.bitwise_and(position, 15, out=used)
            np.right_shift(word, used, out=word)
            for row in rows[start : start + self._lookups]:
                np.bitwise_and(word, mask, out=code)
                np.add(code, begin, out=code)
                self._lengths.take(place, out=bits, mode="clip")
                length[:] = bits
                np.right_shift(word, length, out=word)
                np.add(position, length, out=position)
                self._symbols.take(place, out=row, mode="clip")


def read_stream(cursor: Cursor, count: int) -> Form:
    """Return the `count` symbols of a stream, in the form they are stored in.

    A ``DataError`` says that it breaks a rule of SPEC 7.
    """
    return finish(reading(cursor, count))


def reading(
    cursor: Cursor, count: int, depth: int = 1, references: References | None = None
) -> Reading[Form]:
    """Read a stream as :func:`read_stream` does, beside others.

    `depth` is how deep the stream lies inside others, 1 for the outermost. `references` are given
    for an outermost stream of byte planes that has a reference.
    """
    _check_depth(depth, cursor.where)
    mode = cursor.integer("B", "stream mode")
    if mode == STREAM_CONSTANT:
        value = cursor.integer("B", "constant")
        if value == 0:
            return Sparse(np.empty(0, np.int64), np.empty(0, np.uint8))
        return np.full(count, value, np.uint8)
    if mode == STREAM_RAW:
        return np.frombuffer(cursor.take(count, "raw symbols"), np.uint8)
    if mode == STREAM_HUFFMAN:
        if count == 0:
            raise FormatError("LCC-STR-02", cursor.where, "a Huffman run has no symbols")
        (symbols,) = yield [read_run(cursor, count)]
        if isinstance(symbols, DataError):
            raise symbols
        return symbols
    if mode == STREAM_PACKED:
        return (yield from _read_packed(cursor, count, depth))
    if mode == STREAM_SPARSE:
        opened = yield from _open_sparse(cursor, count, depth)
        return opened.close((yield from _decoded(opened)))
    if mode == STREAM_CLASSED:
        return (yield from _read_classed(cursor, count, depth))
    if mode == STREAM_SPLIT:
        return (yield from _read_split(cursor, count, references))
    raise UnsupportedError("LCC-STR-01", cursor.where, f"stream mode {mode} is not defined")


def _check_depth(depth: int, where: str) -> None:
    if depth > MAX_STREAM_DEPTH:
        raise LimitError("LCC-STR-03", where, f"streams nested more than {MAX_STREAM_DEPTH} deep")


def _read_packed(cursor: Cursor, count: int, depth: int) -> Reading[Packed]:
    width = cursor.integer("B", "packing width")
    if width not in (1, 2, 4):
        raise FormatError("LCC-STR-05", cursor.where, f"packing width {width} is not 1, 2 or 4")
    size = packed_size(count, width)
    groups = dense((yield from reading(cursor, size, depth + 1)), size)
    if not is_filled(groups, count, width):
        raise FormatError("LCC-STR-05", cursor.where, "the padding of the last group is not zero")
    return Packed(groups, width)


def _decoded(*streams: _Opened) -> Reading[Iterator[Symbols]]:
    """Decode the Huffman runs of opened streams side by side; return what was found, in order."""
    runs = [run for stream in streams for run in _runs_of(stream)]
    return iter((yield runs) if runs else ())


def _runs_of(stream: _Opened) -> Iterator[LaneRun]:
    """Yield the Huffman runs of an opened stream."""
    if isinstance(stream, LaneRun):
        yield stream
    elif isinstance(stream, _Gaps):
        for part in (stream.high, stream.values):
            yield from _runs_of(part)


@dataclass(frozen=True, eq=False)
class _Gaps:
    """A sparse stream whose Huffman runs are not decoded yet, also those of sparse ones in it.

    So all of them go side by side. What is read behind a run may have an error. It is kept, because
    the error of the run goes first, and nothing is read behind it.
    """

    count: int  # symbols of the stream
    stored: int  # how many of them are
    low: int  # low bits of each gap
    high: _Opened
    lows: Array | DataError
    values: _Opened  # the symbols behind the gaps
    size: int  # bytes of the stream
    where: str  # what errors call its place

    def close(self, decoded: Iterator[Symbols]) -> Sparse | Array:
        """Return the symbols, or raise the first error; those of runs come next in `decoded`."""
        lows, low, stored = self.lows, self.low, self.stored
        high = dense(_closed(self.high, decoded), stored)
        if isinstance(lows, DataError):
            raise lows
        last = (int(high.sum(dtype=np.int64)) << low) + int(lows.sum(dtype=np.int64)) + stored - 1
        if last >= self.count:
            message = f"a gap leads to position {last} of {self.count} symbols"
            raise FormatError("LCC-STR-06", self.where, message)
        values = dense(_closed(self.values, decoded), stored)
        _check_places(stored, self.size, self.where)
        if stored * DENSE_RATIO <= self.count:
            return Sparse(positions(high, lows, low, 0), values)
        symbols = np.zeros(self.count, np.uint8)
        scatter(values, high, lows, low, symbols)
        return symbols


#: A stream that was read, but for its Huffman runs; or its error.
_Opened: TypeAlias = Form | LaneRun | _Gaps | DataError


def _open_sparse(cursor: Cursor, count: int, depth: int) -> Reading[_Gaps]:
    """Open a sparse stream whose mode was read."""
    start = cursor.position - 1
    low = cursor.integer("B", "low bits")
    stored = cursor.integer("I", "count of gaps")
    if low > 8 or stored > count:
        message = f"{stored} gaps with {low} low bits for {count} symbols"
        raise FormatError("LCC-STR-06", cursor.where, message)
    high = yield from _open(cursor, stored, depth + 1)
    lows: Array | DataError
    try:
        lows = high if isinstance(high, DataError) else _low_parts(cursor, stored, low)
    except DataError as error:
        lows = error
    values = lows if isinstance(lows, DataError) else (yield from _open(cursor, stored, depth + 1))
    return _Gaps(count, stored, low, high, lows, values, cursor.position - start, cursor.where)


def _low_parts(cursor: Cursor, stored: int, low: int) -> Array:
    if not low:
        return np.zeros(0, np.uint8)
    parts = cursor.take(packed_size(stored, low), "low bits of the gaps")
    if not is_filled(parts, stored, low):
        raise FormatError("LCC-STR-06", cursor.where, "the padding behind the low bits is not zero")
    return unpack(parts, stored, low)


def _open(cursor: Cursor, count: int, depth: int) -> Reading[_Opened]:
    """Open a stream in another one: read it, but for Huffman runs that go side by side."""
    try:
        _check_depth(depth, cursor.where)
        mode = cursor.next_byte()
        if mode == STREAM_HUFFMAN and count:
            cursor.skip(1, "stream mode")
            return read_run(cursor, count)
        if mode == STREAM_SPARSE:
            cursor.skip(1, "stream mode")
            return (yield from _open_sparse(cursor, count, depth))
        return (yield from reading(cursor, count, depth))
    except DataError as error:
        return error


def _closed(stream: _Opened, decoded: Iterator[Symbols]) -> Form:
    """Return the symbols of an opened stream, or raise its error, as `_Gaps.close`."""
    found = next(decoded) if isinstance(stream, LaneRun) else stream
    if isinstance(found, DataError):
        raise found
    return found.close(decoded) if isinstance(found, _Gaps) else found


def _positions(high: Array, lows: Array, low: int, first: int) -> Array:
    """Return positions (int64), given the parts of gaps that begin at position `first`.

    `high` and `lows` are uint8; without low bits there are no `lows`.
    """
    gaps = high.astype(np.uint16)
    if low:
        gaps <<= low
        gaps |= lows
    places = gaps.astype(np.int64)
    places[1:] += 1
    places[:1] += first
    return np.cumsum(places, out=places)


def _positions_loop(high: Array, lows: Array, low: int, first: int) -> Array:
    places = np.empty(high.size, np.int64)
    place = np.int64(first)
    for number in range(high.size):
        place += np.int64(high[number]) << low
        if low:
            place += np.int64(lows[number])
        places[number] = place
        place += 1
    return places


positions = kernel(_positions, _positions_loop, "in u1, in u1, i8, i8")


def _scatter(values: Array, high: Array, lows: Array, low: int, symbols: Array) -> None:
    """Write values (uint8) at their places into `symbols`; the gaps are as in `_positions`."""
    first = 0
    for part in slices(values.size, PIECE):  # the places of a piece stay in the cache
        places = _positions(high[part], lows[part], low, first)
        symbols[places] = values[part]
        first = int(places[-1]) + 1


def _scatter_loop(values: Array, high: Array, lows: Array, low: int, symbols: Array) -> None:
    place = np.int64(0)
    for number in range(values.size):
        place += np.int64(high[number]) << low
        if low:
            place += np.int64(lows[number])
        symbols[np.uint64(place)] = values[number]
        place += 1


scatter = kernel(_scatter, _scatter_loop, "in u1, in u1, in u1, i8, out u1")


def _check_places(places: int, size: int, where: str) -> None:
    """Raise ``LimitError`` if a stream of so many bytes is short for so many places."""
    if places > MAX_STREAM_PLACES * size:
        raise LimitError("LCC-LIM-14", where, f"a stream of {size} bytes has {places} places")


def _read_classed(cursor: Cursor, count: int, depth: int) -> Reading[Sparse]:
    start = cursor.position - 1
    if depth > 1:
        raise FormatError("LCC-STR-07", cursor.where, "a classed stream lies inside another stream")
    columns = cursor.integer("H", "columns")
    rows = -(-count // max(columns, 1))
    if not 0 < columns <= count or rows > MAX_SIDE:
        raise FormatError("LCC-STR-07", cursor.where, f"{columns} columns do not fit {count} symbols")
    number = cursor.integer("B", "classes")
    if not 1 < number <= MAX_CLASSES:
        raise FormatError("LCC-STR-07", cursor.where, f"{number} classes")
    bounds = np.frombuffer(cursor.take(number - 1, "bounds of classes"), np.uint8)
    if (bounds[1:] <= bounds[:-1]).any():
        raise FormatError("LCC-STR-07", cursor.where, f"the bounds {bounds.tolist()} do not rise")
    sizes = read_numbers(cursor.take(4 * number - 4, "sizes of classes"), np.uint32).tolist()
    sizes.append(rows * columns - sum(sizes))  # negative if the sizes do not fit the levels
    levels = []
    for extent in (rows, columns):
        levels.append(dense((yield from reading(cursor, extent, depth + 1)), extent))
    if max(int(level.max()) for level in levels) > MAX_LEVEL:
        raise FormatError("LCC-STR-07", cursor.where, f"a level above {MAX_LEVEL}")
    classes = Classes(levels[0], levels[1], bounds)
    if classes.sizes != sizes:
        message = f"the classes have sizes {sizes}, but the levels give {classes.sizes}"
        raise FormatError("LCC-STR-07", cursor.where, message)
    streams = []
    for size in sizes:
        streams.append((yield from reading(cursor, size, depth + 1)))
    _check_places(sum(map(nonzero_count, streams, sizes)), cursor.position - start, cursor.where)
    cells = []
    for k, size in enumerate(sizes):
        found = as_sparse(streams[k], size)
        cells.append(classes.collect(k, found.positions) << 8 | found.values)
    # Each class is sorted already, which makes a stable sort fast.
    together = np.sort(np.concatenate(cells), kind="stable")
    positions = together >> 8
    if together.size and int(positions[-1]) >= count:
        raise FormatError("LCC-STR-07", cursor.where, "a symbol behind the last one is not 0")
    return Sparse(positions, together.astype(np.uint8))


def _read_split(cursor: Cursor, count: int, references: References | None) -> Reading[Sparse | Array]:
    start = cursor.position - 1
    if references is None:
        message = "a split stream lies inside another stream, or has no reference"
        raise FormatError("LCC-STR-08", cursor.where, message)
    number = cursor.integer("B", "parts")
    if not 0 < number <= MAX_PARTS:
        raise FormatError("LCC-STR-08", cursor.where, f"{number} parts")
    dtype = references.bits.dtype
    bounds = read_numbers(cursor.take(number * dtype.itemsize, "bounds of parts"), dtype)
    if (bounds[1:] <= bounds[:-1]).any():
        raise FormatError("LCC-STR-08", cursor.where, f"the bounds {bounds.tolist()} do not rise")
    sizes = read_numbers(cursor.take(4 * number, "sizes of parts"), np.uint32).tolist()
    if sum(sizes) > count:
        raise FormatError("LCC-STR-08", cursor.where, f"parts have {sum(sizes)} of {count} components")
    sizes.append(count)
    opened = []
    for size in sizes:
        opened.append((yield from _open(cursor, size, 2)))
    decoded = yield from _decoded(*opened)
    streams = [_closed(stream, decoded) for stream in opened]
    size = cursor.position - start
    _check_places(sum(map(nonzero_count, streams, sizes)), size, cursor.where)
    if count > MAX_SPLIT_SYMBOLS * size:
        raise LimitError("LCC-LIM-14", cursor.where, f"a split stream of {size} bytes has {count} symbols")
    parts = references.parts(bounds)
    found = [part.size for part in parts]
    if found != sizes[:-1]:
        message = f"parts have the sizes {sizes[:-1]}, but the reference gives {found}"
        reason = "the reference is not the one it was coded against"
        raise ChecksumError("LCC-STR-09", cursor.where, f"{message}: {reason}")
    own = list(map(as_sparse, streams[:-1], sizes))
    places = [part.take(run.positions) for part, run in zip(parts, own, strict=True)]
    return _joined(streams[-1], count, places, [run.values for run in own], cursor.where)


def _joined(rest: Form, count: int, places: list[Array], values: list[Array], where: str) -> Sparse | Array:
    """Return a run of `count` symbols, and with it those of its parts; no place may have two."""
    message = "a component has two symbols that are not 0"
    if isinstance(rest, Sparse):
        rest = as_sparse(rest, count)
        together = np.concatenate([rest.positions, *places])
        together <<= 8
        together |= np.concatenate([rest.values, *values])
        together.sort(kind="stable")  # each of them is sorted already, which makes this fast
        positions = together >> 8
        if (positions[1:] == positions[:-1]).any():
            raise ChecksumError("LCC-STR-09", where, message)
        return Sparse(positions, together.astype(np.uint8))
    symbols = dense(rest, count).copy()
    for at, own in zip(places, values, strict=True):
        if symbols.take(at).any():
            raise ChecksumError("LCC-STR-09", where, message)
        symbols[at] = own
    return symbols
