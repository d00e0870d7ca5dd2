"""Elements that are drawn in proportion to their size.

Of second moments, few large elements decide over root mean squares. Elements at equal distances
miss them: of 2,000,000 log-normal values, 8,192 such elements are off by a factor of two. Drawn in
proportion to its size, each element brings about the same share of a sum, and the large ones are
all there. The same elements also are those that move, as a second moment decays by a share of
itself, and grows by squares of gradients that are as large as it.

Each element has a number between 0 and 1, by its place: multiples of the golden ratio, which are
spread evenly. Its priority is its size over this number, and those of the highest priorities are
drawn. So the same are drawn of the same array, in one pass, and no generator is needed. An element
is among them with a probability that is its size over the highest priority that is not drawn.

An element of a sample may be there by its place, as in :mod:`sampling`, or by its size. What it
counts is one over the probability that it is there at all. So no element counts more than by its
place alone, and the small ones are not lost.

Sources: priority sampling, Duffield, Lund and Thorup (2007); weights, Horvitz and Thompson (1952).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Self

import numpy as np

from ....element_table import ElementType
from ....element_types import Array, work
from ....parallel import slices

#: Components of a piece: their sizes stay in the cache.
PIECE: Final = 1 << 16
_PIECE_BITS: Final = PIECE.bit_length() - 1
_ROW_BITS: Final = 12
_ROW: Final = 1 << _ROW_BITS  # components of a row of a piece, which have consecutive numbers
_ROW_SHIFT: Final = 233  # numbers: no two rows compare the same column with the same number,
_PIECE_SHIFT: Final = 10_007  # and no two pieces
_SPAN: Final = _ROW + (PIECE >> _ROW_BITS) * _ROW_SHIFT  # numbers of a piece
_SHIFTS: Final = 1 << 16  # pieces begin at as many numbers, at most
_GOLDEN: Final = (5**0.5 - 1) / 2

#: About as many components are looked at, over those that are drawn: the sample at equal distances
#: says only roughly which priorities are high.
_LOOKED_AT: Final = 1.5

#: Components at equal distances for each one that is drawn.
_EVEN_PER_DRAWN: Final = 2


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

        At most half as many are drawn as lie at the distances. Those that lie there are left out.
        What is not finite is not drawn.

        Examples
        --------
        >>> from lccodec.element_types import components
        >>> kind, bits = components(np.array([9, 4, 2, 1], np.float32))
        >>> found = Drawn.of(bits, kind, distance=2)
        >>> found.places.tolist(), round(found.rate, 3)
        ([1], 0.068)
        """
        return cls.of_parts(bits[::distance], [bits], bits.size, kind, distance)

    @classmethod
    @np.errstate(all="ignore")  # of hostile values too
    def of_parts(
        cls, even: Array, parts: Iterable[Array], size: int, kind: ElementType, distance: int
    ) -> Self | None:
        """Draw the same from an array of `size` components that comes in parts.

        `even` has the components at equal distances. The sizes of all parts but the last are
        multiples of `PIECE`.
        """
        numbers, tiny = _numbers(kind)
        bound = max(_bound(work(even, kind), distance * _EVEN_PER_DRAWN), tiny)
        bounds = numbers[: _SPAN if size <= PIECE else None] * numbers.dtype.type(bound)
        found = []
        for start, piece in _pieces(parts):
            own = _above(_sizes(piece, kind, bounds.dtype), bounds, _first_number(start)).nonzero()[0]
            found.append((own + start, piece[own]))
        places, drawn = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        sizes = np.abs(work(drawn, kind), dtype=np.float64)
        rows = (places & PIECE - 1) >> _ROW_BITS
        own_numbers = numbers[_first_number(places) + rows * _ROW_SHIFT + (places & _ROW - 1)]
        priorities = np.where(np.isfinite(sizes), sizes / own_numbers, 0)
        count = -(-even.size // _EVEN_PER_DRAWN)
        if places.size > count:
            bound = max(bound, float(np.partition(priorities, -count - 1)[-count - 1]))
        chosen = np.flatnonzero(priorities > bound)
        if bound == np.inf or not chosen.size:
            return None
        places = places[chosen]
        elsewhere = places % distance != 0
        return cls(places[elsewhere].astype(np.min_scalar_type(size)), drawn[chosen[elsewhere]], 1 / bound)

    def again(self, bits: Array) -> Array:
        """Return the same components of another array of the same size."""
        found: Array = bits.take(self.places)
        return found


@cache
def _numbers(kind: ElementType) -> tuple[Array, float]:
    """Return all numbers between 0 and 1 that components have, and the least bound of priorities.

    They have the type that components are compared in: float16 has too few exponents.
    """
    dtype = np.result_type(kind.work, np.float32)
    numbers = (np.arange(1, _SHIFTS + _SPAN + 1) * _GOLDEN % 1).astype(dtype)
    return numbers, float(np.finfo(dtype).tiny)


def _first_number(place: Any) -> Any:
    """Return which number is the first of the piece that components lie in."""
    return (place >> _PIECE_BITS) * _PIECE_SHIFT & _SHIFTS - 1


def _sizes(piece: Array, kind: ElementType, dtype: np.dtype[Any]) -> Array:
    """Return the sizes of components; no copy is made if none is negative, as a rule."""
    values = work(piece, kind).astype(dtype, copy=False)
    found: Array = values if np.maximum.reduce(piece) >> (8 * kind.size - 1) == 0 else np.abs(values)
    return found


def _above(sizes: Array, bounds: Array, shift: int) -> Array:
    """Return which sizes are above their bounds; each row begins `_ROW_SHIFT` bounds later."""
    rows, rest = divmod(sizes.size, _ROW)
    whole = sizes.size - rest
    step = bounds.itemsize
    steps = _ROW_SHIFT * step, step
    by_row: Array = np.ndarray((rows + (rest > 0), _ROW), bounds.dtype, bounds, shift * step, steps)
    found = np.empty(sizes.size, bool)
    np.greater(sizes[:whole].reshape(rows, _ROW), by_row[:rows], out=found[:whole].reshape(rows, _ROW))
    if rest:
        np.greater(sizes[whole:], by_row[rows, :rest], out=found[whole:])
    return found


def _bound(values: Array, distance: int) -> float:
    """Return a priority that more than enough components have, by the values of one in `distance`.

    One of them that is large would be drawn anyhow, and counts as one.
    """
    sizes = np.abs(values, dtype=np.float64)
    if not np.maximum.reduce(sizes) < np.inf:
        sizes = sizes[sizes < np.inf]
    highest = distance * np.add.reduce(sizes) / max(sizes.size, 1)
    return float(distance * np.add.reduce(np.minimum(sizes, highest))) / max(sizes.size, 1) / _LOOKED_AT


def _pieces(parts: Iterable[Array]) -> Iterator[tuple[int, Array]]:
    """Yield where each piece starts, and the piece."""
    start = 0
    for part in parts:
        for stretch in slices(part.size, PIECE):
            yield start + stretch.start, part[stretch]
        start += part.size
