"""LC-Checkpoint's quantizer: buckets of equal sign and exponent, of which the largest are promoted.

Sources: SPEC 7.7 (LCC-PRM-01); LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority
promotion".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from ..arguments import as_integer
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .base import Quantizer
from .residual import Owner, Residual, Zone, finite

__all__ = ["ExponentBuckets", "promotion_order"]

#: An array of more components is sampled first, so that its zone is large from the first piece on.
_MIN_SAMPLED_COMPONENTS: Final = 1 << 14


@dataclass(frozen=True)
class ExponentBuckets(Quantizer):
    """LC-Checkpoint's quantizer: buckets of equal sign and exponent; the largest ones are promoted.

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
        bits = as_integer(self.bits)
        if bits is None or not 1 <= bits <= 8:
            raise ArgumentError(f"ExponentBuckets: bits must be an integer from 1 to 8, not {self.bits!r}")
        object.__setattr__(self, "bits", bits)
        if self.representative not in ("midpoint", "mean"):
            raise ArgumentError(f"ExponentBuckets: unknown representative {self.representative!r}")

    def fit(self, batch: Residual) -> _Partition:
        """Find the occupied buckets of each array and promote the largest (LCC-PRM-01)."""
        table = _Table(batch, self.bits, mean=self.representative == "mean")
        for start in batch.pieces():
            table.add(*batch.finite_outside(start, table.zone))
        kind, promoted = batch.kind, table.promoted
        least, most = (ends[promoted].view(kind.work) for ends in (table.least, table.most))
        representatives = _midpoints(least, most, kind)
        if table.mean:  # if the sum overflowed, the midpoint stays
            means = table.sums[promoted] / table.held[promoted]
            representatives = np.where(np.isfinite(means), means, representatives).astype(kind.work)
        symbols = np.zeros(table.most.size, np.uint8)
        symbols[promoted] = table.symbols
        counts = np.bincount(promoted // table.buckets.span, minlength=batch.arrays)
        return _Partition(counts, representatives, table.zone, symbols, table.buckets, table.numbered)


def promotion_order(exponents: Array, negative: Array) -> Array:
    """Return the indices (int64) of buckets in the order of promotion (LCC-PRM-01).

    Larger exponents come first. Of two buckets with equal exponent, the positive one comes first.

    Parameters
    ----------
    exponents
        Exponent of each bucket, integers of shape ``(buckets,)``.
    negative
        Whether the bucket holds negative values, bool of the same shape.
    """
    return np.lexsort((negative, -exponents.astype(np.int64)))


def _shift(kind: ElementType) -> int:
    """Return the mantissa bits of a difference; differences of bfloat16 are float32."""
    return 23 if kind.name == "bfloat16" else kind.mantissa


@dataclass(frozen=True, eq=False)
class _Buckets:
    """The numbers of the buckets of a batch: the first array's buckets, the second's, and so on.

    Parameters
    ----------
    shift
        Number of mantissa bits of a difference, below its sign and exponent field.
    fields
        Sign and exponent field of each bucket of one array.
    column
        Number of each field among the buckets of an array; ``None`` if it is the field itself.
    """

    shift: int
    fields: Array
    column: Array | None

    @classmethod
    def of(cls, batch: Residual) -> _Buckets:
        """Return the numbers for a batch; in a batch of small arrays, only of fields that occur."""
        shift = _shift(batch.kind)
        fields = np.arange(1 << (8 * batch.kind.work.itemsize - shift))
        if batch.arrays == 1 or batch.arrays * fields.size <= batch.bits.size:
            return cls(shift, fields, None)
        ((d, _),) = batch.sample()
        occurs = np.zeros(fields.size, bool)
        occurs[d.view(f"u{d.itemsize}") >> shift] = True
        return cls(shift, fields[occurs], np.cumsum(occurs) - 1)

    @property
    def span(self) -> int:
        """Number of buckets of one array."""
        return self.fields.size

    def number(self, differences: Array, owner: Owner) -> Array:
        """Return the number of the bucket of each difference."""
        found = (differences.view(f"u{differences.itemsize}") >> self.shift).astype(np.intp)
        if self.column is not None:
            found = self.column.take(found, mode="clip")
        if not isinstance(owner, int):
            found += owner * self.span
        return found


class _Table:
    """Extremes and sums of the differences in each bucket of a batch, and the promoted buckets."""

    def __init__(self, batch: Residual, bits: int, *, mean: bool) -> None:
        work = batch.kind.work
        self._pattern = np.dtype(f"u{work.itemsize}")
        self._most_promoted = (1 << bits) - 1
        self._arrays = batch.arrays
        self.mean = mean
        self.buckets = _Buckets.of(batch)
        exponent_bits = 8 * work.itemsize - self.buckets.shift - 1
        self._exponent_mask = (1 << exponent_bits) - 1
        exponents = self.buckets.fields & self._exponent_mask
        order = promotion_order(exponents, self.buckets.fields > self._exponent_mask)
        self._order = order[exponents[order] > 0]  # zero and the subnormals have no bucket
        self._edges = (np.arange(1 << exponent_bits).astype(self._pattern) << self.buckets.shift).view(work)
        #: No difference inside it can be promoted any more. It always contains the subnormals.
        self.zone = Zone.within(np.full(batch.arrays, self._edges[1]), work)
        #: The promoted buckets, and the symbol of each.
        self.promoted = self.symbols = np.empty(0, np.int64)
        size = batch.arrays * self.buckets.span
        self.least = np.full(size, np.iinfo(self._pattern).max, self._pattern)
        self.most = np.zeros(size, self._pattern)
        self.numbered: tuple[Array, Array] | None = None
        self.held, self.sums = np.zeros((2, size if mean else 0))
        if batch.arrays > 1 or batch.bits.size > _MIN_SAMPLED_COMPONENTS:
            self._promote_by_sample(*finite(*next(batch.sample())))

    def _promote_by_sample(self, differences: Array, owner: Owner) -> None:
        """Promote the buckets that occur in a sample of the differences."""
        occupied = np.zeros(self.most.size, bool)
        occupied[self.buckets.number(differences, owner)] = True
        self._promote(occupied)

    def add(self, differences: Array, owner: Owner) -> None:
        """Add finite differences outside the zone."""
        if differences.size == 0:
            return
        buckets, patterns = self.buckets.number(differences, owner), differences.view(self._pattern)
        if self._arrays > 1:  # the encoder needs the same numbers again
            self.numbered = differences, buckets
        seen = np.count_nonzero(self.most)
        np.minimum.at(self.least, buckets, patterns)  # patterns of one sign rise with the magnitude
        np.maximum.at(self.most, buckets, patterns)
        if self.mean:
            self.held += np.bincount(buckets, minlength=self.most.size)
            with np.errstate(over="ignore"):  # then the midpoint is used
                self.sums += np.bincount(buckets, differences, minlength=self.most.size)
        if self._arrays == 1 and np.count_nonzero(self.most) > seen:
            self._promote(self.most > 0)

    def _promote(self, occupied: Array) -> None:
        """Promote the first occupied buckets of each array, and widen its zone up to them."""
        span = self.buckets.span
        arrays, ranks = occupied.reshape(self._arrays, span)[:, self._order].nonzero()
        first = np.searchsorted(arrays, np.arange(self._arrays))
        symbols = np.arange(1, arrays.size + 1) - first[arrays]
        kept = symbols <= self._most_promoted
        numbers = arrays * span + self._order[ranks]
        self.promoted, self.symbols = numbers[kept], symbols[kept]
        full = symbols == self._most_promoted
        array, field = arrays[full], self.buckets.fields[self._order[ranks[full]]]
        if array.size:  # smaller differences cannot be promoted any more
            exponent, positive = field & self._exponent_mask, field <= self._exponent_mask
            low, high = self.zone.low.copy(), self.zone.high.copy()
            low[array] = -self._edges[exponent + positive]
            high[array] = self._edges[exponent]
            self.zone = Zone(low, high)


def _midpoints(low: Array, high: Array, kind: ElementType) -> Array:
    """Return ``(low + high) / 2`` as real numbers rounded once to `kind.work` (SPEC 7.7)."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(over="ignore"):
        middle = (high + low) / 2
    return np.where(np.isfinite(middle), middle, high / 2 + low / 2).astype(kind.work)


@dataclass(frozen=True, eq=False)
class _Partition:
    counts: Array
    representatives: Array
    zone: Zone
    table: Array  # symbol of each bucket of each array
    buckets: _Buckets
    numbered: tuple[Array, Array] | None  # the differences of the fit, and their buckets
    max_error: None = None

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        if self.numbered is not None and self.numbered[0] is differences:
            numbers = self.numbered[1]
        else:
            numbers = self.buckets.number(differences, owner)
        symbols = self.table.take(numbers, mode="clip")
        # Every difference outside the zone has a promoted bucket, unless the array has changed
        # since the fit.
        return symbols, None if symbols.all() else symbols == 0
