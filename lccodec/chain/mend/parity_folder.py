"""The parity files of a chain, in ``.parity`` in its directory, and the files of their groups.

Parity of chains of ranks lies in the directory of the ranks' folders. A folder is one of a rank,
and never a link: whoever made that, it may lead to any chain. Parity is never needed to read a
chain. A group of files has one index, which each of its parity files holds twice. Groups that name
files which are not those of the chain are never trusted.

Blocks of the files of a group are read by bands of rows: each byte is read once. A band holds the
same rows of all columns, and is as high as fits into some MiB.

Source: SPEC 9 (LCC-PAR-01).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from ...constants import PARITY_FOLDER, PARITY_SUFFIX
from ...container.disk.folder import Folder
from ...container.disk.source import FileSource
from ...container.disk.system import storage_errors
from ...container.disk.whole_file import WholeFile, remove_stale_temporaries
from ...container.parity import (
    Index,
    Layout,
    block_hash,
    blocks_offset,
    file_length,
    rank_of,
    read_index,
    read_layout,
)
from ...errors import ArgumentError, ChecksumError, FormatError, LccodecError, StorageError
from ...parity.code import Block
from ..store.directory import DirectoryStore
from ..store.store import Store


def home_of(store: DirectoryStore, name: str) -> tuple[DirectoryStore, str]:
    """Return the chain that a file of a group belongs to, and its name there."""
    folder, _, own = name.rpartition("/")
    return (DirectoryStore(store.path / folder, store.system), own) if folder else (store, own)


def above(store: DirectoryStore) -> DirectoryStore | None:
    """Return the directory of the chains of ranks that a chain is one of; ``None`` if of none."""
    path = store.path.resolve()
    return None if rank_of(path.name) is None else DirectoryStore(path.parent, store.system)


def homes_of(store: DirectoryStore, names: Iterable[str]) -> list[DirectoryStore]:
    """Return the chains that files of a group belong to, in one order, those that are there.

    Raises ``StorageError`` if the folder of a rank is a link.
    """
    homes = {str(home.path): home for home, _ in (home_of(store, name) for name in names)}
    for home in homes.values():
        if home is not store and home.path.is_symlink():
            message = "it is a link, and parity goes only into directories: remove or rename it"
            raise StorageError(errno.ENOTDIR, message, str(home.path))
    return [homes[path] for path in sorted(homes) if homes[path].path.is_dir()]


@contextmanager
def locked_homes(store: DirectoryStore, names: Iterable[str]) -> Iterator[None]:
    """Hold the locks of the chains that files of a group belong to."""
    with ExitStack() as stack:
        for home in homes_of(store, names):
            stack.enter_context(home.locked())
        yield


def make_home(store: DirectoryStore, name: str) -> None:
    """Make the folder that a file of a group belongs into, if it is not there."""
    folder, _, _ = name.rpartition("/")
    if folder and not store.has(folder):
        with storage_errors("cannot make", store.path / folder), Folder(store.path, store.system) as outer:
            outer.make(folder)
            outer.sync()


_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9]{2})" + re.escape(PARITY_SUFFIX))


@dataclass(frozen=True)
class ParityGroup:
    """The parity of a group of files: what it protects, and its files by their columns.

    It is complete if all are there, in their full length. Their bytes are not verified.
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
    """The parity files of a chain."""

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self.path: Path = store.path / PARITY_FOLDER

    def names(self) -> list[str]:
        """Return the names of the parity files, sorted. A directory that is a link is an error."""
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

    def groups(self, *, bare: bool = False) -> tuple[list[ParityGroup], dict[str, LccodecError]]:
        """Return the groups whose index can be read from any file, and the errors of other files.

        A file whose index is damaged belongs to the group that its name says. With `bare`, only one
        description of each group is read, and its index has no hashes.
        """
        found: dict[str, ParityGroup] = {}
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
                    found.setdefault(group, ParityGroup(index))
            if group in found:
                found[group] = self._described(found[group].index, dict(columns), errors)
        return list(found.values()), errors

    def _described(
        self, index: Index, columns: dict[int, str], errors: dict[str, LccodecError]
    ) -> ParityGroup:
        length, there = file_length(index), {}
        is_complete = True
        for column, name in columns.items():
            if column >= index.layout.parity:
                continue
            there[column] = name
            with storage_errors("cannot look at", self.path / name):
                is_complete &= (self.path / name).stat().st_size == length and name not in errors
        return ParityGroup(index, there, is_complete and len(there) == index.layout.parity)

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


_BAND_BYTES: Final = 1 << 18  # of a column


def bands(layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield the first row of each band, and its number of rows."""
    height = max(1, _BAND_BYTES // layout.block)
    for row in range(0, layout.rows, height):
        yield row, min(height, layout.rows - row)


def read_band(
    layout: Layout, files: Mapping[int, FileSource], column: int, row: int, rows: int
) -> tuple[Block, bool]:
    """Return some blocks of a data column, one below the other, and whether all of it was there.

    `files` are those that can be read, by their numbers. What is not there counts as zeros.
    """
    band = np.zeros(rows * layout.block, np.uint8)
    is_whole = True
    for part in layout.parts(column, row, rows):
        source = files.get(part.member)
        size = 0 if source is None else max(0, min(part.size, source.size - part.offset))
        if source is not None and size:
            data = source.read(part.offset, size)
            band[part.start : part.start + size] = np.frombuffer(data, np.uint8)
        is_whole &= size == part.size
    return band, is_whole


def block_hashes(band: Block, block: int, count: int) -> list[bytes]:
    """Return the hashes of the first blocks of a band."""
    view = band.data
    return [block_hash(view[i * block : (i + 1) * block]) for i in range(count)]


def add_parity(index: Index, sources: Mapping[int, FileSource], row: int, bands: Mapping[int, Block]) -> None:
    """Add the blocks of parity files, from a row on, to a band of each parity column.

    Raises ``ChecksumError`` if one of them is damaged.
    """
    block = index.layout.block
    for column, band in bands.items():
        if (count := min(len(band) // block, index.layout.rows - row)) <= 0:
            continue
        data = sources[column].read(blocks_offset(index) + row * block, count * block)
        found = np.frombuffer(data, np.uint8)
        for i, value in enumerate(block_hashes(found, block, count)):
            if value != index.parity_hash(column, row + i):
                where = f"parity of {index.layout.members[0].name}"
                raise ChecksumError("LCC-PAR-04", where, "the bytes of a block do not match their hash")
        band[: len(found)] ^= found
