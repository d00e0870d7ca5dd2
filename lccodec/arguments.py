"""Checks of arguments: numbers, choices, and what is True or False.

NumPy's and other numbers are accepted as numbers, ``True`` and ``False`` are not. They become
Python's own numbers, so that quantizers are equal if their numbers are, and JSON can hold them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection
from typing import Any

from .errors import ArgumentError


def as_integer(value: Any) -> int | None:
    """Return a value that has ``__index__`` as an int; ``None`` for other values and for a bool."""
    if isinstance(value, bool):
        return None
    try:  # a bool of NumPy has no index
        return operator.index(value)
    except TypeError:
        return None


def as_number(value: Any) -> int | float | None:
    """Return a value that has ``__float__`` as a float; ``None`` for other values and for a bool.

    An int is returned as it is, or as ``None`` if it is too large for a float.
    """
    import numpy as np  # here, as it takes long to load

    if isinstance(value, bool | np.bool_ | str | bytes | complex | np.complexfloating):
        return None
    if np.ndim(value) or not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")):
        return None
    try:
        converted = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if type(value) is int else converted


def integer(what: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return an integer that is in range; raise ``ArgumentError``, which calls it `what`."""
    found = as_integer(value)
    if found is None or found < least or (most is not None and found > most):
        kind = "a positive integer" if least else "a non-negative integer"
        wanted = kind if most is None else f"an integer from {least} to {most}"
        raise ArgumentError(f"{what} must be {wanted}; got {value!r}")
    return found


def number(what: str, value: object, wanted: str, fits: Callable[[float], bool]) -> float:
    """Return a number that fits; raise ``ArgumentError``, which says what is `wanted`."""
    found = as_number(value)
    if found is None or not fits(found):
        raise ArgumentError(f"{what} must be {wanted}; got {value!r}")
    return found


def positive(what: str, value: object) -> float:
    """Return a positive finite number; raise ``ArgumentError`` for anything else."""
    return number(what, value, "a positive finite number", lambda found: 0 < found < math.inf)


def check_choice(what: str, value: object, choices: Collection[str]) -> None:
    """Raise ``ArgumentError`` unless a value is one of some names."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(f"{what} must be one of {', '.join(choices)}; got {value!r}")


def check_bool(what: str, value: object) -> None:
    """Raise ``ArgumentError`` unless a value is ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{what} must be True or False; got {value!r}")
