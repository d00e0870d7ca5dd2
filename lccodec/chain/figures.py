"""What a save measures: how far arrays spread and moved, and what their restored values lost.

Only the save has both a state and what a restore of its checkpoint will return. It compares them on
a sample (:mod:`lccodec.chain.sample`), and keeps that of the state for the next save.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ..container.figures import FIGURES, StoredFigures
from ..element_types import Array, work
from ..policy.policy import Candidate
from .decoded import DecodedArray
from .sample import Sampling


@dataclass(frozen=True)
class Figures:
    """What a save measured of an array or, combined, of the arrays of a role; ``None`` if unknown.

    They are estimates by a sample, of three digits. Spread, movement and error have the unit of the
    values. They are root mean squares over elements, also where arrays are combined.

    Parameters
    ----------
    spread
        How far the values lie from their mean; combined, from the mean of their array. Of equal
        values, their size.
    movement
        How far the values moved since the save before.
    error
        How far restored values lie from the values that were saved.
    lag
        How far restored values lie behind, along the last movement, in intervals between saves: 1
        where they are those of the save before, 0 where they are not behind.
    """

    spread: float | None = None
    movement: float | None = None
    error: float | None = None
    lag: float | None = None

    @property
    def error_in_movements(self) -> float | None:
        """The error in movements: 1 is as far as the values moved since the save before."""
        return _ratio(self.error, self.movement)

    @property
    def error_in_spreads(self) -> float | None:
        """The error in spreads: 1 is as far as the values lie from their mean."""
        return _ratio(self.error, self.spread)

    def numbers(self) -> dict[str, float | None]:
        """Return all numbers by name: those that are stored, and the error in both other units.

        Examples
        --------
        >>> Figures(spread=2.0, error=0.5).numbers()["error_in_spreads"]
        0.25
        """
        ratios = {
            "error_in_movements": self.error_in_movements,
            "error_in_spreads": self.error_in_spreads,
        }
        return {**vars(self), **ratios}


#: The figures of an array that nothing is known of.
UNKNOWN: Final = Figures()


def _ratio(number: float | None, unit: float | None) -> float | None:
    return None if number is None or not unit else number / unit


def read_figures(stored: StoredFigures | None, arrays: int) -> list[Figures]:
    """Return the figures of each array of a checkpoint."""
    if stored is None:
        return [UNKNOWN] * arrays
    columns = [stored.read(name, arrays).tolist() for name in FIGURES]
    return [Figures(*(None if math.isnan(n) else n for n in row)) for row in zip(*columns, strict=True)]


def combined(arrays: Iterable[tuple[Figures, int]]) -> Figures:
    """Return the figures of several arrays together; each array comes with its number of elements.

    Their movement and lag are known only if those of all are. What is left of a role after a
    restart without the original may be its exact arrays, and their 0 is not the error of the role.
    """
    found = list(arrays)
    if any(figures.movement is None for figures, _ in found):
        found = [(replace(figures, movement=None, lag=None), count) for figures, count in found]

    def size(name: str) -> float | None:
        numbers = [(getattr(figures, name), count) for figures, count in found]
        known = [(number, count) for number, count in numbers if number is not None]
        total = sum(count for _, count in known)
        return math.sqrt(sum(n * n * count for n, count in known) / total) if total else None

    lags = [(f.lag, (f.movement or 0) ** 2 * count) for f, count in found if f.lag is not None]
    moved = sum(weight for _, weight in lags)
    lag = sum(lag * weight for lag, weight in lags) / moved if moved else None
    return Figures(size("spread"), size("movement"), size("error"), lag)


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample that is taken before it is coded.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    samples
        The sample of each floating point array, by name.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        self._arrays = arrays
        self._sampling = Sampling(arrays)
        self._batches: list[_Batch] = []
        self.samples: dict[str, Array] = {}
        for indices, sizes in self._sampling.batches():
            batch = _Batch(indices, sizes, self._joined(indices, [arrays[index].bits for index in indices]))
            self._batches.append(batch)
            ends = np.cumsum(sizes).tolist()
            for index, end, size in zip(indices, ends, sizes.tolist(), strict=True):
                self.samples[arrays[index].name] = batch.bits[end - size : end]

    def _joined(self, indices: Sequence[int], arrays: Sequence[Array]) -> Array:
        """Return the samples of arrays end to end: a copy."""
        return np.concatenate(list(map(self._sampling.of, indices, arrays)))

    def figures(
        self, decoded: Mapping[str, DecodedArray], before: Mapping[str, Array], since: int | None
    ) -> StoredFigures | None:
        """Return the figures of the checkpoint.

        Parameters
        ----------
        decoded
            The arrays as a restore returns them, by name.
        before
            Samples of the state of the save before, as far as they are known.
        since
            The step of that save.
        """
        columns = {name: np.full(len(self._arrays), np.nan) for name in FIGURES}
        for batch in self._batches:
            arrays = [self._arrays[index] for index in batch.indices]
            after = self._joined(batch.indices, [decoded[c.name].bits for c in arrays])
            past = [before.get(c.name) if c.reference is not None else None for c in arrays]
            sizes = batch.sizes.tolist()
            fits = [there is not None and there.size == n for there, n in zip(past, sizes, strict=True)]
            values = partial(work, kind=arrays[0].kind)
            moved = None
            if any(fits):
                own = (self.samples[c.name] for c in arrays)  # they did not move, as far as is known
                both = zip(past, own, fits, strict=True)
                moved = values(np.concatenate([there if fit else here for there, here, fit in both]))
            found = batch.measure(values(batch.bits), values(after), moved)
            for name, numbers in found.items():
                known = numbers if name in ("spread", "error") else np.where(fits, numbers, np.nan)
                columns[name][batch.indices] = known
        return StoredFigures.of(since, columns)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Arrays of one type: their indices, the sizes of their samples, and these end to end."""

    indices: list[int]
    sizes: Array
    bits: Array

    @np.errstate(all="ignore")  # of hostile values too
    def measure(self, values: Array, decoded: Array, before: Array | None) -> dict[str, Array]:
        """Return the figures of each array (LCC-FIG-05), float64; NaN where they are not known."""
        counts, starts = self.sizes, np.cumsum(self.sizes) - self.sizes
        x, d = values.astype(np.float64), decoded.astype(np.float64)
        p = x if before is None else before.astype(np.float64)
        sums = _sums(x, d, p, starts, self.sizes)
        if not np.isfinite(sums).all():
            finite = np.isfinite(x) & np.isfinite(d) & np.isfinite(p)
            counts = np.add.reduceat(finite, starts, dtype=np.int64)
            most = np.maximum.reduceat(np.where(finite, x, -np.inf), starts)
            x = np.where(finite, x, np.repeat(most, self.sizes))  # adds nothing to the sums
            d, p = np.where(finite, d, x), np.where(finite, p, x)
            sums = _sums(x, d, p, starts, self.sizes)
        counts = np.where(counts > 0, counts, np.nan)
        around, squares, errors, moved, along = sums
        spreads = np.sqrt((squares - np.square(around) / counts) / counts)
        return {
            "spread": np.where(squares != 0, spreads, np.abs(x[starts])),
            "movement": np.sqrt(moved / counts),
            "error": np.sqrt(errors / counts),
            "lag": -along / moved,
        }


def _sums(x: Array, d: Array, p: Array, starts: Array, sizes: Array) -> list[Array]:
    """Return what the figures of arrays are made of: five sums for each array.

    They are those of the distances from the first value and of their squares, of the squares of the
    errors and of the movements, and of the products of these two.
    """
    around, error, movement = x - np.repeat(x[starts], sizes), d - x, x - p
    products = (around, around * around, error * error, movement * movement, error * movement)
    return [np.add.reduceat(each, starts) for each in products]
