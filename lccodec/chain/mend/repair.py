"""Repairing a chain: damaged and missing files, from parity, a mirror, or the exact file.

A file is mended in a temporary, verified by its root and the digests of its frames, and only then
takes the name of the damaged one. So a file is never worse than before. What is sound is never
replaced. Parity that names other files than those of the chain brings nothing back that is missing,
because that may have been removed on purpose. Parity and mirrors give files back bit for bit, so
they come first.

Source: SPEC 9 (LCC-PAR-06, LCC-PAR-07, LCC-EXA-06).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from ...constants import EXACT_NAME
from ...container.disk.system import storage_errors
from ...container.parity.parity_file import check_file
from ...errors import LccodecError
from ..store.claim import Claim
from ..store.directory import DirectoryStore
from ..store.store import Store, WritableStore
from .damage import GroupDamage
from .from_exact import mend_from_exact
from .from_mirror import mend_from_mirrors
from .parity_folder import Group, ParityFolder
from .protect import recorded, renew


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
        The names of the files that were written anew, since the exact file and the checkpoint of
        its step are copies of each other; each with what was done.
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

    Raises
    ------
    ChainError
        If another process saves to the chain, or no mirror is one of it.
    StorageError
        If the operating system refuses. Every file is as it was before, or mended.
    """
    if dry_run:
        return _repair(store, mirrors, dry_run=True)
    if mirrors:
        store.make()
    with (
        (claim or store.claim()).held(),
        storage_errors("cannot repair", store.path),
        store.locked(),
    ):
        store.remove_stale()
        found = _repair(store, mirrors, dry_run=False)
    if not found.lost and isinstance(store, DirectoryStore):
        redundancy = recorded(store)
        ParityFolder(store).remove(found.parity)
        renew(store, redundancy)
    return found


def _repair(store: WritableStore, mirrors: Sequence[Store], *, dry_run: bool) -> Repair:
    if isinstance(store, DirectoryStore):
        found = _from_parity(store, dry_run=dry_run)
    else:
        found = Repair((), damaged_files(store))
    if mirrors:
        brought, lost = mend_from_mirrors(store, mirrors, found.lost, found.mended, dry_run=dry_run)
        found = replace(found, mended=(*found.mended, *brought), lost=lost, mirrored=brought)
    made, lost = mend_from_exact(store, found.lost, dry_run=dry_run)
    return replace(found, mended=(*found.mended, *made), lost=lost, remade=made)


def _from_parity(store: DirectoryStore, *, dry_run: bool) -> Repair:
    folder = ParityFolder(store)
    groups, errors = folder.groups()
    problems = damaged_files(store)
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
    problems = {}
    exact = [EXACT_NAME] if store.has(EXACT_NAME) else []
    for name in [*store.checkpoints().values(), *exact]:
        try:
            with store.open(name) as reader:
                reader.verify()
        except LccodecError as error:
            problems[name] = str(error)
    return problems
