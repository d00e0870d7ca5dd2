"""Repairing a chain: damaged and missing files, from parity, a mirror, or the exact file.

A file is mended in a temporary, verified by its root and the digests of its frames, and only then
takes the name of the damaged one. So a file is never worse than before. What is sound is never
replaced. Parity that names other files than those of the chain brings nothing back that is missing,
because that may have been removed on purpose. Parity and mirrors give files back bit for bit, so
they come first.
If the directory has parity of chains of ranks, their files are mended too.

Source: SPEC 9 (LCC-PAR-06, LCC-PAR-07, LCC-EXA-06).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from ...constants import EXACT_NAME
from ...container.disk.system import storage_errors
from ...container.parity import check_file
from ...errors import LccodecError
from ..bounds import UNBOUNDED, Bounds
from ..store.claim import Claim
from ..store.directory import DirectoryStore
from ..store.store import Store, WritableStore
from .damage import GroupDamage
from .from_exact import mend_from_exact
from .from_mirror import mend_from_mirrors
from .homes import homes_of
from .parity_folder import Group, ParityFolder
from .ranks.groups import groups_of_ranks, renew_ranks
from .upkeep import recorded, renew


@dataclass(frozen=True)
class Repair:
    """What `repair` did, or would do with ``dry_run=True``.

    Parameters
    ----------
    mended
        The names of the files that are whole again.
    lost
        The files that cannot be mended, each with the reason.
    stale
        The groups of files whose parity is older than the files, by their names.
    parity
        The parity files that are damaged; they are made anew if no file of the chain is lost.
    protected
        How many files have parity that fits them.
    mirrored
        The names of the files that come from a mirror, each with its place.
    remade
        The names of the files of the newest step that were written anew: the checkpoint from the
        exact file, or the exact file from the checkpoint; each with what was done.
    """

    mended: tuple[str, ...]
    lost: Mapping[str, str]
    stale: tuple[str, ...] = ()
    parity: tuple[str, ...] = ()
    protected: int = 0
    mirrored: Mapping[str, str] = field(default_factory=dict)
    remade: Mapping[str, str] = field(default_factory=dict)


def repair(
    store: WritableStore,
    *,
    dry_run: bool = False,
    claim: Claim | None = None,
    mirrors: Sequence[Store] = (),
    bounds: Bounds = UNBOUNDED,
) -> Repair:
    """Mend the files of a chain that are damaged or missing, from its parity, then from mirrors.

    What is lost of the newest step is then written anew from the other of its two files. If all
    could be mended, parity that is damaged or stale is renewed.

    Parameters
    ----------
    dry_run
        Return what would be done, and do nothing. That may be less than is done: what an exact file
        gives that must be mended itself is not known before.
    claim
        The claim of a `Chain`, which may be held already.
    mirrors
        The mirrors of the chain.
    bounds
        What a checkpoint may ask for; from one that asks for more nothing is written anew. What
        parity and mirrors give is verified, but not decoded.

    Raises
    ------
    ChainError
        If another process saves to the chain, or no mirror is one of it.
    StorageError
        If the operating system refuses. Every file is as it was before, or mended.
    """
    store, mirrors = store.afresh(), [mirror.afresh() for mirror in mirrors]
    if dry_run:
        return _repair(store, mirrors, bounds, dry_run=True)
    if mirrors:
        store.make()
    with ExitStack() as stack:
        stack.enter_context((claim or store.claim()).held())
        stack.enter_context(storage_errors("cannot repair", store.path))
        homes = _rank_homes(store)
        for home in homes:
            stack.enter_context(home.claim().held())
        for each in (store, *homes):
            stack.enter_context(each.locked())
            each.remove_stale()
        found = _repair(store, mirrors, bounds, dry_run=False)
    if not found.lost and isinstance(store, DirectoryStore):
        redundancy, of_ranks = recorded(store), recorded(store, of_ranks=True)
        ParityFolder(store).remove(found.parity)
        renew(store, redundancy)
        renew_ranks(store, of_ranks)
    return found


def _rank_homes(store: Store) -> list[DirectoryStore]:
    """Return the chains of ranks that have parity in a directory, those that are there."""
    if not isinstance(store, DirectoryStore):
        return []
    groups = groups_of_ranks(ParityFolder(store))
    return homes_of(store, [member.name for group in groups for member in group.index.layout.members])


def _repair(store: WritableStore, mirrors: Sequence[Store], bounds: Bounds, *, dry_run: bool) -> Repair:
    if isinstance(store, DirectoryStore):
        found = _from_parity(store, dry_run=dry_run)
    else:
        found = Repair((), damaged_files(store))
    own = {name: text for name, text in found.lost.items() if "/" not in name}
    of_ranks = {name: text for name, text in found.lost.items() if name not in own}
    if mirrors:  # of the chain itself
        brought, own = mend_from_mirrors(store, mirrors, own, found.mended, dry_run=dry_run)
        found = replace(found, mended=(*found.mended, *brought), mirrored=brought)
    made, lost = mend_from_exact(store, own, found.mended, dry_run=dry_run, bounds=bounds)
    for home in _rank_homes(store) if of_ranks else ():
        before = f"{home.path.name}/"
        theirs = {n.removeprefix(before): of_ranks.pop(n) for n in [*of_ranks] if n.startswith(before)}
        whole = {n.removeprefix(before) for n in found.mended if n.startswith(before)}
        more, left = mend_from_exact(home, theirs, whole, dry_run=dry_run, bounds=bounds)
        made |= {f"{before}{name}": text for name, text in more.items()}
        lost |= {f"{before}{name}": text for name, text in left.items()}
    mended = tuple(dict.fromkeys([*found.mended, *made]))  # a checkpoint may need what is lost
    return replace(found, mended=mended, lost={**lost, **of_ranks}, remade=made)


def _from_parity(store: DirectoryStore, *, dry_run: bool) -> Repair:
    folder = ParityFolder(store)
    groups, errors = folder.groups()
    groups.sort(key=lambda group: group.index.layout.members[0].name)
    # The newest checkpoint says which exact file is right.
    groups.sort(key=lambda group: group.index.layout.members[0].name.endswith(EXACT_NAME))
    problems = damaged_files(store)
    for home in _rank_homes(store):
        problems |= {f"{home.path.name}/{name}": text for name, text in damaged_files(home).items()}
    mended, stale, reasons = list[str](), list[str](), dict[str, str]()
    protected = set[str]()
    for group in groups:
        with ExitStack() as stack:
            damage = GroupDamage(store, folder, group, problems, stack)
            if damage.is_stale:
                stale.append(group.index.layout.group)
            else:
                protected.update(member.name for member in group.index.layout.members)
            reasons.update(damage.hopeless)
            if damage.targets:
                done = {*damage.targets} if dry_run else damage.mend(reasons)
                mended += sorted(group.index.layout.members[number].name for number in done)
    lost = {name: text for name, text in {**problems, **reasons}.items() if name not in mended}
    broken = sorted({*errors, *_damaged_parity(folder, groups)})
    return Repair(tuple(mended), lost, tuple(stale), tuple(broken), len(protected))


def _damaged_parity(folder: ParityFolder, groups: Iterable[Group]) -> Iterator[str]:
    """Yield the names of parity files that are damaged."""
    for name in (name for group in groups for name in group.names.values()):
        try:
            with closing(folder.source(name)) as source:
                check_file(source, str(folder.path / name), name)
        except LccodecError:
            yield name


def damaged_files(store: Store) -> dict[str, str]:
    """Return what is wrong with the bytes of checkpoints and the exact file, by their names."""
    exact = [EXACT_NAME] if store.has(EXACT_NAME) else []
    return damaged_among(store, [*store.checkpoints().values(), *exact])


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
