"""The planes method: any bit pattern, exactly, as byte planes of the difference to the reference.

Source: SPEC 6.2 and 7.5; the order-preserving difference is FM-Delta's (Ning et al., NeurIPS 2024).
"""

from __future__ import annotations

import numpy as np

from .bits import Cursor
from .floats import Array, ElementType, unzigzag, zigzag
from .residual import PIECE
from .symbols import Piece, dense, read_streams, write_stream

__all__ = ["read_block", "write_block"]


def write_block(bits: Array, reference: Array | None, kind: ElementType) -> list[Piece]:
    """Return the pieces of one block: a stream per byte of the zigzag codes, lowest byte first."""
    planes = np.empty((kind.size, bits.size), np.uint8)
    for start in range(0, bits.size, PIECE):  # pieces stay in the cache
        part = slice(start, start + PIECE)
        codes = zigzag(bits[part], None if reference is None else reference[part], kind)
        for place, plane in enumerate(planes):
            plane[part] = codes >> (8 * place)
    return [piece for plane in planes for piece in write_stream(plane)]


def read_block(cursor: Cursor, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components of the block."""
    planes = [dense(run, out.size) for run in read_streams(cursor, [out.size] * kind.size)]
    for start in range(0, out.size, PIECE):
        part = slice(start, start + PIECE)
        codes = planes[-1][part].astype(kind.bits)
        for plane in planes[-2::-1]:
            codes <<= 8
            codes |= plane[part]
        unzigzag(codes, None if reference is None else reference[part], kind, out[part])
