"""The figures of arrays over the steps of a run, added step by step.

The arrays of the step before are copied, as a delta is decoded over its parent's arrays. So one
state more is held than is decoded. With originals of several steps it is two more: an original, and
a copy of the one before.
"""

from __future__ import annotations

import math
from array import array as packed
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...chain.read.replay import DecodedArray
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


class Trajectory:
    """What is measured of the shown arrays at the shown steps.

    With `originals`, `losses` has what was lost, and `problems` why originals could not be read.
    """

    def __init__(self, rows: Sequence[ArrayRow], originals: Originals | None = None) -> None:
        self.steps: list[int] = []
        # Eight bytes a number: as Python objects, those of a long run take as much as a state.
        self._series = {name: [packed("d") for _ in rows] for name in FIGURES}
        self.losses = LossTable(originals.label if originals else "", rows)
        self.problems: list[str] = []
        self._rows = rows
        self._originals = originals
        self._bins = [Bins() for _ in rows]
        self._before: dict[str, DecodedArray] = {}
        self._originals_before: dict[str, DecodedArray] = {}
        self._last_original = max(originals.steps, default=None) if originals else None

    def add(self, step: int, arrays: Mapping[str, DecodedArray | LccodecError]) -> None:
        """Add a step. Arrays that are missing, or are errors, have no figures at it."""
        self.steps.append(step)
        originals = self._original(step)
        if originals is None:
            self._originals_before.clear()
        lost: list[Lost] = []
        for row, bins, index in zip(self._rows, self._bins, range(len(self._rows)), strict=True):
            array = arrays.get(row.name)
            bins.begin()
            if not isinstance(array, DecodedArray):
                self._before.pop(row.name, None)
                self._originals_before.pop(row.name, None)
                self._append(index, {})
                lost.append(NOTHING_KNOWN)
                continue
            before = _fitting(self._before, row.name, array)
            self._append(index, _measured(array, before, bins))
            if originals is not None:
                lost.append(self._lost(step, originals, array, row.name, before))
            _keep(self._before, row.name, array)
        if originals is not None:
            self.losses.add(step, lost)

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
        array: DecodedArray,
        name: str,
        before: Array | None,
    ) -> Lost:
        """Return what an array lost; `before` is as decoded at the step before."""
        exact = original_bits(originals, name, array)
        if exact is None:
            self._originals_before.pop(name, None)
            return NOTHING_KNOWN
        exact_before = _fitting(self._originals_before, name, array)
        start = before if exact_before is None else exact_before
        lost = measure_loss(array.bits, exact, start, array.kind)
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
        found: dict[str, list[list[float | None]]] = {}
        for name, rows in self._series.items():
            kind = int if name == _COUNT else float
            found[name] = [[None if math.isnan(x) else kind(x) for x in series] for series in rows]
        return found

    def histograms(self) -> list[Histogram | None]:
        """Return the histogram of each array over the steps."""
        return [bins.histogram() for bins in self._bins]


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


def _measured(array: DecodedArray, before: Array | None, bins: Bins) -> dict[str, float | None]:
    """Return the figures of an array by name."""
    found = measure(array.bits, before, array.kind, bins)
    values: dict[str, float | None] = {name: getattr(found, name) for name in _MEASURED}
    if before is not None:
        values["rank"] = change_rank(array.bits, before, array.kind, array.shape)
    return values
