"""Parity for the chains of ranks: groups of the files that one save wrote, one of each rank.

The chains lie in the folders ``rank-0``, ``rank-1``, ... of a directory, and their parity in
``.parity`` there. If all files of a rank are lost, each group has lost one. A file that no save
names (a rank has died before the others had finished) forms a group with those of the same step,
and the exact files form one.

One process makes the parity by `protect_ranks`, or all ranks at a time by `protect_together`:
nobody gathers the files on one, and the bytes are the same. Each rank reads its own file, piece by
piece. Of the rows of a piece each rank gets a stripe from all others, and computes the parity of
the stripe. A parity file is written by one rank, to which the others send their stripes of it. So a
rank sends and receives as many bytes as its file and the parity files have, whatever the number of
ranks, and it holds a few pieces. Ranks talk by two calls, which all of them make; whatever happens
to one, it takes part until all have agreed.

Source: SPEC 9 (LCC-PAR-01, LCC-PAR-03 to LCC-PAR-06).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

from ...constants import MAX_GROUP_FILES, PARITY_HEAD_SIZE
from ...container.folder import WholeFile
from ...container.parity import Index, Layout, Member, blocks_offset, ends_of, file_length, rank_of
from ...container.source import FileSource
from ...errors import ChainError, LccodecError, reason_of
from ...parity import Block, encode
from ..store.directory import DirectoryStore, inner_directories
from ..store.store import Store, files_among
from .parity_folder import ParityFolder, ParityGroup, block_hashes, declared, home_of, homes_of, read_band
from .protect import Protection, Redundancy, damage, make_groups, members_of, renew


class Peers(Protocol):
    """The ranks; `rank` is this one. Calls return when all have made them, in the same order."""

    rank: int
    size: int

    def gather(self, value: Any, /) -> list[Any]:
        """Return the values of all ranks."""

    def exchange(self, pieces: Sequence[Block], sizes: Sequence[int], /) -> list[Block]:
        """Send a piece to each rank; return those of all ranks for this one, of these sizes."""


class Alone:
    """One rank, which talks to nobody."""

    rank, size = 0, 1

    def gather(self, value: Any, /) -> list[Any]:
        """Return the value."""
        return [value]

    def exchange(self, pieces: Sequence[Block], *_: object) -> list[Block]:
        """Return the piece."""
        return list(pieces)


class Trouble:
    """The first error of this rank, in words. It goes on then, because the others wait for it."""

    reason: str | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an error, and go on behind the block."""
        try:
            yield
        except (LccodecError, OSError, MemoryError) as error:
            self.reason = self.reason or reason_of(error)

    def told(self, peers: Peers) -> list[str]:
        """Return the errors of all ranks."""
        return [reason for reason in peers.gather(self.reason) if reason is not None]


_NO_RANK: Final = -1


def rank_folders(store: DirectoryStore) -> list[str]:
    """Return the folders of the ranks that have files, by rising number. Links are left out."""
    names = [path.name for path in inner_directories(store.path)] if store.path.is_dir() else []
    found = [name for name in names if rank_of(name) is not None and files_of(store, name)]
    return sorted(found, key=_rank)


def files_of(store: DirectoryStore, folder: str) -> list[str]:
    """Return the names of the files of a rank, with its folder; the exact file comes last."""
    own = DirectoryStore(store.path / folder, store.system)
    return [f"{folder}/{name}" for name in files_among(own.names())]


def protect_ranks(
    store: DirectoryStore, redundancy: Redundancy, saves: Iterable[Collection[str]] = ()
) -> Protection:
    """Make parity files for all files of the ranks that have none, and remove those that are stale.

    `store` is the directory of their folders. `saves` has, of each save, the names of the files
    that the ranks wrote, each with its folder. Raises ``ChainError`` if there are no chains of
    ranks. After a ``StorageError``, what was protected before still is.
    """
    folders = rank_folders(store)
    if not folders:
        raise ChainError(f"{store.path} holds no chains of ranks")
    folder = ParityFolder(store)
    with folder.held():
        names = [name for each in folders for name in files_of(store, each)]
        members, unprotected = members_of(store, names)
        there = groups_of_ranks(folder)
        kept = [group.index.layout for group in there if is_current(store, group, redundancy)]
        covered = {member for layout in kept for member in layout.members}
        layouts = grouped([each for each in members if each not in covered], saves, redundancy)
        known = {group.index.layout.group for group in there if group.is_complete}
        kept += [layout for layout in layouts if layout.group in known]
        todo = [layout for layout in layouts if layout.group not in known]
        found, made, problems = make_groups(store, folder, todo, {}, redundancy)
        kept += found
        remove_obsolete(store, folder, there, kept)
        return Protection(
            str(redundancy),
            len(kept),
            made,
            tuple(member.name for layout in kept for member in layout.members),
            sum(layout.length for layout in kept),
            folder.size({layout.name(i) for layout in kept for i in range(layout.parity)}),
            {**unprotected, **problems},
        )


