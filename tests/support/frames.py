"""Frames that are damaged behind a checksum that is right."""

from __future__ import annotations

import struct
import zlib


def sealed(frame: bytes) -> bytes:
    """The frame with its CRC made right, so that damage gets past it."""
    return frame[:-4] + struct.pack("<I", zlib.crc32(frame[:-4]))
