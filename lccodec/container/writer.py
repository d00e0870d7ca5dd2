"""Writing a checkpoint file, and committing it atomically (SPEC 8 and 9).

A checkpoint is written under a temporary name, and linked into place once it is on the disk
(LCC-CHN-06). So a reader sees the whole file or no file. A failure leaves nothing behind. A killed
process leaves a temporary file, which `remove_stale_temporaries` removes.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from ..constants import MAX_MANIFEST_BYTES, PAYLOAD_OFFSET, ROOT_SIZE, TEMPORARY_PREFIX
from ..errors import ArgumentError, DataError
from ..parallel import ordered
from .frame_entry import Bytes, FrameEntry, SizedFrame, entry_beside, pieces_of
from .hdf5 import skeleton
from .manifest import Manifest, parse_manifest
from .system import (
    OPEN_FLAGS,
    SYSTEM,
    WINDOWS,
    StrPath,
    System,
    checked_path,
    flag,
    storage_errors,
    sync_directory,
)
from .trailer import Trailer, parse_trailer, root_of

_NO_HARD_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
_FLUSH_BYTES: Final = 1 << 23  # that are written before the system is told to begin with them
_MIN_BYTES_BESIDE: Final = 1 << 23  # of a frame that a thread of its own may hash
_MAX_ATTEMPTS: Final = 100  # to make a temporary; one fails only if another process removes it at once

#: Bytes of the longest entry of a frame: a length of 16 digits, a digest, and punctuation.
_MAX_ENTRY_BYTES: Final = len('[9007199254740991,"0123456789012345678901"],')


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
        parse_manifest(replace(manifest, tree={}, scalars=[], arrays=(), frames=()).to_bytes(), "manifest")


@contextmanager
def _readable() -> Iterator[None]:
    """Raise what the reader refuses as ``ArgumentError``. So only the reader has the rules."""
    try:
        yield
    except DataError as error:
        raise ArgumentError(f"the manifest could not be read again: {error}") from error


def to_bytes(frames: Sequence[Bytes], manifest: Manifest) -> bytes:
    """Return the bytes of a checkpoint file, as `CheckpointWriter` would write them."""
    if list(manifest.frames) != [FrameEntry.of(frame) for frame in frames]:
        raise ArgumentError("the manifest does not list the frames that were given")
    head, tail = _assemble(manifest)
    return b"".join((head, *frames, tail))


def _assemble(manifest: Manifest) -> tuple[bytes, bytes]:
    """Return the bytes before the payload and behind it. The last of them are the root."""
    data = manifest.to_bytes()
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
        self._path = checked_path(path)
        self._overwrite = overwrite
        self._system = system
        self._fd = -1
        self._temporary: Path | None = None
        self._entries: list[FrameEntry] = []

    def __enter__(self) -> Self:
        try:
            with storage_errors("cannot create", self._path):
                if not self._overwrite and self._system.exists(self._path):
                    raise ArgumentError(f"{self._path} already exists")
                self._create_temporary()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def write_frame(self, frame: Bytes | Iterable[Bytes]) -> FrameEntry:
        """Append a frame, whole or in pieces, to the payload; return its entry for the manifest."""

        def written() -> Iterator[Bytes]:
            for piece in pieces_of(frame):
                self._write(piece)
                yield piece

        with self._working():
            self._entries.append(FrameEntry.of(written()))
        return self._entries[-1]

    def write_frames(self, frames: Sequence[SizedFrame], threads: int) -> tuple[FrameEntry, ...]:
        """Append frames to an empty payload, several at a time; return their entries."""
        offsets = list(itertools.accumulate((f.length for f in frames), initial=PAYLOAD_OFFSET))

        total = offsets[-1] - PAYLOAD_OFFSET

        def write(place: tuple[SizedFrame, int]) -> FrameEntry:
            # The other threads are done long before that of a frame that is most of the file.
            large = place[0].length > max(total // 2, _MIN_BYTES_BESIDE)
            return (entry_beside if large else FrameEntry.of)(self._written_at(*place))

        with self._working():
            self._entries += ordered(write, zip(frames, offsets, strict=False), threads)
            self._system.seek(self._fd, offsets[-1], os.SEEK_SET)
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
        with self._working() as temporary:
            if list(manifest.frames) != self._entries:
                raise ArgumentError("the manifest does not list the frames that were written")
            head, tail = _assemble(manifest)
            self._write(tail)
            self._system.seek(self._fd, 0, os.SEEK_SET)
            self._write(head)
            self._system.fsync(self._fd)
            if check is not None:
                check(temporary)
            self._publish(temporary)
            self.root = tail[-ROOT_SIZE:]
            self.size = len(head) + manifest.payload_length + len(tail)
        self._discard()
        with storage_errors("committed, but durability unknown: cannot sync the directory of", self._path):
            sync_directory(self._path.parent, self._system)
        return self.root

    @contextmanager
    def _working(self) -> Iterator[Path]:
        if self._temporary is None:
            raise ArgumentError(f"the writer of {self._path} is closed")
        try:
            with storage_errors("cannot write", self._path):
                yield self._temporary
        except BaseException:
            self._discard()
            raise

    def _create_temporary(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
        replaced = self._system.mode(self._path) if self._overwrite else None
        for _ in range(_MAX_ATTEMPTS):
            temporary = self._path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
            self._fd = self._system.open(temporary, flags, 0o666 if replaced is None else 0o600)
            self._temporary = temporary
            if replaced is not None:
                with suppress(OSError):  # on systems that cannot set them, the owner alone has access
                    self._system.set_mode(self._fd, replaced)
            with suppress(OSError):  # without locks nobody removes temporaries
                self._system.lock(self._fd, True)
            # Another process may have removed it between the two calls.
            if self._system.exists(temporary):
                self._system.seek(self._fd, PAYLOAD_OFFSET, os.SEEK_SET)
                return
            self._discard()
        raise OSError(errno.EAGAIN, "a temporary cannot be seen after it was made")

    def _written_at(self, frame: SizedFrame, offset: int) -> Iterator[Bytes]:
        """Yield the pieces of a frame, each when it is written."""
        flushed = offset
        for piece in frame.pieces():
            view = memoryview(piece).cast("B")
            while view:
                count = self._system.write_at(self._fd, view, offset)
                view, offset = view[count:], offset + count
            if offset - flushed >= _FLUSH_BYTES:
                with suppress(OSError):  # the fsync of a commit shows what is wrong
                    self._system.start_flush(self._fd, flushed, offset - flushed)
                flushed = offset
            yield piece

    def _write(self, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self._system.write(self._fd, view) :]

    def _publish(self, temporary: Path) -> None:
        if WINDOWS:  # which neither renames nor unlinks an open file
            self._close()
        if self._overwrite:
            self._system.replace(temporary, self._path)
            return
        try:
            self._system.link(temporary, self._path)  # unlike a rename, it does not replace
        except FileExistsError:
            raise ArgumentError(f"{self._path} already exists") from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if self._system.exists(self._path):
                raise ArgumentError(f"{self._path} already exists") from None
            self._system.replace(temporary, self._path)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._system.close(fd)

    def _discard(self) -> None:
        """Close and unlink the temporary. After a commit this only removes its second name."""
        self._close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            with suppress(OSError):
                self._system.unlink(temporary)


def remove_stale_temporaries(directory: StrPath, system: System = SYSTEM) -> list[str]:
    """Remove the temporaries in a directory whose writers are gone, and return their names.

    A writer holds a lock on its temporary. On a file system without locks nothing is removed.
    """
    removed = []
    flags = os.O_RDWR | flag("O_NONBLOCK") | flag("O_NOFOLLOW") | OPEN_FLAGS
    with storage_errors("cannot list", directory):
        names = sorted(name for name in system.listdir(directory) if name.startswith(TEMPORARY_PREFIX))
    for name in names:
        with suppress(OSError):
            fd = system.open(Path(directory) / name, flags)
            try:
                system.lock(fd, False)
                system.unlink(Path(directory) / name)
                removed.append(name)
            finally:
                system.close(fd)
    return removed
