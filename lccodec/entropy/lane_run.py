"""Huffman runs as they are stored: code lengths, a directory of lanes, and the bytes of the lanes.

The symbols are decoded elsewhere: `lanes` decodes one run, `lockstep` several side by side.

Source: SPEC 7.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..byteorder import read_numbers
from ..constants import MAX_LANE_SYMBOLS
from ..cursor import Cursor
from ..element_types import Array
from ..errors import FormatError, LimitError
from .bits import is_filled, packed_size, unpack
from .huffman import read_lengths


@dataclass(frozen=True, eq=False)
class LaneRun:
    """A Huffman run of `count` symbols as it is stored.

    Parameters
    ----------
    lengths
        Code lengths of the symbols, uint8.
    lanes
        The bytes of all lanes, uint8.
    starts, ends
        Where each lane begins, in bits, and ends, in bytes: int64.
    where
        What errors call the place of the run.
    """

    count: int
    lengths: Array
    lanes: Array
    starts: Array
    ends: Array
    where: str

    def check_ends(self, position: Array) -> None:
        """Raise ``FormatError`` unless the lanes end where they should; `position` is in bits.

        A lane ends in its last byte, and the bits behind its last code are 0 (LCC-LAN-04).
        """
        if not np.array_equal((position + 7) >> 3, self.ends):
            raise FormatError("LCC-LAN-04", self.where, "a lane does not end where its size says")
        if (self.lanes[self.ends - 1] >> ((position - 1) & 7).astype(np.uint8) > 1).any():
            raise FormatError("LCC-LAN-04", self.where, "the padding of a lane is not zero")


def read_run(cursor: Cursor, count: int) -> LaneRun:
    """Return a Huffman run of `count` symbols, at least 1; its codes are not looked at.

    Raises
    ------
    DataError
        If the run breaks a rule of SPEC 7.2 or 7.3.
    """
    lengths = read_lengths(cursor)
    lanes = cursor.integer("H", "lane count")
    if not lanes <= count <= lanes * MAX_LANE_SYMBOLS:
        raise LimitError("LCC-LAN-02", cursor.where, f"{lanes} lanes cannot hold {count} symbols")
    base = cursor.integer("H", "least lane size")
    width = cursor.integer("B", "width of lane sizes")
    if width > 8 and width != 16:
        raise FormatError("LCC-LAN-03", cursor.where, f"lane sizes of {width} bits")
    sizes = np.full(lanes, base, np.int64)
    if width:
        stored = cursor.take(packed_size(lanes, width), "lane sizes")
        if not is_filled(stored, lanes, width):
            raise FormatError("LCC-LAN-03", cursor.where, "the padding behind the lane sizes is not zero")
        sizes += read_numbers(stored, np.uint16) if width == 16 else unpack(stored, lanes, width)
    ends = np.cumsum(sizes)
    data = np.frombuffer(cursor.take(int(ends[-1]), "lanes"), np.uint8)
    if count > 8 * data.size:  # a code has at least one bit, so stored bytes bound the memory
        message = f"{data.size} bytes cannot hold {count} codes"
        raise FormatError("LCC-LAN-04", cursor.where, message)
    return LaneRun(count, lengths, data, 8 * (ends - sizes), ends, cursor.where)
