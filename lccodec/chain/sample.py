"""A sample of each floating point array of a state, kept to compare the next state with it.

All of a small state is in the sample. Of a large one it takes at most a quarter of the memory, but
`_MIN_SAMPLED` components of any array, and never more than `_MAX_SAMPLED`. These lie at equal
distances, which have no divisor in common with a row, so that no column is left out.

How much is sampled depends on the sizes of all arrays. So states with the same arrays have samples
that fit each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from ..element_types import Array, ElementType
from ..policy.policy import Candidate

_MAX_SAMPLED: Final = 1 << 13  # components of an array
_MIN_SAMPLED: Final = 1 << 6  # of which fewer are less than what else is kept of an array
_MIN_SAMPLE_BYTES: Final = 1 << 20  # that may be taken of any state
_SAMPLED_SHARE: Final = 4  # a quarter of a large state

_BATCH_COMPONENTS: Final = 1 << 15  # so that their float64 numbers stay in the cache


class Sampling:
    """Which components of a state are sampled.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    distances
        Of each array, the distance between two sampled components; 1 if all are sampled.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        self._of_type: dict[ElementType, list[int]] = {}
        for index, c in enumerate(arrays):
            if c.kind.is_float and c.bits.size:
                self._of_type.setdefault(c.kind, []).append(index)
        sizes = {
            kind: np.array([arrays[index].bits.size for index in indices], np.int64)
            for kind, indices in self._of_type.items()
        }
        limit = _limit(sizes)
        self.distances = [1] * len(arrays)
        self._samples: dict[ElementType, Array] = {}  # their sizes
        for kind, indices in self._of_type.items():
            for place in np.flatnonzero(sizes[kind] > limit).tolist():
                c = arrays[indices[place]]
                row = c.bits.size // c.shape[0]  # of one dimension: one component
                self.distances[indices[place]] = _distance(c.bits.size, limit, row)
            distances = np.array([self.distances[index] for index in indices])
            self._samples[kind] = -(-sizes[kind] // distances)

    def of(self, index: int, bits: Array) -> Array:
        """Return a view of the sampled components of the array of an index."""
        distance = self.distances[index]
        return bits if distance == 1 else bits[::distance]

    def batches(self) -> Iterator[tuple[list[int], Array]]:
        """Yield the indices of arrays of one type, and the sizes of their samples (int64).

        There are as many as can be measured together: a call for each small array would be slow.
        """
        for kind, indices in self._of_type.items():
            sizes = self._samples[kind]
            numbers = (np.cumsum(sizes) - sizes) // _BATCH_COMPONENTS  # of the batch of each array
            cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(indices)]
            for start, stop in pairwise(cuts):
                yield indices[start:stop], sizes[start:stop]


def _limit(sizes: dict[ElementType, Array]) -> int:
    """Return how many components of an array are sampled at most, for arrays of these sizes."""

    def nbytes(limit: float) -> int:
        return sum(int(np.minimum(counts, limit).sum()) * kind.size for kind, counts in sizes.items())

    most = max(nbytes(math.inf) // _SAMPLED_SHARE, _MIN_SAMPLE_BYTES)
    limit = _MAX_SAMPLED
    while limit > _MIN_SAMPLED and nbytes(limit) > most:
        limit //= 2
    return limit


@lru_cache  # the arrays of a state have few sizes
def _distance(size: int, limit: int, row: int) -> int:
    """Return the distance between sampled components of an array of `size`, of rows of `row`.

    Examples
    --------
    >>> _distance(9 * 5 * 64, limit=200, row=5 * 64)
    17
    """
    distance = -(-size // limit)
    while math.gcd(distance, 2 * row) > 1:
        distance += 1
    return distance
