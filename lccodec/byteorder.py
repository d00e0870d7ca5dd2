"""Numbers as the format stores them: little-endian, whatever the byte order of the host is.

Arrays inside the codec have the host's byte order. None of these functions copies on a
little-endian host. No other module of the format takes the bytes of numbers that are larger than
one byte: ``tests/test_byteorder.py`` checks this in the syntax trees.

Source: SPEC 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .element_types import Array


def little_endian(numbers: Array) -> Array:
    """Return an array with its numbers in little-endian order; itself if they are."""
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def stored_bytes(numbers: Array) -> bytes:
    """Return the bytes that the format stores for numbers of any dtype and byte order (C order)."""
    return little_endian(numbers).tobytes()


def stored_view(numbers: Array) -> Array:
    """Return the bytes of :func:`stored_bytes` as uint8, the lowest byte of each number first.

    The last dimension, which must be contiguous, gets as many times longer as a number has bytes.
    The result is the same memory if the numbers are little-endian, else a copy.
    """
    return little_endian(numbers).view(np.uint8)


def read_numbers(data: Any, dtype: npt.DTypeLike) -> Array:
    """Return numbers (1-D, in the host's byte order) from bytes; inverse of :func:`stored_bytes`.

    The byte order of `dtype` is ignored. On a little-endian host the result is memory of `data`.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, stored).astype(stored.newbyteorder("="), copy=False)
