"""Writing a checkpoint file, and committing it atomically (SPEC 8 and 9).

A checkpoint is written under a temporary name, and linked into place once it is on the disk
(LCC-CHN-06). So a reader sees the whole file or no file. A failure leaves nothing behind. A killed
process leaves a temporary file (:mod:`lccodec.container.disk.whole_file`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from ..constants import MAX_MANIFEST_BYTES, PAYLOAD_OFFSET, PIECE_ENTRY_SIZE, ROOT_SIZE
from ..errors import ArgumentError, DataError
from ..parallel import ordered
from .disk.system import SYSTEM, Bytes, StrPath, System
from .disk.whole_file import WholeFile
from .envelope import Trailer, parse_trailer, root_of, skeleton
from .manifest import Manifest, parse_manifest
from .piece_table import FrameEntry, SizedFrame, chunks_of, hashed, hashed_beside

_FLUSH_BYTES: Final = 1 << 23  # that are written before the system is told to begin with them
_MIN_BYTES_BESIDE: Final = 1 << 23  # of a frame that a thread of its own may hash

#: Bytes of the longest entry of a frame: a length of 16 digits, a digest, and punctuation.
_MAX_ENTRY_BYTES: Final = len('[9007199254740991,"0123456789012345678901",9007199254740991],')


def check_manifest(manifest: Manifest, frames: int) -> None:
    """Check a manifest before its frames are made, by the number that there will be.

    Names, arrays and scalars have been checked by `tree.flatten`. Raises ``ArgumentError`` if the
    policy is not JSON, or the manifest would be longer than LCC-LIM-04 allows.
    """
    size = len(manifest.to_bytes()) + frames * _MAX_ENTRY_BYTES
    if size > MAX_MANIFEST_BYTES:
        raise ArgumentError(
            f"names, scalars and metadata take {size} bytes of a manifest, which has at most"
            f" {MAX_MANIFEST_BYTES} (LCC-LIM-04)"
        )
    with _readable():
        parse_manifest(
            replace(manifest, tree={}, scalars=[], arrays=(), copies=(), frames=()).to_bytes(), "manifest"
        )


@contextmanager
def _readable() -> Iterator[None]:
    """Raise what the reader refuses as ``ArgumentError``. So only the reader has the rules."""
    try:
        yield
    except DataError as error:
        raise ArgumentError(f"the manifest could not be read again: {error}") from error


def to_bytes(frames: Sequence[Bytes], manifest: Manifest) -> bytes:
    """Return the bytes of a checkpoint file, as `CheckpointWriter` would write them."""
    hashed_frames = [hashed(frame) for frame in frames]
    if list(manifest.frames) != [entry for entry, _ in hashed_frames]:
        raise ArgumentError("the manifest does not list the frames that were given")
    head, tail = _assemble(manifest)
    payload = itertools.chain.from_iterable(
        (frame, table) for frame, (_, table) in zip(frames, hashed_frames, strict=True)
    )
    return b"".join((head, *payload, tail))


def root_of_file(manifest: Manifest) -> bytes:
    """Return the root that the file of a manifest has."""
    return _assemble(manifest)[1][-ROOT_SIZE:]


def size_of_file(manifest: Manifest) -> int:
    """Return how many bytes the file of a manifest has."""
    return manifest.payload_length + sum(map(len, _assemble(manifest)))


def _assemble(manifest: Manifest) -> tuple[bytes, bytes]:
    """Return the bytes before the payload and behind it. The last of them are the root.

    A manifest that figures would make too long goes without them.
    """
    data = manifest.to_bytes()
    if len(data) > MAX_MANIFEST_BYTES:
        data = replace(manifest, figures=None).to_bytes()
    trailer = Trailer(manifest.payload_length, len(data), minor=manifest.minor)
    with _readable():
        parse_manifest(data, "manifest")
        parse_trailer(trailer.to_bytes(), "trailer")
    head, tail = skeleton(trailer), data + trailer.to_bytes()[:-ROOT_SIZE]
    return head, tail + root_of(head, tail)


class CheckpointWriter:
    """Writes one checkpoint file, frame by frame, and commits it atomically (LCC-CHN-06).

    It is a context manager. Leaving it without a commit, or by an exception, leaves no file behind.
    The writer is closed after any error. Nothing is tried again, because the state of a file is
    unknown after a failed fsync.

    Parameters
    ----------
    overwrite
        Whether to replace a file of that name, and keep its permissions. Otherwise such a file is
        an error, and stays as it is.

    Attributes
    ----------
    root
        Root of the committed file; None before.
    size
        Bytes of the committed file.

    Examples
    --------
    >>> import tempfile
    >>> from lccodec.container.reader import open_checkpoint
    >>> path = Path(tempfile.mkdtemp()) / "one.lcc.h5"
    >>> with CheckpointWriter(path) as writer:
    ...     entry = writer.write_frame(b"a frame")
    ...     root = writer.commit(Manifest(7, None, "lossless", {}, {"w": 0}, [], (1,), (entry,)))
    >>> with open_checkpoint(path) as reader:
    ...     reader.manifest.step, bytes(reader.frame(0)), reader.root == root
    (7, b'a frame', True)
    """

    def __init__(self, path: StrPath, *, overwrite: bool = False, system: System = SYSTEM) -> None:
        self.root: bytes | None = None
        self.size = 0
        self._file = WholeFile(path, overwrite=overwrite, system=system)
        self._entries: list[FrameEntry] = []

    def __enter__(self) -> Self:
        self._file.__enter__()
        self._file.seek(PAYLOAD_OFFSET)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def write_frame(self, frame: Bytes | Iterable[Bytes]) -> FrameEntry:
        """Append a frame, whole or in chunks, to the payload; return its entry for the manifest.

        The table of its pieces follows, if it is cut.
        """

        def written() -> Iterator[Bytes]:
            for chunk in chunks_of(frame):
                self._file.append(chunk)
                yield chunk

        with self._file.working():
            entry, table = hashed(written())
            self._file.append(table)
            self._entries.append(entry)
        return self._entries[-1]

    def write_frames(self, frames: Sequence[SizedFrame], threads: int) -> tuple[FrameEntry, ...]:
        """Append frames to an empty payload, several at a time; return their entries."""
        sizes = (f.length + f.table_pieces * PIECE_ENTRY_SIZE for f in frames)
        offsets = list(itertools.accumulate(sizes, initial=PAYLOAD_OFFSET))
        total = offsets[-1] - PAYLOAD_OFFSET

        def write(place: tuple[SizedFrame, int]) -> FrameEntry:
            # The other threads are done long before that of a frame that is most of the file.
            large = place[0].length > max(total // 2, _MIN_BYTES_BESIDE)
            entry, table = (hashed_beside if large else hashed)(self._written_at(*place))
            self._file.write_at(table, place[1] + entry.length)
            return entry

        with self._file.working():
            self._entries += ordered(write, zip(frames, offsets, strict=False), threads)
        self._file.seek(offsets[-1])
        return tuple(self._entries)

    def commit(self, manifest: Manifest, check: Callable[[Path], object] | None = None) -> bytes:
        """Write everything but the payload, give the file its name, and return the root.

        The frames of the manifest are the entries that `write_frame` returned, in that order. When
        the file is on stable storage, and before it gets its name, `check` is given its temporary
        name, and may raise an error.

        Raises
        ------
        ArgumentError
            If there is a file of that name, or the manifest is not valid. Nothing is committed.
        StorageError
            Nothing is committed; or, if the message says so and `root` is set, the file is in place
            but its directory could not be synced, so that it may be lost in a power failure.
        """
        with self._file.working():
            if list(manifest.frames) != self._entries:
                raise ArgumentError("the manifest does not list the frames that were written")
            head, tail = _assemble(manifest)
        self._file.write(tail)
        self._file.seek(0)
        self._file.write(head)
        root = tail[-ROOT_SIZE:]
        try:
            self._file.commit(check)
        finally:
            if self._file.committed:
                self.root = root
                self.size = len(head) + manifest.payload_length + len(tail)
        return root

    def _written_at(self, frame: SizedFrame, offset: int) -> Iterator[Bytes]:
        """Yield the chunks of a frame, each when it is written."""
        flushed = offset
        for chunk in frame.chunks():
            self._file.write_at(chunk, offset)
            offset += memoryview(chunk).nbytes
            if offset - flushed >= _FLUSH_BYTES:
                self._file.start_flush(flushed, offset - flushed)
                flushed = offset
            yield chunk
