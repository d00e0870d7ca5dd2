"""Quantizers: choose the partition of an array's differences and a representative for each part.

A quantizer is a small frozen dataclass; fitting it to an array gives a *partition*, which turns
differences into symbols. The decoder knows nothing of this: it sees symbols and representatives.

Sources: SPEC 7.7; Sullivan, "Efficient scalar quantization of exponential and Laplacian random variables",
IEEE Trans. Inf. Theory 42 (1996) (dead zone with centroids).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .residual import Residual, Zone, finite
from .runs import FittedRun, centroids, fit_grid, unit_of, worth_sparing

__all__ = ["DEAD_ZONE", "Lossless", "Partition", "Quantizer", "UniformDeadzone"]

#: Half the width of the dead zone, in steps.
DEAD_ZONE: Final = 0.6

_MAX_BINS: Final = (1 << 15) - 1  # bins a side, so that symbols fit 16 bits
_LEARNED: Final = 16  # pieces of a large array that the means of the bins are taken of, at least

#: What the sign and the exponent of a number take where it is stored exactly, about.
_EXPONENT_BITS: Final = 4

# One number that is far off must not set the step of all others.
_OUTWEIGHS: Final = 1 / 16  # share of the sum of squares that one difference has only where it is far off
_CROWD: Final = 1 << 14  # differences that are not 0, at least, for one to be told from them
_FAR_OFF: Final = 64  # at most so many


class Partition(Protocol):
    """What a quantizer chose for one array.

    Attributes
    ----------
    representatives
        Value of each symbol but 0, ``kind.work`` of shape ``(symbols - 1,)``.
    max_error
        Largest ``|decoded - original|`` that may stay; ``None`` where any may.
    zone
        Differences strictly between these two have symbol 0.
    """

    @property
    def representatives(self) -> Array: ...  # noqa: D102 - described above

    @property
    def max_error(self) -> float | None: ...  # noqa: D102 - described above

    @property
    def zone(self) -> Zone: ...  # noqa: D102 - described above

    def symbols(self, differences: Array) -> tuple[Array, Array | None]:
        """Return symbols (uint8 or uint16) of finite differences outside the zone, and which fit no part."""


class Quantizer(Protocol):
    """Chooses a partition for an array; :class:`Lossless` has none.

    Attributes
    ----------
    ordered
        Whether differences and representatives are those of the order-preserving integers (SPEC 7.6).
    absolute
        Whether an array is coded without its reference, for which it takes as many bytes or fewer.
    """

    ordered: ClassVar[bool]

    @property
    def absolute(self) -> bool: ...  # noqa: D102 - described above

    def fit(self, residual: Residual) -> Partition | None:
        """Return the partition for floating point components, or ``None`` to store them exactly."""

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun | None:
        """Do the same for each array of a run, given their finite differences and sizes."""


@dataclass(frozen=True)
class Lossless:
    """Store every bit pattern exactly, as byte planes (SPEC 7.5)."""

    ordered: ClassVar[bool] = False
    absolute: ClassVar[bool] = False

    def fit(self, residual: Residual) -> None:  # noqa: ARG002
        """Return ``None``: there is nothing to choose."""
        return

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> None:  # noqa: ARG002
        """Return ``None``: there is nothing to choose."""
        return


@dataclass(frozen=True)
class UniformDeadzone:
    """Equal steps with a dead zone of 0.6 steps on either side of 0, and centroid representatives.

    Give exactly one of the first three parameters.

    Parameters
    ----------
    step
        Width of a bin, in the units of the array.
    max_error
        Bound on ``|decoded - original|`` of every element, after rounding to the array's type;
        an element that would break it is stored exactly. The step is ``max_error / 0.6``.
    relative_step
        The step as a multiple of the root mean square of the differences (in a large array,
        estimated on evenly spread pieces, without the few that outweigh all others).
    absolute
        Whether to quantize the values themselves and not their differences to the reference: for what
        forgets its past between two checkpoints, as a first moment does. A value then decodes as 0, or
        with its sign and at most 8/3 times as large.

    Raises
    ------
    ArgumentError
        Unless exactly one of the first three is given, positive and finite.
    """

    ordered: ClassVar[bool] = False

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
            raise ArgumentError(f"UniformDeadzone: a positive finite number is needed, not {given[0]!r}")
        for name in ("step", "max_error", "relative_step"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number)
        if not isinstance(self.absolute, bool):
            raise ArgumentError(f"UniformDeadzone: absolute is True or False, not {self.absolute!r}")

    def fit(self, residual: Residual) -> _Grid | None:
        """Choose the step and the centroids; ``None`` where exact storage is at least as small."""
        kind = residual.kind
        if self.relative_step is not None:
            step = self.relative_step * _rms(residual) or 1.0
        else:
            step = self.step if self.step is not None else float(self.max_error or 0) / DEAD_ZONE
        finest = float(np.finfo(np.promote_types(kind.work, np.float32)).tiny) * 4
        if not finest <= step < math.inf:
            return None  # its reciprocal could not be computed with
        # A difference is rounded: below an error bound by a little, it is certain to be below it in truth.
        reach = (
            DEAD_ZONE * step if self.max_error is None else self.max_error * (1 - 2.0 ** (1 - kind.mantissa))
        )
        with np.errstate(over="ignore", under="ignore"):
            zone = (kind.work.type(-reach), kind.work.type(reach))
        largest, narrowed = 0.0, residual.widths is not None
        for start in residual.pieces():
            d = finite(residual.outside(start, zone)[1])
            largest = max(largest, float(d.max(initial=0)), -float(d.min(initial=0)))
            if narrowed and d.size:
                largest = max(largest, DEAD_ZONE * step)  # for one bin at least
        # A little more than the largest difference, so that rounding leads no element past the last bin.
        bins = int(min(largest / step * (1 + 1e-6) + 1 - DEAD_ZONE, _MAX_BINS))
        empty = np.zeros(2 * bins, kind.work)
        return _Grid(empty, step, self.max_error, zone, narrowed).with_centroids(residual)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun:
        """Choose the steps and the centroids of each array of a run."""
        if self.relative_step is not None:
            with np.errstate(over="ignore"):
                squares = np.add.reduceat(np.square(differences, dtype=np.float64), np.cumsum(sizes) - sizes)
                steps = self.relative_step * np.sqrt(squares / sizes)
            steps[steps == 0] = 1.0
        else:
            step = self.step if self.step is not None else float(self.max_error or 0) / DEAD_ZONE
            steps = np.full(sizes.size, step)
        return fit_grid(differences, sizes, kind, steps, DEAD_ZONE, self.max_error)


def _rms(residual: Residual) -> float:
    """Return the root mean square of the finite differences, of a large array on evenly spread stretches."""
    squares, largest, count = 0.0, 0.0, 0
    for d in residual.sample():
        with np.errstate(over="ignore"):  # an infinite step is no step: fit gives up on it
            square = np.square(finite(d), dtype=np.float64)
            squares += float(np.add.reduce(square))
        largest = max(largest, float(square.max(initial=0)))
        count += d.size
    if largest > _OUTWEIGHS * squares or math.isinf(squares):
        near = _rms_of_most(np.concatenate([finite(d) for d in residual.sample()]))
        if near is not None:
            return near
    return math.sqrt(squares / max(count, 1))


def _rms_of_most(d: Array) -> float | None:
    """Return the root mean square without those that outweigh all others; ``None`` where these are no few."""
    sizes = np.abs(d.astype(np.float64))
    if np.count_nonzero(sizes) < _CROWD:
        return None
    least = sizes.size - _FAR_OFF
    while sizes.size >= least:
        largest = float(sizes.max())
        with np.errstate(under="ignore"):  # in units of the largest nothing overflows
            squares = np.square(sizes / largest)
        mean = float(np.add.reduce(squares)) / sizes.size
        near = squares <= _OUTWEIGHS * mean * sizes.size
        if near.all():
            return largest * math.sqrt(mean)
        sizes = sizes[near]
    return None


@dataclass(frozen=True)
class _Grid:
    representatives: Array
    step: float
    max_error: float | None
    zone: Zone
    narrowed: bool = False  # whether there are differences before the first bin, which are of it

    @property
    def bins(self) -> int:
        """Bins on either side of the dead zone; bin j of sign s is symbol zigzag(s * j)."""
        return self.representatives.size // 2

    def symbols(self, differences: Array) -> tuple[Array, Array | None]:
        """Return zigzag bin numbers: uint8 for up to 127 bins a side, uint16 for more."""
        work = np.promote_types(differences.dtype, np.float32)
        with np.errstate(over="ignore"):
            scaled = np.multiply(differences, work.type(1 / self.step), dtype=work)
        if self.narrowed:
            np.copysign(np.maximum(np.abs(scaled), DEAD_ZONE), scaled, out=scaled)
        # Round away from zero above the dead zone: add 0.4 with the sign, then truncate. The signed
        # constant is put together from bits, several times as fast as copysign.
        pattern = np.dtype(f"u{work.itemsize}")
        offset = scaled.view(pattern) & pattern.type(1 << (8 * work.itemsize - 1))
        offset |= work.type(1 - DEAD_ZONE).view(pattern)
        scaled += offset.view(work)
        outside = None
        # Past the last bin lie outliers, and what has changed since the bins were chosen.
        end = self.bins + 1
        # A call by the ufunc takes half the time of the method, which is felt where few elements are left.
        if np.maximum.reduce(scaled, initial=0) >= end or np.minimum.reduce(scaled, initial=0) <= -end:
            outside = ~(np.abs(scaled) < end)
            scaled[outside] = 0
        if self.bins <= 127:
            narrow = scaled.astype(np.int8)
            return ((narrow << 1) ^ (narrow >> 7)).view(np.uint8), outside
        index = scaled.astype(np.int32)
        return ((index << 1) ^ (index >> 31)).astype(np.uint16), outside

    def with_centroids(self, residual: Residual) -> _Grid | None:
        """Return this grid with the mean of each bin, of a large array on evenly spread pieces.

        Without the last bins where these hold so few elements that it takes less to store them exactly;
        ``None`` where that would be most elements, or the codebook outgrow the symbols.
        """
        sums, counts, past = np.zeros(2 * self.bins + 1), np.zeros(2 * self.bins + 1), 0
        unit = unit_of(self.step)
        starts = residual.pieces()
        stride = max(len(starts) // _LEARNED, 1)
        for start in starts[::stride]:
            d = finite(residual.outside(start, self.zone)[1])
            codes, outside = self.symbols(d)
            if outside is not None:
                past += int(np.count_nonzero(outside))
            symbols = codes.astype(np.intp)
            counts += np.bincount(symbols, minlength=counts.size)
            sums += np.bincount(symbols, d if unit == 1 else d * unit, minlength=sums.size)
        size = residual.bits.size
        bins, exact = _worthwhile(counts[1:], past, stride, size)
        if 2 * bins > max(size, 8):
            return None
        if bins > 127 or bins < self.bins:
            few = stride * counts[1 : 2 * bins + 1]
            bits = _bits(np.append(few, [exact, max(size - exact - few.sum(), 0)]))
            bits += 8 * residual.kind.size * (2 * bins + exact)
            if bits > size * (residual.kind.mantissa + _EXPONENT_BITS):
                return None
        sums, counts = sums[: 2 * bins + 1], counts[: 2 * bins + 1]
        codes = np.arange(1, 2 * bins + 1)
        steps = np.full(codes.size, self.step)
        mean = centroids(codes, steps, sums[1:], counts[1:], DEAD_ZONE, self.max_error, unit)
        with np.errstate(over="ignore"):
            return replace(self, representatives=mean.astype(residual.kind.work))


def _bits(counts: Array) -> float:
    """Return the order-0 entropy of all symbols, in bits."""
    counts = counts[counts > 0]
    return -float((counts * np.log2(counts / counts.sum())).sum())


def _worthwhile(counts: Array, past: int, stride: int, size: int) -> tuple[int, float]:
    """Return how many bins on either side an array had better have, and the elements past them.

    A bin on both sides takes two representatives in the codebook, an element past the last bin, which is
    stored exactly, about as much as one.

    Parameters
    ----------
    counts, past
        Elements of each bin by its zigzag number, from 1 on, and of none, in a part of the array.
    stride
        How many times as large the array is.
    size
        Of the array.
    """
    held = np.append(0, counts[::2] + counts[1::2])
    beyond = stride * (past + held.sum() - np.cumsum(held))
    costs = 2 * np.arange(held.size) + beyond
    best = int(costs.argmin())
    if not worth_sparing(costs[-1], costs[best], np.array(size)):
        best = held.size - 1
    return best, float(beyond[best])
