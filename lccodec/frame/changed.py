"""What a frame changes of its reference, found without a pass over all of it.

Few changes are places and codes in the frame already. So their time is that of the changes, not of
the array. The array sum of the result is that of the reference and what the changes add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..constants import METHOD_PLANES
from ..cursor import Cursor, Stored
from ..element_types import Array
from ..entropy.lockstep import Reading, side_by_side
from ..errors import FormatError, LimitError
from ..parallel import batches
from . import planes
from .content import SUM_MASK, sum_change_of
from .decode import check_array_sum, checked_header
from .header import TAIL, FrameHeader
from .pieces import blocks_of

_BLOCKS_AT_A_TIME: Final = 16  # read side by side: their bytes and codes are in memory


@dataclass(frozen=True, eq=False)
class Changed:
    """The components that differ from those of the reference.

    Parameters
    ----------
    places
        Where they are: int64, rising.
    bits
        The new components.
    total
        The array sum of the new array.
    """

    places: Array
    bits: Array
    total: int


def may_tell(header: FrameHeader) -> bool:
    """Return whether a frame may tell what it changes: it has byte planes of one array's delta."""
    kind = header.kind
    return (
        header.relative
        and header.method == METHOD_PLANES
        and not header.run
        and kind.components == 1
        and kind.kind != "b"
    )


def changed(
    frame: Stored,
    reference: Array,
    total: int,
    empty: Callable[[int, np.dtype[Any]], Array] = np.empty,
) -> Reading[Changed | None]:
    """Read what a frame changes; ``None`` if that is much, so that it takes less time to decode it.

    Parameters
    ----------
    frame
        Bytes of a frame that may tell.
    reference
        Components of its reference.
    total
        Their array sum.
    empty
        Returns memory for so many components of a type: for the places, and for the new components.

    Raises
    ------
    DataError
        If the bytes break a rule, or the new array has another sum than the frame says.
    """
    header = checked_header(frame)
    cursor = Cursor(frame, "frame", header.size, len(frame) - TAIL.size)
    places, starts, bits = list[Array](), list[int](), list[Array]()
    blocks = enumerate(blocks_of(header, 0, header.components))
    for group in batches(blocks, lambda _: 1, _BLOCKS_AT_A_TIME):
        some = []
        for number, (start, length, _) in group:
            size = cursor.integer("I", f"size of block {number}")
            block = Cursor(cursor.take(size, f"block {number}"), f"frame, block {number}")
            some.append((block, slice(start, min(start + length, header.components))))
        try:
            found = yield from side_by_side(
                planes.reading_codes(block, reference[here], header.kind) for block, here in some
            )
        except MemoryError as error:
            raise LimitError("LCC-LIM-02", "frame", "not enough memory for its blocks") from error
        for (block, here), codes in zip(some, found, strict=True):
            if codes is None:
                return None
            if block.remaining:
                raise FormatError("LCC-FRM-07", block.where, f"{block.remaining} bytes are left over")
            new, word = np.empty_like(codes.codes), here.start * header.kind.size // 8
            for part, before in codes.decode(reference[here], new):
                total += sum_change_of(new[part], before, codes.places[part], word)
            places.append(codes.places)
            starts.append(here.start)
            bits.append(new)
    if cursor.remaining:
        raise FormatError("LCC-FRM-07", "frame", "there are bytes after the last value")
    check_array_sum(frame, total)
    if starts != [0] or empty is not np.empty:
        count = sum(own.size for own in places)
        joined, end = empty(count, np.dtype(np.int64)), 0
        for own, start in zip(places, starts, strict=True):
            np.add(own, start, out=joined[end : end + own.size])
            end += own.size
        none = np.zeros(0, header.kind.bits)
        bits = [np.concatenate([none, *bits], out=empty(count, header.kind.bits))]
        places = [joined]
    return Changed(places[0], bits[0], total & SUM_MASK)
