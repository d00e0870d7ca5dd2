"""The entry of a frame in the manifest: its length and its digest (SPEC 8, LCC-MAN-05, LCC-MAN-08).

Frames are hashed while they are written, piece by piece. SHA-256 takes longer than anything else
that a frame of raw values needs. So a large one is hashed beside the writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol, Self, TypeAlias

from ..constants import DIGEST_SIZE
from ..parallel import SideThread

Bytes: TypeAlias = bytes | bytearray | memoryview


def pieces_of(frame: Bytes | Iterable[Bytes]) -> Iterable[Bytes]:
    """Return the pieces of a frame that is given whole or in pieces."""
    return (frame,) if isinstance(frame, bytes | bytearray | memoryview) else frame


@dataclass(frozen=True)
class FrameEntry:
    """The entry of a frame: its length in bytes, and the start of its SHA-256 (LCC-MAN-08)."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, frame: Bytes | Iterable[Bytes]) -> Self:
        """Return the entry of a frame that is given whole or in pieces."""
        length, digest = 0, sha256()
        for piece in pieces_of(frame):
            length += memoryview(piece).nbytes
            digest.update(piece)
        return cls(length, digest.digest()[:DIGEST_SIZE])


class SizedFrame(Protocol):
    """A frame whose length is known before its pieces are made."""

    @property
    def length(self) -> int:
        """Bytes of the frame."""

    def pieces(self) -> Iterator[Bytes]:
        """Yield the frame in pieces that do not change."""


def entry_beside(frame: Iterable[Bytes]) -> FrameEntry:
    """Return the entry of a frame; a thread hashes a piece while the next one is made."""
    length, digest = 0, sha256()
    with SideThread() as side:
        for piece in frame:
            length += memoryview(piece).nbytes
            side.call(digest.update, piece)
        return side.call(lambda: FrameEntry(length, digest.digest()[:DIGEST_SIZE])).result()
