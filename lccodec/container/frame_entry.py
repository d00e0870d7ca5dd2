"""The entry of a frame in the manifest: its length and its digest (SPEC 8, LCC-MAN-05, LCC-MAN-08).

Frames are hashed while they are written, piece by piece. `Digests` does that beside the writing:
SHA-256 takes longer than anything else that a frame of raw values needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self, TypeAlias

from ..constants import DIGEST_SIZE
from ..parallel import SideThread

__all__ = ["Bytes", "Digests", "FrameEntry", "pieces_of"]

Bytes: TypeAlias = bytes | bytearray | memoryview

#: A piece of fewer bytes is hashed sooner than it is handed to another thread.
_MIN_BYTES_BESIDE: Final = 1 << 16


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


class Digests:
    """Hashes frames beside the thread that writes them.

    Parameters
    ----------
    side
        The thread that hashes.
    """

    def __init__(self, side: SideThread) -> None:
        self._side = side

    def entry_of(self, frame: Iterable[Bytes]) -> FrameEntry | Future[FrameEntry]:
        """Take the pieces of a frame; return its entry, of a large frame one that comes later.

        The pieces must not change.
        """
        pieces, length, digest = iter(frame), 0, sha256()
        for piece in pieces:
            size = memoryview(piece).nbytes
            length += size
            if size >= _MIN_BYTES_BESIDE:
                self._side.call(digest.update, piece)
                break
            digest.update(piece)
        else:
            return FrameEntry(length, digest.digest()[:DIGEST_SIZE])
        for piece in pieces:
            length += memoryview(piece).nbytes
            self._side.call(digest.update, piece)
        return self._side.call(lambda: FrameEntry(length, digest.digest()[:DIGEST_SIZE]))
