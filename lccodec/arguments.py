"""Numbers among arguments: NumPy's and other numbers are accepted, ``True`` and ``False`` are not.

They are converted to Python's own numbers, so that quantizers are equal if their numbers are, and
JSON can hold them.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def as_integer(value: Any) -> int | None:
    """Return a value that has ``__index__`` as an int; ``None`` for other values and for a bool."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_number(value: Any) -> int | float | None:
    """Return a value that has ``__float__`` as a float; ``None`` for other values and for a bool.

    An int is returned as it is, or as ``None`` if it is too large for a float.
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
