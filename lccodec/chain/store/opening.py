"""From a place to the store there: a directory, a bundle, or a prefix of a bucket.

A bundle is one file with the files of a chain, and is only read (SPEC 9, LCC-BUN).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.bundle import Bundle, is_bundle
from ...container.checkpoint import CheckpointReader
from ...container.source import Section
from ...container.system import Address, Place
from ...errors import StorageError
from .directory import DirectoryStore
from .store import Store, WritableStore, checkpoint_name


class BundleStore(Store):
    """The files of a chain in one file, which is open until the store is closed."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.bundle = Bundle(path)
        super().__init__(self.bundle.path)
        self._files: dict[str, int | None] = {checkpoint_name(step): step for step in self.bundle.steps}
        if self.bundle.index.exact is not None:
            self._files[EXACT_NAME] = None

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self.bundle.close()

    def names(self) -> list[str]:
        """Return the names of the files in the bundle."""
        return list(self._files)

    def has(self, name: str) -> bool:
        """Return whether the bundle has a file of that name."""
        return name in self._files

    def source(self, name: str) -> Section:
        """Open a file of the bundle for reads of ranges."""
        return self.bundle.file(self._file(name))

    def open(self, name: str) -> CheckpointReader:
        """Open a file of the bundle, and check that it is the one that the index names."""
        return self.bundle.open(self._file(name))

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together."""
        return sum(self.source(name).size for name in names)

    def identity(self, name: str) -> tuple[int, ...]:
        """Return where a file is: a bundle does not change."""
        found = self.source(name)
        return found.offset, found.size

    def _file(self, name: str) -> int | None:
        if name not in self._files:
            raise StorageError(errno.ENOENT, "the bundle has no such file", str(self.path / name))
        return self._files[name]


def open_store(place: Place, *, awaited: bool = False) -> Store:
    """Return the store of a chain: a directory, a bundle, or a prefix of a bucket.

    If it is `awaited`, a place where nothing is yet will be a directory; otherwise it is an error.
    """
    if is_folder(place) or (awaited and not os.path.lexists(place)):
        return writable_store(place)
    return BundleStore(Path(place))


def writable_store(place: Place, seconds: float | None = None) -> WritableStore:
    """Return the store of a chain that can be saved to. It need not exist yet.

    A store that does not answer is asked again for some seconds; by default as long as a save
    waits.
    """
    if isinstance(place, Path):
        return DirectoryStore(place)
    from .bucket.backend import Patience
    from .bucket.store import connect

    return connect(place, None if seconds is None else Patience(reading=seconds, writing=seconds))


def is_folder(place: Place) -> bool:
    """Return whether a place is where a chain may be: a directory or an address, and no file."""
    # Path.is_dir raises for a name that is too long.
    return isinstance(place, Address) or os.path.isdir(place)  # noqa: PTH112


def is_chain(place: Place) -> bool:
    """Return whether a place may have many steps: a directory, an address or a bundle."""
    return is_folder(place) or is_bundle(place)
