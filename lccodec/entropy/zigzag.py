"""Zigzag codes: differences of either sign as small unsigned integers. Source: SPEC 7.5."""

from __future__ import annotations

import numpy as np

from ..element_table import ElementType
from ..element_types import Array, from_ordered, to_ordered


def zigzag(bits: Array, reference: Array | None, kind: ElementType) -> Array:
    """Return the zigzag of the ordered difference to the reference (LCC-PLN-02, LCC-PLN-03).

    Small differences of either sign become small unsigned integers. Without a reference the
    reference is zero, which for floating point is a rotation of the pattern by one bit: the sign
    comes last and the exponent fills the top byte.
    """
    width = 8 * kind.size
    if reference is None:
        if kind.is_float:
            return (bits << 1) | (bits >> (width - 1))
        difference = bits
    elif kind.is_float:
        difference = to_ordered(bits, kind)
        np.subtract(difference, to_ordered(reference, kind), out=difference)
    else:
        difference = bits - reference
    codes: Array = (difference.view(f"i{kind.size}") >> (width - 1)).view(bits.dtype)
    codes ^= difference << 1
    return codes


def unzigzag(codes: Array, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Write the components that :func:`zigzag` coded into `out` (which may be `reference`)."""
    if reference is None and kind.is_float:
        np.bitwise_or(codes >> 1, codes << (8 * kind.size - 1), out=out)
        return
    difference = (codes >> 1) ^ (codes.dtype.type(0) - (codes & codes.dtype.type(1)))
    if reference is None:
        out[:] = difference
    elif kind.is_float:
        np.add(difference, to_ordered(reference, kind), out=difference)
        out[:] = from_ordered(difference, kind)
    else:
        np.add(difference, reference, out=out)
