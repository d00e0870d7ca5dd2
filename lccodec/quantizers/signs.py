"""Signs: an array without negative numbers decodes without negative numbers, and its zeros stay 0.

A variance below 0 makes the numbers that are computed with it NaN. A denominator of 0 does the same
if its numerator was 0 and decodes to another number. Quantizers do not prevent this, so the encoder
checks the decoded values. -0.0 counts as 0, and NaN does not count as negative.
"""

from __future__ import annotations

from ..element_table import ElementType
from ..element_types import Array
from ..parallel import slices


def negative(bits: Array, kind: ElementType) -> Array:
    """Return which floating point components are numbers below 0."""
    sign = 1 << (8 * kind.size - 1)
    infinity = sign - (1 << kind.mantissa)
    # The patterns of the negative numbers become 0, 1, 2, and so on, below infinity's pattern. All
    # other patterns become larger ones.
    below: Array = bits - kind.bits.type(sign + 1) < kind.bits.type(infinity)
    return below


def zero(bits: Array) -> Array:
    """Return which floating point components are 0.0 or -0.0."""
    found: Array = bits << 1 == 0
    return found


def has_negative(bits: Array, kind: ElementType) -> bool:
    """Return whether an array has a number below 0; most arrays have one in their first piece."""
    return any(bool(negative(bits[part], kind).any()) for part in slices(bits.size))


def spoiled(decoded: Array, original: Array, kind: ElementType) -> Array:
    """Return which elements decode to a negative number, or were 0 and decode to something else."""
    return negative(decoded, kind) | (zero(original) & ~zero(decoded))
