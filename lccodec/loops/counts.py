"""How often byte values occur, and the sums of numbers by their symbols. Source: SPEC 7.2."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..element_types import Array
from ..parallel import slices
from . import kernel

#: From this many symbols on, counting pairs of bytes takes less time than counting bytes.
_MIN_PAIRED_SYMBOLS: Final = 1 << 17
_PAIRS_AT_A_TIME: Final = 1 << 18  # NumPy makes eight bytes of each


def _histogram(data: Array) -> Array:
    """Return how often each of the 256 byte values occurs in `data` (uint8), as int64."""
    if data.size < _MIN_PAIRED_SYMBOLS:
        return np.bincount(data, minlength=256)
    whole = data[: data.size & ~1].view(np.uint16)
    pairs = np.zeros((256, 256), np.int64)
    for part in slices(whole.size, _PAIRS_AT_A_TIME):
        pairs += np.bincount(whole[part], minlength=1 << 16).reshape(256, 256)
    counts: Array = pairs.sum(axis=0) + pairs.sum(axis=1)
    if data.size & 1:
        counts[data[-1]] += 1
    return counts


def _histogram_loop(data: Array) -> Array:
    # Equal symbols next to each other do not wait for each other in four tables.
    counts = np.zeros((4, 256), np.int64)
    whole = data.size & ~3
    for place in range(0, whole, 4):
        counts[0, data[place]] += 1
        counts[1, data[place + 1]] += 1
        counts[2, data[place + 2]] += 1
        counts[3, data[place + 3]] += 1
    for place in range(whole, data.size):
        counts[0, data[place]] += 1
    total: Array = counts.sum(axis=0)
    return total


histogram = kernel(_histogram, _histogram_loop, "in u1")


def tally(symbols: Array, numbers: Array, unit: float, count: int) -> tuple[Array, Array]:
    """Return how many numbers have each of `count` symbols, and the sums of these, float64.

    Numbers are multiplied by `unit` before.
    """
    counts, sums = np.zeros(count, np.int64), np.zeros(count)
    form = _tally if symbols.itemsize <= 2 and numbers.dtype.char in "fd" else _tally_numpy
    form(symbols, numbers, numbers.dtype.type(unit), counts, sums)
    return counts, sums


def _tally_numpy(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    places = symbols.astype(np.intp)  # once for both
    counts += np.bincount(places, minlength=counts.size)
    sums += np.bincount(places, numbers if unit == 1 else numbers * unit, minlength=sums.size)


def _tally_loop(symbols: Array, numbers: Array, unit: Any, counts: Array, sums: Array) -> None:
    for place in range(symbols.size):
        counts[symbols[place]] += 1
        sums[symbols[place]] += numbers[place] * unit


_tally = kernel(
    _tally_numpy,
    _tally_loop,
    *(f"in {s}, in {t}, {t}, out i8, out f8" for s in ("u1", "u2") for t in ("f4", "f8")),
)
