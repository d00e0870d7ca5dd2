"""Weights coded with regard to their second moments: a dead zone of its own for every element.

Where the curvature of the loss is small, an error does little harm, and a movement can wait; where
it is large, smaller movements are stored. The second moment stands for the curvature, as in
:class:`lccodec.Balanced`. The decoder needs none of it: what waits has symbol 0.

Source: ExCP (Li et al., ICML 2024), section 3.2, whose joint pruning weighs whole arrays so;
``spec/decisions/0008-joint-pruning.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_types import Array, ElementType, work
from .base import Quantizer
from .grid import Grid, fit_grid
from .residual import NARROWEST, Residual
from .uniform import UniformDeadzone

__all__ = ["Weighted", "weighted"]

_WIDEST: Final = 4.0  # dead zones are at most so many times as wide as without moments


def weighted(quantizer: Quantizer, moment: Array, kind: ElementType, typical: float) -> Quantizer:
    """Return a quantizer with dead zones by second moments; itself if it has no dead zone in steps.

    Parameters
    ----------
    moment, kind, typical
        As in `Weighted`.
    """
    if isinstance(quantizer, UniformDeadzone) and quantizer.relative_step and not quantizer.absolute:
        return Weighted(quantizer, moment, kind, typical)
    return quantizer


@dataclass(frozen=True, eq=False)
class Weighted(Quantizer):
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

    then: UniformDeadzone
    moment: Array
    kind: ElementType
    typical: float

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the step and the centroids, with a width of the zone for each component.

        The moments are those of one array: a batch of several has zones of one width.
        """
        widths = self._widths if batch.arrays == 1 else None
        return fit_grid(batch, self.then.steps(batch), None, widths)

    def _widths(self, places: Array) -> Array:
        with np.errstate(all="ignore"):
            share = work(self.moment.take(places, mode="clip"), self.kind) / self.typical
            widths: Array = (1 / np.sqrt(np.sqrt(np.sqrt(share)))).clip(NARROWEST, _WIDEST)
        widths[np.isnan(widths)] = 1
        return widths
