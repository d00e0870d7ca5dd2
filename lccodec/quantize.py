"""Quantizers: choose the partition of an array's differences and a representative for each part.

A quantizer is a small frozen dataclass; fitting it to an array gives a *partition*, which turns
differences into symbols. The decoder knows nothing of this: it sees symbols and representatives.

Sources: SPEC 7.7; LC-Checkpoint (Chen et al., ICML 2020), section 3; Sullivan, "Efficient scalar
quantization of exponential and Laplacian random variables", IEEE Trans. Inf. Theory 42 (1996)
(dead zone with centroids).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import numpy as np

from .errors import ArgumentError
from .floats import Array, ElementType, subtract
from .promote import promote
from .runs import FittedRun, centroids, fit_buckets, fit_grid, midpoints

__all__ = ["ExponentBuckets", "Lossless", "Partition", "Quantizer", "UniformDeadzone", "differences"]

#: Components handled at a time: differences, symbols and results of a piece stay in the cache.
PIECE: Final = 1 << 16

#: Half the width of the dead zone, in steps.
DEAD_ZONE: Final = 0.6

_MAX_BINS: Final = (1 << 15) - 1  # bins a side, so that symbols fit 16 bits
_SAMPLED_PIECES: Final = 16


class Partition(Protocol):
    """What a quantizer chose for one array.

    Attributes
    ----------
    representatives
        Value of each symbol but 0, ``kind.work`` of shape ``(symbols - 1,)``.
    max_error
        Largest ``|decoded - original|`` that may stay; ``None`` where any may.
    """

    @property
    def representatives(self) -> Array: ...  # noqa: D102 - described above

    @property
    def max_error(self) -> float | None: ...  # noqa: D102 - described above

    def symbols(self, differences: Array) -> tuple[Array, Array | None]:
        """Return the symbols (uint8 or uint16) of finite differences, and which fit no part."""


class Quantizer(Protocol):
    """Chooses a partition for an array; :class:`Lossless` has none."""

    def fit(self, bits: Array, reference: Array | None, kind: ElementType) -> Partition | None:
        """Return the partition for floating point components, or ``None`` to store them exactly."""

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun | None:
        """Do the same for each array of a run, given their finite differences and sizes."""


def differences(
    bits: Array, reference: Array | None, kind: ElementType, every: int = 1
) -> Iterator[tuple[Array, bool]]:
    """Yield the finite differences to the reference, a piece at a time.

    Yields
    ------
    tuple
        Differences in ``kind.work`` with 0 in place of those that are not finite, and whether all were.
    """
    for start in range(0, bits.size, PIECE * every):
        stop = start + PIECE
        d = subtract(bits[start:stop], None if reference is None else reference[start:stop], kind)
        finite = np.isfinite(d)
        if finite.all():
            yield d, True
        else:
            yield np.where(finite, d, d.dtype.type(0)), False


@dataclass(frozen=True)
class Lossless:
    """Store every bit pattern exactly, as byte planes (SPEC 7.5)."""

    def fit(self, bits: Array, reference: Array | None, kind: ElementType) -> None:  # noqa: ARG002
        """Return ``None``: there is nothing to choose."""
        return

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> None:  # noqa: ARG002
        """Return ``None``: there is nothing to choose."""
        return


@dataclass(frozen=True)
class ExponentBuckets:
    """LC-Checkpoint's quantizer: buckets of equal sign and exponent, the largest ones promoted.

    Parameters
    ----------
    bits
        1 to 8: up to ``2**bits - 1`` buckets keep a representative, all other differences become 0.
    representative
        ``"midpoint"``, the average of the bucket's maximum and minimum (the paper), or ``"mean"``.

    Raises
    ------
    ArgumentError
        For other values.
    """

    bits: int = 3
    representative: Literal["midpoint", "mean"] = "midpoint"

    def __post_init__(self) -> None:
        if not (isinstance(self.bits, int) and 1 <= self.bits <= 8):
            raise ArgumentError(f"ExponentBuckets: bits must be an integer from 1 to 8, not {self.bits!r}")
        if self.representative not in ("midpoint", "mean"):
            raise ArgumentError(f"ExponentBuckets: unknown representative {self.representative!r}")

    def fit(self, bits: Array, reference: Array | None, kind: ElementType) -> _Buckets:
        """Find the occupied buckets and promote the largest (SPEC 7.7, LCC-PRM-01)."""
        work = kind.work
        shift = 23 if kind.name == "bfloat16" else kind.mantissa
        pattern = np.dtype(f"u{work.itemsize}")
        keys = 1 << (8 * work.itemsize - shift)  # sign and exponent field of a difference
        magnitude = pattern.type((1 << (8 * work.itemsize - 1)) - 1)
        counts = np.zeros(keys, np.int64)
        least = np.full(keys, np.iinfo(pattern).max, pattern)
        most = np.zeros(keys, pattern)
        sums = np.zeros(keys)
        promoted = np.empty(0, np.int64)
        floor = 1  # exponent field below which no bucket can be promoted; 0 is zero and subnormal
        for d, _ in differences(bits, reference, kind):
            patterns = d.view(pattern)
            high = (patterns & magnitude) >= pattern.type(floor << shift)
            relevant = np.count_nonzero(high)
            if relevant == 0:
                continue
            if relevant < patterns.size // 4:
                patterns = patterns.take(np.flatnonzero(high))
            # Sorted as unsigned integers, the patterns of a bucket are adjacent, smallest magnitude
            # first: its minimum and maximum are its ends.
            patterns = np.sort(patterns)
            fields = patterns >> shift
            starts = np.flatnonzero(np.concatenate([[True], fields[1:] != fields[:-1]]))
            here = fields[starts].astype(np.intp)
            ends = np.append(starts[1:], fields.size)
            seen = np.count_nonzero(counts)
            counts[here] += ends - starts
            least[here] = np.minimum(least[here], patterns[starts])
            most[here] = np.maximum(most[here], patterns[ends - 1])
            if self.representative == "mean":
                sums[here] += np.add.reduceat(patterns.view(work).astype(np.float64), starts)
            if np.count_nonzero(counts) > seen:
                exponents = np.arange(keys) & (keys // 2 - 1)
                occupied = np.flatnonzero((counts > 0) & (exponents > 0))
                promoted = occupied[promote(exponents[occupied], occupied >= keys // 2, self.bits)]
                if promoted.size == (1 << self.bits) - 1:
                    floor = int(exponents[promoted[-1]])
        if self.representative == "mean":
            middle = sums[promoted] / counts[promoted]
        else:
            middle = midpoints(least[promoted].view(work), most[promoted].view(work), kind)
        table = np.zeros(keys, np.uint8)
        table[promoted] = np.arange(1, promoted.size + 1)
        return _Buckets(middle.astype(work), table, shift)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun:
        """Find and promote the buckets of each array of a run."""
        return fit_buckets(differences, sizes, kind, self.bits, self.representative == "mean")


@dataclass(frozen=True)
class _Buckets:
    representatives: Array
    table: Array  # symbol of each (sign, exponent) field
    shift: int
    max_error: None = None

    def symbols(self, differences: Array) -> tuple[Array, None]:
        fields = differences.view(f"u{differences.itemsize}") >> self.shift
        return self.table.take(fields.astype(np.intp), mode="clip"), None


@dataclass(frozen=True)
class UniformDeadzone:
    """Equal steps with a dead zone of 0.6 steps on either side of 0, and centroid representatives.

    Give exactly one parameter.

    Parameters
    ----------
    step
        Width of a bin, in the units of the array.
    max_error
        Bound on ``|decoded - original|`` of every element, after rounding to the array's type;
        an element that would break it is stored exactly. The step is ``max_error / 0.6``.
    relative_step
        The step as a multiple of the root mean square of the differences (in a large array,
        estimated on evenly spread pieces).

    Raises
    ------
    ArgumentError
        Unless exactly one is given, positive and finite.
    """

    step: float | None = None
    max_error: float | None = None
    relative_step: float | None = None

    def __post_init__(self) -> None:
        given = [v for v in (self.step, self.max_error, self.relative_step) if v is not None]
        if len(given) != 1:
            raise ArgumentError("UniformDeadzone: give exactly one of step, max_error and relative_step")
        if not (isinstance(given[0], int | float) and math.isfinite(given[0]) and given[0] > 0):
            raise ArgumentError(f"UniformDeadzone: a positive finite number is needed, not {given[0]!r}")

    def fit(self, bits: Array, reference: Array | None, kind: ElementType) -> _Grid | None:
        """Choose the step and the centroids; ``None`` where exact storage is at least as small."""
        largest = max((float(np.abs(d).max()) for d, _ in differences(bits, reference, kind)), default=0.0)
        if self.relative_step is not None:
            step = self.relative_step * _rms(bits, reference, kind) or 1.0
        else:
            step = self.step if self.step is not None else float(self.max_error or 0) / DEAD_ZONE
        finest = float(np.finfo(np.promote_types(kind.work, np.float32)).tiny) * 4
        if not finest <= step < math.inf:
            return None  # its reciprocal could not be computed with
        # A little more than the largest difference, so that rounding leads no element past the last bin.
        bins = largest / step * (1 + 1e-6) + 1 - DEAD_ZONE
        if bins > 4 * _MAX_BINS or 2 * bins > max(bits.size, 8):
            return None  # most elements would be exceptions, or the codebook outgrow the symbols
        grid = _Grid(
            np.zeros(2 * min(int(bins), _MAX_BINS), kind.work), step, self.max_error, bins > _MAX_BINS
        )
        return grid.with_centroids(bits, reference, kind)

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


def _sampling(size: int) -> int:
    """Return which pieces of an array to look at for an estimate: every one of that many."""
    return max(1, -(-size // PIECE) // _SAMPLED_PIECES)


def _rms(bits: Array, reference: Array | None, kind: ElementType) -> float:
    """Return the root mean square of the differences, of a large array on evenly spread pieces."""
    squares, count = 0.0, 0
    for d, _ in differences(bits, reference, kind, _sampling(bits.size)):
        with np.errstate(over="ignore"):  # an infinite step is no step: fit gives up on it
            squares += float(np.add.reduce(np.square(d, dtype=np.float64)))
        count += d.size
    return math.sqrt(squares / max(count, 1))


@dataclass(frozen=True)
class _Grid:
    representatives: Array
    step: float
    max_error: float | None
    clipped: bool  # whether there are differences past the last bin

    @property
    def bins(self) -> int:
        """Bins on either side of the dead zone; bin j of sign s is symbol zigzag(s * j)."""
        return self.representatives.size // 2

    def symbols(self, differences: Array) -> tuple[Array, Array | None]:
        """Return zigzag bin numbers: uint8 for up to 127 bins a side, uint16 for more."""
        work = np.promote_types(differences.dtype, np.float32)
        with np.errstate(over="ignore"):
            scaled = np.multiply(differences, work.type(1 / self.step), dtype=work)
        # Round away from zero above the dead zone: add 0.4 with the sign, then truncate. The signed
        # constant is put together from bits, several times as fast as copysign.
        pattern = np.dtype(f"u{work.itemsize}")
        offset = scaled.view(pattern) & pattern.type(1 << (8 * work.itemsize - 1))
        offset |= work.type(1 - DEAD_ZONE).view(pattern)
        scaled += offset.view(work)
        outside = None
        if self.clipped:
            outside = ~(np.abs(scaled) < self.bins + 1)
            scaled[outside] = 0
        if self.bins <= 127:
            narrow = scaled.astype(np.int8)
            return ((narrow << 1) ^ (narrow >> 7)).view(np.uint8), outside
        index = scaled.astype(np.int32)
        return ((index << 1) ^ (index >> 31)).astype(np.uint16), outside

    def with_centroids(self, bits: Array, reference: Array | None, kind: ElementType) -> _Grid:
        """Return this grid with the mean of each bin, estimated on evenly spread pieces."""
        sums, counts = np.zeros(2 * self.bins + 1), np.zeros(2 * self.bins + 1)
        for d, _ in differences(bits, reference, kind, _sampling(bits.size)):
            symbols = self.symbols(d)[0].astype(np.intp)
            counts += np.bincount(symbols, minlength=counts.size)
            sums += np.bincount(symbols, d, minlength=sums.size)
        codes = np.arange(1, 2 * self.bins + 1)
        steps = np.full(codes.size, self.step)
        mean = centroids(codes, steps, sums[1:], counts[1:], DEAD_ZONE, self.max_error)
        with np.errstate(over="ignore"):
            return replace(self, representatives=mean.astype(kind.work))
