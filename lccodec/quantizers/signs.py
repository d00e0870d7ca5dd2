"""Signs: an array without negative numbers never decodes to one, and what is 0 in it stays 0.

A variance below 0 makes the numbers that are computed with it NaN, and so does one of 0 in a
denominator whose numerator is not. No quantizer is to be trusted with that, so the encoder looks at
what it decodes to. -0.0 is a zero, and NaN is not negative.
"""

from __future__ import annotations

from ..element_types import Array, ElementType
from ..parallel import PIECE

__all__ = ["has_negative", "negative", "spoiled", "zero"]


def negative(bits: Array, kind: ElementType) -> Array:
    """Return which floating point components are numbers below 0."""
    sign = 1 << (8 * kind.size - 1)
    infinity = sign - (1 << kind.mantissa)
    # Patterns from the least negative number on become 0, 1, 2, ...; all others are above
    # infinity's.
    below: Array = bits - kind.bits.type(sign + 1) < kind.bits.type(infinity)
    return below


def zero(bits: Array) -> Array:
    """Return which floating point components are 0.0 or -0.0."""
    found: Array = bits << 1 == 0
    return found


def has_negative(bits: Array, kind: ElementType) -> bool:
    """Return whether there is a number below 0, which in most arrays is found at once."""
    return any(
        bool(negative(bits[start : start + PIECE], kind).any()) for start in range(0, bits.size, PIECE)
    )


def spoiled(decoded: Array, original: Array, kind: ElementType) -> Array:
    """Return where an element is negative once it is decoded, or 0 before and not after."""
    return negative(decoded, kind) | (zero(original) & ~zero(decoded))
