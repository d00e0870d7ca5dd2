"""Huffman runs of several streams, decoded side by side.

A step of few lanes takes the time of its NumPy calls, not of its work. The lanes of many runs go
step by step together, each with the table of its run.

So that streams can be read side by side, reading one is a generator. It yields the Huffman runs
that it needs decoded, and gets their symbols, or the error that one has instead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np

from ..element_types import Array
from ..errors import DataError
from ..loops import is_compiled
from . import lanes
from .lanes import LaneRun

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

    Parameters
    ----------
    codes
        The code lengths of each run.
    sizes
        How many lanes each run has.
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
