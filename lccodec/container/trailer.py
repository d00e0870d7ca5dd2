"""The trailer: a structure of fixed size at the end of a checkpoint file (SPEC 8, LCC-TRL).

It says where payload and manifest lie, and holds the root.
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
