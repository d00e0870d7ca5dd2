"""The damage of the files of a parity group, and mending them.

Source: SPEC 9 (LCC-PAR-06, LCC-PAR-07).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointReader, open_checkpoint
from ...container.folder import WholeFile
from ...container.parity import Member, block_hash, is_whole_block, read_block
from ...container.source import FileSource
from ...errors import ChainError, DataError, StorageError, is_loss
from ...parity.code import Block, rebuild
from ..read.newest import is_newest_exact, is_unknown, may_be_replaced
from ..store.directory import DirectoryStore
from ..store.names import checkpoint_name
from .parity_folder import ParityFolder, ParityGroup, bands, home_of, make_home, read_band
from .protect import declared


class _Pattern(NamedTuple):
    """Which data columns are lost in a row, and which parity columns are there."""

    lost: tuple[int, ...]
    parity: tuple[int, ...]


class GroupDamage:
    """The damage of the files of a group, and what of it can be mended.

    Attributes
    ----------
    is_stale
        Whether another file, sound or of a newer version, has the name of one of the group.
    targets
        The numbers of the files that can be mended.
    hopeless
        The files that cannot be mended, each with the reason.
    """

    def __init__(
        self,
        store: DirectoryStore,
        folder: ParityFolder,
        group: ParityGroup,
        problems: Mapping[str, str],
        stack: ExitStack,
    ) -> None:
        self.index, self.layout = group.index, group.index.layout
        self._store = store
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
