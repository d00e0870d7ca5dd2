"""The trailer of a checkpoint file: a structure of fixed size (SPEC section 8, LCC-TRL)."""

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
    SKELETON_SIZE,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ..errors import (
    FormatError,
    LimitError,
    UnsupportedError,
)

__all__ = ["Trailer", "parse_trailer", "root_of"]


@dataclass(frozen=True)
class Trailer:
    """The last bytes of the file (LCC-TRL-02): where payload and manifest lie, and the root.

    The file has offsets too; as the HDF5 layout is fixed (LCC-H5-05), the two lengths imply them.
    """

    payload_length: int
    manifest_length: int
    root: bytes = bytes(ROOT_SIZE)
    minor: int = FORMAT_MINOR

    @property
    def manifest_offset(self) -> int:
        """Where the manifest begins, in bytes."""
        return self.payload_length + SKELETON_SIZE

    @property
    def file_length(self) -> int:
        """Size of the whole file in bytes, the trailer included."""
        return self.manifest_offset + self.manifest_length + TRAILER_SIZE

    def to_bytes(self) -> bytes:
        """The trailer as it stands in the file."""
        return _TRAILER.pack(
            TRAILER_MAGIC,
            FORMAT_MAJOR,
            self.minor,
            0,
            PAYLOAD_OFFSET,
            self.payload_length,
            self.manifest_offset,
            self.manifest_length,
            self.file_length,
            self.root,
        )


_TRAILER: Final = struct.Struct(f"<8sHHI5Q{ROOT_SIZE}s")  # LCC-TRL-02


def parse_trailer(data: bytes, where: str) -> Trailer:
    """Read a trailer of `TRAILER_SIZE` bytes.

    Raises
    ------
    FormatError
        Not a trailer (LCC-TRL-01, LCC-TRL-02); offsets and lengths that do not fit together
        (LCC-TRL-06).
    UnsupportedError
        A newer major version (LCC-TRL-03), a reserved field in use (LCC-TRL-04).
    LimitError
        The manifest is too long (LCC-LIM-04).
    """
    if len(data) != TRAILER_SIZE or not data.startswith(TRAILER_MAGIC):
        raise FormatError("LCC-TRL-01", where, "no trailer")
    _, major, minor, reserved, *spans, root = _TRAILER.unpack(data)
    if major != FORMAT_MAJOR:
        raise UnsupportedError("LCC-TRL-03", where, f"format version {major}.{minor}")
    if reserved:
        raise UnsupportedError("LCC-TRL-04", where, f"reserved field is {reserved:#x}")
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if trailer.manifest_length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"a manifest of {trailer.manifest_length} bytes")
    if spans[::2] != [PAYLOAD_OFFSET, trailer.manifest_offset, trailer.file_length]:
        raise FormatError("LCC-TRL-06", where, f"offsets and lengths do not fit together: {spans}")
    return trailer


def root_of(head: bytes, tail: bytes) -> bytes:
    """Return the SHA-256 of all bytes before the payload and all behind it up to the root (LCC-TRL-05)."""
    digest = sha256(head)
    digest.update(tail)
    return digest.digest()
