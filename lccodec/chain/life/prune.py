"""Pruning a chain: steps that are not kept, and that no kept step needs, are removed.

Kept are the steps that match a `Keep`, pinned steps, and the newest step, because the next delta is
taken against it. Kept files do not change, and what they need stays until nothing needs it. With
`rewrite`, they are rewritten with the same state, so that they need only kept steps.

Source: SPEC 9 (LCC-CHN-07, LCC-CHN-09, LCC-CHN-10).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...container.disk.folder import Folder
from ...container.disk.system import SYSTEM, System, storage_errors
from ...container.disk.whole_file import remove_stale_temporaries
from ...errors import ArgumentError, ChainError, DataError, warn
from ..store.directory import directory_names, no_checkpoint, steps_of
from ..store.parents import Ancestry, waves
from .keep import Keep, check_keep
from .pins import pinned_among, pinned_steps
from .rewrite_step import Rewriting
from .rewrite_step import rewrite as rewrite_step


@dataclass(frozen=True)
class Pruning:
    """What `Chain.prune` removed and kept, or would with ``dry_run=True``.

    Parameters
    ----------
    removed
        The steps that are removed.
    freed
        Bytes of their files.
    kept
        The steps that are kept, each with the reason.
    needed
        The steps that stay only because a kept step needs them, each with the first such step.
    rewritten
        The kept checkpoints that are rewritten, so that they need only kept ones.
    """

    removed: tuple[int, ...]
    freed: int
    kept: Mapping[int, str]
    needed: Mapping[int, int] = field(default_factory=dict)
    rewritten: tuple[Rewriting, ...] = ()

    @property
    def cost(self) -> int:
        """By how many bytes the rewritten checkpoints grow."""
        return sum(each.after - each.before for each in self.rewritten)

    @property
    def net(self) -> int:
        """By how many bytes the chain grows; negative if it shrinks."""
        return self.cost - self.freed


def prune(
    directory: Path,
    keep: Keep,
    *,
    rewrite: bool = False,
    dry_run: bool = False,
    wait: bool = True,
    ancestry: Ancestry | None = None,
    system: System = SYSTEM,
) -> Pruning:
    """Remove the checkpoints that are not kept and that no kept one needs.

    Parameters
    ----------
    keep
        What to keep.
    rewrite
        Whether to rewrite kept checkpoints, so that they need only kept ones.
    dry_run
        Return what would be done, and do nothing.
    wait
        Whether to wait for other processes that pin or remove steps; if not, and there are any,
        nothing is removed.
    ancestry
        What an earlier prune has learned about the files.

    Raises
    ------
    ArgumentError
        If `keep` matches no step. Nothing is removed.
    ChainError
        If there is no checkpoint.
    StorageError
        If the operating system reports an error. Every checkpoint that is left can be restored.
    """
    check_keep(keep)
    ancestry = Ancestry() if ancestry is None else ancestry
    if dry_run or not os.path.lexists(directory):
        return _dry_run(directory, keep, ancestry, rewrite)
    removed, freed, written = set[int](), 0, list[Rewriting]()
    with storage_errors("cannot prune", directory), Folder(directory, system) as folder:
        free = folder.lock(wait=wait)
        remove_stale_temporaries(folder)
        plan, doomed = _plan(directory, keep, ancestry)
        if not free:
            return Pruning((), 0, plan.kept, plan.needed)
        if rewrite:
            written = _rewritten(directory, plan, ancestry, False, system)
        done = False
        while not done:
            plan, doomed = _plan(directory, keep, ancestry)
            pinned = pinned_steps(directory)
            for group in waves(doomed):
                if pinned_steps(directory) != pinned:  # where there are no locks
                    break
                sizes = [doomed[step].lstat().st_size for step in group]
                folder.remove(doomed[step].name for step in group)
                removed.update(group)
                freed += sum(sizes)
            else:
                done = True
    return Pruning(tuple(sorted(removed)), freed, plan.kept, plan.needed, tuple(written))


def _dry_run(directory: Path, keep: Keep, ancestry: Ancestry, rewrite: bool) -> Pruning:
    plan, _ = _plan(directory, keep, ancestry)
    if not rewrite or not plan.needed:
        return plan
    written = _rewritten(directory, plan, ancestry, True, SYSTEM)
    steps = steps_of(directory, directory_names(directory))
    parents = {each.step: each.parent for each in written}
    needed = ancestry.needed(plan.kept, steps, parents)
    removed = tuple(step for step in steps if step not in plan.kept and step not in needed)
    freed = sum(steps[step].lstat().st_size for step in removed)
    return Pruning(removed, freed, plan.kept, needed, tuple(written))


def _rewritten(
    directory: Path, plan: Pruning, ancestry: Ancestry, dry_run: bool, system: System
) -> list[Rewriting]:
    """Write the kept steps anew whose parents are to go: against a kept one, or as keyframes.

    A step that cannot be restored stays as it is, with what it needs.
    """
    steps = steps_of(directory, directory_names(directory))
    written = []
    for step in plan.kept:
        parent = ancestry.parent(step, steps)
        if parent is None or parent in plan.kept:
            continue
        while parent is not None and parent not in plan.kept:  # to the next that is kept, if any
            parent = ancestry.parent(parent, steps) if parent in steps else None
        try:
            found = rewrite_step(directory, step, parent, dry_run=dry_run, system=system)
        except (ChainError, DataError) as error:
            warn(f"{directory}: step {step} cannot be written anew, so what it needs stays: {error}")
            continue
        if found is not None:
            written.append(found)
    return written


def _plan(directory: Path, keep: Keep, ancestry: Ancestry) -> tuple[Pruning, dict[int, Path]]:
    """Return what goes and what stays, and the files that go."""
    names = directory_names(directory)
    steps = steps_of(directory, names)
    if not steps:
        raise ChainError(no_checkpoint(directory))
    ancestry.unreadable.clear()
    kept = keep.choose(steps, lambda step: ancestry.metadata(step, steps))
    if not kept:
        raise ArgumentError(f"{keep} keeps none of the {len(steps)} steps of {directory}")
    newest = max(steps)
    kept.setdefault(newest, "newest")
    kept.update({step: "pinned" for step in pinned_among(names) if step in steps and step not in kept})
    kept = dict(sorted(kept.items()))
    if len(kept) == len(steps):
        return Pruning((), 0, kept), {}
    needed = ancestry.needed(kept, steps)
    for step, problem in ancestry.unreadable.items():
        message = (
            f"{directory}: step {step} cannot be read, so it is taken to need the step before: {problem}"
        )
        warn(message)
    doomed = {step: path for step, path in steps.items() if step not in kept and step not in needed}
    with storage_errors("cannot look at", directory):
        freed = sum(path.lstat().st_size for path in doomed.values())
    return Pruning(tuple(doomed), freed, kept, needed), doomed
