"""Clusters: Inshrinkerator's three tiers as a partition, of differences to the reference.

The smallest differences are pruned (symbol 0), the largest are protected (stored exactly), and
those between share a few centres, which a weighted k-means finds on a sketch: buckets of the
logarithm, so that the work does not depend on the number of elements.

Source: Inshrinkerator (SoCC 2024, arXiv 2306.11800), sections 3 and 4: sketch of 1 % (DDSketch),
weights ``sigma * count + (1 - sigma) * |centre|`` with sigma 0.2; here both parts are shares of
their sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from ..arguments import as_integer, as_number
from ..element_types import Array
from ..errors import ArgumentError
from .base import Quantizer
from .residual import Owner, Residual, Zone, finite

__all__ = ["Centres", "Clusters"]

_GAMMA: Final = 1.02  # ratio of the edges of a bucket: any of its numbers is within 1 % of its middle
_ITERATIONS: Final = 20  # of Lloyd's algorithm, at most


@dataclass(frozen=True)
class Clusters(Quantizer):
    """Prunes the smallest differences, keeps the largest exactly, and gives the others a few centres.

    Parameters
    ----------
    centres
        2 to 255 values that a difference between may become.
    pruned
        Share of the elements, of least magnitude, that become 0.
    protected
        Share of the elements, of largest magnitude, that are stored exactly.
    sigma
        Weight of a bucket's count in the k-means; the rest is that of its magnitude.

    Raises
    ------
    ArgumentError
        For other values, or shares that leave nothing.
    """

    centres: int = 16
    pruned: float = 0.5
    protected: float = 0.0005
    sigma: float = 0.2

    def __post_init__(self) -> None:
        centres = as_integer(self.centres)
        if centres is None or not 2 <= centres <= 255:
            raise ArgumentError(f"Clusters: centres must be an integer from 2 to 255, not {self.centres!r}")
        object.__setattr__(self, "centres", centres)
        for name in ("pruned", "protected", "sigma"):
            share = as_number(getattr(self, name))
            if share is None or not 0 <= share <= 1:
                raise ArgumentError(f"Clusters: {name} is a share from 0 to 1, not {getattr(self, name)!r}")
            object.__setattr__(self, name, share)
        if self.pruned + self.protected >= 1:
            raise ArgumentError("Clusters: what is pruned and protected leaves nothing")

    def fit_one(self, residual: Residual) -> Centres:
        """Choose thresholds and centres on a sample of the differences."""
        work = residual.kind.work
        d = np.concatenate([finite(*sampled)[0] for sampled in residual.sample()]).astype(np.float64)
        magnitude = np.sort(np.abs(d[d != 0]))
        zeros = d.size - magnitude.size
        first = max(round(self.pruned * d.size) - zeros, 0)
        last = max(magnitude.size - round(self.protected * d.size), 0)
        if first >= last:
            edge = magnitude[last] if last < magnitude.size else np.inf
            return Centres(np.zeros(0, work), np.zeros(0), float(edge), 0.0)
        low, high = magnitude[first], magnitude[last - 1]
        kept = d[(np.abs(d) >= low) & (np.abs(d) <= high)]
        # Buckets of the logarithm on either side: a sketch of a few thousand numbers at most.
        logs = np.log(np.abs(kept)) - np.log(low)
        keys = np.ceil(logs / np.log(_GAMMA)).astype(np.int64).clip(0) * 2 + (kept < 0)
        held = np.bincount(keys)
        # In units of the largest sums cannot overflow; NumPy 1.26 says so of what it fills vectors
        # up with.
        with np.errstate(under="ignore", over="ignore"):
            sums = np.bincount(keys, kept / high)
        filled = np.flatnonzero(held)
        points = sums[filled] / held[filled]
        order = np.argsort(points)
        points, counts = points[order], held[filled][order].astype(np.float64)
        weights = self.sigma * counts / counts.sum()
        weights += (1 - self.sigma) * np.abs(points) / np.abs(points).sum()
        centres = _means(points, weights, min(self.centres, points.size))
        with np.errstate(under="ignore"):
            representatives = np.unique((centres * high).astype(work))
        return Centres.nearest(representatives, float(low), float(high))


def _means(points: Array, weights: Array, count: int) -> Array:
    """Return the centres of a weighted k-means of sorted numbers, rising."""
    share = np.cumsum(weights) / weights.sum()
    centres = points[np.searchsorted(share, (np.arange(count) + 0.5) / count).clip(0, points.size - 1)]
    centres = np.unique(centres)
    for _ in range(_ITERATIONS):
        owner = np.searchsorted((centres[1:] + centres[:-1]) / 2, points)
        mass = np.bincount(owner, weights, minlength=centres.size)
        moved = np.bincount(owner, weights * points, minlength=centres.size)
        new = np.divide(moved, mass, out=centres.copy(), where=mass > 0)
        if np.array_equal(new, centres):
            break
        centres = np.unique(new)
    return centres


@dataclass(frozen=True, eq=False)
class Centres:
    """A partition for a batch of one array: every difference becomes one of a few values.

    Parameters
    ----------
    representatives
        The values, rising, ``kind.work``.
    edges
        Between one value and the next, float64.
    smallest
        Differences of smaller magnitude become 0.
    largest
        Differences of larger magnitude are stored exactly.
    """

    representatives: Array
    edges: Array
    smallest: float
    largest: float
    max_error: None = None

    @classmethod
    def nearest(cls, representatives: Array, smallest: float, largest: float = np.inf) -> Centres:
        """Return the partition where every difference becomes the nearest value."""
        halves = representatives.astype(np.float64) / 2
        return cls(representatives, halves[1:] + halves[:-1], smallest, largest)

    @property
    def counts(self) -> Array:
        """Return the number of values."""
        return np.array([self.representatives.size])

    @cached_property
    def zone(self) -> Zone:
        """Return the zone of what becomes 0."""
        return Zone.within(np.array([self.smallest]), self.representatives.dtype)

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array]:  # noqa: ARG002
        """Return 1 and the place of the value of each difference, and which are stored exactly."""
        symbols = np.searchsorted(self.edges, differences) + 1
        outside = np.abs(differences) > self.largest
        symbols[outside] = 0
        return symbols.astype(np.uint8 if self.representatives.size < 256 else np.uint16), outside
