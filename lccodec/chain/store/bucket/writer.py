"""Writing a file of a chain to a bucket: whole on the disk, then its data, then its commit.

A lost answer looks as if another writer had come first: if the commit names the same data, it is
this one.

Source: SPEC 9 (LCC-BKT-03).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ....constants import PAYLOAD_OFFSET
from ....container.disk.address import Place
from ....container.disk.source import Source, Verify
from ....container.disk.system import System
from ....container.disk.temporary import TemporaryFolder
from ....container.disk.whole_file import WholeFile
from ....container.manifest import Manifest
from ....container.reader import CheckpointReader, open_checkpoint
from ....container.writer import CheckpointWriter
from ....errors import StorageError
from ..store import OvertakenError
from .backend import ExistsError, MissingError
from .keys import MAX_COMMIT_BYTES, Data, commit_bytes, commit_key, named_by
from .patience import PatientBackend

#: Bytes of an object that are read together, in parts side by side.
_WINDOW_BYTES: Final = 32 << 20


class _Volatile(System):
    """The system, for files that need not outlast a loss of power: they are uploaded at once."""

    @staticmethod
    def fsync(fd: Any) -> None:
        """Do nothing."""


class ObjectWriter(CheckpointWriter):
    """Writes a file to a temporary directory, and commits it to the bucket.

    Parameters
    ----------
    backend
        The objects of the chain.
    place
        What messages call the chain.
    name, generation
        The file, and the number of its commit.
    replaced
        Called after a commit that takes the place of others.
    """

    def __init__(
        self,
        backend: PatientBackend,
        place: Place,
        name: str,
        generation: int,
        replaced: Callable[[str, int], None],
    ) -> None:
        self._folder = TemporaryFolder()
        self._path = self._folder.path / name
        super().__init__(self._path, system=_Volatile())
        self._backend, self._place, self._replaced = backend, place, replaced
        self._name, self._generation = name, generation

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self._folder.close()

    def commit(self, manifest: Manifest, check: Callable[[Path], object] | None = None) -> bytes:
        """Write the rest, upload the file, and put the commit that names it.

        `check` is called between the two.

        Raises
        ------
        ChainError
            If another writer has committed a file of that name.
        StorageError
            If the store refuses, or cannot be reached for long.
        """
        root = super().commit(manifest)
        self.root = None  # until it is in the bucket
        data = _data_of(manifest, root, self.size, self._generation)
        key = f"{self._name}/{data.name()}"
        self._backend.upload(key, self._path)
        if check is not None:
            check(self._path)
        _put_commit(self._backend, self._place, self._name, data)
        self.root = root
        if self._generation:
            with suppress(StorageError):  # a later one does it
                self._replaced(self._name, self._generation)
        return root


def _data_of(manifest: Manifest, root: bytes, size: int, generation: int) -> Data:
    """Return what the name of the data of a file is to say."""
    tail = size - PAYLOAD_OFFSET - manifest.payload_length
    parents = tuple(parent.step for parent in manifest.parents)
    return Data(generation, manifest.step or 0, root, parents, tail)


def _put_commit(backend: PatientBackend, place: Place, name: str, data: Data) -> None:
    """Put the commit of data that was uploaded; raise `OvertakenError` if another came first."""
    commit, key = commit_key(name, data.generation), f"{name}/{data.name()}"
    try:
        backend.put_if_absent(commit, commit_bytes(key))
    except ExistsError:
        try:
            found = named_by(backend.read_small([commit], MAX_COMMIT_BYTES)[0], commit)
        except MissingError:
            found = ""  # another's, which is removed already
        other = Data.parse(found.rpartition("/")[2])
        if other is None or other.root != data.root:
            raise OvertakenError(
                f"{place}: another process is saving to this chain, which has one writer"
                f" at a time, and has committed {name} first; save to another directory"
            ) from None


def send(  # what is sent, and where
    backend: PatientBackend,
    place: Place,
    name: str,
    generation: int,
    source: Source,
    check: Callable[[CheckpointReader], object],
) -> None:
    """Upload a file as it is, read its data again from the bucket to check it, and put its commit.

    Errors are those of `WritableStore.receive`. Data that is refused has no commit; it is removed
    once it is old enough.
    """
    with TemporaryFolder() as folder:
        path = folder / name
        with WholeFile(path, system=_Volatile()) as file:
            file.copy(source)
            file.commit()
        with open_checkpoint(path) as reader:
            data, size = (
                _data_of(reader.manifest, reader.root, reader.file_size, generation),
                reader.file_size,
            )
        key = f"{name}/{data.name()}"
        backend.upload(key, path)
    with CheckpointReader(_Windows(backend, key, size), str(place / name)) as reader:
        check(reader)
    _put_commit(backend, place, name, data)


class _Windows:
    """An object that is read once from its beginning to its end, in large pieces.

    Nothing that was read before answers for the bucket, and memory holds one piece.

    Attributes
    ----------
    size
        Its bytes.
    far
        Whether all that is needed should be asked for at once: pieces are large enough.
    """

    far = False

    def __init__(self, backend: PatientBackend, key: str, size: int) -> None:
        self._backend, self._key, self.size = backend, key, size
        self._start, self._piece = 0, b""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on."""
        if not self._start <= offset <= offset + size <= self._start + len(self._piece):
            length = max(size, min(_WINDOW_BYTES, self.size - offset))
            self._start, self._piece = offset, self._backend.read(self._key, offset, length)
        return self._piece[offset - self._start : offset - self._start + size]

    def ahead(self, wanted: Iterable[tuple[Source, int, int]]) -> None:
        """Do nothing."""

    def opened(self, root: bytes, verify: Verify) -> None:
        """Do nothing: nothing is kept but the piece."""

    def forget(self, offset: int, size: int) -> bool:  # noqa: ARG002 - the piece goes whole
        """Release the piece; the store may send other bytes next time."""
        self._piece = b""
        return True

    def rest(self, root: bytes) -> None:
        """Do nothing: nothing is open."""

    def close(self) -> None:
        """Release the piece."""
        self._piece = b""
