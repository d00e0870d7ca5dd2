"""Repairing a chain: damaged and missing files, from parity, a mirror, or the exact file.

A file is mended in a temporary, verified by its root and the digests of its frames, and only then
takes the name of the damaged one. So a file is never worse than before. What is sound is never
replaced. Parity that names other files than those of the chain brings nothing back that is missing,
because that may have been removed on purpose. If the directory has parity of chains of ranks, their
files are mended too.

Parity and mirrors give files back bit for bit, so they come first. From a mirror comes what
something here needs (parents of deltas, the exact file that the newest checkpoint names), and what
follows the newest step here, unless that was rolled back. Earlier steps that nothing needs may have
been pruned, and stay away.

The last source is the one copy that each chain has itself: the exact file and the checkpoint of its
step hold the same step. A checkpoint that is lost is written anew as a keyframe of the exact state.
An exact file that is lost is written anew from a checkpoint that has lost nothing. What only cannot
be read now (the disk refuses, a newer version) is not lost, and stays.

A chain that cannot be mended is salvaged: what still verifies, in a new chain.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-06, LCC-PAR-06, LCC-PAR-07).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

from ...constants import EXACT_NAME
from ...container.parity import check_file
from ...container.system import storage_errors
from ...errors import (
    ArgumentError,
    ChainError,
    DataError,
    LccodecError,
    LimitError,
    StorageError,
    is_loss,
    reason_of,
)
from ..read.checkpoint import OpenCheckpoint, may_be_replaced, open_newest
from ..read.links import UNBOUNDED, Bounds, is_bound
from ..save.exact import checkpoint_from_exact, exact_from_checkpoint, lost_checkpoint
from ..store.claim import Claim
from ..store.directory import DirectoryStore
from ..store.lineage import Lineage
from ..store.store import Store, WritableStore, checkpoint_name, checkpoints_among, files_among
from .mirror import StandIn, copy, set_aside_of
from .parity_folder import GroupDamage, ParityFolder, damaged_among, homes_of
from .protect import recorded, renew
from .ranks import groups_of_ranks, renew_ranks


def mend_from_exact(
    store: WritableStore,
    lost: Mapping[str, str],
    mended: Collection[str] = (),
    *,
    dry_run: bool,
    bounds: Bounds = UNBOUNDED,
) -> tuple[dict[str, str], dict[str, str]]:
    """Write anew what is lost of the newest step, from the other of its two files.

    Those `lost` come with the reasons; those `mended` are, or would be, mended in another way. A
    checkpoint that asks for more than the `bounds` is not decoded. Returns the files that were
    written anew, each with what was done, and those that are lost still.
    """
    made, left, found = dict[str, str](), dict(lost), None
    if EXACT_NAME in lost:
        try:  # it may be whole by now
            with store.open(EXACT_NAME) as reader:
                reader.verify()
        except LccodecError as error:
            found = EXACT_NAME, error
    else:
        step = store.exact_step()
        own = None if step is None else checkpoint_name(step)
        if lost or (own is not None and store.has(own) and _needs_lost(store, own, (), mended)):
            found = lost_checkpoint(store, bounds)  # for which all of a step is read
    if found is None or (dry_run and not _needs_lost(store, found[0], lost, mended)):
        return made, left
    name, problem = found
    if name not in lost and isinstance(problem, LimitError) and is_bound(problem):
        return made, left  # its bytes are as they were, and what they decode to was not asked
    try:
        if not is_loss(problem):
            raise problem
        if name == EXACT_NAME:
            exact_from_checkpoint(store, dry_run=dry_run, bounds=bounds)
            made[name] = "bit for bit, from the checkpoint of its step"
        else:
            checkpoint_from_exact(store, dry_run=dry_run)
            made[name] = "as a keyframe, from the exact file"
        left.pop(name, None)
    except LccodecError as error:
        why, text = left.get(name, "it needs what is lost"), reason_of(error)
        left[name] = why if text == why else f"{why}; {text}"
    return made, left


def _needs_lost(store: Store, name: str, lost: Collection[str], mended: Collection[str]) -> bool:
    """Return whether a checkpoint needs a lost file, as far as can be told before a repair."""

    def is_read(step: int) -> bool:  # what a mended file needs is read when it is
        return checkpoint_name(step) not in mended

    if name == EXACT_NAME:  # which needs no other
        return name in lost or not store.has(name)
    needed = Lineage.named(store).reached(checkpoints_among([name]), is_read)
    return any(each in lost or not store.has(each) for each in map(checkpoint_name, filter(is_read, needed)))


def mend_from_mirrors(
    store: WritableStore,
    mirrors: Sequence[Store],
    lost: Mapping[str, str],
    mended: Collection[str] = (),
    *,
    dry_run: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Bring files from mirrors, each verified where it arrives; parents come before children.

    Parameters are as for `mend_from_exact`. Returns the files that were brought, each with its
    mirror, and those that are lost still. Raises ``ChainError`` if no mirror can be read, or all
    are of other chains.
    """
    view = StandIn(store, mirrors, tell=False)
    brought, left = dict[str, str](), dict(lost)
    wanted = [*lost, *_missing(store, view), *_later(store, view)]
    todo = {*wanted} - {*mended}
    ordered = Lineage.named(view).parents_first(checkpoints_among(todo))
    for name in [*({EXACT_NAME} & todo), *map(checkpoint_name, ordered)]:
        source = view.of(name)
        if source is store:
            places = ", ".join(str(mirror.path) for mirror in mirrors)
            left.setdefault(name, f"it is missing, and no mirror has it ({places})")
            continue
        try:
            with source.open(name) as reader:
                if name in lost and not may_be_replaced(store, name, reader.root):
                    continue
                if dry_run:
                    reader.verify()
                else:
                    store.make()
                    copy(reader, store, name, overwrite=store.has(name))
        except LccodecError as error:
            left[name] = f"{lost.get(name, 'it is missing')}; {source.path}: {reason_of(error)}"
            continue
        left.pop(name, None)
        brought[name] = str(source.path)
    return brought, left


