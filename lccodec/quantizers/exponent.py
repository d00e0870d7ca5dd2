"""LC-Checkpoint's quantizer: buckets of equal sign and exponent; the largest ones are promoted.

Sources: SPEC 7.7 (LCC-PRM-01); LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority
promotion".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from ..arguments import as_integer
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .base import Quantizer
from .residual import Owner, Residual, Zone, finite

__all__ = ["ExponentBuckets", "promotion_order"]

#: An array with more components is sampled first, so that its zone is large from the beginning.
_MIN_SAMPLED_COMPONENTS: Final = 1 << 14


@dataclass(frozen=True)
class ExponentBuckets(Quantizer):
    """LC-Checkpoint's quantizer: buckets of equal sign and exponent; the largest ones are promoted.

    Parameters
    ----------
    bits
        1 to 8. Up to ``2**bits - 1`` buckets have a representative; all other differences become 0.
    representative
        ``"midpoint"`` for the average of the bucket's maximum and minimum, as in the paper, or
        ``"mean"``.

    Raises
    ------
    ArgumentError
        If a parameter has another value.
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

    def fit(self, batch: Residual) -> _Buckets:
        """Find the occupied buckets of each array and promote the largest (LCC-PRM-01)."""
        table = _Table(batch, self.bits, mean=self.representative == "mean")
        for start in batch.pieces():
            table.add(*batch.finite_outside(start, table.zone))
        kind, promoted = batch.kind, table.promoted
        least, most = (ends[promoted].view(kind.work) for ends in (table.least, table.most))
        representatives = _midpoints(least, most, kind)
        if table.sums is not None:  # where the sum overflowed, the midpoint stays
            means = table.sums[promoted] / table.counts[promoted]
            representatives = np.where(np.isfinite(means), means, representatives).astype(kind.work)
        symbols = np.zeros(table.counts.size, np.uint8)
        symbols[promoted] = table.symbols
        counts = np.bincount(promoted // table.span, minlength=batch.arrays)
        return _Buckets(counts, representatives, table.zone, symbols, table.ranks, table.shift, table.span)


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


@lru_cache
def _promotion_ranks(exponent_bits: int) -> tuple[Array, Array]:
    """Return the promotion rank of each sign and exponent field, and the field of each rank.

    Zero and the subnormals have no bucket. Their two fields have the last two ranks.
    """
    fields = np.arange(2 << exponent_bits)
    order = promotion_order(fields & ((1 << exponent_bits) - 1), fields >> exponent_bits > 0)
    ranks = np.empty(fields.size, np.intp)
    ranks[order] = fields
    return ranks, order


class _Table:
    """Counts, extremes and sums of the differences in each bucket of a batch; the promoted buckets.

    Each array has `span` buckets, in the order of promotion. In a batch of several arrays, only
    those buckets are counted that occur in the batch. So the tables stay small.
    """

    def __init__(self, batch: Residual, bits: int, *, mean: bool) -> None:
        work = batch.kind.work
        self._pattern = np.dtype(f"u{work.itemsize}")
        self._most_promoted = (1 << bits) - 1
        self._arrays = batch.arrays
        self.shift = _shift(batch.kind)
        exponent_bits = 8 * work.itemsize - self.shift - 1
        self.ranks, self._fields = _promotion_ranks(exponent_bits)
        self._exponent_mask = (1 << exponent_bits) - 1
        self._edges = (np.arange(1 << exponent_bits).astype(self._pattern) << self.shift).view(work)
        #: No difference inside it can be promoted any more. It always contains the subnormals.
        self.zone = Zone.within(np.full(batch.arrays, self._edges[1]), work)
        #: The promoted buckets, and the symbol of each.
        self.promoted = self.symbols = np.empty(0, np.int64)
        self.span = self.ranks.size
        if batch.arrays > 1 or batch.bits.size > _MIN_SAMPLED_COMPONENTS:
            self._promote_by_sample(*finite(*next(batch.sample())))
        size = batch.arrays * self.span
        self.counts = np.zeros(size, np.int64)
        self.least = np.full(size, np.iinfo(self._pattern).max, self._pattern)
        self.most = np.zeros(size, self._pattern)
        self.sums = np.zeros(size) if mean else None

    def _promote_by_sample(self, differences: Array, owner: Owner) -> None:
        """Promote the buckets that occur in a sample; its differences are not counted."""
        fields = (differences.view(self._pattern) >> self.shift).astype(np.intp)
        if self._arrays > 1:
            occurs = np.zeros(self.ranks.size, bool)
            occurs[fields] = True
            occurs[self._fields[-2:]] = True
            occurs = occurs[self._fields]
            self._fields = self._fields[occurs]
            self.ranks = (np.cumsum(occurs) - 1).take(self.ranks)
            self.span = self._fields.size
        occupied = np.zeros(self._arrays * self.span, bool)
        occupied[self.ranks.take(fields, mode="clip") + owner * self.span] = True
        self._promote(occupied)

    def add(self, differences: Array, owner: Owner) -> None:
        """Add finite differences outside the zone."""
        if differences.size == 0:
            return
        patterns = differences.view(self._pattern)
        buckets = self.ranks.take((patterns >> self.shift).astype(np.intp), mode="clip")
        if not isinstance(owner, int):
            buckets += owner * self.span
        seen = np.count_nonzero(self.counts)
        self.counts += np.bincount(buckets, minlength=self.counts.size)
        np.minimum.at(self.least, buckets, patterns)  # patterns of one sign rise with the magnitude
        np.maximum.at(self.most, buckets, patterns)
        if self.sums is not None:
            with np.errstate(over="ignore"):  # then the midpoint is used
                self.sums += np.bincount(buckets, differences, minlength=self.counts.size)
        if self._arrays == 1 and np.count_nonzero(self.counts) > seen:
            self._promote(self.counts > 0)

    def _promote(self, occupied: Array) -> None:
        """Promote the first occupied buckets of each array, and widen its zone up to them."""
        arrays, ranks = occupied.reshape(self._arrays, self.span)[:, :-2].nonzero()
        first = np.searchsorted(arrays, np.arange(self._arrays))
        symbols = np.arange(1, arrays.size + 1) - first[arrays]
        kept = symbols <= self._most_promoted
        self.promoted, self.symbols = (arrays * self.span + ranks)[kept], symbols[kept]
        full = symbols == self._most_promoted
        array, field = arrays[full], self._fields[ranks[full]]
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


@dataclass(frozen=True)
class _Buckets:
    counts: Array
    representatives: Array
    zone: Zone
    table: Array  # symbol of each bucket of each array
    ranks: Array  # bucket of each sign and exponent field
    shift: int
    span: int
    max_error: None = None

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        fields = differences.view(f"u{differences.itemsize}") >> self.shift
        buckets = self.ranks.take(fields.astype(np.intp), mode="clip")
        if not isinstance(owner, int):
            buckets += owner * self.span
        symbols = self.table.take(buckets, mode="clip")
        # Every difference outside the zone has a promoted bucket, unless the array has changed
        # since the fit.
        return symbols, None if symbols.all() else symbols == 0
