"""Raw frames, made chunk by chunk at the speed of a copy. Source: SPEC 6.1 and 6.2.

`encode_content` makes a raw frame where nothing else is smaller. Here values are stored raw because
that is fastest. The length of such a frame is known before it is made.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ..byteorder import stored_view
from ..constants import METHOD_RAW
from ..element_table import ElementType
from ..parallel import slices
from .content import SUM_MASK, Content, array_sum
from .header import FrameHeader, Shape
from .pieces import raw_pieces

_CHUNK_BYTES: Final = 1 << 20  # copied, summed, hashed and written while the cache has them
_TAIL_BYTES: Final = 12  # the array sum and the CRC-32


@dataclass(frozen=True, eq=False)
class RawFrame:
    """A raw frame that is not made yet.

    Parameters
    ----------
    kind, shapes, run
        As in `Content`.
    read
        Returns the content, which may change meanwhile if it is a single array.
    """

    kind: ElementType
    shapes: tuple[Shape, ...]
    run: bool
    read: Callable[[], Content]

    @property
    def _header(self) -> FrameHeader:
        return FrameHeader(METHOD_RAW, self.kind, False, self.shapes, 0, self.run)

    @property
    def length(self) -> int:
        """Bytes of the frame."""
        return len(self._header.to_bytes()) + self._header.nbytes + _TAIL_BYTES

    @property
    def table_pieces(self) -> int:
        """In how many pieces it is cut; 0 if it is not (LCC-PCS)."""
        return raw_pieces(self._header)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the frame in chunks that do not change. Each value is read once."""
        head, total = self._header.to_bytes(), 0
        yield head
        crc, bits, size = zlib.crc32(head), self.read().bits, self.kind.size
        for part in slices(bits.size, _CHUNK_BYTES // size):
            own = bits[part] if self.run else bits[part].copy()
            total += array_sum(own, part.start * size // 8)
            data = stored_view(own).data
            crc = zlib.crc32(data, crc)
            yield data
        tail = struct.pack("<Q", total & SUM_MASK)
        yield tail + struct.pack("<I", zlib.crc32(tail, crc))
