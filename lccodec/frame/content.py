"""The content of a frame, as components, and its checksum; checks of the arrays that users give.

The array sum is a checksum of the array that a frame decodes to (LCC-FRM-09). It detects a wrong
reference, or a codec that computes differently. Stored bytes have a CRC too.

Source: SPEC 6.1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, components, held_beside, stored_view
from ..errors import ArgumentError
from ..loops.sums import weighted_sum
from ..parallel import PIECE
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


SUM_MASK: Final = (1 << 64) - 1


def array_sum(bits: Array, first: int = 0) -> int:
    """Return the checksum of components: the sum of ``(2 i + 1) * word_i`` modulo 2**64.

    Words are the little-endian bytes of the array, eight at a time, the last one padded with zeros.
    `first` is the index of the first word, so that parts of an array can be summed apart.
    """
    if sys.byteorder == "big" and bits.size > PIECE:  # so that the array is not copied whole
        starts = range(0, bits.size, PIECE)
        return sum(array_sum(bits[i : i + PIECE], first + i * bits.itemsize // 8) for i in starts) & SUM_MASK
    data = stored_view(bits)
    count = data.size // 8
    last = int.from_bytes(data[8 * count :].tobytes(), "little")
    total = int(weighted_sum(data[: 8 * count].view("<u8"), first)) + (2 * (first + count) + 1) * last
    return total & SUM_MASK


def sum_change(new: Array, old: Array, words: Array) -> int:
    """Return what :func:`array_sum` changes by if some words of an array change.

    `new` and `old` are the components of these words, and `words` the index of each (int64).
    """
    change = stored_view(new).view("<u8") - stored_view(old).view("<u8")
    change *= 2 * words.astype(np.uint64) + np.uint64(1)
    return int(np.add.reduce(change)) & SUM_MASK


def sum_change_of(new: Array, old: Array, places: Array, first: int = 0) -> int:
    """Return what :func:`array_sum` changes by if some components of an array change.

    `places` (int64) are counted from the first component of word `first`.
    """
    bits = 8 * new.itemsize
    # Component k of word i counts (2 i + 1) << (k * bits). A word has 64 / bits of them.
    weight = places.view(np.uint64) >> (7 - bits.bit_length())
    weight <<= 1
    weight += 2 * first + 1
    shift = places.view(np.uint64) << (bits.bit_length() - 1)
    shift &= 64 - bits
    change = new.astype(np.uint64)
    change -= old
    change <<= shift
    change *= weight
    return int(np.add.reduce(change)) & SUM_MASK
