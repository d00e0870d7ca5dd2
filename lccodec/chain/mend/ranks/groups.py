"""Parity for the chains of ranks: groups of the files that one save wrote, one of each rank.

The chains lie in the folders ``rank-0``, ``rank-1``, ... of a directory, and their parity in
``.parity`` there. If all files of a rank are lost, each group has lost one. A file that no save
names (a rank has died before the others had finished) forms a group with those of the same step,
and the exact files form one.

Source: SPEC 9 (LCC-PAR-01, LCC-PAR-03, LCC-PAR-06).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from ....constants import EXACT_NAME, MAX_GROUP_FILES
from ....container.parity import Layout, Member, rank_of
from ....errors import ChainError, LccodecError, warn
from ...store.directory import DirectoryStore, inner_directories
from ..parity_folder import Group, ParityFolder
from ..protect import Protection, declared, make_groups, members_of
from ..redundancy import Redundancy
from ..upkeep import recorded

_NO_RANK: Final = -1


def rank_folders(store: DirectoryStore) -> list[str]:
    """Return the folders of the ranks that have files, by rising number. Links are left out."""
    names = [path.name for path in inner_directories(store.path)] if store.path.is_dir() else []
    found = [name for name in names if rank_of(name) is not None and files_of(store, name)]
    return sorted(found, key=_rank)


def files_of(store: DirectoryStore, folder: str) -> list[str]:
    """Return the names of the files of a rank, with its folder; the exact file comes last."""
    own = DirectoryStore(store.path / folder, store.system)
    names = [*own.checkpoints().values(), *([EXACT_NAME] if own.has(EXACT_NAME) else [])]
    return [f"{folder}/{name}" for name in names]


def protect_ranks(
    store: DirectoryStore, redundancy: Redundancy, saves: Iterable[Collection[str]] = ()
) -> Protection:
    """Make parity files for all files of the ranks that have none, and remove those that are stale.

    Parameters
    ----------
    store
        The directory of the folders of the ranks.
    saves
        Of each save, the names of the files that the ranks wrote, each with its folder.

    Raises
    ------
    ChainError
        If there are no chains of ranks.
    StorageError
        If the operating system refuses. What was protected before still is.
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


def groups_of_ranks(folder: ParityFolder) -> list[Group]:
    """Return the groups of files of ranks in a folder of parity, without hashes."""
    return [group for group in folder.groups(bare=True)[0] if group.index.layout.of_ranks]


def is_current(
    store: DirectoryStore, group: Group, redundancy: Redundancy, members: Iterable[Member] | None = None
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
    store: DirectoryStore, folder: ParityFolder, there: Iterable[Group], kept: Iterable[Layout]
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


def renew_ranks(store: DirectoryStore, redundancy: Redundancy | None = None) -> None:
    """Protect the files of ranks that are not protected any more; an error is only a warning.

    Without parity of ranks, this does nothing.
    """
    try:
        redundancy = recorded(store, of_ranks=True) if redundancy is None else redundancy
        if redundancy is not None:
            protect_ranks(store, redundancy)
    except (LccodecError, OSError) as error:
        warn(f"{store.path}: parity of the ranks could not be renewed: {error}")
