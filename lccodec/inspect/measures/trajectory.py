"""The figures of arrays over the steps of a run, added step by step.

They are those of the run. What its saves measured is taken where an array has lost something: of
decoded states, movement would be that of the codec as well, and small values would count as zeros.
Where nothing was lost, all elements of the decoded array are measured, and have a histogram. Where
something was, there are the quantiles that the save measured: no histogram is made up from them.

Arrays of the step before that lost nothing are copied, as a delta is decoded over its parent's
arrays. So up to one state more is held than is decoded. With originals of several steps it is two
more: an original, and a copy of the one before.
"""

from __future__ import annotations

import math
from array import array as packed
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from ...chain.read.replay import DecodedArray
from ...container.figures import UNKNOWN, Figures
from ...element_types import Array
from ...errors import LccodecError
from ..report import FIGURES, ArrayRow, Histogram
from .bins import Bins
from .loss import NOTHING_KNOWN, LossTable, Lost, measure_loss
from .movement import measure
from .originals import Originals, original_bits
from .rank import change_rank

_COUNT = "not_finite"  # elements; all else is measured
_MEASURED = ("movement", "rms", "zeros", "minimum", "maximum", _COUNT)
_OF_VALUES = ("rms", "minimum", "maximum", _COUNT)  # a small error changes them little


class Told(NamedTuple):
    """What is known of an array at a step: what its save measured, and whether it lost something.

    A save that measured no error lost nothing. Without figures, `lossy` decides.
    """

    figures: Figures
    lossy: bool

    @classmethod
    def of(cls, figures: Figures, lossy: bool) -> Self:
        """Return what is known, by the figures if they say it."""
        return cls(figures, lossy if figures.error is None else figures.error != 0)


_EXACT = Told(UNKNOWN, False)


