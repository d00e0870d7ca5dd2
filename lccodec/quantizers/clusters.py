"""Clusters: Inshrinkerator's three tiers as a partition of differences to the reference.

The smallest differences are pruned (symbol 0). The largest are protected (stored exactly). All
others share a few centres. A weighted k-means finds the centres on a sketch of the differences:
buckets of their logarithm. So its work does not depend on the number of elements.

Source: Inshrinkerator (SoCC 2024, arXiv 2306.11800), sections 3 and 4: sketch of 1 % (DDSketch),
weights ``sigma * count + (1 - sigma) * |centre|`` with sigma 0.2. Here both terms are divided by
their sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_types import Array
from ..errors import ArgumentError, integer, number
from ..parallel import cached_property
from .base import Quantizer
from .residual import Owner, Residual, Zone, finite

_BUCKET_RATIO: Final = 1.02  # upper edge over lower edge: a number is within 1 % of its bucket's middle
_MAX_ITERATIONS: Final = 20  # of Lloyd's algorithm


@dataclass(frozen=True)
class Clusters(Quantizer):
    """Prunes the smallest differences, keeps the largest exactly, and clusters the others.

    Parameters
    ----------
    centres
        Number of values for the clustered differences, 2 to 255.
    pruned
        Share of the elements that become 0: those with the smallest differences.
    protected
        Share of the elements that are stored exactly: those with the largest differences.
    sigma
        Weight of a bucket's count in the k-means, 0 to 1. Its magnitude has the weight
        ``1 - sigma``.

    Raises
    ------
    ArgumentError
        If a parameter is out of range, or `pruned` and `protected` add up to 1 or more.
    """

    centres: int = 16
    pruned: float = 0.5
    protected: float = 0.0005
    sigma: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "centres", integer("Clusters: centres", self.centres, 2, 255))
        for name in ("pruned", "protected", "sigma"):
            given = getattr(self, name)
            share = number(f"Clusters: {name}", given, "a share from 0 to 1", lambda n: 0 <= n <= 1)
            object.__setattr__(self, name, share)
        if self.pruned + self.protected >= 1:
            raise ArgumentError("Clusters: pruned + protected must be below 1")

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
        # The sketch: buckets of the logarithm for each sign, a few thousand at most.
        logs = np.log(np.abs(kept)) - np.log(low)
        keys = np.ceil(logs / np.log(_BUCKET_RATIO)).astype(np.int64).clip(0) * 2 + (kept < 0)
        held = np.bincount(keys)
        # Sums in units of the largest difference cannot overflow. NumPy 1.26 still warns, about the
        # unused lanes of its vectors.
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
    """Return the centres that a weighted k-means finds for sorted numbers, in rising order."""
    share = np.cumsum(weights) / weights.sum()
    centres = points[np.searchsorted(share, (np.arange(count) + 0.5) / count).clip(0, points.size - 1)]
    centres = np.unique(centres)
    for _ in range(_MAX_ITERATIONS):
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
    """A partition of one array: every difference becomes one of a few values.

    Parameters
    ----------
    representatives
        The values in rising order, ``kind.work``.
    edges
        The boundaries between neighbouring values, float64.
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
        """Return the zone of the differences that become 0."""
        return Zone.within(np.array([self.smallest]), self.representatives.dtype)

    def symbols(self, differences: Array, owner: Owner) -> tuple[Array, Array]:  # noqa: ARG002
        """Return 1 + the index of each difference's value, and which are stored exactly."""
        symbols = np.searchsorted(self.edges, differences) + 1
        outside = np.abs(differences) > self.largest
        symbols[outside] = 0
        return symbols.astype(np.uint8 if self.representatives.size < 256 else np.uint16), outside
