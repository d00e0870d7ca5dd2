"""LC-Checkpoint's quantizer: buckets of equal sign and exponent, of which the largest are promoted.

Sources: SPEC 7.7 (LCC-PRM-01); LC-Checkpoint (Chen et al., ICML 2020), section 3.2 "priority
promotion".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal

import numpy as np

from ..element_types import Array
from ..errors import check_choice, integer
from ..loops.partitions import bucket_symbols, extremes, has_loops
from ..loops.whole import Parts, settle_whole, window_of
from ..parallel import PIECE, cached_property
from .base import Quantizer, Settles
from .residual import Owner, Residual, Zone, finite

#: An array of more components is sampled first, so that its zone is large from the first piece on.
_MIN_SAMPLED_COMPONENTS: Final = 1 << 14
_FIRST_DEPTH: Final = 16  # exponents of a small array that get buckets; more where these are not enough
_EVERYWHERE: Final = np.arange(PIECE)


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
        object.__setattr__(self, "bits", integer("ExponentBuckets: bits", self.bits, 1, 8))
        check_choice("ExponentBuckets: representative", self.representative, ("midpoint", "mean"))

    def fit(self, batch: Residual) -> _Partition:
        """Find the occupied buckets of each array and promote the largest (LCC-PRM-01)."""
        depth, mean = _FIRST_DEPTH, self.representative == "mean"
        while not (partition := _Partition(batch, self.bits, depth, mean=mean)).complete:
            depth *= 2
        return partition


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


@lru_cache
def _promotable(depth: int) -> Array:
    """Return the buckets of an array in the order of promotion, without zero and the subnormals."""
    buckets = np.arange(2 * depth)
    exponents = buckets & (depth - 1)
    order = promotion_order(exponents, buckets >= depth)
    return order[exponents[order] > 0]


class _Nowhere(Zone):
    """The zone of arrays with few differences of 0: it takes too long to search for the others."""

    def outside_all(self, differences: Array, sizes: Array) -> Array:  # noqa: ARG002
        """Return the places of all differences."""
        return _EVERYWHERE[: differences.size]


class _Partition:
    """The buckets of a batch, the extremes and sums of their differences, and the promoted ones.

    Numbers are given to the buckets of the first array, then to those of the second, and so on: for
    each array to those of positive differences by exponent, then to those of negative ones. Of
    several arrays, each has buckets for its largest exponents only, so that the tables stay small.
    The first bucket of each sign then takes all smaller differences, too.
    """

    max_error: None = None

    def __init__(self, batch: Residual, bits: int, depth: int, *, mean: bool) -> None:
        self._kind, self._sizes, self._arrays = batch.kind, batch.sizes, batch.arrays
        self._most_promoted, self._mean = (1 << bits) - 1, mean
        work = batch.kind.work
        self._pattern = np.dtype(f"u{work.itemsize}")
        # Mantissa bits of a difference; differences of bfloat16 are float32.
        self._shift = 23 if batch.kind.name == "bfloat16" else batch.kind.mantissa
        self._exponents = 1 << (8 * work.itemsize - self._shift - 1)
        self._depth = self._exponents if batch.arrays == 1 else min(depth, self._exponents)
        self._order = _promotable(self._depth)
        size = 2 * self._depth * batch.arrays
        self._least = np.full(size, np.iinfo(self._pattern).max, self._pattern)
        self._most = np.zeros(size, self._pattern)
        self._held, self._sums = np.zeros((2, size if mean else 0))
        self._edges = (np.arange(self._depth, dtype=self._pattern) << self._shift).view(work)
        normal = np.full(batch.arrays, self._edges[1])
        #: No difference inside it can be promoted any more. It may contain 0 and the subnormals.
        self.zone = Zone(-normal, normal)
        self.counts = np.zeros(batch.arrays, np.int64)
        self._promoted = np.empty(0, np.int64)  # buckets
        self._symbols = np.zeros(size, np.uint8)  # of each bucket
        self._known: tuple[Array, Array] | None = None  # differences of several arrays, and symbols
        #: Whether the arrays have enough buckets.
        self.complete = True
        if batch.arrays > 1:
            ((d, _),) = batch.sample()
            found = (d.view(self._pattern) >> self._shift).astype(np.uint16) & (self._exponents - 1)
            starts = np.cumsum(batch.sizes) - batch.sizes
            tops = np.maximum.reduceat(found, starts)
            if tops.max() == self._exponents - 1:  # infinities and NaN have no bucket
                tops = np.maximum.reduceat(found * (found < self._exponents - 1), starts)
            self._floors = np.maximum(tops, self._depth - 1) - (self._depth - 1)  # exponents
            if 2 * np.count_nonzero(found) > found.size:
                self.zone = _Nowhere(-normal, normal)
        elif has_loops(work) and not mean:
            seen, first = 0, self._first()
            for start in batch.pieces:
                extremes(*batch.operands(start), self._shift, *first, self._least, self._most)
                if (now := int(np.count_nonzero(self._most))) > seen:
                    self._promote(self._most > 0)
                    seen, first = now, self._first()
            return
        elif batch.bits.size > _MIN_SAMPLED_COMPONENTS:
            occupied = np.zeros(size, bool)
            occupied[self._numbers(*finite(*next(batch.sample())))] = True
            self._promote(occupied)
        for start in batch.pieces:
            differences, owner = batch.finite_outside(start, self.zone)
            patterns = differences.view(self._pattern)
            seen = int(np.count_nonzero(self._most))
            buckets = self._numbers(differences, owner).astype(np.intp, copy=False)
            np.minimum.at(self._least, buckets, patterns)  # patterns of one sign rise with the size
            np.maximum.at(self._most, buckets, patterns)
            if mean:
                self._held += np.bincount(buckets, minlength=size)
                with np.errstate(over="ignore"):  # then the midpoint is used
                    self._sums += np.bincount(buckets, differences, minlength=size)
            if np.count_nonzero(self._most) > seen:
                self._promote(self._most > 0)
            if batch.arrays > 1:
                self._known = differences, self._symbols.take(buckets, mode="clip")

    def _numbers(self, differences: Array, owner: Owner) -> Array:
        """Return the number of the bucket of each difference."""
        # The sign and the exponent of each difference.
        fields, sizes = differences.view(self._pattern) >> self._shift, self._sizes
        if isinstance(owner, int):
            return fields.astype(np.intp)
        fields = fields.astype(np.uint16)
        if owner.size < sizes.sum():
            sizes = np.bincount(owner, minlength=self._arrays)
        floors = np.repeat(self._floors, sizes)  # faster than a look-up for each difference
        columns = np.maximum(fields & (self._exponents - 1), floors)
        columns -= floors
        columns += fields // self._exponents * self._depth
        starts = (2 * self._depth * np.arange(self._arrays)).astype(np.min_scalar_type(self._most.size))
        numbers: Array = columns + np.repeat(starts, sizes)
        return numbers

    def _promote(self, occupied: Array) -> None:
        """Promote the first occupied buckets of each array, and widen the zone of a single one."""
        ranks = np.flatnonzero(occupied.reshape(self._arrays, -1)[:, self._order])
        arrays, ranks = np.divmod(ranks, self._order.size)
        first = np.searchsorted(arrays, np.arange(self._arrays + 1))
        symbols = np.arange(1, arrays.size + 1) - first[arrays]
        kept = symbols <= self._most_promoted
        self._promoted = (2 * self._depth * arrays + self._order[ranks])[kept]
        self._symbols[:] = 0
        self._symbols[self._promoted] = symbols[kept]
        self.counts = np.minimum(np.diff(first), self._most_promoted)
        if self._arrays > 1:
            rest = self._most.reshape(self._arrays, 2, -1)[self.counts < self._most_promoted, :, 0]
            self.complete = not (rest >> self._shift & (self._exponents - 1)).any()
        elif self.counts[0] == self._most_promoted:  # smaller differences cannot be promoted any more
            negative, exponent = divmod(int(self._promoted[-1]), self._depth)
            zone = Zone(-self._edges[[exponent + 1 - negative]], self._edges[[exponent]])
            if zone.low < self.zone.low or zone.high > self.zone.high:
                self.zone = zone

    @cached_property
    def representatives(self) -> Array:
        """Return ``(low + high) / 2`` as real numbers rounded once to `kind.work`, or the mean."""
        work = self._kind.work
        low = self._least[self._promoted].view(work).astype(np.float64)
        high = self._most[self._promoted].view(work).astype(np.float64)
        with np.errstate(over="ignore"):
            middle = (high + low) / 2
        middle = np.where(np.isfinite(middle), middle, high / 2 + low / 2).astype(work)
        if self._mean:  # if the sum overflowed, the midpoint stays
            means = self._sums[self._promoted] / self._held[self._promoted]
            middle = np.where(np.isfinite(means), means, middle).astype(work)
        return middle

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array | None]:
        """Return the symbols of differences; stored exactly are those without a promoted bucket.

        These are only in a single array, if it has changed since the fit.
        """
        if self._known is not None and self._known[0] is differences:
            return self._known[1].copy(), None
        if self._arrays > 1:
            return self._symbols.take(self._numbers(differences, owner), mode="clip"), None
        symbols = bucket_symbols(differences.view(self._pattern), self._shift, self._symbols)
        return symbols, None if symbols.all() else symbols == 0

    def _first(self) -> tuple[int, int]:
        """Return the first exponents outside the zone: of positive and of negative differences."""
        edges = np.concatenate([self.zone.high, self.zone.low]).view(self._pattern)
        plus, minus = (edges >> self._shift & (self._exponents - 1)).tolist()
        return plus, minus

    @cached_property
    def settles(self) -> Settles | None:
        """What codes a whole piece; see `Partition`."""
        if not has_loops(self._kind.work) or self._arrays > 1:
            return None
        window = window_of(self._symbols, self._first())
        nothing = self._kind.work.type(0)
        parts = Parts(window, self._shift, nothing, nothing, nothing, 0.0, 0.0)
        return partial(settle_whole, parts=parts) if window.size else None
