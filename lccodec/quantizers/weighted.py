"""Weights with dead zones by their second moments: each element has its own width of the zone.

Where the curvature of the loss is small, an error does little harm and the zone is wide. Where the
curvature is large, the zone is narrow, so that smaller movements are stored. The second moment is
an estimate of the curvature, as in :class:`lccodec.Balanced`. The decoder does not need the
moments: a movement inside the zone has symbol 0.

Source: ExCP (Li et al., ICML 2024), section 3.2: joint pruning of weights by their second moments.
See ``spec/decisions/0008-joint-pruning.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from ..element_table import ElementType
from ..element_types import Array, work
from ..loops.search import Marked, outside_weighted
from .base import Quantizer
from .grid import Grid, fit_grid
from .residual import Residual
from .uniform import UniformDeadzone

#: The narrowest and the widest dead zone, over the zone without moments.
_NARROWEST_RATIO: Final = 0.7
_WIDEST_RATIO: Final = 4.0


def weighted(quantizer: Quantizer, moment: Array, kind: ElementType, typical: float) -> Quantizer:
    """Return the quantizer with dead zones by second moments; itself if its step is fixed."""
    if isinstance(quantizer, UniformDeadzone) and quantizer.is_relative and not quantizer.absolute:
        return Weighted(quantizer, moment, kind, typical)
    return quantizer


@dataclass(frozen=True, eq=False)
class Weighted(Quantizer):
    """A `UniformDeadzone` that divides the dead zone of each element by the 8th root of its moment.

    It is for one array of one delta. If the moment of an element is negative or NaN, its zone is
    not changed.
    """

    then: UniformDeadzone  # gives the steps, by the differences
    moment: Array = field(repr=False)  # second moments of all elements, as components
    kind: ElementType = field(repr=False)  # of the moments
    typical: float  # the second moment at which the dead zone is not changed

    def fit(self, batch: Residual) -> Grid | None:
        """Choose steps and representatives, with a width of the zone for each component.

        The moments belong to one array, so a batch of several arrays has zones of one width.
        """
        beyond = self._outside if batch.arrays == 1 else None
        return fit_grid(batch, self.then.steps(batch), None, beyond, leads=True)

    def sampled(self, parts: Sequence[slice]) -> Weighted:
        """Return the quantizer for a sample of the array, made of these parts end to end."""
        return replace(self, moment=np.concatenate([self.moment[part] for part in parts]))

    def _outside(self, components: Array | slice, values: Array, reference: Array, high: Any) -> Marked:
        """Mark the differences outside their zones; see `Outside`."""
        if isinstance(components, slice):
            moments = self.moment[components]
        else:
            moments = self.moment.take(components, mode="clip")
        with np.errstate(all="ignore"):
            unit = np.divide(1, high * math.sqrt(math.sqrt(math.sqrt(self.typical))))
            bounds = high, unit, _NARROWEST_RATIO * high, _WIDEST_RATIO * high
        return outside_weighted(values, reference, work(moments, self.kind), *bounds)
