"""A bundle as the store of a chain, which is only read (SPEC 9, LCC-BUN)."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.bundle import Bundle
from ...container.checkpoint import CheckpointReader
from ...container.source import Section
from ...errors import StorageError
from .names import checkpoint_name
from .store import Store


class BundleStore(Store):
    """The files of a chain in one file, which is open until the store is closed.

    Raises
    ------
    StorageError, DataError
        If it cannot be opened or read, or is not a sound bundle.
    """

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
