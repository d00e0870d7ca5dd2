"""Runs of small symbols in memory: dense, sparse or packed. Stream forms are in `stream_writer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..element_types import Array
from .bits import unpack
from .masks import true_places


@dataclass(frozen=True)
class Sparse:
    """A run of symbols given by those that are not 0; all others are 0."""

    positions: Array  # int64, rising
    values: Array  # uint8, one for each position


@dataclass(frozen=True)
class Packed:
    """A run of symbols of ``width`` bits each, packed into the bytes ``groups`` (uint8)."""

    groups: Array
    width: int


#: A run of symbols, in the form it is stored in.
Form: TypeAlias = Array | Sparse | Packed


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


def dense(run: Form, count: int) -> Array:
    """Return a run of `count` symbols as uint8 of shape ``(count,)``."""
    if isinstance(run, Packed):
        return unpack(run.groups, count, run.width)
    if isinstance(run, Sparse):
        symbols = np.zeros(count, np.uint8)
        symbols[run.positions] = run.values
        return symbols
    return run
