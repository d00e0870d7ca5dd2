"""The planes method: any bit pattern, exactly, as byte planes of the difference to the reference.

Each byte of the zigzag codes is a plane, and each plane is one stream.

Source: SPEC 6.2 and 7.5. The order-preserving difference is from FM-Delta (Ning et al., NeurIPS
2024).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..element_types import Array, ElementType
from ..entropy.bits import Cursor
from ..entropy.runs import dense
from ..entropy.stream_reader import read_stream
from ..entropy.stream_writer import Piece, write_stream
from ..entropy.zigzag import unzigzag, zigzag
from ..parallel import slices


def write_block(
    bits: Array,
    reference: Array | None,
    kind: ElementType,
    taken: Callable[[int, Array], None] | None = None,
) -> list[Piece]:
    """Return the pieces of one block: a stream for each byte of the codes, lowest byte first.

    `bits` may change meanwhile: every component is read once. `taken` is called with the place and
    a copy of each part that was read; the same part of `reference` is not needed any more.
    """
    planes = [np.empty(bits.size, np.uint8) for _ in range(kind.size)]
    for part in slices(bits.size):
        own = bits[part].copy()
        codes = zigzag(own, None if reference is None else reference[part], kind)
        for place, plane in enumerate(planes):
            plane[part] = codes >> (8 * place)
        if taken is not None:
            taken(part.start, own)
    pieces: list[Piece] = []
    while planes:  # a plane is not needed any more when its stream is there
        pieces.append(b"".join(write_stream(planes.pop(0))))
    return pieces


def read_block(cursor: Cursor, reference: Array | None, kind: ElementType, out: Array) -> None:
    """Read one block into `out`, which may be `reference`; both are components."""
    planes = [dense(read_stream(cursor, out.size), out.size) for _ in range(kind.size)]
    for part in slices(out.size):
        codes = planes[-1][part].astype(kind.bits)
        for plane in planes[-2::-1]:
            codes <<= 8
            codes |= plane[part]
        unzigzag(codes, None if reference is None else reference[part], kind, out[part])