class Trajectory:
    """What is measured of the shown arrays at the shown steps.

    With `originals`, `losses` has what was lost, `original` that of the step added last, and
    `problems` why originals could not be read.
    """

    def __init__(self, rows: Sequence[ArrayRow], originals: Originals | None = None) -> None:
        self.steps: list[int] = []
        # Eight bytes a number: as Python objects, those of a long run take as much as a state.
        self._series = {name: [packed("d") for _ in rows] for name in FIGURES}
        self.losses = LossTable(originals.label if originals else "", rows)
        self.original: Mapping[str, Any] | None = None
        self.problems: list[str] = []
        self._rows = rows
        self._originals = originals
        self._bins = [Bins() for _ in rows]
        self._quantiles: list[list[Sequence[float]]] = [[] for _ in rows]
        self._step: int | None = None  # the step before
        self._before: dict[str, DecodedArray] = {}  # of it, what lost nothing
        self._sizes: dict[str, tuple[int, float | None]] = {}  # root mean squares, and of which step
        self._originals_before: dict[str, DecodedArray] = {}
        self._last_original = max(originals.steps, default=None) if originals else None

    def add(
        self,
        step: int,
        arrays: Mapping[str, DecodedArray | LccodecError],
        told: Mapping[str, Told] | None = None,
        since: int | None = None,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Add a step. Arrays that are missing, or are errors, have no figures at it.

        Parameters
        ----------
        told
            What is known of each array; those that it does not have count as exact.
        since
            The step that the movements begin at which the save measured.
        sizes
            The elements of arrays that were not decoded: all is known of them.
        """
        self.steps.append(step)
        originals = self.original = self._original(step)
        if originals is None:
            self._originals_before.clear()
        lost: list[Lost] = []
        for row, bins, index in zip(self._rows, self._bins, range(len(self._rows)), strict=True):
            array = arrays.get(row.name)
            decoded = array if isinstance(array, DecodedArray) else None
            figures, lossy = (told or {}).get(row.name, _EXACT)
            bins.begin()
            values: dict[str, float | None] = {}
            if decoded is None:
                if row.name in sizes:
                    values = _values_told(figures)
            elif lossy:
                values = _values_of_lossy(decoded, figures, bins)
            else:
                values = self._of_exact(row.name, decoded, figures, since, bins)
            told_here = (row.name in sizes if decoded is None else lossy) and bool(values)
            self._quantiles[index].append(_quantiles(figures) if told_here else ())
            if values and lossy:
                values["movement"] = self._relative(row.name, figures, since)
                values["error"] = figures.error_in_movements
                values["lag"] = figures.lag
            if values:
                self._sizes[row.name] = step, values.get("rms")
            self._append(index, values)
            if originals is not None:
                lost.append(self._lost(step, originals, decoded, row.name, figures))
            if decoded is None or lossy:
                self._before.pop(row.name, None)
            else:
                _keep(self._before, row.name, decoded)
        self._step = step
        if originals is not None:
            self.losses.add(step, lost)

    def _of_exact(
        self, name: str, array: DecodedArray, figures: Figures, since: int | None, bins: Bins
    ) -> dict[str, float | None]:
        """Return the figures of an array that lost nothing."""
        before = _fitting(self._before, name, array)
        found = measure(array.bits, before, array.kind, bins)
        values: dict[str, float | None] = {figure: getattr(found, figure) for figure in _MEASURED}
        if before is not None:
            values["rank"] = change_rank(array.bits, before, array.kind, array.shape)
        if figures.movement is not None and (before is None or since != self._step):
            values["movement"] = self._relative(name, replace(figures, rms=found.rms), since)
        moved = values["movement"]
        return {**values, "error": 0.0 if moved else None, "lag": 0.0 if moved else None}

    def _relative(self, name: str, figures: Figures, since: int | None) -> float | None:
        """Return a movement over the size of the values that moved, or of what they became."""
        step, size = self._sizes.get(name, (None, None))
        if step != since or since is None or not size:
            return figures.relative_movement
        return None if figures.movement is None else figures.movement / size

    def _original(self, step: int) -> Mapping[str, Any] | None:
        if self._originals is None or step not in self._originals.steps:
            return None
        try:
            return self._originals.state(step)
        except LccodecError as error:
            self.problems.append(f"The original of step {step} cannot be read: {error}")
            return None

    def _lost(
        self,
        step: int,
        originals: Mapping[str, Any],
        array: DecodedArray | None,
        name: str,
        measured: Figures,
    ) -> Lost:
        """Return what an array lost, beside what its save `measured`."""
        exact = None if array is None else original_bits(originals, name, array)
        if array is None or exact is None:
            self._originals_before.pop(name, None)
            return NOTHING_KNOWN
        before = _fitting(self._originals_before, name, array)
        if before is None:
            before = _fitting(self._before, name, array)
        lost = measure_loss(array.bits, exact, before, array.kind, measured)
        if step != self._last_original:
            _keep(self._originals_before, name, DecodedArray(array.kind, array.shape, exact))
        return lost

    def _append(self, index: int, values: Mapping[str, float | None]) -> None:
        for name in FIGURES:
            value = values.get(name)
            self._series[name][index].append(math.nan if value is None else value)

    def finish(self) -> dict[str, list[list[float | None]]]:
        """Return the figures, and give up the states that were kept for the next step.

        For each of `FIGURES` there is one list for each array, with one number for each step.
        """
        self._before.clear()
        self._originals_before.clear()
        self.original = None
        found: dict[str, list[list[float | None]]] = {}
        for name, rows in self._series.items():
            kind = int if name == _COUNT else float
            found[name] = [[None if math.isnan(x) else kind(x) for x in series] for series in rows]
        return found

    def histograms(self) -> list[Histogram | None]:
        """Return the histogram of each array over the steps."""
        return [bins.histogram() for bins in self._bins]

    def quantiles(self) -> list[list[Sequence[float]] | None]:
        """Return what the saves measured of each array over the steps, as `Run.quantiles`."""
        return [series if any(series) else None for series in self._quantiles]


def _fitting(arrays: Mapping[str, DecodedArray], name: str, like: DecodedArray) -> Array | None:
    """Return the components of the step before, if they have the same type and shape."""
    before = arrays.get(name)
    fits = before is not None and (before.kind, before.shape) == (like.kind, like.shape)
    return before.bits if before is not None and fits else None


def _keep(arrays: dict[str, DecodedArray], name: str, array: DecodedArray) -> None:
    """Copy an array for the next step, over the copy before if that has its type and shape."""
    before = _fitting(arrays, name, array)
    if before is None:
        arrays[name] = DecodedArray(array.kind, array.shape, array.bits.copy())
    else:
        np.copyto(before, array.bits)


def _values_of_lossy(array: DecodedArray, figures: Figures, bins: Bins) -> dict[str, float | None]:
    """Return how the values of an array lie that lost something; as decoded, if that is all."""
    if figures.rms is None or array.kind.kind == "c":  # a complex number counts by its magnitude
        found = measure(array.bits, None, array.kind, bins)
        return {figure: getattr(found, figure) for figure in _OF_VALUES}
    if not _quantiles(figures):
        measure(array.bits, None, array.kind, bins)
    return _values_told(figures)


def _values_told(figures: Figures) -> dict[str, float | None]:
    """Return how the values of an array lie, as its save measured them."""
    return {figure: getattr(figures, figure) for figure in (*_OF_VALUES, "zeros")}


def _quantiles(figures: Figures) -> tuple[float, ...]:
    """Return the smallest value, the quantiles and the largest; nothing if one is unknown."""
    low, high, quantiles = figures.minimum, figures.maximum, figures.quantiles
    if low is None or high is None or quantiles is None:
        return ()
    # They are rounded apart from each other.
    return tuple(np.clip(np.maximum.accumulate([low, *quantiles, high]), low, high).tolist())
