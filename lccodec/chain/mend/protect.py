"""Protecting a chain: parity files beside it, from which `repair` mends what is damaged.

Checkpoints form groups of up to 64 by rising step, and the exact file is a group of its own, since
each save replaces it. A group is either protected against the loss of some whole files, or against
damage to a share of its bytes, wherever it is.

Only files that are sound are protected. A group is written whole before the groups that it takes
the place of go, so what was protected stays so. A group of whole files grows: only the new files
are read, and what they add is added to the parity that is there. A group with a file that is lost
stays until the file is mended. Groups of files of ranks, which may lie in the same place, are left
alone (:mod:`lccodec.chain.mend.ranks`).

`renew` and `forget` follow files that come and go. `ParityBehind` protects in a thread what was
saved: no save waits for it, and saves that come faster than parity is made are protected together.

Source: SPEC 9 (LCC-PAR).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ...constants import (
    EXACT_NAME,
    MAX_DATA_COLUMNS,
    MAX_GROUP_FILES,
    MAX_MANIFEST_BYTES,
    MAX_PARITY_BLOCK,
    MAX_PARITY_COLUMNS,
    MIN_PARITY_BLOCK,
    PARITY_FOLDER,
    PARITY_HEAD_SIZE,
)
from ...container.parity import Index, Layout, Member, blocks_offset, check_size, ends_of, file_length
from ...container.system import storage_errors
from ...errors import ArgumentError, ChainError, ChecksumError, LccodecError, as_integer, reason_of, warn
from ...parity import encode
from ..behind import Change, Rounds
from ..store.directory import DirectoryStore, as_directory, parity_places
from ..store.lineage import Lineage
from ..store.store import Store, checkpoint_name, checkpoints_among, files_among
from .parity_folder import (
    GroupDamage,
    ParityFolder,
    ParityGroup,
    add_parity,
    bands,
    block_hashes,
    damaged_among,
    declared,
    locked_homes,
    read_band,
)

_TEN_THOUSAND: Final = 10_000
_MIN_SHARE: Final = 100  # 1 %, in ten-thousandths: a parity column for a hundred data columns
_COLUMNS: Final = 64  # of data, for a share, or as near as it gets
_TOLERANCE: Final = 1.018  # bytes of parity over those asked for
_SLACK: Final = 1.05  # bytes of parity over those of the best blocks, if blocks stay as they are
_MAX_COLUMNS_FOR_SHARE: Final = 16  # of parity: each has two copies of the index


@dataclass(frozen=True)
class Redundancy:
    """How much parity a group has: for some whole files, or a share of the bytes.

    `files` of a group, from 1 to 64, may be lost whole; or `share` is that of the bytes in
    ten-thousandths, from 100 (1 %) to 10,000. The other one is 0.

    Examples
    --------
    >>> parse_redundancy("5%"), parse_redundancy(2)
    (Redundancy(files=0, share=500), Redundancy(files=2, share=0))
    """

    files: int = 0
    share: int = 0

    def layout(self, members: Sequence[Member], block: int | None = None) -> Layout:
        """Return the layout of a group of files.

        Small blocks lose least to a damaged sector, but need many hashes; large ones are not full.
        The smallest are taken that are within the tolerance, or else those of the fewest bytes. The
        blocks of a group that goes on, of `block` bytes, stay as long as they are not much worse.
        """
        logs = range(MIN_PARITY_BLOCK.bit_length() - 1, MAX_PARITY_BLOCK.bit_length())
        layouts = [self._layout(tuple(members), 1 << log) for log in logs]
        # With the largest blocks, the limit says that an index is too long.
        found = [
            each
            for each in layouts
            if each.index_length <= MAX_MANIFEST_BYTES or each.block == MAX_PARITY_BLOCK
        ]
        lengths = [member.length for member in members]
        asked = self.files * max(lengths) if self.files else self.share / _TEN_THOUSAND * sum(lengths)
        good = [each for each in found if _size(each) <= _TOLERANCE * asked]
        best = good[0] if good else min(found, key=_size)
        same = [each for each in found if each.block == block and _size(each) <= _SLACK * _size(best)]
        return same[0] if same and (same[0] in good or not good) else best

    def _layout(self, members: tuple[Member, ...], block: int) -> Layout:
        if self.files:
            rows = math.ceil(max(member.length for member in members) / block)
            return Layout(block, rows, self.files, self.files, True, members)
        share = self.share / _TEN_THOUSAND
        blocks = math.ceil(sum(member.length for member in members) / block)
        parity = max(1, min(int(_COLUMNS * share), _MAX_COLUMNS_FOR_SHARE, round(blocks * share)))
        rows = max(math.ceil(blocks * share / parity), math.ceil(blocks / MAX_DATA_COLUMNS))
        return Layout(block, min(rows, blocks), parity, self.share, False, members)

    def __str__(self) -> str:
        return f"{self.files} files" if self.files else f"{self.share / 100:g}%"


def _size(layout: Layout) -> int:
    """Return the bytes of all parity files of a layout."""
    return layout.parity * (layout.rows * layout.block + 2 * (PARITY_HEAD_SIZE + layout.index_length))


def parse_redundancy(redundancy: object) -> Redundancy:
    """Return a redundancy that is given as a number of files, or as a percentage such as ``"5%"``.

    Raises ``ArgumentError`` for anything else; for less than 1 % or more than 100 %, or 0 files or
    more than 64.
    """
    if isinstance(redundancy, Redundancy):
        return redundancy
    if isinstance(redundancy, str) and redundancy.endswith("%"):
        try:
            share = round(float(redundancy[:-1]) * 100)
        except (ValueError, OverflowError):
            share = 0
        if _MIN_SHARE <= share <= _TEN_THOUSAND:
            return Redundancy(share=share)
    elif (files := as_integer(redundancy)) is not None and 1 <= files <= MAX_PARITY_COLUMNS:
        return Redundancy(files=files)
    raise ArgumentError(
        f"a redundancy is a number of files from 1 to {MAX_PARITY_COLUMNS}, or 1% to 100%; got {redundancy!r}"
    )


def redundancy_of(layout: Layout) -> Redundancy:
    """Return the redundancy that a group was made for."""
    aligned, asked = layout.aligned, layout.redundancy
    try:
        return parse_redundancy(asked if aligned else f"{asked / 100}%")
    except ArgumentError:  # another writer's
        return Redundancy(files=layout.parity)


@dataclass(frozen=True)
class Protection:
    """What `protect` did.

    Parameters
    ----------
    redundancy
        The redundancy, as text.
    groups
        The number of groups.
    made
        How many of them were made now.
    files
        The names of the files that are protected.
    bytes
        Size of these files.
    parity_bytes
        Size of the parity files.
    unprotected
        The files that are not protected, each with what is wrong with it.
    """

    redundancy: str
    groups: int
    made: int
    files: tuple[str, ...]
    bytes: int
    parity_bytes: int
    unprotected: Mapping[str, str] = field(default_factory=dict)


def protect(store: DirectoryStore, redundancy: Redundancy) -> Protection:
    """Make parity files for all files of a chain that have none, and remove those that are stale.

    Raises
    ------
    ChainError
        If there is no checkpoint.
    StorageError
        If the operating system refuses. What was protected before still is.
    """
    if not store.checkpoints():
        raise ChainError(store.nothing())
    folder = ParityFolder(store)
    with folder.held():
        members, unprotected = members_of(store, files_among(store.names()))
        found, _ = folder.groups()
        of_ranks = [name for group in found if group.index.layout.of_ranks for name in group.names.values()]
        there = [group for group in found if not group.index.layout.of_ranks]
        known = {group.index.layout.group: group for group in there if group.is_complete}
        layouts = _layouts(members, redundancy, known.values())
        kept, made, problems = make_groups(store, folder, layouts, known, redundancy)
        unprotected.update(problems)
        wanted = {layout.name(column) for layout in kept for column in range(layout.parity)}
        wanted |= {
            name for group in there if _mends(store, group, unprotected) for name in group.names.values()
        }
        folder.remove(name for name in folder.names() if name not in wanted and name not in of_ranks)
        files = tuple(member.name for layout in kept for member in layout.members)
        size = sum(layout.length for layout in kept)
        return Protection(str(redundancy), len(kept), made, files, size, folder.size(wanted), unprotected)


def make_groups(
    store: DirectoryStore,
    folder: ParityFolder,
    layouts: Iterable[Layout],
    known: Mapping[str, ParityGroup],
    redundancy: Redundancy,
) -> tuple[list[Layout], int, dict[str, str]]:
    """Write the parity of groups that are not known, each without the files that are damaged.

    Those of whole files that begin with a known one add to its parity. Returns the groups that
    there are then, how many were made, and the files that are in none, each with what is wrong
    with it.
    """
    made, kept, unprotected = 0, list[Layout](), dict[str, str]()
    for layout in layouts:
        if layout.group not in known:
            try:
                problems = _make(store, folder, layout, known.values())
            except ChainError as error:  # a file has changed: the next call protects what is there
                unprotected.update({member.name: str(error) for member in layout.members})
                continue
            if problems:
                unprotected.update(problems)
                sound = [member for member in layout.members if member.name not in problems]
                if sound:
                    kept.append(redundancy.layout(sound))
                    _make(store, folder, kept[-1], known.values())
                    made += 1
                continue
            made += 1
        kept.append(layout)
    return kept, made, unprotected


def _mends(store: DirectoryStore, group: ParityGroup, damaged: Collection[str]) -> bool:
    """Return whether a group has the parity of a lost file, and is not older than the others."""
    members, lost = group.index.layout.members, False
    for member in members:
        if member.name in damaged or not store.has(member.name):
            lost = True
        elif declared(store, member.name) != (member.root, member.length):
            return False
    return lost


def members_of(store: DirectoryStore, names: Iterable[str]) -> tuple[list[Member], dict[str, str]]:
    """Return files with the roots that they declare, and what is wrong with the others."""
    members, problems = [], {}
    for name in names:
        try:
            root, size = store.root(name)
            members.append(Member(name, size, root))
        except LccodecError as error:
            problems[name] = str(error)
    return members, problems


def _layouts(
    members: Sequence[Member], redundancy: Redundancy, known: Collection[ParityGroup]
) -> list[Layout]:
    """Return the groups that a chain is to have: those that are full stay, the rest is divided."""
    by_name = set(members)
    layouts = []
    for layout in (group.index.layout for group in known):
        is_full = len(layout.members) == MAX_GROUP_FILES and by_name.issuperset(layout.members)
        if is_full and layout == redundancy.layout(layout.members, layout.block):
            layouts.append(layout)
            by_name.difference_update(layout.members)
    rest = [member for member in members if member in by_name and member.name != EXACT_NAME]
    exact = [member for member in members if member.name == EXACT_NAME]
    parts = [rest[i : i + MAX_GROUP_FILES] for i in range(0, len(rest), MAX_GROUP_FILES)]
    for part in filter(None, (*parts, exact)):
        blocks = (each.index.layout.block for each in known if _is_start(each.index.layout.members, part))
        layouts.append(redundancy.layout(part, next(blocks, None)))
    return layouts


def _is_start(members: Sequence[Member], of: Sequence[Member]) -> bool:
    return tuple(members) == tuple(of[: len(members)])


def _make(
    store: DirectoryStore, folder: ParityFolder, layout: Layout, known: Iterable[ParityGroup]
) -> dict[str, str]:
    """Write the parity files of a group, from those of the largest that it begins with, if any."""
    smaller = []  # groups of whole files, which grow
    for group in known:
        old = group.index.layout
        is_same = (old.aligned, old.block, old.parity) == (True, layout.block, layout.parity)
        if is_same and layout.aligned and _is_start(old.members, layout.members):
            smaller.append(group)
    if smaller:
        with suppress(ChecksumError):  # a parity file is damaged: all are made from the files
            before = max(smaller, key=lambda each: len(each.index.layout.members))
            return _make_group(store, folder, layout, before)
    return _make_group(store, folder, layout)


def _make_group(
    store: DirectoryStore, folder: ParityFolder, layout: Layout, before: ParityGroup | None = None
) -> dict[str, str]:
    """Write the parity files of a group; return what is wrong with its files, if anything is.

    Of the files of the group `before`, which it begins with, nothing is read but the parity.

    Raises ``ChainError`` if a file is replaced or removed meanwhile, and ``LimitError`` if there
    are too many bytes for one index. Nothing is written then.
    """
    check_size(layout.index_length, f"parity of {layout.members[0].name}")
    first = 0 if before is None else len(before.index.layout.members)
    new = dict(enumerate(layout.members[first:], first))
    if problems := {
        member.name: problem for member in new.values() if (problem := damage(store, member)) is not None
    }:
        return problems
    with storage_errors("cannot write parity of", store.path), ExitStack() as stack:
        sources = {i: stack.enter_context(closing(store.source(m.name))) for i, m in new.items()}
        old = {} if before is None else before.names
        parities = {i: stack.enter_context(closing(folder.source(name))) for i, name in old.items()}
        files = [stack.enter_context(folder.writer(layout.name(i))) for i in range(layout.parity)]
        offset = PARITY_HEAD_SIZE + layout.index_length
        hashes: list[list[bytes]] = [[] for _ in range(layout.columns + layout.parity)]
        for row, rows in bands(layout):
            data = {}
            for column in range(first, layout.columns):
                if (used := min(rows, layout.rows_of(column) - row)) > 0:
                    data[column], _ = read_band(layout, sources, column, row, rows)
                    hashes[column] += block_hashes(data[column], layout.block, used)
            parity = {i: np.empty(rows * layout.block, np.uint8) for i in range(layout.parity)}
            encode(data, parity)
            if before is not None:
                add_parity(before.index, parities, row, parity)
            for i, band in parity.items():
                hashes[layout.columns + i] += block_hashes(band, layout.block, rows)
                with files[i].working():
                    files[i].write_at(band.data, offset + row * layout.block)
        there = b"" if before is None else before.index.data_hashes
        index = Index(layout, there + b"".join(each for column in hashes for each in column))
        for i, file in enumerate(files):
            front, end = ends_of(index, i)
            with file.working():
                file.write_at(front, 0)
                file.write_at(end, file_length(index) - blocks_offset(index))
        with locked_homes(store, [member.name for member in layout.members]):
            for member in layout.members:
                if declared(store, member.name) != (member.root, member.length):
                    raise ChainError(f"{member.name} was replaced or removed while it was to be protected")
            for file in files:
                file.commit()
    return {}


def damage(store: DirectoryStore, member: Member) -> str | None:
    """Return what is wrong with a file; ``None`` if it is the one that was named, and whole."""
    try:
        with store.open(member.name) as reader:
            if reader.root != member.root:
                return "another file has taken its name"
            reader.verify()
    except LccodecError as error:
        return str(error)
    return None


def unprotect(store: DirectoryStore) -> int:
    """Remove all parity of a chain; return the bytes that this frees."""
    folder = ParityFolder(store)
    size = folder.size()
    folder.remove(folder.names())
    return size


def forget(store: Store, names: Iterable[str]) -> Redundancy | None:
    """Remove the parity of groups that name files which are about to go.

    Otherwise a repair would bring them back. The caller holds the lock of the store. If it is the
    chain of a rank, that includes groups of files of ranks. Returns the redundancy that the chain
    itself had; ``None`` if it had no parity of its own.
    """
    gone = set(names)
    if not gone:
        return None
    redundancy = recorded(store)
    for place, before in parity_places(store):
        folder, theirs = ParityFolder(place), {f"{before}{name}" for name in gone}
        groups = [
            group
            for group in folder.groups(bare=True)[0]
            if any(member.name in theirs for member in group.index.layout.members)
        ]
        folder.remove(name for group in groups for name in group.names.values())
    return redundancy


def renew(
    store: Store,
    redundancy: Redundancy | None = None,
    make: Callable[[DirectoryStore, Redundancy], Protection] = protect,
    *,
    of_ranks: bool = False,
) -> None:
    """Protect what is not protected any more, as it was before; an error is only a warning.

    Where there is no parity, this does nothing. Of the chains of ranks in the folders of a
    directory, `make` is `protect_ranks`.
    """
    try:
        redundancy = recorded(store, of_ranks=of_ranks) if redundancy is None else redundancy
        if redundancy is not None:
            make(as_directory(store, "parity"), redundancy)
    except (LccodecError, OSError) as error:
        warn(f"{store.path}: parity {'of the ranks ' if of_ranks else ''}could not be renewed: {error}")


def recorded(store: Store, *, of_ranks: bool = False) -> Redundancy | None:
    """Return the redundancy that a chain is protected with; ``None`` without parity.

    With `of_ranks`, that of the chains of ranks in the folders of the directory.
    """
    layouts = [group.index.layout for group in ParityFolder(store).groups(bare=True)[0]]
    return next((redundancy_of(layout) for layout in layouts if layout.of_ranks == of_ranks), None)


def protected_names(store: Store) -> set[str]:
    """Return the names of files whose parity is there and fits. No bytes are verified."""
    found = set[str]()
    for place, before in parity_places(store):
        groups, _ = ParityFolder(place).groups(bare=True)
        members = [m for group in groups if group.is_complete for m in group.index.layout.members]
        for member in members:
            name = member.name.removeprefix(before)
            if member.name.startswith(before) and declared(store, name) == (member.root, member.length):
                found.add(name)
    return found


class ParityBehind:
    """Protects a chain after each change, and knows what its parity gives back.

    Without `redundancy`, only that is made again which `went`. `acts` says whether parity may go,
    so that it has to be made again.
    """

    def __init__(self, store: Store, redundancy: Redundancy | None, *, acts: bool = True) -> None:
        self._store, self._redundancy = store, redundancy
        if redundancy is not None:
            as_directory(store, "parity")  # or it is refused
        self.acts = acts or redundancy is not None
        self._rounds = Rounds(self._protect)
        self._gone: Redundancy | None = None
        self._failures: list[str] = []

    def went(self, redundancy: Redundancy | None) -> None:
        """Take note that parity of a redundancy went with files that were removed, if any did."""
        self._gone = redundancy or self._gone

    def after(self, change: Change) -> None:  # noqa: ARG002 - whatever it is
        """Begin to protect what there is now, or let the thread that runs do so next."""
        if self._redundancy or self._gone:
            self._warn()
            self._rounds.ask()

    def gives_back(self, name: str) -> bool:
        """Return whether parity gives back a checkpoint and all that it needs.

        What is given back is verified, as far as a repair does before it writes.
        """
        with suppress(LccodecError):
            return _from_parity(self._store, name)
        return False

    def close(self) -> None:
        """Wait until all is protected that was asked for; an error is only a warning."""
        self._rounds.wait()
        self._warn()

    def _protect(self) -> None:
        """Protect what there is, in the thread."""
        gone, self._gone = self._gone, None
        if redundancy := self._redundancy or gone:
            try:
                protect(as_directory(self._store, "parity"), redundancy)
            except (LccodecError, OSError, MemoryError) as error:
                self._failures.append(reason_of(error))

    def _warn(self) -> None:
        while self._failures:
            warn(f"{self._store.path}: saves are not protected: {self._failures.pop(0)}")


def _from_parity(store: Store, name: str) -> bool:
    places = [(place, before) for place, before in parity_places(store) if place.has(PARITY_FOLDER)]
    if not places:
        return False
    needed = [name]
    if name != EXACT_NAME:  # what a checkpoint needs, as far as can be read
        needed = list(map(checkpoint_name, Lineage.named(store).reached(checkpoints_among([name]))))
    lost = set(damaged_among(store, needed))
    for place, before in places:
        found = _given_back(place, {f"{before}{each}" for each in lost})
        lost -= {each.removeprefix(before) for each in found}
    return not lost


def _given_back(store: DirectoryStore, lost: Collection[str]) -> set[str]:
    """Return the files among some lost ones that parity in a directory gives back."""
    folder, found = ParityFolder(store), set[str]()
    for group in folder.groups()[0]:
        members = [member.name for member in group.index.layout.members]
        if set(members).isdisjoint(lost):
            continue
        problems = damaged_among(store, filter(store.has, members))
        with ExitStack() as stack:
            damage = GroupDamage(folder, group, problems, stack)
            if not damage.is_stale and not damage.hopeless:
                found |= {members[number] for number in damage.targets}
    return found & set(lost)
