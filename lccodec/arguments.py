"""Numbers among arguments: NumPy's and others are taken for what they stand for, and ``True`` for no number.

What is kept are Python's own, so that quantizers are equal where their numbers are, and JSON can hold them.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

__all__ = ["as_integer", "as_number"]


def as_integer(value: Any) -> int | None:
    """Return what stands for an integer (``__index__``) as one; ``None`` for all else, and for a bool."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_number(value: Any) -> int | float | None:
    """Return what stands for a real number (``__float__``) as one; ``None`` for all else, and for a bool.

    An int stays one; one that no float is near to is none.
    """
    if isinstance(value, bool | np.bool_ | str | bytes | complex | np.complexfloating):
        return None
    if np.ndim(value) or not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if type(value) is int else number
