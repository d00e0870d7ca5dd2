"""The least and the greatest of all elements of an array, and how many are not finite.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....element_table import ElementType
from ....element_types import Array, work
from ....parallel import slices

_PIECE: Final = 1 << 16  # components: the second of two passes finds them in the cache


class Extremes:
    """Finds the extremes of an array that comes in pieces.

    The patterns of floating point numbers have the order of their magnitudes, and two passes over
    integers are as fast as memory.
    """

    def __init__(self, kind: ElementType) -> None:
        self._kind = kind
        self._sign = 1 << (8 * kind.size - 1)
        self._infinite = self._sign - (1 << kind.mantissa)
        self._ends: list[int] = []  # patterns
        self._bad = 0

    def add(self, piece: Array) -> Array:
        """Look at a piece, and return it."""
        low, high = _ends(piece, self._sign)
        if low & (self._sign - 1) < self._infinite and high & (self._sign - 1) < self._infinite:
            self._ends += (low, high)
            return piece
        finite = piece[(piece & piece.dtype.type(self._sign - 1)) < self._infinite]
        self._bad += piece.size - finite.size
        if finite.size:
            self._ends += _ends(finite, self._sign)
        return piece

    def found(self) -> tuple[int, int, int]:
        """Return the patterns of the least and the greatest finite component, and how many are not.

        Both are those of a NaN if no component is finite.
        """
        if not self._ends:
            return self._infinite + 1, self._infinite + 1, self._bad
        sign = self._sign
        ordered = [end if end < sign else sign - end for end in self._ends]
        low, high = (end if end >= 0 else sign - end for end in (min(ordered), max(ordered)))
        return low, high, self._bad


def extremes(bits: Array, kind: ElementType) -> tuple[float, float, int]:
    """Return the extremes of an array, and how many components are not finite.

    Examples
    --------
    >>> from lccodec.element_types import components
    >>> kind, bits = components(np.array([1.0, -3.0, np.inf, np.nan], np.float32))
    >>> extremes(bits, kind)
    (-3.0, 1.0, 2)
    """
    ends = Extremes(kind)
    for part in slices(bits.size, _PIECE):
        ends.add(bits[part])
    *found, bad = ends.found()
    low, high = work(np.array(found, kind.bits), kind).tolist()
    return low, high, bad


def _ends(piece: Array, sign: int) -> tuple[int, int]:
    """Return the patterns of the least and of the greatest number; `sign` is that of a negative 0.

    Patterns of negative numbers are above all others, and rise as the numbers fall.
    """
    most = int(np.maximum.reduce(piece))
    if most < sign:
        return int(np.minimum.reduce(piece)), most
    signed = int(np.maximum.reduce(piece.view(f"i{piece.itemsize}")))
    return most, signed if signed >= 0 else int(np.minimum.reduce(piece))
