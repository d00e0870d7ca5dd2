"""Writing a file of a chain to a bucket: whole on the disk, then its data, then its commit.

A lost answer looks as if another writer had come first: if the commit names the same data, it is
this one.

Source: SPEC 9 (LCC-BKT-03).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....constants import PAYLOAD_OFFSET
from ....container.disk.address import Place
from ....container.disk.system import System
from ....container.manifest import Manifest
from ....container.writer import CheckpointWriter
from ....errors import StorageError
from ..store import OvertakenError
from .backend import ExistsError, MissingError
from .keys import MAX_COMMIT_BYTES, Data, commit_bytes, commit_key, named_by
from .patience import PatientBackend


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
        self._folder = tempfile.TemporaryDirectory(prefix="lccodec-")
        self._path = Path(self._folder.name) / name
        super().__init__(self._path, system=_Volatile())
        self._backend, self._place, self._replaced = backend, place, replaced
        self._name, self._generation = name, generation

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self._folder.cleanup()

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
        tail = self.size - PAYLOAD_OFFSET - manifest.payload_length
        parents = tuple(parent.step for parent in manifest.parents)
        data = Data(self._generation, manifest.step or 0, root, parents, tail)
        key = f"{self._name}/{data.name()}"
        self._backend.upload(key, self._path)
        if check is not None:
            check(self._path)
        self._put(commit_key(self._name, self._generation), key, data)
        self.root = root
        if self._generation:
            with suppress(StorageError):  # a later one does it
                self._replaced(self._name, self._generation)
        return root

    def _put(self, commit: str, key: str, data: Data) -> None:
        try:
            self._backend.put_if_absent(commit, commit_bytes(key))
        except ExistsError:
            try:
                found = named_by(self._backend.read_small([commit], MAX_COMMIT_BYTES)[0], commit)
            except MissingError:
                found = ""  # another's, which is removed already
            other = Data.parse(found.rpartition("/")[2])
            if other is None or other.root != data.root:
                raise OvertakenError(
                    f"{self._place}: another process is saving to this chain, which has one writer"
                    f" at a time, and has committed {self._name} first; save to another directory"
                ) from None
