"""Thinning out a chain: what nobody keeps and nothing that is kept needs is removed.

Kept are the steps that a `Keep` wants, the newest step, since the next delta is taken against it,
and pinned steps. A kept file never changes. What it needs stays until nothing needs it.

Source: SPEC 9 (LCC-CHN-07, LCC-CHN-09).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..container.system import SYSTEM, System, directory_lock, storage_errors
from ..container.writer import remove_stale_temporaries
from ..errors import ArgumentError, ChainError, LccodecWarning
from .ancestry import Ancestry
from .directory import directory_names, steps_of
from .keep import Keep, check_keep
from .pins import pinned_among, pinned_steps
from .removal import remove_files, waves


@dataclass(frozen=True)
class Pruning:
    """What a prune removes and what it keeps, or would.

    Parameters
    ----------
    removed
        The steps that go.
    freed
        Bytes of their files.
    kept
        The steps that are kept, each with the reason.
    needed
        The steps that stay only because a kept step needs them, each with the lowest such step.
    """

    removed: tuple[int, ...]
    freed: int
    kept: Mapping[int, str]
    needed: Mapping[int, int] = field(default_factory=dict)


def prune(
    directory: Path,
    keep: Keep,
    *,
    dry_run: bool = False,
    wait: bool = True,
    ancestry: Ancestry | None = None,
    system: System = SYSTEM,
) -> Pruning:
    """Remove the checkpoints that are not kept, and that no kept one needs.

    Parameters
    ----------
    keep
        What to keep.
    dry_run
        Whether only to say what would be done.
    wait
        Whether to wait for others that pin or remove; if not, nothing is removed beside them.
    ancestry
        What is known of the files, from an earlier prune.

    Raises
    ------
    ArgumentError
        If `keep` wants no step that is there. Nothing is removed.
    ChainError
        If there is no checkpoint.
    StorageError
        If the operating system refuses. What is there can be restored.
    """
    check_keep(keep)
    ancestry = Ancestry() if ancestry is None else ancestry
    if dry_run or not os.path.lexists(directory):
        return _plan(directory, keep, ancestry)[0]
    removed: set[int] = set()
    freed = 0
    with storage_errors("cannot prune", directory), directory_lock(directory, system, wait=wait) as free:
        remove_stale_temporaries(directory, system)
        while True:
            plan, doomed = _plan(directory, keep, ancestry)
            if not free:
                return Pruning((), 0, plan.kept, plan.needed)
            pinned = pinned_steps(directory)
            for group in waves(doomed):
                if pinned_steps(directory) != pinned:  # where there are no locks
                    break
                sizes = [doomed[step].stat().st_size for step in group]
                remove_files([doomed[step] for step in group], directory, system)
                removed.update(group)
                freed += sum(sizes)
            else:
                break
    return Pruning(tuple(sorted(removed)), freed, plan.kept, plan.needed)


def _plan(directory: Path, keep: Keep, ancestry: Ancestry) -> tuple[Pruning, dict[int, Path]]:
    """Return what goes and what stays, and the files that go."""
    names = directory_names(directory)
    steps = steps_of(directory, names)
    if not steps:
        raise ChainError(f"{directory} holds no checkpoint")
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
        warnings.warn(message, LccodecWarning, stacklevel=4)
    doomed = {step: path for step, path in steps.items() if step not in kept and step not in needed}
    with storage_errors("cannot look at", directory):
        freed = sum(path.stat().st_size for path in doomed.values())
    return Pruning(tuple(doomed), freed, kept, needed), doomed
