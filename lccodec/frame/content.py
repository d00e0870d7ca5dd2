"""The content of a frame, as components; checks of the arrays that users give. Source: SPEC 6.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..element_table import ElementType
from ..element_types import Array, components, held_beside
from ..errors import ArgumentError
from .header import Shape

#: Most components of an array that shares a frame with others (an encoder's choice). A NumPy call
#: takes as long as the work of a thousand components, so smaller arrays are handled together.
MAX_SHARED_COMPONENTS: Final = 1 << 14


@dataclass(frozen=True, eq=False)
class Content:
    """The content of one frame: an array, or a run of several arrays.

    Parameters
    ----------
    bits
        Components of the arrays end to end, 1-D. The components of a single array may change while
        they are coded: all that is stored of a component is computed from one copy of it. The
        components of a run must not change.
    kind, shapes
        Element type of the arrays, and the shape of each.
    reference
        Components of the reference of each array; ``None`` for a frame without a reference.
    run
        Whether the frame is a run. The arrays of a run are not empty, and have at most 2**22
        components together.
    """

    bits: Array
    kind: ElementType
    shapes: tuple[Shape, ...]
    reference: Array | None = None
    run: bool = False


def checked_array(array: Any, what: str) -> Array:
    """Return an array, or an object that NumPy makes one of; errors call it `what`."""
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(f"{what} must be a plain array; got a masked array: encode its data and its mask")
    if held := held_beside(array):
        raise ArgumentError(f"{what} must be a plain array; got {held}")
    if array is None or isinstance(array, list | tuple | dict | set | str | bytes):
        raise ArgumentError(f"{what} must be a NumPy array; got {type(array).__name__}")
    try:
        return np.asanyarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{what} must be a NumPy array; got {type(array).__name__}: {error}") from error


def reference_components(reference: Array, kind: ElementType, shape: Shape) -> Array:
    """Return the components of a reference; raise ``ArgumentError`` for another type or shape."""
    reference = checked_array(reference, "the reference")
    if reference.shape != shape:
        raise ArgumentError(f"the reference must have the array's shape {shape}; got {reference.shape}")
    found, bits = components(reference)
    if found != kind:
        raise ArgumentError(f"the reference must have the array's dtype {kind.name}; got {found.name}")
    return bits


def part_of(bits: Array | None, part: slice) -> Array | None:
    """Return a part of the components; ``None`` for ``None``."""
    return None if bits is None else bits[part]
