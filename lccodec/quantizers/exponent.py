"""LC-Checkpoint's quantizer: buckets of equal sign and exponent, of which the largest are promoted.

Sources: SPEC 7.7 (LCC-PRM-01); LC-Checkpoint (Chen et al., ICML 2020), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from ..arguments import as_integer
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .promote import promote
from .residual import Residual, Zone, finite
from .runs import FittedRun, fit_buckets, midpoints

__all__ = ["ExponentBuckets"]

#: Elements from which on a first stretch is looked at before all are.
_SAMPLED: Final = 1 << 14


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

    ordered: ClassVar[bool] = False
    absolute: ClassVar[bool] = False

    bits: int = 3
    representative: Literal["midpoint", "mean"] = "midpoint"

    def __post_init__(self) -> None:
        bits = as_integer(self.bits)
        if bits is None or not 1 <= bits <= 8:
            raise ArgumentError(f"ExponentBuckets: bits must be an integer from 1 to 8, not {self.bits!r}")
        object.__setattr__(self, "bits", bits)
        if self.representative not in ("midpoint", "mean"):
            raise ArgumentError(f"ExponentBuckets: unknown representative {self.representative!r}")

    def fit(self, residual: Residual) -> _Buckets:
        """Find the occupied buckets and promote the largest (SPEC 7.7, LCC-PRM-01)."""
        fields = _Fields(residual.kind, self.bits)
        if residual.bits.size > _SAMPLED:  # so that not all of the first piece is outside the zone
            fields.look(finite(next(residual.sample())))
        for start in residual.pieces():
            fields.add(finite(residual.outside(start, fields.zone)[1]), self.representative == "mean")
        promoted = fields.promoted
        least, most = (ends[promoted].view(residual.kind.work) for ends in (fields.least, fields.most))
        middle = midpoints(least, most, residual.kind)
        if self.representative == "mean":
            means = fields.sums[promoted] / fields.counts[promoted]
            middle = np.where(np.isfinite(means), means, middle).astype(residual.kind.work)
        table = np.zeros(fields.counts.size, np.uint8)
        table[promoted] = np.arange(1, promoted.size + 1)
        return _Buckets(middle, table, fields.shift, fields.zone)

    def fit_run(self, differences: Array, sizes: Array, kind: ElementType) -> FittedRun:
        """Find and promote the buckets of each array of a run."""
        return fit_buckets(differences, sizes, kind, self.bits, self.representative == "mean")


class _Fields:
    """What is known of the differences of each (sign, exponent) field, and which fields are promoted by it.

    Parameters
    ----------
    kind
        Element type of the array.
    bits
        Up to ``2**bits - 1`` fields are promoted.
    """

    def __init__(self, kind: ElementType, bits: int) -> None:
        self._work = kind.work
        self._pattern = np.dtype(f"u{kind.work.itemsize}")
        self._bits = bits
        self.shift = 23 if kind.name == "bfloat16" else kind.mantissa
        keys = 1 << (8 * kind.work.itemsize - self.shift)
        self._exponents = np.arange(keys) & (keys // 2 - 1)
        self._negative = np.arange(keys) >= keys // 2
        #: The least magnitude of each exponent.
        self._edges = (self._exponents[: keys // 2].astype(self._pattern) << self.shift).view(kind.work)
        self.counts = np.zeros(keys, np.int64)
        self.least = np.full(keys, np.iinfo(self._pattern).max, self._pattern)
        self.most = np.zeros(keys, self._pattern)
        self.sums = np.zeros(keys)
        self.promoted = np.empty(0, np.int64)
        #: Inside of it no difference is promoted, whatever comes; zero and the subnormals never are.
        self.zone: Zone = (-self._edges[1], self._edges[1])

    def look(self, differences: Array) -> None:
        """Narrow the zone down by some differences, which are not counted."""
        fields = (differences.view(self._pattern) >> self.shift).astype(np.intp)
        found = np.bincount(fields, minlength=self.counts.size)
        self._promote(np.flatnonzero((found > 0) & (self._exponents > 0)))

    def add(self, differences: Array, mean: bool) -> None:
        """Count differences outside the zone; their sums are only taken for the `mean`."""
        if differences.size == 0:
            return
        # Sorted as unsigned integers, the patterns of a field are adjacent, smallest magnitude first:
        # its minimum and maximum are its ends.
        patterns = np.sort(differences.view(self._pattern))
        fields = patterns >> self.shift
        starts = np.flatnonzero(np.concatenate([[True], fields[1:] != fields[:-1]]))
        here = fields[starts].astype(np.intp)
        ends = np.append(starts[1:], fields.size)
        seen = np.count_nonzero(self.counts)
        self.counts[here] += ends - starts
        self.least[here] = np.minimum(self.least[here], patterns[starts])
        self.most[here] = np.maximum(self.most[here], patterns[ends - 1])
        if mean:
            with np.errstate(over="ignore"):  # of the largest numbers
                self.sums[here] += np.add.reduceat(patterns.view(self._work).astype(np.float64), starts)
        if np.count_nonzero(self.counts) > seen:
            self._promote(np.flatnonzero(self.counts))

    def _promote(self, occupied: Array) -> None:
        self.promoted = occupied[promote(self._exponents[occupied], self._negative[occupied], self._bits)]
        if self.promoted.size == (1 << self._bits) - 1:  # what is smaller than the last one stays out
            last = int(self._exponents[self.promoted[-1]])
            above = last if self._negative[self.promoted[-1]] else last + 1
            self.zone = (-self._edges[above], self._edges[last])


@dataclass(frozen=True)
class _Buckets:
    representatives: Array
    table: Array  # symbol of each (sign, exponent) field
    shift: int
    zone: Zone
    max_error: None = None

    def symbols(self, differences: Array) -> tuple[Array, Array | None]:
        fields = differences.view(f"u{differences.itemsize}") >> self.shift
        symbols = self.table.take(fields.astype(np.intp), mode="clip")
        # Outside the zone there is no other bucket, unless the array has changed since they were chosen.
        return symbols, None if symbols.all() else symbols == 0