def _missing(store: Store, view: StandIn) -> list[str]:
    """Return the files that others need, and that are not there."""
    found = dict[str, None]()
    steps = list(reversed(store.checkpoints()))
    for name in map(checkpoint_name, steps):
        try:
            with store.open(name) as reader:
                named = reader.manifest.exact
        except (DataError, StorageError):
            continue
        if named is not None and not store.has(EXACT_NAME):
            found[EXACT_NAME] = None
        break
    needed = map(checkpoint_name, Lineage.named(view, steps).reached(steps))
    return [*found, *(name for name in needed if not store.has(name))]


def _later(store: WritableStore, view: StandIn) -> list[str]:
    """Return the files of mirrors that go on from the newest step; all, if there is none."""
    newest = max(store.steps(), default=-1)
    gone = {root for _, roots in set_aside_of(store) for root in roots}
    found = dict[str, None]()
    for mirror in view.mirrors:
        files = {step: name for step, name in mirror.steps().items() if step > newest}
        if mirror.has(EXACT_NAME) and (mirror.exact_step() or 0) >= max(files, default=newest + 1):
            files[-1] = EXACT_NAME
        if files and all(mirror.root(name)[0] not in gone for name in files.values()):
            found |= dict.fromkeys(files.values())
            view.chosen |= dict.fromkeys(files.values(), mirror)  # though the chain lacks these steps
            break
    return list(found)


@dataclass(frozen=True)
class Salvage:
    """What `salvage` found.

    Parameters
    ----------
    whole
        The steps that are whole.
    partial
        The steps of which some arrays are lost, each with their names and the reasons.
    gone
        The steps of which nothing can be read, each with the reason.
    """

    whole: tuple[int, ...]
    partial: Mapping[int, Mapping[str, str]]
    gone: Mapping[int, str]


def salvage(store: Store, save: Callable[..., Any]) -> Salvage:
    """Save every step, and every array that still verifies, to another chain.

    A step of which arrays are lost is saved as a dict of the others by name. The exact file goes
    before the checkpoint of its step, and that before what is damaged in the exact file. `save` is
    `Chain.save` of the other chain, without an adapter, which loses nothing.
    """
    steps = store.steps()
    if not steps:
        raise ChainError(store.nothing())
    whole, partial, gone = list[int](), dict[int, dict[str, str]](), dict[int, str]()
    for step in steps:
        try:
            with open_newest(store, step) as file:
                arrays, lost = _arrays(file)
                if not lost:
                    save(step, file.state(dtype="bits"), file.metadata())
                    whole.append(step)
                elif arrays:
                    save(step, arrays, file.metadata())
                    partial[step] = lost
                else:
                    gone[step] = next(iter(lost.values()))
        except ArgumentError:  # of the save: nothing of the old chain
            raise
        except LccodecError as error:
            gone[step] = reason_of(error)
    return Salvage(tuple(whole), partial, gone)


def _arrays(file: OpenCheckpoint) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays that can be decoded, and why the others cannot."""
    arrays, lost = dict[str, Any](), dict[str, str]()
    for name in list(file.keys()):
        try:
            arrays[name] = file.get(name, dtype="bits")
        except LccodecError as error:
            lost[name] = reason_of(error)
    return arrays, lost


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
    could be mended, parity that is damaged or stale is renewed. With `dry_run`, less may be told
    than is done: what an exact file gives that must be mended itself is not known before. `claim`
    is that of a `Chain`, which may be held already. From a checkpoint that asks for more than the
    `bounds`, nothing is written anew. What parity and mirrors give is verified, but not decoded.

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
    if not found.lost:
        redundancy, of_ranks = recorded(store), recorded(store, of_ranks=True)
        ParityFolder(store).remove(found.parity)
        renew(store, redundancy)
        renew_ranks(store, of_ranks)
    return found


def _rank_homes(store: Store) -> list[DirectoryStore]:
    """Return the chains of ranks that have parity in a directory, those that are there."""
    groups = groups_of_ranks(ParityFolder(store))
    return homes_of(store, [member.name for group in groups for member in group.index.layout.members])


def _repair(store: WritableStore, mirrors: Sequence[Store], bounds: Bounds, *, dry_run: bool) -> Repair:
    found = _from_parity(store, dry_run=dry_run)
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


def _from_parity(store: Store, *, dry_run: bool) -> Repair:
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
            damage = GroupDamage(folder, group, problems, stack)
            if damage.is_stale:
                stale.append(group.index.layout.group)
            else:
                protected.update(member.name for member in group.index.layout.members)
            reasons.update(damage.hopeless)
            if damage.targets:
                done = {*damage.targets} if dry_run else damage.mend(reasons)
                mended += sorted(group.index.layout.members[number].name for number in done)
    lost = {name: text for name, text in {**problems, **reasons}.items() if name not in mended}
    broken = set(errors)
    for name in (name for group in groups for name in group.names.values()):
        try:
            with closing(folder.source(name)) as source:
                check_file(source, str(folder.path / name), name)
        except LccodecError:
            broken.add(name)
    return Repair(tuple(mended), lost, tuple(stale), tuple(sorted(broken)), len(protected))


def damaged_files(store: Store) -> dict[str, str]:
    """Return what is wrong with the bytes of checkpoints and the exact file, by their names."""
    return damaged_among(store, files_among(store.names()))
