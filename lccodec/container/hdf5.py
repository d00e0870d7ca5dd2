"""The HDF5 part of a checkpoint file: the bytes around the payload and the manifest (SPEC 8).

The file is a small HDF5 file (LCC-H5-02): the root group, two one-dimensional contiguous datasets
of unsigned bytes, ``payload`` and then ``manifest``, and an attribute that says what the file is.
All other bytes depend only on the two sizes (LCC-H5-05). They are laid out here without the HDF5
library, so that no version of it can stop a save or a check. The tests let the library write the
same bytes.
"""

from __future__ import annotations

import struct
from typing import Final

from ..constants import PAYLOAD_OFFSET
from .trailer import Trailer

# LCC-H5-05. An item is bytes in hexadecimal, or *n for n bytes 0, or ff*n for n bytes 0xff, or the
# name of a u64, or # for the checksum of all bytes since the last one.
_HEAD: Final = """
894844460d0a1a0a 02080800 *8 ff*8 end 30 *7 #
4f484452 0200bc
02120000 0000 ff*16
0a060001 000202003f00
06120000 010007 7061796c6f6164 f7 *7
06130000 010008 6d616e6966657374 5a01 *6
15120004 0000 ff*16
0c550000 0300 0600 0800 0400 00 61626f757400 13010000 3a000000 02000000
6c63636f64656320636865636b706f69 6e743a2070697020696e7374616c6c20
6c63636f6465633b206c63636f646563 20696e666f2046494c45 #
4f484452 020058
01140000 02010101 payload_size payload_size
030c0001 10000000 010000000000 0800
05020001 0306
08120000 0301 payload_address payload_size
00100000 *16 #
4f484452 020058
01140000 02010101 manifest_size manifest_size
030c0001 10000000 010000000000 0800
05020001 0306
08120000 0301 manifest_address manifest_size
00100000 *16 #
"""
_UNDEFINED_ADDRESS: Final = (1 << 64) - 1
_WORD: Final = 0xFFFFFFFF


def skeleton(trailer: Trailer) -> bytes:
    """Return the head: all bytes of the HDF5 part that are neither payload nor manifest.

    A payload of no bytes is a dataset of no elements, which has no address (LCC-H5-04).

    Examples
    --------
    >>> len(skeleton(Trailer(payload_length=10**12, manifest_length=500)))
    445
    """
    values = {
        "payload_size": trailer.payload_length,
        "payload_address": PAYLOAD_OFFSET if trailer.payload_length else _UNDEFINED_ADDRESS,
        "manifest_size": trailer.manifest_length,
        "manifest_address": trailer.manifest_offset,
        "end": trailer.manifest_offset + trailer.manifest_length,
    }
    made, start = bytearray(), 0
    for item in _HEAD.split():
        digits, times, count = item.partition("*")
        if item in values:
            made += struct.pack("<Q", values[item])
        elif item == "#":
            made += struct.pack("<I", _checksum(made[start:]))
            start = len(made)
        else:
            made += bytes.fromhex(digits or "00") * (int(count) if times else 1)
    return bytes(made)


def _checksum(data: bytes | bytearray) -> int:
    """Return the checksum of HDF5 metadata: Jenkins' lookup3, ``hashlittle`` from 0."""
    words = struct.unpack(f"<{-(-len(data) // 12) * 3}I", data + bytes(-len(data) % 12))
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    for place in range(0, len(words), 3):
        if place:  # mix
            for bits in (4, 6, 8, 16, 19, 4):
                a = (a - c) & _WORD ^ _rotated(c, bits)
                a, b, c = b, (c + b) & _WORD, a
        a, b, c = ((x + word) & _WORD for x, word in zip((a, b, c), words[place:], strict=False))
    for bits in (14, 11, 25, 16, 4, 14, 24):  # final
        a, b, c = b, ((c ^ b) - _rotated(b, bits)) & _WORD, a
    return b


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