def grouped(
    members: Sequence[Member], saves: Iterable[Collection[str]], redundancy: Redundancy
) -> list[Layout]:
    """Return the groups of files of ranks: those of each save, and the others by their names."""
    left = {member.name: member for member in members}
    parts = [[left.pop(name) for name in save if name in left] for save in saves]
    others: dict[str, list[Member]] = {}
    for name, member in sorted(left.items()):
        others.setdefault(name.rpartition("/")[2], []).append(member)
    return [redundancy.layout(part) for each in (*parts, *others.values()) for part in _divided(each)]


def _divided(members: list[Member]) -> Iterator[list[Member]]:
    """Yield the files of one save by rising rank, in groups of nearly equal size."""
    ordered = sorted(members, key=lambda member: _rank(member.name.partition("/")[0]))
    count = math.ceil(len(ordered) / MAX_GROUP_FILES)
    for i in range(count):
        yield ordered[len(ordered) * i // count : len(ordered) * (i + 1) // count]


def _rank(folder: str) -> int:
    number = rank_of(folder)
    return _NO_RANK if number is None else number


def groups_of_ranks(folder: ParityFolder) -> list[ParityGroup]:
    """Return the groups of files of ranks in a folder of parity, without hashes."""
    return [group for group in folder.groups(bare=True)[0] if group.index.layout.of_ranks]


def is_current(
    store: DirectoryStore, group: ParityGroup, redundancy: Redundancy, members: Iterable[Member] | None = None
) -> bool:
    """Return whether a group is complete, of this redundancy, and of the files that are there.

    Only some of its files are looked at if `members` are given.
    """
    layout = group.index.layout
    return (
        group.is_complete
        and layout == redundancy.layout(layout.members)
        and all(
            declared(store, each.name) == (each.root, each.length)
            for each in (layout.members if members is None else members)
        )
    )


def remove_obsolete(
    store: DirectoryStore, folder: ParityFolder, there: Iterable[ParityGroup], kept: Iterable[Layout]
) -> None:
    """Remove groups of which each file is in another group, or was replaced by another file.

    The parity of a file that is missing stays: it may mend the file.
    """
    wanted = {layout.group: layout for layout in kept}
    covered = {member for layout in wanted.values() for member in layout.members}

    def is_needed(member: Member) -> bool:
        now = declared(store, member.name)
        return member not in covered and now in (None, (member.root, member.length))

    folder.remove(
        name
        for group in there
        if group.index.layout.group not in wanted and not any(map(is_needed, group.index.layout.members))
        for name in group.names.values()
    )


def renew_ranks(store: Store, redundancy: Redundancy | None = None) -> None:
    """Protect the files of ranks that are not protected any more; an error is only a warning.

    Without parity of ranks, this does nothing.
    """
    renew(store, redundancy, protect_ranks, of_ranks=True)


_PIECE_BYTES: Final = 1 << 22  # of a column; a rank holds about four of them
_LOCK_SECONDS: Final = 30.0  # to wait for a process that removes files of a chain
_LOCK_PAUSE_SECONDS: Final = 0.02


class Striped:
    """The parity files of one group in the making, as one rank sees it.

    `ranks` has the rank that reads each file of the group.
    """

    def __init__(
        self, store: DirectoryStore, folder: ParityFolder, peers: Peers, layout: Layout, ranks: list[int]
    ) -> None:
        self._store, self._folder, self._peers, self._layout = store, folder, peers, layout
        self._trouble = Trouble()
        self._column_of = {rank: column for column, rank in enumerate(ranks)}
        self._own = self._column_of.get(peers.rank)
        first = int(layout.group, 16)  # another for each group, so that all ranks write
        self._writers = [(first + i) % peers.size for i in range(layout.parity)]
        self._source: FileSource | None = None
        self._files = dict[int, WholeFile]()  # those that this rank writes, by parity columns
        self._hashes = list[bytes]()
        self._parity_hashes = {i: list[bytes]() for i, rank in enumerate(self._writers) if rank == peers.rank}

    def write(self) -> tuple[bool, list[str]]:
        """Write the parity files, and commit them if no rank has an error.

        Returns whether they are there, and the errors. If a file of the group was replaced or
        removed meanwhile, there are neither.
        """
        with ExitStack() as stack:
            with self._trouble.noted():
                if self._own is not None:
                    name = self._layout.members[self._own].name
                    self._source = stack.enter_context(closing(self._store.source(name)))
                for i in self._parity_hashes:
                    self._files[i] = stack.enter_context(self._folder.writer(self._layout.name(i)))
            for row, rows in _pieces(self._layout, self._peers.size):
                self._piece(row, rows)
            index = self._index()
            with self._trouble.noted():
                for i, file in self._files.items():
                    front, end = ends_of(index, i)
                    with file.working():
                        file.write_at(front, 0)
                        file.write_at(end, file_length(index) - blocks_offset(index))
            is_same = False
            with self._trouble.noted():
                is_same = self._hold(stack)
            found = self._peers.gather((is_same, self._trouble.reason))
            if not all(reason is None and is_same for is_same, reason in found):
                return False, [reason for _, reason in found if reason is not None]
            with self._trouble.noted():
                for file in self._files.values():
                    file.commit()
            told = self._trouble.told(self._peers)  # nobody lets go of its file before
            return not told, told

    def _piece(self, row: int, rows: int) -> None:
        """Do some rows."""
        block, peers = self._layout.block, self._peers
        cuts = [row + rows * i // peers.size for i in range(peers.size + 1)]
        band = self._band(row, rows)
        parts = [
            band[(low - row) * block :][: self._bytes(peers.rank, low, high)] for low, high in pairwise(cuts)
        ]
        low, high = cuts[peers.rank : peers.rank + 2]
        received = peers.exchange(parts, [self._bytes(rank, low, high) for rank in range(peers.size)])
        data = {j: _filled(received[rank], (high - low) * block) for rank, j in self._column_of.items()}
        parity = {i: np.empty((high - low) * block, np.uint8) for i in range(self._layout.parity)}
        encode(data, parity)
        parts = [
            np.concatenate([parity[i] for i, to in enumerate(self._writers) if to == rank] or [band[:0]])
            for rank in range(peers.size)
        ]
        heights = [b - a for a, b in pairwise(cuts)]
        received = peers.exchange(parts, [n * block * len(self._parity_hashes) for n in heights])
        for place, (i, hashes) in enumerate(self._parity_hashes.items()):
            offset = PARITY_HEAD_SIZE + self._layout.index_length + row * block
            for n, piece in zip(heights, received, strict=True):
                stripe = piece[place * n * block :][: n * block]
                hashes.extend(block_hashes(stripe, block, n))
                with self._trouble.noted():
                    if i in self._files:
                        with self._files[i].working():
                            self._files[i].write_at(stripe.data, offset)
                offset += n * block

    def _band(self, row: int, rows: int) -> Block:
        """Return some rows of this rank's file, and take the hashes of their blocks."""
        layout = self._layout
        if self._own is None:
            return np.zeros(0, np.uint8)
        band, is_whole = np.zeros(rows * layout.block, np.uint8), False
        with self._trouble.noted():
            if self._source is not None:
                band, is_whole = read_band(layout, {self._own: self._source}, self._own, row, rows)
            if not is_whole:
                raise ChainError(f"{layout.members[self._own].name} cannot be read to its end")
        self._hashes += block_hashes(
            band, layout.block, self._bytes(self._peers.rank, row, row + rows) // layout.block
        )
        return band

    def _bytes(self, rank: int, low: int, high: int) -> int:
        """Return how many bytes the blocks of a rank's file have in some rows."""
        column = self._column_of.get(rank)
        if column is None:
            return 0
        return max(0, min(high, self._layout.rows_of(column)) - low) * self._layout.block

    def _index(self) -> Index:
        """Return the index, of the hashes of all ranks."""
        joined = {i: b"".join(each) for i, each in self._parity_hashes.items()}
        found = self._peers.gather((b"".join(self._hashes), joined))
        data = {column: found[rank][0] for rank, column in self._column_of.items()}
        parity = [found[rank][1][i] for i, rank in enumerate(self._writers)]
        return Index(self._layout, b"".join([*(data[j] for j in sorted(data)), *parity]))

    def _hold(self, stack: ExitStack) -> bool:
        """Hold the lock of this rank's chain; return whether its file is still the same.

        Whoever holds it removes files of the chain, and is done soon. We do not wait for ever, as
        the others wait for us.
        """
        if self._own is None:
            return True
        member = self._layout.members[self._own]
        homes_of(self._store, [member.name])  # or a link is refused
        home, _ = home_of(self._store, member.name)
        end = time.monotonic() + _LOCK_SECONDS
        while stack.enter_context(home.locked_if_free()) is None:
            if time.monotonic() > end:
                raise ChainError(f"another process holds {home.path}")
            time.sleep(_LOCK_PAUSE_SECONDS)
        return declared(self._store, member.name) == (member.root, member.length)


def _pieces(layout: Layout, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each piece, and its number of rows."""
    columns = math.ceil(layout.parity / ranks)  # that a rank writes at most
    height = max(1, _PIECE_BYTES // (layout.block * columns))
    for row in range(0, layout.rows, height):
        yield row, min(height, layout.rows - row)


def _filled(block: Block, size: int) -> Block:
    """Return a block with zeros behind it."""
    if len(block) == size:
        return block
    filled = np.zeros(size, np.uint8)
    filled[: len(block)] = block
    return filled


@dataclass(frozen=True)
class Written:
    """What a rank has written: the folder of its chain, and the file of this save with it, if any.

    `files` has all files of its chain by name. What is saved later is not among them: the other
    ranks may not have written that yet.
    """

    folder: str
    name: str | None = None
    files: tuple[str, ...] = ()


def protect_together(
    store: DirectoryStore, peers: Peers, written: Written, redundancy: Redundancy
) -> dict[str, str]:
    """Make parity of what this save wrote, and of all files of these ranks that have none.

    Returns the files that are not protected, each with the reason, also those of other ranks. What
    was protected before still is. Files that were replaced or removed meanwhile are left out.
    """
    trouble, folder = Trouble(), ParityFolder(store)
    with ExitStack() as stack:
        with trouble.noted():
            if peers.rank == 0:
                stack.enter_context(folder.held())
            else:
                folder.make()
        there = _groups(store, folder, peers, written, redundancy, trouble)
        current = [group.index.layout for group, is_current in there if is_current]
        own, problems = list[Member](), dict[str, str]()
        with trouble.noted():
            covered = {member for layout in current for member in layout.members}
            found, problems = members_of(store, [name for name in written.files if store.has(name)])
            own = [member for member in found if member not in covered]
        told = peers.gather((own, written.name, problems, trouble.reason))
        wrong = {name: text for _, _, texts, _ in told for name, text in texts.items()}
        owners = {member.name: rank for rank, (members, *_) in enumerate(told) for member in members}
        if reasons := [reason for *_, reason in told if reason is not None]:
            return {**wrong, **dict.fromkeys(owners, reasons[0]), str(folder.path): reasons[0]}
        members = [member for each, *_ in told for member in each]
        save = [name for _, name, _, _ in told if name is not None]
        made = list[Layout]()
        for layout in grouped(members, [save], redundancy):
            made += _made(store, folder, peers, layout, redundancy, owners, wrong)
        with trouble.noted():
            if peers.rank == 0:
                remove_obsolete(store, folder, [group for group, _ in there], [*current, *made])
        if reasons := trouble.told(peers):  # until here the first rank holds the lock of the parity
            wrong[str(folder.path)] = reasons[0]
    return wrong


def _groups(
    store: DirectoryStore,
    folder: ParityFolder,
    peers: Peers,
    written: Written,
    redundancy: Redundancy,
    trouble: Trouble,
) -> list[tuple[ParityGroup, bool]]:
    """Return the groups that the first rank sees, and whether each is as it should be.

    Each rank looks at its own files; the first one also at those of ranks that are not here.
    """
    mine = list[ParityGroup]()
    with trouble.noted():
        if peers.rank == 0:
            mine = groups_of_ranks(folder)
    [there, *_] = peers.gather(mine)
    others = {*peers.gather(written.folder)} - {written.folder}
    wrong = set[str]()
    with trouble.noted():
        for group in there:
            layout = group.index.layout
            own = [
                member
                for member in layout.members
                if (at := member.name.partition("/")[0]) == written.folder
                or (peers.rank == 0 and at not in others)
            ]
            if not is_current(store, group, redundancy, own):
                wrong.add(layout.group)
    wrong = set().union(*peers.gather(wrong))
    return [(group, group.index.layout.group not in wrong) for group in there]


def _made(
    store: DirectoryStore,
    folder: ParityFolder,
    peers: Peers,
    layout: Layout,
    redundancy: Redundancy,
    owners: Mapping[str, int],
    wrong: dict[str, str],
) -> list[Layout]:
    """Write the parity of a group, without the files that are damaged, which are added to `wrong`.

    Returns the group that there is then, if any.
    """
    trouble, problem, is_there = Trouble(), None, False
    for member in layout.members:
        if owners[member.name] == peers.rank:
            with trouble.noted():
                is_there = declared(store, member.name) == (member.root, member.length)
                problem = damage(store, member) if is_there else None
    found = peers.gather((is_there, trouble.reason or problem))
    wrong.update({m.name: text for m in layout.members if (text := found[owners[m.name]][1]) is not None})
    sound = [member for member in layout.members if found[owners[member.name]] == (True, None)]
    if not sound:
        return []
    layout = redundancy.layout(sound)
    striped = Striped(store, folder, peers, layout, [owners[member.name] for member in sound])
    is_made, told = striped.write()
    if told:
        wrong.update({member.name: told[0] for member in sound})
    return [layout] if is_made else []
