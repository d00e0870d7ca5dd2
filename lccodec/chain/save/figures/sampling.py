"""Which components of a state stand for the others, and what is kept of them for the next save.

All of a small state is in the sample. Of a large one it takes at most a quarter of the memory, but
`_MIN_SAMPLED` components of any array, and never more than `_MAX_SAMPLED`. These lie at equal
distances, which have no divisor in common with a row, so that no column is left out. How much is
sampled depends on the sizes of all arrays. So states with the same arrays have samples that fit
each other.

Of second moments that are not sampled whole, as many components again are drawn by their size.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from ....element_table import ElementType
from ....element_types import Array
from ....policy.policy import Candidate
from ...read.replay import DecodedArray
from .drawing import Drawn

_MAX_SAMPLED: Final = 1 << 13  # components of an array
_MIN_SAMPLED: Final = 1 << 6  # of which fewer are less than what else is kept of an array
_MIN_SAMPLE_BYTES: Final = 1 << 20  # that may be taken of any state
_SAMPLED_SHARE: Final = 4  # a quarter of a large state

_BATCH_COMPONENTS: Final = 1 << 15  # so that their float64 numbers stay in the cache


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a state, by the names of arrays.

    Parameters
    ----------
    even
        Components at equal distances.
    drawn
        Those that were drawn by their size, of the arrays of which any were.
    """

    even: Mapping[str, Array] = field(default_factory=dict)
    drawn: Mapping[str, Drawn] = field(default_factory=dict)

    def of(self, names: Container[str]) -> Samples:
        """Return the samples of some arrays."""
        even = {name: bits for name, bits in self.even.items() if name in names}
        return Samples(even, {name: found for name, found in self.drawn.items() if name in names})

    def with_those_of(self, other: Samples) -> Samples:
        """Return samples of the arrays of both."""
        return Samples({**self.even, **other.even}, {**self.drawn, **other.drawn})


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
        of_type: dict[ElementType, list[int]] = {}
        for index, c in enumerate(arrays):
            if c.kind.is_float and c.bits.size:
                of_type.setdefault(c.kind, []).append(index)
        sizes = {
            kind: np.array([arrays[index].bits.size for index in indices], np.int64)
            for kind, indices in of_type.items()
        }
        limit = _limit(sizes)
        self.distances = [1] * len(arrays)
        self._drawn: set[int] = set()
        self._groups: list[tuple[list[int], Array]] = []  # indices, and the sizes of their samples
        for kind, indices in of_type.items():
            drawn: list[int] = []
            for place in np.flatnonzero(sizes[kind] > limit).tolist():
                c = arrays[indices[place]]
                row = c.bits.size // c.shape[0]  # of one dimension: one component
                self.distances[indices[place]] = _distance(c.bits.size, limit, row)
                if c.role == "second_moment":
                    drawn.append(place)
            distances = np.array([self.distances[index] for index in indices])
            samples = -(-sizes[kind] // distances)
            self._drawn.update(indices[place] for place in drawn)
            even = np.delete(np.arange(len(indices)), drawn).tolist()
            for places in filter(None, (even, drawn)):
                self._groups.append(([indices[place] for place in places], samples[places]))

    def draws(self, index: int) -> bool:
        """Return whether components of the array of an index are drawn by their size too."""
        return index in self._drawn

    def draw(self, index: int, bits: Array, kind: ElementType) -> Drawn | None:
        """Return those that are drawn; ``None`` if none are."""
        if index not in self._drawn:
            return None
        return Drawn.of(bits, kind, self.distances[index])

    def draw_parts(
        self, index: int, parts: Callable[[], Iterable[Array]], size: int, kind: ElementType
    ) -> Drawn | None:
        """Return those that are drawn of an array that comes in parts (see `Drawn.of_parts`)."""
        if index not in self._drawn:
            return None
        return Drawn.of_parts(parts, size, kind, self.distances[index])

    def taken(self, index: int, array: DecodedArray) -> tuple[Array, Drawn | None]:
        """Return copies of all that is sampled of an array."""
        return self.of(index, array.bits).copy(), self.draw(index, array.bits, array.kind)

    def of(self, index: int, bits: Array) -> Array:
        """Return a view of the sampled components of the array of an index."""
        distance = self.distances[index]
        return bits if distance == 1 else bits[::distance]

    def batches(self) -> Iterator[tuple[list[int], Array]]:
        """Yield the indices of arrays of one type, and the sizes of their samples (int64).

        There are as many as can be measured together: a call for each small array would be slow.
        Of all or none of them components are drawn.
        """
        for indices, sizes in self._groups:
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
