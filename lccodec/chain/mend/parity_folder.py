"""The parity files of a chain, in ``.parity`` in its directory (SPEC 9, LCC-PAR-01).

Those of chains of ranks lie in the directory of the ranks' folders. They are never needed to read a
chain. A group of files has one index, which each of its parity
files holds twice. Groups that name files which are not those of the chain are never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...constants import PARITY_FOLDER, PARITY_SUFFIX
from ...container.disk.folder import Folder
from ...container.disk.source import FileSource
from ...container.disk.system import storage_errors
from ...container.disk.whole_file import WholeFile, remove_stale_temporaries
from ...container.parity import Index, file_length, read_index, read_layout
from ...errors import ArgumentError, FormatError, LccodecError
from ..store.directory import DirectoryStore
from ..store.store import Store

_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9]{2})" + re.escape(PARITY_SUFFIX))


@dataclass(frozen=True)
class Group:
    """The parity of a group of files.

    Attributes
    ----------
    index
        What it protects.
    names
        The names of the parity files that are there, by their columns.
    is_complete
        Whether all parity files are there, in their full length. Their bytes are not verified.
    """

    index: Index
    names: dict[int, str] = field(default_factory=dict)
    is_complete: bool = True


def directory_of(store: Store) -> DirectoryStore:
    """Return a store as the directory that it is; raise ``ArgumentError`` for another store."""
    if not isinstance(store, DirectoryStore):
        raise ArgumentError(f"parity lies beside the files of a directory; {store.path} is none")
    return store


class ParityFolder:
    """The parity files of a chain.

    Parameters
    ----------
    store
        The chain.

    Attributes
    ----------
    path
        Their directory.
    """

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self.path: Path = store.path / PARITY_FOLDER

    def names(self) -> list[str]:
        """Return the names of the parity files, sorted; none if there are none.

        Raises
        ------
        StorageError
            If the directory is a link, or cannot be listed.
        """
        if not self._store.has(PARITY_FOLDER):
            return []
        with self._opened() as folder:
            return sorted(name for name in folder.names() if _NAME.fullmatch(name))

    def size(self, of: Collection[str] | None = None) -> int:
        """Return the bytes that the parity files take together; or some of them, by their names."""
        with storage_errors("cannot look at", self.path):
            names = self.names() if of is None else of
            return sum((self.path / name).lstat().st_size for name in names)

    def source(self, name: str) -> FileSource:
        """Open a parity file for reads of ranges."""
        return FileSource(self.path / name)

    def groups(self, *, bare: bool = False) -> tuple[list[Group], dict[str, LccodecError]]:
        """Return the groups whose index can be read from any file, and the errors of other files.

        A file whose index is damaged belongs to the group that its name says. With `bare`, only one
        description of each group is read, and its index has no hashes.
        """
        found: dict[str, Group] = {}
        errors: dict[str, LccodecError] = {}
        by_group: dict[str, list[tuple[int, str]]] = {}
        for name in self.names():
            if match := _NAME.fullmatch(name):
                by_group.setdefault(match[1], []).append((int(match[2]), name))
        for group, columns in by_group.items():
            for _, name in columns:
                if bare and group in found:
                    break
                try:
                    with closing(self.source(name)) as source:
                        if bare:
                            index = Index(read_layout(source, str(self.path / name), group), b"")
                        else:
                            index, _ = read_index(source, str(self.path / name))
                    if index.layout.group != group:
                        raise FormatError("LCC-PAR-01", str(self.path / name), "named for another group")
                except LccodecError as error:
                    errors[name] = error
                else:
                    found.setdefault(group, Group(index))
            if group in found:
                found[group] = self._described(found[group].index, dict(columns), errors)
        return list(found.values()), errors

    def _described(self, index: Index, columns: dict[int, str], errors: dict[str, LccodecError]) -> Group:
        length, there = file_length(index), {}
        is_complete = True
        for column, name in columns.items():
            if column >= index.layout.parity:
                continue
            there[column] = name
            with storage_errors("cannot look at", self.path / name):
                is_complete &= (self.path / name).stat().st_size == length and name not in errors
        return Group(index, there, is_complete and len(there) == index.layout.parity)

    def make(self) -> None:
        """Make the directory if it is not there."""
        with storage_errors("cannot make", self.path), Folder(self._store.path, self._store.system) as folder:
            folder.make(PARITY_FOLDER)
            folder.sync()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory, and hold its lock after waiting for it: one process makes parity."""
        self.make()
        with self._opened() as folder:
            folder.lock()
            remove_stale_temporaries(folder)
            yield

    def writer(self, name: str) -> WholeFile:
        """Return the writer of a parity file; it replaces one of that name."""
        return WholeFile(self.path / name, overwrite=True, system=self._store.system)

    def remove(self, names: Iterable[str]) -> None:
        """Remove parity files, and the directory if it is empty then."""
        if not self._store.has(PARITY_FOLDER):
            return
        with storage_errors("cannot remove files of", self.path):
            with self._opened() as folder:
                folder.remove(names)
                is_empty = not folder.names()
            if is_empty:
                with Folder(self._store.path, self._store.system) as above:
                    above.remove_empty(PARITY_FOLDER)
                    above.sync()

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with (
            storage_errors("cannot open", self.path),
            Folder(self._store.path, self._store.system) as folder,
            folder.inner(PARITY_FOLDER) as inner,
        ):
            yield inner
