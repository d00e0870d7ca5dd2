"""The parity files of a chain, in ``.parity`` in its directory, and the files of their groups.

Parity of chains of ranks lies in the directory of the ranks' folders. A folder is one of a rank,
and never a link: whoever made that, it may lead to any chain. Parity is never needed to read a
chain. A group of files has one index, which each of its parity files holds twice. Groups that name
files which are not those of the chain are never trusted.

Blocks of the files of a group are read by bands of rows: each byte is read once. A band holds the
same rows of all columns, and is as high as fits into some MiB. What of a group is damaged, and can
be mended by parity, is its `GroupDamage`.

Source: SPEC 9 (LCC-PAR-01, LCC-PAR-06, LCC-PAR-07).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ...constants import EXACT_NAME, PARITY_FOLDER, PARITY_SUFFIX
from ...container.checkpoint import CheckpointReader, open_checkpoint
from ...container.folder import Folder, WholeFile, remove_stale_temporaries
from ...container.parity import (
    Index,
    Layout,
    Member,
    block_hash,
    blocks_offset,
    file_length,
    is_whole_block,
    read_block,
    read_index,
    read_layout,
)
from ...container.source import FileSource
from ...container.system import storage_errors
from ...errors import ChainError, ChecksumError, DataError, FormatError, LccodecError, StorageError, is_loss
from ...parity import Block, rebuild
from ..read.checkpoint import is_newest_exact, is_unknown, may_be_replaced
from ..store.directory import DirectoryStore, as_directory
from ..store.store import Store, checkpoint_name


def home_of(store: Store, name: str) -> tuple[DirectoryStore, str]:
    """Return the chain that a file of a group belongs to, and its name there."""
    above = as_directory(store, "parity")
    folder, _, own = name.rpartition("/")
    return (DirectoryStore(above.path / folder, above.system), own) if folder else (above, own)


def homes_of(store: Store, names: Iterable[str]) -> list[DirectoryStore]:
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


class ParityFolder:
    """The parity files of a chain. Where no folders lie beside its files, there are none."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = Path(store.path) / PARITY_FOLDER

    def names(self) -> list[str]:
        """Return the names of the parity files, sorted. A directory that is a link is an error."""
        if not self.store.has_folder(PARITY_FOLDER):
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
        with storage_errors("cannot make", self.path), self._above() as folder:
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
        return WholeFile(self.path / name, overwrite=True, system=self.store.system)

    def remove(self, names: Iterable[str]) -> None:
        """Remove parity files, and the directory if it is empty then."""
        if not self.store.has_folder(PARITY_FOLDER):
            return
        with storage_errors("cannot remove files of", self.path):
            with self._opened() as folder:
                folder.remove(names)
                is_empty = not folder.names()
            if is_empty:
                with self._above() as above:
                    above.remove_empty(PARITY_FOLDER)
                    above.sync()

    def _above(self) -> Folder:
        return Folder(as_directory(self.store, "parity").path, self.store.system)

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with (
            storage_errors("cannot open", self.path),
            self._above() as folder,
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


class _Pattern(NamedTuple):
    """Which data columns are lost in a row, and which parity columns are there."""

    lost: tuple[int, ...]
    parity: tuple[int, ...]


class GroupDamage:
    """The damage of the files of a group, and what of it can be mended (LCC-PAR-06, LCC-PAR-07).

    It `is_stale` if another file, sound or of a newer version, has the name of one of the group.
    The files with the numbers `targets` can be mended; those that are `hopeless` not, each with the
    reason.
    """

    def __init__(
        self, folder: ParityFolder, group: ParityGroup, problems: Mapping[str, str], stack: ExitStack
    ) -> None:
        self.index, self.layout = group.index, group.index.layout
        self._store = store = as_directory(folder.store, "parity")
        members = self.layout.members
        there = {i for i, member in enumerate(members) if store.has(member.name)}
        others = {i for i in there if self._is_other(members[i], members[i].name in problems)}
        self.is_stale = bool(others)
        named = {i for i in there - others if members[i].name in problems}
        damaged = {i for i in named if may_be_replaced(store, members[i].name, members[i].root)}
        missing = set(range(len(members))) - there
        self._wanted = damaged | (set() if self.is_stale else missing)
        self._unsure = named | missing | others  # whose blocks may be anything
        self._sources = dict[int, FileSource]()
        for i in there - others:
            with suppress(DataError, StorageError):
                self._sources[i] = stack.enter_context(closing(store.source(members[i].name)))
        self._parity = dict[int, FileSource]()
        self.targets = set[int]()
        self.hopeless = dict[str, str]()
        self._patterns = dict[int, _Pattern]()
        if self._wanted:
            for column, name in group.names.items():
                with suppress(DataError, StorageError):
                    self._parity[column] = stack.enter_context(closing(folder.source(name)))
            self._look()

    def _is_other(self, member: Member, is_problem: bool) -> bool:
        if is_problem:
            return is_unknown(self._store, member.name, member.root)
        return declared(self._store, member.name) != (member.root, member.length)

    def _look(self) -> None:
        """Find the lost blocks of each row, and which files can be mended."""
        layout = self.layout
        lost: list[list[int]] = [[] for _ in range(layout.rows)]
        for column in range(layout.columns):
            if self._unsure.isdisjoint(self._members_in(column, 0, layout.rows)):
                continue
            for row in range(layout.rows_of(column)):
                if self._is_lost(column, row):
                    lost[row].append(column)
        gone = [set[int]() for _ in range(layout.rows)]
        for column in range(layout.parity):
            for row in range(layout.rows):
                if self._is_gone(column, row):
                    gone[row].add(column)
        beyond: dict[int, tuple[int, int]] = {}
        for row in range(layout.rows):
            parity = tuple(i for i in range(layout.parity) if i not in gone[row])
            self._patterns[row] = _Pattern(tuple(lost[row]), parity)
            if len(lost[row]) > len(parity):
                for column in lost[row]:
                    for number in self._members_in(column, row, 1):
                        beyond.setdefault(number, (len(lost[row]), len(parity)))
        self.targets = self._wanted - beyond.keys()
        for number in self._wanted & beyond.keys():
            blocks, left = beyond[number]
            name = layout.members[number].name
            self.hopeless[name] = f"{blocks} blocks are lost where {left} parity blocks are left"

    def _members_in(self, column: int, row: int, rows: int) -> set[int]:
        return {part.member for part in self.layout.parts(column, row, rows)}

    def _is_lost(self, column: int, row: int) -> bool:
        if self._unsure.isdisjoint(self._members_in(column, row, 1)):
            return False
        try:
            block, is_whole = read_band(self.layout, self._sources, column, row, 1)
        except StorageError:  # such as a bad sector
            return True
        return not is_whole or block_hash(block.data) != self.index.data_hash(column, row)

    def _is_gone(self, column: int, row: int) -> bool:
        """Return whether a block of parity is lost."""
        try:
            return not is_whole_block(self.index, column, self._parity.get(column), row)
        except StorageError:
            return True

    def mend(self, reasons: dict[str, str]) -> set[int]:
        """Write the files that can be mended; return those that are whole now.

        What is wrong with others is added to `reasons`.
        """
        members, done = self.layout.members, set[int]()
        with ExitStack() as stack:
            files = {i: stack.enter_context(self._writer(members[i].name)) for i in sorted(self.targets)}
            for start, rows in bands(self.layout):
                for row, count, pattern in self._runs(start, rows):
                    self._write(files, row, count, pattern)
            for i, file in files.items():
                try:
                    file.commit(lambda path, i=i: self._check(path, i))  # type: ignore[misc]
                    done.add(i)
                except (ChainError, DataError) as error:
                    reasons[members[i].name] = f"what parity gives is refused: {error}"
        return done

    def _writer(self, name: str) -> WholeFile:
        make_home(self._store, name)
        system = self._store.system
        return WholeFile(self._store.path / name, overwrite=self._store.has(name), system=system)

    def _runs(self, start: int, rows: int) -> Iterator[tuple[int, int, _Pattern]]:
        """Yield the rows of a band, those of one pattern together."""
        row = start
        while row < start + rows:
            end = row + 1
            while end < start + rows and self._patterns[end] == self._patterns[row]:
                end += 1
            yield row, end - row, self._patterns[row]
            row = end

    def _write(self, files: Mapping[int, WholeFile], row: int, count: int, pattern: _Pattern) -> None:
        """Write some rows of all files that are mended."""
        columns = [j for j in range(self.layout.columns) if row < self.layout.rows_of(j)]
        wanted = [j for j in columns if not self._members_in(j, row, count).isdisjoint(files)]
        is_hit = not set(wanted).isdisjoint(pattern.lost)
        # A lost block of a file that is mended is in a row that has parity enough.
        read = [j for j in (columns if is_hit else wanted) if j not in pattern.lost]
        data = {j: read_band(self.layout, self._sources, j, row, count)[0] for j in read}
        if is_hit:
            data |= self._rebuilt(data, row, count, pattern)
        for column in wanted:
            for part in self.layout.parts(column, row, count):
                if part.member in files:
                    piece = data[column].data[part.start : part.start + part.size]
                    with files[part.member].working():
                        files[part.member].write_at(piece, part.offset)

    def _rebuilt(
        self, data: Mapping[int, Block], row: int, count: int, pattern: _Pattern
    ) -> dict[int, Block]:
        lost = {j: np.empty(count * self.layout.block, np.uint8) for j in pattern.lost}
        parity = {}
        for i in pattern.parity[: len(lost)]:
            blocks = [read_block(self.index, self._parity[i], row + number) for number in range(count)]
            parity[i] = np.frombuffer(b"".join(blocks), np.uint8)
        rebuild(data, parity, lost)
        return lost

    def _check(self, path: Path, number: int) -> None:
        """Raise if a file is not the one that was protected, or does not belong to this chain."""
        member = self.layout.members[number]
        with open_checkpoint(path) as reader:
            if reader.root != member.root:
                raise ChainError(f"{member.name}: another root than the parity names")
            reader.verify()
            home, own = home_of(self._store, member.name)
            if own == EXACT_NAME:
                _check_exact(home, reader)
            else:
                _check_parents(home, reader, member.name)


def _check_parents(store: DirectoryStore, reader: CheckpointReader, name: str) -> None:
    """Raise if a parent of a file is there, and is another one than the file names."""
    for parent in reader.manifest.parents:
        with suppress(DataError, StorageError), store.open(checkpoint_name(parent.step)) as above:
            if parent.root not in above.roots:
                raise ChainError(f"{name}: step {parent.step} is not the parent it was taken against")


def _check_exact(store: DirectoryStore, reader: CheckpointReader) -> None:
    """Raise if a file is not the exact file that the newest checkpoint that can be read names.

    A checkpoint that names none was saved without one. Then that of an earlier step is right.
    """
    for step, name in sorted(store.checkpoints().items(), reverse=True):
        try:
            with store.open(name) as newest:
                named = newest.manifest.exact
        except (DataError, StorageError) as error:
            if is_loss(error):
                continue
            raise ChainError(f"{EXACT_NAME}: step {step} cannot be read now: {error}") from error
        if named is not None and not is_newest_exact(reader, step, named):
            raise ChainError(f"{EXACT_NAME}: parity is older than step {step}")
        return


def damaged_among(store: Store, names: Iterable[str]) -> dict[str, str]:
    """Return what is wrong with the bytes of some files, by their names."""
    problems = {}
    for name in names:
        try:
            with store.open(name) as reader:
                reader.verify()
        except LccodecError as error:
            problems[name] = str(error)
    return problems


def declared(store: Store, name: str) -> tuple[bytes, int] | None:
    """Return the root that a file declares and its length; ``None`` if it has none."""
    try:
        return store.root(name)
    except (DataError, StorageError):
        return None
