"""Smooth arrays under a guaranteed bound: elements are predicted from decoded neighbours.

Sources: SPEC 7.8; ``spec/decisions/0023-smooth-fields.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, get_args

import numpy as np

from ..constants import ElementType
from ..element_types import Array, stretches
from ..errors import ArgumentError, check_bool, check_choice, number, positive
from .base import Guarantee, Lossless, Partition, Quantizer
from .field import (
    Extent,
    FieldPlan,
    Outside,
    find_extent,
    inwards,
    is_smooth,
    lattice_step,
    rounded,
    usable_step,
    wide,
)
from .residual import Residual
from .uniform import UniformDeadzone

Rough = Literal["steps", "exact"]

_LEAST_ALONE: Final = 1 << 10  # components: smaller arrays share frames, where nothing is predicted
_SAMPLE_STRETCHES: Final = 64  # of an array, evenly spread
_STRETCH_COMPONENTS: Final = 256  # of each


@dataclass(frozen=True)
class Smooth(Quantizer):
    """Predict the elements of a smooth array from their neighbours, and keep what is left in steps.

    The method is for fields of simulations and measurements, whose neighbours are alike along each
    axis. An array that is not smooth takes about the bytes of `UniformDeadzone` with the same
    bound. NaN, infinities and fill values are exact, are no part of the range, and do not spoil
    their neighbours. Fill values are those of `fill`, and a number that lies far outside of all
    others, by four times their range. With `relative_error` it must occur at least 16 times.

    It predicts arrays of float16, bfloat16, float32 and float64, of any shape. Complex ones, and
    small ones that share a frame with others, have the steps of `UniformDeadzone`; with `minimum`,
    `maximum` or `conserve`, which those steps do not know, they are stored exactly.

    At least one of `max_error` and `relative_error` must be given. If both are, both hold.

    Parameters
    ----------
    max_error
        Bound on ``|decoded - original|`` of every element, in the units of the array, after
        rounding to its element type.
    relative_error
        The same as a share of the range of the array: the distance of its least and its largest
        finite number, fill values left out. SZ3 calls it relative to the value range. It is not a
        share of each element.
    minimum, maximum
        Limits of the decoded values, rounded inwards to numbers of the element type. Finite numbers
        beyond them are stored exactly. An array without negative numbers never decodes to one,
        whatever the limits.
    fill
        A number that stands for a missing value, or several.
    conserve
        ``"sum"``: the sum of the decoded array is that of the original, within the rounding of the
        element type. If it cannot be, the array is stored exactly.
    rough
        What becomes of an array that neighbours do not predict, by a sample: ``"steps"`` codes it
        all the same, ``"exact"`` stores it exactly.
    absolute
        Whether a chain codes the array without its parent, even if time predicts better than space.
    repeatable
        Whether coding what was decoded changes no element, whatever became of its neighbours. All
        decoded values are then multiples of a power of two, and the array is coded without a
        parent. It is for arrays that are changed in part and coded again, as chunks of zarr: there
        the codec sets it. It takes up to twice the bytes, or more where an array is very smooth.
        Bounds by `relative_error` hold as long as the range does not shrink. With `conserve` the
        array is stored exactly.

    Raises
    ------
    ArgumentError
        If no bound is given, a bound is not positive and finite, or the limits are not in order.

    Notes
    -----
    The prediction, level by level from a coarse grid, is that of SZ3 (Liang et al., 2022). SPEC
    7.8 has the order of its operations.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> x = np.linspace(0, 6, 100)
    >>> field = np.sin(x)[:, None] * np.cos(x)
    >>> frame = lccodec.encode(field, lccodec.Smooth(max_error=1e-4))
    >>> bool(abs(lccodec.decode(frame) - field).max() <= 1e-4), field.nbytes // len(frame) > 50
    (True, True)
    """

    max_error: float | None = None
    relative_error: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    fill: float | tuple[float, ...] = field(default=(), kw_only=True)
    conserve: Literal["sum"] | None = None
    rough: Rough = "steps"
    absolute: bool = False
    repeatable: bool = False

    in_keyframes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.max_error is None and self.relative_error is None:
            raise ArgumentError("Smooth: give max_error, relative_error or both")
        for name in ("max_error", "relative_error"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive(f"Smooth: {name}", getattr(self, name)))
        for name in ("minimum", "maximum"):
            if getattr(self, name) is not None:
                limit = number(f"Smooth: {name}", getattr(self, name), "a finite number", math.isfinite)
                object.__setattr__(self, name, limit)
        fills = self.fill if isinstance(self.fill, tuple | list) else (self.fill,)
        found = tuple(number("Smooth: fill", each, "a number", lambda _: True) for each in fills)
        object.__setattr__(self, "fill", tuple(each for each in found if math.isfinite(each)))
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ArgumentError(f"Smooth: minimum {self.minimum} is above maximum {self.maximum}")
        if self.conserve not in (None, "sum"):
            raise ArgumentError(f"Smooth: conserve must be 'sum' or None; got {self.conserve!r}")
        check_choice("Smooth: rough", self.rough, get_args(Rough))
        check_bool("Smooth: absolute", self.absolute)
        check_bool("Smooth: repeatable", self.repeatable)
        if self.repeatable:
            object.__setattr__(self, "absolute", True)

    @property
    def guarantee(self) -> Guarantee:
        """The bounds, the limits, and the sum if it is kept; 0 is kept as any other number."""
        return Guarantee(
            max_error=self.max_error,
            range_share=self.relative_error,
            minimum=self.minimum,
            maximum=self.maximum,
            keeps_zeros=False,
            further=("the sum is kept",) if self.conserve else (),
        )

    def finer(self, max_error: float) -> Smooth:
        """Return the quantizer with another bound, in the units of the array."""
        return replace(self, max_error=max_error, relative_error=None)

    def resolve(self, bits: Array, shape: tuple[int, ...], kind: ElementType) -> tuple[Quantizer, str]:
        """Return the quantizer that codes an array: an exact one if it is rough, and asked for."""
        if self.rough == "steps":
            return self, ""
        if is_smooth(bits, shape, kind, self._outside(kind)):
            return replace(self, rough="steps"), "smooth"
        return Lossless(), "not smooth"

    def with_fills(
        self, fills: tuple[float, ...], minimum: float | None = None, maximum: float | None = None
    ) -> Smooth:
        """Return the quantizer with more fill values, and limits where it has none."""
        low = minimum if self.minimum is None else self.minimum
        high = maximum if self.maximum is None else self.maximum
        if low is not None and high is not None and low > high:
            low, high = self.minimum, self.maximum
        return replace(self, fill=tuple(sorted({*self._fills, *fills})), minimum=low, maximum=high)

    def extent(self, bits: Array, kind: ElementType) -> Extent | None:
        """Return the extent of an array without fill values and numbers beyond the limits."""
        return find_extent(bits, kind, self._outside(kind), 1 if self.relative_error is None else None)

    @property
    def _fills(self) -> tuple[float, ...]:
        return self.fill if isinstance(self.fill, tuple) else (self.fill,)

    def _outside(self, kind: ElementType) -> Outside:
        """Return which numbers are no part of the range, as the element type has them."""
        return Outside(rounded(self._fills, kind), self.minimum, self.maximum)

    @property
    def for_rewriting(self) -> Smooth:
        """The same, `repeatable`."""
        return replace(self, repeatable=True)

    def shares_frames(self, size: int) -> bool:
        """Return whether an array of so many components may share a frame with others."""
        return size < _LEAST_ALONE

    def field(self, bits: Array, kind: ElementType) -> FieldPlan | None:
        """Return how an array, given as components, is coded; ``None`` to store it exactly."""
        extent = self.extent(bits, kind)
        bound = math.inf if self.max_error is None else float(self.max_error)
        if extent is not None and self.relative_error is not None:
            bound = min(bound, extent.share(self.relative_error))
        if extent is None or not bound > 0 or (self.repeatable and self.conserve):
            return None
        lower = -math.inf if self.minimum is None else inwards(self.minimum, kind, 1)
        upper = math.inf if self.maximum is None else inwards(self.maximum, kind, -1)
        if extent.low >= 0:
            lower = max(lower, 0.0)
        if not (lower <= upper and lower < math.inf and upper > -math.inf):  # no number is between
            return None
        if self.repeatable:
            # The range may grow from one time to the next: half the bound is for all roundings.
            widest = math.inf if self.max_error is None else 2 * self.max_error
            step = lattice_step(widest if self.relative_error is None else min(widest, bound))
        else:
            step = usable_step(bound, bits, kind, extent)
        if step is None:
            return None
        keeps_sum = self.conserve is not None
        span = (extent.low, extent.high) if extent.is_all else None
        return FieldPlan(bound, step, lower, upper, extent.fills, keeps_sum, self.repeatable, span)

    def stands_alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether space predicts an array better than time, by a sample of its last axis."""
        if self.absolute:
            return True
        costs = [0.0, 0.0]
        with np.errstate(all="ignore"):
            for part in stretches(bits.size, _SAMPLE_STRETCHES, _STRETCH_COMPONENTS):
                values, before = (wide(each[part], kind) for each in (bits, reference))
                for place, field in enumerate((values, values - before)):
                    rough = np.abs(field[1:-1] - (field[:-2] + field[2:]) / 2)
                    costs[place] += float(rough[np.isfinite(rough)].sum())
        return costs[0] <= costs[1]

    def fit_one(self, residual: Residual) -> Partition | None:
        """Return steps for an array that is not coded as a field; ``None`` to store it exactly."""
        extra = self.minimum, self.maximum, self.conserve
        plan = self.field(residual.bits, residual.kind)
        if plan is None or plan.fills or extra != (None, None, None):
            return None
        return UniformDeadzone(max_error=plan.bound).fit(residual)
