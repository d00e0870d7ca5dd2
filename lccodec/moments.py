"""Second moments: coded in steps of their logarithm, so that they stay positive and keep their size.

Adam divides by ``sqrt(v) + eps``. A sum ``r + c`` with an error that is small beside the largest v is
large beside the smallest ones: they would decode as 0 or below. A factor ``r * 2**c`` cannot do that.
It is an integer sum on the order-preserving patterns (SPEC 7.6, LCC-REC-04), whose upper bits are the
exponent: a logarithm in base 2 that is a straight line within each power of two, without a rounding.

Second moments drift: they grow while an average fills up, and shrink with the gradients. Stale ones are then
all too small, or all too large, which costs more than the same error without a bias. So where most steps of
an array lead one way, its representatives go ahead of the means, as far as the bound lets them: the error
then runs through both signs, and the next step is due later.

Source: Liang et al., "An efficient transformation scheme for lossy data compression with point-wise
relative error bound", IEEE Cluster 2018 (bins of the logarithm); SPEC 7.7, LCC-QNT-02.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from .errors import ArgumentError
from .floats import Array, ElementType
from .quantize import DEAD_ZONE, Partition, UniformDeadzone
from .residual import Residual
from .runs import FittedRun

__all__ = ["LogSteps"]

#: log2(1 + f) - f is at most this for a fraction f in 0..1, and its slope at most 1 / ln 2.
_LINE: Final = 0.0861

_COUNTED: Final = 16  # pieces of a large array that steps up and down are counted in, at least

#: Where more of an array than this fits no step, as after a first step from 0, planes are smaller.
_MOST_EXACT: Final = 0.25


@dataclass(frozen=True)
class LogSteps:
    """Equal steps of the base-2 logarithm with a dead zone, for arrays of positive numbers.

    Against a reference only; without one an array is stored exactly. Every element that is, or whose
    reference is, zero, negative, subnormal, infinite or NaN is stored exactly, unless it is unchanged.
    So 0 decodes as 0, and nothing else does.

    Parameters
    ----------
    step
        Width of a bin in powers of two. The decoded number is at most `max_ratio` times the original
        and at least the original over it.

    Raises
    ------
    ArgumentError
        Unless it is a number from 0.001 to 64.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> before = np.array([1e-12, 1e-6, 0.0], np.float32)
    >>> after = np.array([3e-10, 1.2e-6, 0.0], np.float32)
    >>> frame = lccodec.encode(after, LogSteps(1.0), reference=before)
    >>> restored = lccodec.decode(frame, reference=before)
    >>> bool((restored[:2] / after[:2] <= LogSteps(1.0).max_ratio).all()), float(restored[2])
    (True, 0.0)
    """

    ordered: ClassVar[bool] = True
    absolute: ClassVar[bool] = False

    step: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.step, int | float) and 1e-3 <= self.step <= 64):
            raise ArgumentError(f"LogSteps: the step is a number from 0.001 to 64, not {self.step!r}")

    @property
    def max_ratio(self) -> float:
        """Bound of decoded / original and of original / decoded; Adam's update changes by its root."""
        bound = DEAD_ZONE * self.step
        return float(2.0 ** min(bound / math.log(2), bound + _LINE))

    @property
    def _grid(self) -> UniformDeadzone:
        return UniformDeadzone(max_error=DEAD_ZONE * self.step)

    def fit(self, residual: Residual) -> Partition | None:
        """Choose the centroids of the steps; ``None`` where exact storage is at least as small."""
        if residual.reference is None:
            return None
        exact = seen = 0
        for d in residual.sample():
            exact += int(np.count_nonzero(np.isnan(d)))
            seen += d.size
        if exact > _MOST_EXACT * seen:
            return None
        grid = self._grid.fit(residual)
        if grid is None:
            return None
        starts = residual.pieces()
        found = [residual.outside(s, grid.zone)[1] for s in starts[:: max(len(starts) // _COUNTED, 1)]]
        up, down = (sum(np.count_nonzero(d > 0) for d in found), sum(np.count_nonzero(d < 0) for d in found))
        codes = np.arange(1, grid.representatives.size + 1)
        drift = np.array((up - down) / max(up + down, 1))
        ahead = self._ahead(grid.representatives, codes, drift, residual.kind)
        return replace(grid, representatives=ahead)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun | None:
        """Choose the centroids of each array of a run."""
        run = self._grid.fit_run(differences, sizes, kind)
        starts = np.cumsum(sizes) - sizes
        steps = np.add.reduceat((run.symbols > 0).astype(np.int64), starts)
        down = np.add.reduceat((run.symbols & 1).astype(np.int64), starts)
        codes = np.arange(run.representatives.size) - np.repeat(
            np.cumsum(run.counts) - run.counts, run.counts
        )
        drift = np.repeat((steps - 2 * down) / np.maximum(steps, 1), run.counts)
        return replace(run, representatives=self._ahead(run.representatives, codes + 1, drift, kind))

    def _ahead(self, representatives: Array, codes: Array, drift: Array, kind: ElementType) -> Array:
        """Return representatives moved ahead with the drift.

        Parameters
        ----------
        representatives, codes
            Of bins, and the zigzag numbers of these: odd ones are steps down.
        drift
            Share of the steps up less that of the steps down.
        """
        sign = 1 - 2 * (codes & 1)
        # From the near edge of a bin not farther than the bound, with room for rounding to a pattern.
        farthest = ((codes + 1 >> 1) - 1 + 2 * DEAD_ZONE) * self.step - 2.0**-kind.mantissa
        size = np.abs(representatives.astype(np.float64))
        size += np.maximum(drift * sign, 0) * np.maximum(farthest - size, 0)
        return (sign * size).astype(representatives.dtype)
