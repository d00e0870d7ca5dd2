"""Arrays with their decoded values: the references of the next delta.

The arrays of a run are views of one buffer. So a delta to all of them is coded and decoded in
place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..element_types import Array, ElementType, from_components
from ..frame.header import Shape


@dataclass(slots=True)
class DecodedArray:
    """An array with its decoded values."""

    kind: ElementType
    shape: Shape
    bits: Array  # its components, 1-D; for an array of a run, a view of the run's buffer
    start: int = 0  # place of its first component in that buffer

    def array(self, dtype: str | None = None) -> Array:
        """Return a NumPy array that shares the memory; `dtype` is as in :func:`lccodec.decode`."""
        return from_components(self.bits, self.kind, self.shape, dtype)


def joined(parts: Sequence[DecodedArray]) -> Array:
    """Return components end to end; no copy is made if they are a whole buffer in its order."""
    if len(parts) == 1:
        return parts[0].bits
    whole = parts[0].bits.base
    if isinstance(whole, np.ndarray) and whole.size == sum(part.bits.size for part in parts):
        end = 0
        for part in parts:
            if part.bits.base is not whole or part.start != end:
                break
            end += part.bits.size
        else:
            return whole
    return np.concatenate([part.bits for part in parts])


def split(bits: Array, kind: ElementType, shapes: Sequence[Shape]) -> list[DecodedArray]:
    """Return the arrays of a frame, as views of its components."""
    if len(shapes) == 1:
        return [DecodedArray(kind, shapes[0], bits)]
    arrays, start = [], 0
    for shape in shapes:
        stop = start + math.prod(shape) * kind.components
        arrays.append(DecodedArray(kind, shape, bits[start:stop], start))
        start = stop
    return arrays
