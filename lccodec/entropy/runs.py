"""Runs of small symbols in memory: dense, sparse or packed. Stream forms are in `stream_writer`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ..element_types import Array
from ..masks import true_places
from ..parallel import slices
from .bits import unpack

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
