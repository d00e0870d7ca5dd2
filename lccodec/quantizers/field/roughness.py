"""Whether neighbours predict the elements of an array, by a sample.

An element in the middle of two others is compared with their mean, along each axis. If that is far
nearer to it than an element usually is to the mean of all, the array is smooth. For noise the two
are about the same.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ...element_table import ElementType
from ...element_types import Array
from .lattice import Shape
from .plan import ALL, Outside, find_extent, wide

_SAMPLE: Final = 1 << 12  # elements, evenly spread
_SMOOTH_SHARE: Final = 0.25  # of the usual distance from the mean
_LEAST_KNOWN: Final = 16  # fewer elements with neighbours tell nothing


def is_smooth(bits: Array, shape: Shape, kind: ElementType, outside: Outside = ALL) -> bool:
    """Return whether an array, given as components, is a field that neighbours predict.

    NaN, infinities and fill values are left out, and the numbers of `outside`. A constant array is
    not smooth: without a bound it takes no bytes either. Nor is an array of whole numbers, which
    count or name something.
    """
    if kind.kind != "f" or not bits.size:
        return False
    # An odd stride meets all places along rows of any length.
    places = np.arange(0, bits.size, max(bits.size // _SAMPLE, 1) | 1)
    extent = find_extent(bits[places], kind, outside)
    if extent is None or not extent.range > 0:
        return False
    values, known = _values(bits, places, kind, extent.fills)
    if np.array_equal(values[known], np.rint(values[known])):
        return False
    with np.errstate(all="ignore"):
        usual = float(np.abs(values[known] - values[known].mean()).mean())
    return any(
        _roughness(bits, places, shape, axis, kind, extent.fills) <= _SMOOTH_SHARE * usual
        for axis in range(len(shape))
    )


def _roughness(
    bits: Array, places: Array, shape: Shape, axis: int, kind: ElementType, fills: tuple[float, ...]
) -> float:
    """Return the mean distance of elements from the mean of two neighbours; infinite if unknown."""
    stride = math.prod(shape[axis + 1 :])
    along = places // stride % shape[axis]
    inner = places[(along > 0) & (along < shape[axis] - 1)]
    found = [_values(bits, inner + offset, kind, fills) for offset in (-stride, 0, stride)]
    known = found[0][1] & found[1][1] & found[2][1]
    if np.count_nonzero(known) < _LEAST_KNOWN:
        return math.inf
    before, middle, after = (values[known] for values, _ in found)
    with np.errstate(all="ignore"):
        return float(np.abs(middle - (before + after) / 2).mean())


def _values(bits: Array, places: Array, kind: ElementType, fills: tuple[float, ...]) -> tuple[Array, Array]:
    """Return numbers of an array, and which of them are finite and not a fill value."""
    values = wide(bits[places], kind)
    known = np.isfinite(values)
    for fill in fills:
        known &= values != fill
    return values, known
