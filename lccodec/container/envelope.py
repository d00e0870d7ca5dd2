"""The bytes of a checkpoint file around its payload and its manifest (SPEC 8, LCC-H5, LCC-TRL).

The *trailer* is a structure of fixed size at the end of the file. It says where payload and
manifest lie, and holds the root.

Before it lies a small HDF5 file (LCC-H5-02): the root group, two one-dimensional contiguous
datasets of unsigned bytes, ``payload`` and then ``manifest``, and an attribute that says what the
file is. All other bytes depend only on the two sizes (LCC-H5-05): the *skeleton*. They are laid out
here without the HDF5 library, so that no version of it can stop a save or a check. The tests let
the library write the same bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ..constants import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_MANIFEST_BYTES,
    PAYLOAD_OFFSET,
    ROOT_SIZE,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ..errors import FormatError, LimitError, UnsupportedError
from .disk.source import Source


@dataclass(frozen=True)
class Trailer:
    """The last bytes of the file (LCC-TRL-02): lengths of payload and manifest, and the root.

    The two lengths imply the offsets, because the HDF5 layout is fixed (LCC-H5-05).
    """

    payload_length: int
    manifest_length: int
    root: bytes = bytes(ROOT_SIZE)
    minor: int = FORMAT_MINOR

    @property
    def manifest_offset(self) -> int:
        """First byte of the manifest."""
        return PAYLOAD_OFFSET + self.payload_length

    @property
    def file_length(self) -> int:
        """Bytes of the whole file, with the trailer."""
        return self.manifest_offset + self.manifest_length + TRAILER_SIZE

    @property
    def spans(self) -> list[int]:
        """Offset and length of payload and manifest, and the length of the file."""
        payload, manifest = self.payload_length, self.manifest_length
        return [PAYLOAD_OFFSET, payload, self.manifest_offset, manifest, self.file_length]

    def to_bytes(self) -> bytes:
        """Return the trailer as stored in the file."""
        return _TRAILER.pack(TRAILER_MAGIC, FORMAT_MAJOR, self.minor, _LAYOUT, *self.spans, self.root)


_LAYOUT: Final = 1  # LCC-TRL-04
_TRAILER: Final = struct.Struct(f"<8sHHI5Q{ROOT_SIZE}s")  # LCC-TRL-02
_PIECE_BYTES: Final = 1 << 20  # of a manifest that may be of any length, hashed at once


def parse_trailer(data: bytes, where: str) -> Trailer:
    """Read a trailer of `TRAILER_SIZE` bytes.

    Raises
    ------
    FormatError
        If it is not a trailer (LCC-TRL-01, LCC-TRL-02), or its offsets and lengths do not agree
        (LCC-TRL-06).
    UnsupportedError
        If it has another major version (LCC-TRL-03) or another layout (LCC-TRL-04).
    LimitError
        If the manifest is too long (LCC-LIM-04).
    """
    if len(data) != TRAILER_SIZE or not data.startswith(TRAILER_MAGIC):
        raise FormatError("LCC-TRL-01", where, "no trailer")
    _, major, minor, layout, *spans, root = _TRAILER.unpack(data)
    if major != FORMAT_MAJOR:
        raise UnsupportedError("LCC-TRL-03", where, f"format version {major}.{minor}")
    if layout != _LAYOUT:
        raise UnsupportedError("LCC-TRL-04", where, f"layout {layout} in version {major}.{minor}")
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if trailer.manifest_length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"a manifest of {trailer.manifest_length} bytes is too long")
    if spans != trailer.spans:
        raise FormatError("LCC-TRL-06", where, f"offsets and lengths do not agree: {spans}")
    return trailer


def root_of(head: bytes, tail: bytes) -> bytes:
    """Return the root: the SHA-256 of all bytes before and behind the payload (LCC-TRL-05)."""
    digest = sha256(head)
    digest.update(tail)
    return digest.digest()


def sound_root(source: Source) -> bytes | None:
    """Return the root of a file of any version, if it is that of the bytes around its payload.

    Otherwise it returns ``None``. Any version is taken to have a trailer of this form.
    """
    if source.size < PAYLOAD_OFFSET + TRAILER_SIZE:
        return None
    data = source.read(source.size - TRAILER_SIZE, TRAILER_SIZE)
    magic, _, minor, _, *spans, root = _TRAILER.unpack(data)
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if magic != TRAILER_MAGIC or spans != trailer.spans or trailer.file_length != source.size:
        return None
    digest, end = sha256(source.read(0, PAYLOAD_OFFSET)), source.size - ROOT_SIZE
    for start in range(trailer.manifest_offset, end, _PIECE_BYTES):
        digest.update(source.read(start, min(_PIECE_BYTES, end - start)))
    return root if digest.digest() == root else None


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
