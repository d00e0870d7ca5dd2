"""The planes method: any bit pattern, exactly, as byte planes of the difference to the reference.

Source: SPEC 6.2 and 7.5; the order-preserving difference is FM-Delta's (Ning et al., NeurIPS 2024).
"""

from __future__ import annotations

import numpy as np

from .bits import Cursor
from .floats import Array, ElementType, unzigzag, zigzag
from .quantize import PIECE
from .symbols import Piece, dense, read_stream, write_stream

__all__ = ["read_block", "write_block"]


def write_block(bits: Array, reference: Array | None, kind: ElementType) -> list[Piece]:
    """Return the pieces of one block: a stream per byte of the zigzag codes, lowest byte first."""
    codes = np.empty((bits.size, kind.size), np.uint8)
    for start in range(0, bits.size, PIECE):  # pieces stay in the cache
        part = slice(start, start + PIECE)
        zigzagged = zigzag(bits[part], None if reference is None else reference[part], kind)
        codes[part] = zigzagged.view(np.uint8).reshape(-1, kind.size)
    return [piece for plane in codes.T for piece in write_stream(np.ascontiguousarray(plane))]


def read_block(cursor: Cursor, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components of the block."""
    codes = np.empty((out.size, kind.size), np.uint8)
    for plane in codes.T:
        plane[:] = dense(read_stream(cursor, out.size), out.size)
    zigzagged = codes.reshape(-1).view(kind.bits)
    for start in range(0, out.size, PIECE):
        part = slice(start, start + PIECE)
        unzigzag(zigzagged[part], None if reference is None else reference[part], kind, out[part])
