"""What one frame is to hold, as components; what users give, checked. Source: SPEC 6.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..element_types import Array, ElementType, components
from ..errors import ArgumentError
from .header import Shape

__all__ = ["Content", "checked_array", "part_of", "reference_components"]


@dataclass(frozen=True, eq=False)
class Content:
    """What one frame is to hold: an array, or a run of several.

    Parameters
    ----------
    bits
        Components of the arrays end to end, 1-D. Those of one array may change while they are
        coded: whatever is stored of a component is computed from one copy of it. Those of a run
        hold still.
    kind, shapes
        Element type, and the shape of each array.
    reference
        Components of the same arrays that it is relative to; ``None`` if it stands alone.
    run
        Whether it is a run: none of the arrays is empty, together they have at most 2**22
        components.
    """

    bits: Array
    kind: ElementType
    shapes: tuple[Shape, ...]
    reference: Array | None = None
    run: bool = False


def checked_array(array: Any, what: str) -> Array:
    """Return an array, or what NumPy takes for one, as an array; `what` it is called in errors."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{what} is a masked array: code its data and its mask")
    if array is None or isinstance(array, list | tuple | dict | set | str | bytes):
        raise ArgumentError(f"{what} is a {type(array).__name__}, not a NumPy array")
    try:
        return np.asanyarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{what} is a {type(array).__name__}, not a NumPy array: {error}") from error


def reference_components(reference: Array, kind: ElementType, shape: Shape) -> Array:
    """Return the components of a reference; raise ``ArgumentError`` if it is of another type or shape."""
    reference = checked_array(reference, "the reference")
    if reference.shape != shape:
        raise ArgumentError(f"the reference has shape {reference.shape}, the array {shape}")
    found, bits = components(reference)
    if found != kind:
        raise ArgumentError(f"the reference has dtype {found.name}, the array {kind.name}")
    return bits


def part_of(bits: Array | None, part: slice) -> Array | None:
    """Return a part of components that may not be there."""
    return None if bits is None else bits[part]
