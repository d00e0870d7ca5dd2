"""Parity of the files of ranks, made by all ranks at a time: nobody gathers the files on one.

All ranks call `protect_together`, and whatever happens to one, it takes part until all have agreed.
What comes out is what `protect_ranks` makes in one process, byte for byte.

Source: SPEC 9 (LCC-PAR-03, LCC-PAR-06).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from ....container.parity import Layout, Member
from ...store.directory import DirectoryStore
from ..parity_folder import Group, ParityFolder
from ..protect import damage, declared, members_of
from ..redundancy import Redundancy
from .groups import grouped, groups_of_ranks, is_current, remove_obsolete
from .peers import Peers, Trouble
from .stripes import Striped


@dataclass(frozen=True)
class Written:
    """What a rank has written.

    Attributes
    ----------
    folder
        The folder of its chain.
    name
        The name of the file of this save, with the folder; ``None`` if it wrote none.
    files
        The names of all files of its chain. What is saved later is not among them: the other ranks
        may not have written that yet.
    """

    folder: str
    name: str | None = None
    files: tuple[str, ...] = ()


def protect_together(
    store: DirectoryStore, peers: Peers, written: Written, redundancy: Redundancy
) -> dict[str, str]:
    """Make parity of what this save wrote, and of all files of these ranks that have none.

    Parameters
    ----------
    store
        The directory of the folders of the ranks.
    redundancy
        How many files of a group may be lost.

    Returns
    -------
    dict
        The files that are not protected, each with the reason, also those of other ranks. What was
        protected before still is. Files that were replaced or removed meanwhile are left out.
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
) -> list[tuple[Group, bool]]:
    """Return the groups that the first rank sees, and whether each is as it should be.

    Each rank looks at its own files; the first one also at those of ranks that are not here.
    """
    mine = list[Group]()
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
