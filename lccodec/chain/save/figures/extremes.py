"""The least and the greatest of all elements of an array, and how many are not finite.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ....element_table import ElementType
from ....element_types import Array, work
from ....parallel import slices

_PIECE: Final = 1 << 15  # components: the second of two passes finds them in the cache


def extremes(bits: Array, kind: ElementType) -> tuple[float, float, int]:
    """Return the least and the greatest finite component, and how many are not finite.

    The patterns of floating point numbers have the order of their magnitudes, and two passes over
    integers are as fast as memory. Both ends are NaN if no component is finite.

    Examples
    --------
    >>> from lccodec.element_types import components
    >>> kind, bits = components(np.array([1.0, -3.0, np.inf, np.nan], np.float32))
    >>> extremes(bits, kind)
    (-3.0, 1.0, 2)
    """
    signed = np.dtype(f"i{kind.size}")
    infinite = bits.dtype.type(((1 << (8 * kind.size - 1 - kind.mantissa)) - 1) << kind.mantissa)
    sign = bits.dtype.type(1 << (8 * kind.size - 1))
    top, low, least, bad = -1, 0, infinite, 0
    for part in slices(bits.size, _PIECE):
        piece = bits[part]
        above, below = int(piece.view(signed).max()), int(piece.max())
        if above >= infinite or (below >= sign and below - int(sign) >= infinite):
            finite = (piece & ~sign) < infinite
            bad += piece.size - int(np.count_nonzero(finite))
            piece = piece[finite]
            if not piece.size:
                continue
            above, below = int(piece.view(signed).max()), int(piece.max())
        top, low = max(top, above), max(low, below)
        if (top < 0) or low < sign:
            least = min(least, piece.min() & ~sign)
    if bad == bits.size:
        return math.nan, math.nan, bad
    ends = (low if low >= sign else int(least)), (top if top >= 0 else int(least) | int(sign))
    found = work(np.array(ends, bits.dtype), kind)
    return float(found[0]), float(found[1]), bad
