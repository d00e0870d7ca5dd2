"""Weights coded with regard to their second moments: a dead zone of its own for every element.

Where the curvature of the loss is small, an error does little harm, and a movement can wait; where it is
large, smaller movements are stored. The second moment stands for the curvature, as in
:class:`lccodec.Balanced`. The decoder needs none of it: what waits has symbol 0.

Source: ExCP (Li et al., ICML 2024), section 3.2, whose joint pruning weighs whole arrays so;
``spec/decisions/0008-joint-pruning.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from ..element_types import Array, ElementType, work
from .residual import NARROWEST, Residual
from .runs import FittedRun
from .uniform import Partition, UniformDeadzone

__all__ = ["Weighted"]

_WIDEST: Final = 4.0  # dead zones are at most so many times as wide as without moments


@dataclass(frozen=True, eq=False)
class Weighted:
    """A `UniformDeadzone` with a dead zone divided by the 8th root of the second moment, for every element.

    For one array of one delta. Elements whose moment is no positive number have the zone as it is.

    Parameters
    ----------
    then
        Gives the steps; of a `relative_step`.
    moment, kind
        Second moments of all elements, components of this type.
    typical
        Second moment where the dead zone is as wide as without it.
    """

    ordered: ClassVar[bool] = False
    absolute: ClassVar[bool] = False

    then: UniformDeadzone
    moment: Array
    kind: ElementType
    typical: float

    def fit(self, residual: Residual) -> Partition | None:
        """Choose the step and the centroids, and the width of the zone for each component."""
        residual.widths = self._widths
        return self.then.fit(residual)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun:
        """Choose the steps and the centroids of each array of a run, without regard to moments."""
        return self.then.fit_run(differences, sizes, kind)

    def _widths(self, places: Array) -> Array:
        with np.errstate(all="ignore"):
            share = work(self.moment.take(places, mode="clip"), self.kind) / self.typical
            widths: Array = (1 / np.sqrt(np.sqrt(np.sqrt(share)))).clip(NARROWEST, _WIDEST)
        widths[np.isnan(widths)] = 1
        return widths
