"""Elements that are drawn in proportion to their size.

Of second moments, few large elements decide over root mean squares. Elements at equal distances
miss them: of 2,000,000 log-normal values, 8,192 such elements are off by a factor of two. Drawn in
proportion to its size, each element brings about the same share of a sum, and the large ones are
all there. The same elements also are those that move, as a second moment decays by a share of
itself, and grows by squares of gradients that are as large as it.

An element is drawn if it is larger than a part of a common size. The parts are spread evenly
between 0 and 1, by multiples of the golden ratio. So the same are drawn of the same array, and no
generator is needed.

An element of a sample may be there by its place, as in :mod:`sampling`, or by its size. What it
counts is one over the probability that it is there at all. So no element counts more than by its
place alone, and the small ones are not lost.

Source: Poisson sampling with the estimator of Horvitz and Thompson (1952).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Self

import numpy as np

from ....element_table import ElementType
from ....element_types import Array, work
from ....parallel import slices

#: Components of a piece: their numbers stay in the cache.
PIECE: Final = 1 << 15
_SHIFT: Final = 10_007  # components: no two pieces compare the same column with the same part
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class Drawn:
    """Components of an array that were drawn by their size.

    Parameters
    ----------
    places
        Their indices, rising.
    bits
        The components.
    rate
        The probability for a component of size 1; all are drawn for which it is 1 or more.
    """

    places: Array
    bits: Array
    rate: float

    @classmethod
    def of(cls, bits: Array, kind: ElementType, distance: int) -> Self | None:
        """Draw from a floating point array what is not at equal distances; ``None`` if all are 0.

        As many are drawn as lie at the distances, and fewer if some are so large that they would be
        drawn twice. Those that do lie there are left out. What is not finite is not drawn.

        Examples
        --------
        >>> from lccodec.element_types import components
        >>> kind, bits = components(np.array([9, 4, 2, 1], np.float32))
        >>> found = Drawn.of(bits, kind, distance=2)
        >>> found.places.tolist(), found.rate
        ([1], 0.125)
        """
        return cls.of_parts(lambda: [bits], bits.size, kind, distance)

    @classmethod
    @np.errstate(all="ignore")  # of hostile values too
    def of_parts(
        cls, parts: Callable[[], Iterable[Array]], size: int, kind: ElementType, distance: int
    ) -> Self | None:
        """Draw the same from an array of `size` components that comes in parts, asked for twice.

        The sizes of all parts but the last are multiples of `PIECE`.
        """
        dtype = np.result_type(kind.work, np.float32)  # float16 has too few exponents for a mean
        total = sum(part for *_, part in _pieces(parts(), kind, dtype))
        if not 0 < total < np.inf:
            return None
        mean = dtype.type(total / -(-size // distance))
        places: list[Array] = []
        drawn: list[Array] = []
        for start, piece, sizes, _ in _pieces(parts(), kind, dtype):
            sizes[-start % distance :: distance] = 0
            shift = start // PIECE * _SHIFT % PIECE
            bounds = _parts(dtype)[shift : shift + sizes.size] * mean
            found = np.flatnonzero(sizes > bounds)
            places.append(found + start)
            drawn.append(piece[found])
        every = np.concatenate(places).astype(np.min_scalar_type(size))
        return cls(every, np.concatenate(drawn), 1 / float(mean))

    def again(self, bits: Array) -> Array:
        """Return the same components of another array of the same size."""
        return bits[self.places]


@cache
def _parts(dtype: np.dtype[Any]) -> Array:
    """Return numbers between 0 and 1, for a piece that starts anywhere in the first half."""
    return (np.arange(1, 2 * PIECE + 1) * _GOLDEN % 1).astype(dtype)


def _pieces(
    parts: Iterable[Array], kind: ElementType, dtype: np.dtype[Any]
) -> Iterator[tuple[int, Array, Array, float]]:
    """Yield where a piece starts, the piece, its sizes, 0 for what is not finite, and their sum."""
    start = 0
    for whole in parts:
        for part in slices(whole.size, PIECE):
            bits = whole[part]
            sizes = np.abs(work(bits, kind), dtype=dtype)
            total = float(sizes.sum())  # in float64 it takes four times as long
            if not math.isfinite(total):
                sizes[~np.isfinite(sizes)] = 0
                total = float(sizes.sum(dtype=np.float64))
            yield start, bits, sizes, total
            start += bits.size
