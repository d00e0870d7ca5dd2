"""The entry of a frame in the manifest: its length and its digest (SPEC 8, LCC-MAN-05, LCC-MAN-08).

The digest is that of the frame or, if the frame is cut into pieces, that of their table
(:mod:`lccodec.container.piece_table`), which stands behind the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol, Self, TypeAlias

from ..constants import DIGEST_SIZE

Bytes: TypeAlias = bytes | bytearray | memoryview


def chunks_of(frame: Bytes | Iterable[Bytes]) -> Iterable[Bytes]:
    """Return the chunks of a frame that is given whole or in chunks."""
    return (frame,) if isinstance(frame, bytes | bytearray | memoryview) else frame


@dataclass(frozen=True)
class FrameEntry:
    """The entry of a frame: its length in bytes, a digest, and the length of its table.

    The digest is the start of the SHA-256 of the frame, or of its table if that is not 0 bytes long
    (LCC-MAN-08).
    """

    length: int
    digest: bytes
    table: int = 0

    @property
    def stored(self) -> int:
        """Bytes of the frame and of its table."""
        return self.length + self.table

    @classmethod
    def of(cls, frame: Bytes | Iterable[Bytes]) -> Self:
        """Return the entry of a frame that is not cut; it is given whole or in chunks."""
        length, digest = 0, sha256()
        for chunk in chunks_of(frame):
            length += memoryview(chunk).nbytes
            digest.update(chunk)
        return cls(length, digest.digest()[:DIGEST_SIZE])


class SizedFrame(Protocol):
    """A frame whose length is known before its chunks are made."""

    @property
    def length(self) -> int:
        """Bytes of the frame."""

    @property
    def table_pieces(self) -> int:
        """In how many pieces it is cut; 0 if it is not."""

    def chunks(self) -> Iterator[Bytes]:
        """Yield the bytes of the frame in chunks that do not change."""
