"""Arrays between two known ones. Source: SPEC 7.6 (LCC-INT-04)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import element_types
from ..element_table import ELEMENT_TYPES, ElementType
from ..element_types import Array
from . import kernel
from .representatives import is_native


def interpolate(low: Array, high: Array, weight: float, kind: ElementType, out: Array) -> None:
    """Do what :func:`lccodec.element_types.interpolate` does."""
    form = _interpolate if is_native(kind) else _interpolate_numpy
    form(low, high, kind.work.type(weight), kind.code, out)


def _interpolate_numpy(low: Array, high: Array, weight: Any, code: int, out: Array) -> None:
    element_types.interpolate(low, high, float(weight), ELEMENT_TYPES[code], out)


def _interpolate_loop(low: Array, high: Array, weight: Any, code: int, out: Array) -> None:
    number = np.full(1, weight).dtype
    first, last, result = low.view(number), high.view(number), out.view(number)
    for i in range(out.size):
        value = first[i] - (first[i] - last[i]) * weight
        if np.isfinite(value):
            result[i] = value
        else:
            out[i] = low[i]


_interpolate = kernel(
    _interpolate_numpy, _interpolate_loop, *(f"in u{n}, in u{n}, f{n}, i8, out u{n}" for n in (4, 8))
)
