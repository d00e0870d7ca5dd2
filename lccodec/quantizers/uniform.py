"""Equal steps with a dead zone; the representative of a bin is its mean.

Sources: SPEC 7.7; Sullivan, "Efficient scalar quantization of exponential and Laplacian random
variables", IEEE Trans. Inf. Theory 42 (1996) (dead zone with centroids).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from ..arguments import as_number
from ..element_types import Array
from ..errors import ArgumentError
from .base import Quantizer
from .grid import DEAD_ZONE, Grid, fit_grid
from .residual import Residual, array_sums, finite

__all__ = ["UniformDeadzone"]

# A few outliers must not set the step of all other elements.
_OUTLIER_SQUARE_SHARE: Final = 1 / 16  # of the sum of squares: a difference with more is an outlier
_MIN_NONZERO_DIFFERENCES: Final = 1 << 14  # fewer are too few to find outliers among them
_MAX_OUTLIERS: Final = 64


@dataclass(frozen=True)
class UniformDeadzone(Quantizer):
    """Equal steps with a dead zone of 0.6 steps on either side of 0; bins decode as their means.

    Exactly one of `step`, `max_error` and `relative_step` must be given.

    Parameters
    ----------
    step
        Width of a bin, in the units of the array.
    max_error
        Bound on ``|decoded - original|`` of every element, after rounding to the array's type. An
        element that would break the bound is stored exactly. The step is ``max_error / 0.6``.
    relative_step
        The step as a multiple of the root mean square of the differences. In a large array this is
        estimated on evenly spread pieces, without the few differences that outweigh all others.
    absolute
        Whether to quantize the values themselves, without a reference. This is for arrays that
        forget their past between two checkpoints, such as first moments. A value then decodes as 0,
        or as a number of the same sign and at most 8/3 times its size.

    Raises
    ------
    ArgumentError
        Unless exactly one of the first three parameters is given, positive and finite.
    """

    step: float | None = None
    max_error: float | None = None
    relative_step: float | None = None
    absolute: bool = False

    def __post_init__(self) -> None:
        given = [v for v in (self.step, self.max_error, self.relative_step) if v is not None]
        if len(given) != 1:
            raise ArgumentError("UniformDeadzone: give exactly one of step, max_error and relative_step")
        number = as_number(given[0])
        if number is None or not math.isfinite(number) or number <= 0:
            raise ArgumentError(
                f"UniformDeadzone: the step or bound is a positive finite number, not {given[0]!r}"
            )
        for name in ("step", "max_error", "relative_step"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number)
        if not isinstance(self.absolute, bool):
            raise ArgumentError(f"UniformDeadzone: absolute is True or False, not {self.absolute!r}")

    @property
    def bin_width(self) -> float | None:
        """The relative step."""
        return self.relative_step

    @property
    def guarantee(self) -> str:
        """The bound on the error, if `max_error` was given."""
        return "" if self.max_error is None else f"error at most {self.max_error:g}"

    def scaled(self, factor: float) -> UniformDeadzone:
        """Return the quantizer with its relative step multiplied; itself if it has none."""
        return self if self.relative_step is None else _scaled(self, factor)

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the steps and the means; ``None`` if exact storage is at least as small."""
        return fit_grid(batch, self.steps(batch), self.max_error)

    def steps(self, batch: Residual) -> Array:
        """Return the step of each array of a batch, float64; 0 or infinite if it cannot be used."""
        if self.relative_step is None:
            step = self.step if self.step is not None else float(self.max_error or 0) / DEAD_ZONE
            return np.full(batch.arrays, step)
        with np.errstate(over="ignore"):
            steps = self.relative_step * _rms(batch)
        return np.where(steps == 0, 1.0, steps)


@lru_cache(maxsize=256)  # thousands of small arrays may share a step
def _scaled(quantizer: UniformDeadzone, factor: float) -> UniformDeadzone:
    return replace(quantizer, relative_step=(quantizer.relative_step or 0) * factor)


def _rms(batch: Residual) -> Array:
    """Return the root mean square of each array's finite differences, by a sample."""
    squares, seen, largest = np.zeros(batch.arrays), 0, 0.0
    for sampled, sampled_owner in batch.sample():
        seen += sampled.size
        d, owner = finite(sampled, sampled_owner)
        with np.errstate(over="ignore"):  # fit_grid stores an array with an infinite step exactly
            square = np.square(d, dtype=np.float64)
            squares += array_sums(square, owner, batch.arrays)
        largest = max(largest, float(square.max(initial=0)))
    if batch.arrays > 1:
        return np.sqrt(squares / batch.sizes)
    if largest > _OUTLIER_SQUARE_SHARE * squares[0] or math.isinf(squares[0]):
        near = _rms_of_most(np.concatenate([finite(d, 0)[0] for d, _ in batch.sample()]))
        if near is not None:
            return np.array([near])
    return np.sqrt(squares / max(seen, 1))


def _rms_of_most(d: Array) -> float | None:
    """Return the root mean square without outliers; ``None`` if there are too many of them."""
    sizes = np.abs(d.astype(np.float64))
    if np.count_nonzero(sizes) < _MIN_NONZERO_DIFFERENCES:
        return None
    least = sizes.size - _MAX_OUTLIERS
    while sizes.size >= least:
        largest = float(sizes.max())
        with np.errstate(under="ignore"):  # in units of the largest, squares do not overflow
            squares = np.square(sizes / largest)
        mean = float(np.add.reduce(squares)) / sizes.size
        near = squares <= _OUTLIER_SQUARE_SHARE * mean * sizes.size
        if near.all():
            return largest * math.sqrt(mean)
        sizes = sizes[near]
    return None
