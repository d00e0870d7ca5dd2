"""Numbers as the format stores them: little-endian, whatever the byte order of the host is.

Arrays inside the codec are in the host's order. Where their bytes are written, looked at or read, one of
these functions is called. None of them copies on a little-endian host. No other module of the format asks an
array of more than one byte a number for its bytes: ``tests/test_byteorder.py`` holds that over the syntax
trees, and ``.ci/big-endian`` runs the vectors on an emulated host of the other order.

Source: SPEC 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .element_types import Array

__all__ = ["little_endian", "read_numbers", "stored_bytes", "stored_view"]


def little_endian(numbers: Array) -> Array:
    """Return an array with its numbers in little-endian order; itself where they are."""
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def stored_bytes(numbers: Array) -> bytes:
    """Return the bytes that the format stores for numbers of any dtype and byte order, in C order.

    Examples
    --------
    >>> stored_bytes(np.array([1, 2], ">u2")) == stored_bytes(np.array([1, 2], "<u2")) == bytes([1, 0, 2, 0])
    True
    """
    return little_endian(numbers).tobytes()


def stored_view(numbers: Array) -> Array:
    """Return what :func:`stored_bytes` does as uint8, lowest byte of a number first.

    Parameters
    ----------
    numbers
        Contiguous in the last dimension, which gets as many times longer as a number has bytes.

    Returns
    -------
    ndarray
        The same memory where the numbers are little-endian, else a copy.
    """
    return little_endian(numbers).view(np.uint8)


def read_numbers(data: Any, dtype: npt.DTypeLike) -> Array:
    """Return numbers that the format stores; the inverse of :func:`stored_bytes`.

    Parameters
    ----------
    data
        Bytes, or a memoryview or an array of them.
    dtype
        Of a number; its byte order does not count.

    Returns
    -------
    ndarray
        1-D, in the host's order; read-only memory of `data` on a little-endian host.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, stored).astype(stored.newbyteorder("="), copy=False)
