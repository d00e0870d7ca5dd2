"""Raw frames, written piece by piece at the speed of a copy. Source: SPEC 6.1 and 6.2.

`encode_content` makes a raw frame where nothing else is smaller. Here an array is stored raw
because that is fastest. Each piece is copied once; checksums and file are made from the copy.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from ..byteorder import stored_view
from ..constants import METHOD_RAW
from ..element_types import Array
from ..parallel import SideThread, slices
from .checksum import SUM_MASK, array_sum
from .content import Content
from .header import FrameHeader

__all__ = ["write_raw"]

_PIECE_BYTES: Final = 1 << 20
#: A piece of fewer bytes is summed sooner than it is handed to another thread.
_MIN_BYTES_BESIDE: Final = 1 << 16


def write_raw(content: Content, side: SideThread) -> Iterator[bytes | memoryview]:
    """Yield arrays as a raw frame, in pieces that do not change.

    Parameters
    ----------
    content
        The arrays. A single array may change meanwhile.
    side
        A thread that computes the checksums of large pieces.
    """
    bits, kind = content.bits, content.kind
    head = FrameHeader(METHOD_RAW, kind, False, content.shapes, 0, content.run).to_bytes()
    checks = _Checks(zlib.crc32(head))
    yield head
    last = None
    for part in slices(bits.size, _PIECE_BYTES // kind.size):
        own = bits[part] if content.run else bits[part].copy()
        data = stored_view(own).data
        first = part.start * kind.size // 8
        if last is None and own.nbytes < _MIN_BYTES_BESIDE:
            checks.take(own, data, first)
        else:
            last = side.call(checks.take, own, data, first)
        yield data
    if last is not None:
        last.result()
    tail = struct.pack("<Q", checks.total & SUM_MASK)
    yield tail + struct.pack("<I", zlib.crc32(tail, checks.crc))


class _Checks:
    """The CRC-32 and the array sum of the pieces so far (LCC-FRM-08, LCC-FRM-09)."""

    def __init__(self, crc: int) -> None:
        self.crc = crc
        self.total = 0

    def take(self, own: Array, data: memoryview, first: int) -> None:
        """Add a piece: its components, its stored bytes, and the index of its first word."""
        self.crc = zlib.crc32(data, self.crc)
        self.total += array_sum(own, first)
