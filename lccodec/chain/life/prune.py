"""Which steps stay: pinned ones, those that links name or a rule keeps; and the removal of others.

A pin is an empty file that says that a checkpoint must not be removed, by this process or another.
It is made and looked for while the lock of the store is held. So a checkpoint is pinned before a
prune looks, or it is already gone, and then the pin is refused.

A *link* is a small file elsewhere that names a step (:mod:`lccodec.adapters.chains`). It pins the
step as long as it lives: it has a second name in ``.links`` in the directory of the chain, and
where that is the only one left, the link is gone. So nobody has to tell when a link is deleted,
and a link may be renamed or moved.

A path may be a second name of the exact file. A save replaces the exact file and never changes it
(LCC-EXA-05). So a file that has another name stays as it is, whatever becomes of the chain, and
takes no bytes while it is the newest. A Reader of one file does not need its name.

A prune removes steps that are not kept, and that no kept step needs. Kept are the steps that match
a `Keep` (a rule in the words of Orbax, restic and Lightning), pinned steps, those that a link
names, and the newest step, because the next delta is taken against it. Kept files do not change,
and what they need stays until nothing needs it. With `rewrite`, they are rewritten with the same
state, so that they need only kept steps.

Every chain loads this module, so what it seldom needs is imported where it is used.

Source: SPEC 9 (LCC-CHN-07, LCC-CHN-09, LCC-CHN-10, LCC-EXA).
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ...constants import EXACT_NAME
from ...container.checkpoint import CheckpointWriter
from ...container.folder import Folder, duplicate
from ...container.system import storage_errors
from ...container.tree import Flat
from ...errors import ArgumentError, ChainError, DataError, LccodecError, as_integer, warn
from ...table import Overview, Shown, ranges_text
from ..behind import Behind, Change
from ..mend.mirror import Mirrors
from ..mend.protect import ParityBehind, Redundancy, forget, renew
from ..overview import OnProgress, counted, no_progress
from ..read.checkpoint import open_exact, open_step
from ..save.settings import log
from ..store.claim import Claim
from ..store.directory import DirectoryStore, as_directory, in_chain
from ..store.lineage import Ancestry, Lineage
from ..store.store import (
    Store,
    WritableStore,
    checkpoint_name,
    checkpoints_among,
    pin_name,
    pins_among,
    step_index,
)

if TYPE_CHECKING:
    from .compact import Rewriting


#: The directory of the second names of links, in that of the chain.
LINKS_NAME: Final = ".links"


def pin(store: WritableStore, step: int) -> None:
    """Pin a step: no prune and no rollback removes it, nor what it needs.

    Raises
    ------
    ChainError
        If there is no such step, or a parent is missing.
    DataError, StorageError
        If it cannot be read, or the operating system refuses.
    """
    step = step_index(step)
    open_step(store, step).close()  # without such a store there is nothing to lock
    with storage_errors("cannot pin", store.path / pin_name(step)), store.locked() as held:
        open_step(store, step).close()
        held.add(pin_name(step))
        held.sync()


def pin_exact(store: WritableStore, step: int, claim: Claim | None = None) -> None:
    """Pin a step that is stored without loss, or make it so from the exact file, which has it.

    Parameters
    ----------
    claim
        The claim of a `Chain`, which may be held already.

    Raises
    ------
    ChainError
        If the exact state is gone, as a later step was saved; or as for `pin`; or if another writer
        saves to the chain. Nothing has changed.
    DataError, StorageError
        As `pin`. The step can be restored.
    """
    from ..save.exact import checkpoint_from_exact
    from .compact import end_at
    from .transfer import has_exact

    step = step_index(step)
    with (claim or store.claim()).held():
        with open_step(store, step) as file:
            lossy = any(array.lossy for array in file.info().arrays) or not store.has(checkpoint_name(step))
        if lossy and not has_exact(store, step):
            raise ChainError(
                f"{store.path}: the exact state of step {step} is gone: it can be kept while the step is the"
                " newest, or by save(..., exact=True)"
            )
        pin(store, step)
        if lossy:
            with storage_errors("cannot write", store.path), store.locked():
                redundancy = forget(store, [checkpoint_name(step)])
                end_at(store, step - 1)  # what is interpolated from the step needs its values as they were
                checkpoint_from_exact(store)
            renew(store, redundancy)


def unpin(store: WritableStore, step: int) -> bool:
    """Remove the pin of a step; return whether there was one."""
    name = pin_name(step_index(step))
    pinned = store.has(name)
    if pinned:
        store.remove([name])
    return pinned


def add_link(store: DirectoryStore, step: int, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a link, which pins a step until its file is gone. An existing file is replaced.

    Where the file can have no second name in the chain, as on another file system, the step is
    pinned for good.
    """
    from ..save.single_file import save_file  # here, as every chain loads this module

    with storage_errors("cannot link to", path), store.locked() as held:
        held.make(LINKS_NAME)
        with held.inner(LINKS_NAME) as links, Folder(path.parent, store.system) as folder:
            links.remove(name for name in links.names() if not _lives(links, name))
            name = f"{step:012d}-{secrets.token_hex(8)}"
            save_file(None, links.path / name, metadata)
            duplicate(links.path / name, folder, path.name, overwrite=True)
            folder.sync()
            if not _lives(links, name):
                held.add(pin_name(step))
                held.sync()
                links.remove([name])
                log(
                    logging.WARNING,
                    "%s: step %s is pinned: it cannot be known how long %s lives",
                    store.path,
                    step,
                    path,
                )


def linked_steps(store: Store) -> set[int]:
    """Return the steps that links name which are still there."""
    if not store.has_folder(LINKS_NAME):
        return set()
    with (
        storage_errors("cannot list", store.path),
        Folder(as_directory(store, "a link").path, store.system) as folder,
        folder.inner(LINKS_NAME) as links,
    ):
        alive = [name.partition("-")[0] for name in links.names() if _lives(links, name)]
    return {int(step) for step in alive if step.isdecimal()}


def _lives(links: Folder, name: str) -> bool:
    """Return whether a link has a name elsewhere, too."""
    with suppress(FileNotFoundError):
        return (links.path / name).stat().st_nlink > 1
    return False


def name_exact(store: DirectoryStore, step: int, path: Path) -> bool:
    """Give the exact file of a chain a name at a path, if it is of that step; return whether it is.

    Where there are no hard links, as on another file system, the file is copied. Raises
    ``ArgumentError`` if the path is that of a file of a chain. After an error, an existing file is
    unchanged.
    """
    from .transfer import has_exact

    if in_chain(path):
        raise ArgumentError(f"{path} is a checkpoint of a chain: choose another name or directory")
    if not has_exact(store, step):
        return False
    with storage_errors("cannot write", path), Folder(path.parent, store.system) as folder:
        duplicate(store.path / EXACT_NAME, folder, path.name, overwrite=True)
        folder.sync()
    return True


def name_again(store: DirectoryStore, step: int, path: Path, flat: Flat, metadata: Mapping[str, str]) -> bool:
    """Give a state that the newest step of a chain has a name at a path; return whether it has it.

    The arrays must be the same, bit for bit. Where scalars differ, as in what trainers note of
    their callbacks, the file is one of its own, with these.

    Errors are those of `name_exact`.
    """
    from ..save.exact import chunks_of
    from ..save.plan import candidates
    from .transfer import has_exact

    if not has_exact(store, step):
        return False
    with open_exact(store, strict=True) as file:
        link = file.links[-1]
        if link.index_names != flat.names:
            return False
        for array, c in zip(file.decoded(), candidates(flat, {}), strict=True):
            if (array.kind, array.shape) != (c.kind, c.shape) or not np.array_equal(array.bits, c.bits):
                return False
        manifest = replace(link.manifest, tree=flat.tree, scalars=flat.scalars, metadata=dict(metadata))
        if repr(manifest) == repr(link.manifest):
            return name_exact(store, step, path)
        with CheckpointWriter(path, overwrite=True) as writer:
            for index in range(len(manifest.frames)):
                writer.write_frame(chunks_of(link.reader, index))
            writer.commit(manifest)
    return True


_BEST_OF: Final = ("min", "max")
_BEST_PARTS: Final = 3  # how many, of what, and of which end


@dataclass(frozen=True)
class Keep:
    """Which steps to keep when a chain is pruned. A step is kept if any part matches.

    Parameters
    ----------
    latest
        Number of newest steps to keep.
    every
        Keep steps that are a multiple of this number.
    best
        How many steps to keep, the name of a number to rank them by, and whether the ``"min"`` or
        the ``"max"`` is best, as in ``(3, "loss", "min")``. The number is in the metrics or the
        metadata of a save, or is a scalar of the state. Among equal values, later steps are kept.
        Steps without the number are not ranked.
    steps
        Steps to keep.
    newer_than
        Keep steps whose files were written after this `datetime`, or within this `timedelta`
        before now. Files with a time in the future count as newer.

    Raises
    ------
    ArgumentError
        If a parameter is invalid, or if none is given.

    Examples
    --------
    >>> Keep(latest=3, every=100, best=(2, "loss", "min"))
    Keep(latest=3, every=100, best=(2, 'loss', 'min'), steps=(), newer_than=None)
    """

    latest: int | None = None
    every: int | None = None
    best: tuple[int, str, Literal["min", "max"]] | None = None
    steps: Iterable[int] = ()
    newer_than: timedelta | datetime | None = None

    def __post_init__(self) -> None:
        try:
            steps = tuple(sorted({step_index(step) for step in self.steps}))
        except TypeError:
            raise ArgumentError(f"steps must be integers; got {self.steps!r}") from None
        object.__setattr__(self, "steps", steps)
        for name in ("latest", "every"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _positive(value, name))
        if self.best is not None:
            object.__setattr__(self, "best", _checked_best(self.best))
        limit = self.newer_than
        if limit is not None and not isinstance(limit, timedelta | datetime):
            raise ArgumentError(f"newer_than must be a timedelta or a datetime; got {limit!r}")
        if not (self.latest or self.every or self.best or self.steps or limit is not None):
            raise ArgumentError("Keep() would keep nothing: give latest, every, best, steps or newer_than")

    def choose(
        self,
        there: Sequence[int],
        numbers: Callable[[int], Mapping[str, float]],
        written: Callable[[int], float],
    ) -> dict[int, str]:
        """Return the steps to keep, in rising order, each with the reason.

        Of the steps `there`, which are rising, `numbers` returns the numbers beside the arrays, and
        `written` when the file was written, in seconds since 1970. They are called only for `best`
        and `newer_than`.
        """
        found: dict[int, str] = {}
        if self.latest is not None:
            found.update(dict.fromkeys(there[-self.latest :], "latest"))
        if self.every is not None:
            every = self.every
            _add(found, (step for step in there if step % every == 0), f"every {every}")
        if self.best is not None:
            _add(found, self._best(there, numbers), f"best {self.best[1]}")
        _add(found, (step for step in self.steps if step in there), "asked for")
        if self.newer_than is not None:
            _add(found, self._newer(there, written), "newer")
        return dict(sorted(found.items()))

    def _best(self, there: Iterable[int], numbers: Callable[[int], Mapping[str, float]]) -> list[int]:
        count, key, which = self.best or (0, "", "min")
        sign = 1 if which == "min" else -1
        values = {step: numbers(step).get(key, math.nan) for step in there}
        ranked = sorted((sign * value, -step) for step, value in values.items() if not math.isnan(value))
        return [-step for _, step in ranked[:count]]

    def _newer(self, there: Iterable[int], written: Callable[[int], float]) -> list[int]:
        limit = self.newer_than
        if isinstance(limit, timedelta):
            oldest = time.time() - limit.total_seconds()
        else:
            oldest = limit.timestamp() if limit is not None else math.inf
        return [step for step in there if written(step) >= oldest]


def check_keep(keep: Keep | None) -> Keep | None:
    """Return `keep`; raise ``ArgumentError`` if it is neither None nor a `Keep`."""
    if keep is not None and not isinstance(keep, Keep):
        raise ArgumentError(f"keep must be an lccodec.Keep; got {keep!r}")
    return keep


def _add(found: dict[int, str], steps: Iterable[int], why: str) -> None:
    for step in steps:
        found[step] = f"{found[step]}, {why}" if step in found else why


def _positive(value: object, name: str) -> int:
    index = as_integer(value)
    if index is None or index < 1:
        raise ArgumentError(f"{name} must be a positive integer; got {value!r}")
    return index


def _checked_best(best: object) -> tuple[int, str, str]:
    if not isinstance(best, tuple | list) or len(best) != _BEST_PARTS:
        raise ArgumentError(f'best must be a tuple such as (3, "loss", "min"); got {best!r}')
    count, key, which = best
    if not isinstance(key, str) or which not in _BEST_OF:
        raise ArgumentError(
            f'best must be a tuple such as (3, "loss", "min") or (3, "accuracy", "max"); got {best!r}'
        )
    return _positive(count, "the first of best"), key, which


@dataclass(frozen=True, repr=False)
class Pruning(Shown):
    """What `Chain.prune` removed and kept, or would with ``dry_run=True``.

    Parameters
    ----------
    removed
        The steps that are removed.
    freed
        Size of their files in bytes.
    kept
        Steps that were kept, each with the reason.
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

    def _overview(self) -> Overview:
        steps = sorted({*self.removed, *self.kept, *self.needed})
        facts: dict[str, object] = {"removed": ranges_text(self.removed, steps) or "nothing"}
        for why in dict.fromkeys(self.kept.values()):
            kept = [step for step, reason in self.kept.items() if reason == why]
            facts[f"kept, {why}"] = ranges_text(kept, steps)
        facts |= {"kept, needed by them": ranges_text(sorted(self.needed), steps)} if self.needed else {}
        if self.rewritten:
            facts["rewritten"] = ranges_text(sorted(each.step for each in self.rewritten), steps)
        size = f"{len(self.removed):,} of {len(steps):,} checkpoints, {self.freed:,} bytes"
        return Overview(f"Pruning of {size}", facts)


def prune(
    store: WritableStore,
    keep: Keep,
    *,
    rewrite: bool = False,
    dry_run: bool = False,
    wait: bool = True,
    ancestry: Ancestry | None = None,
    mirrored: Collection[int] = (),
    tell: OnProgress = no_progress,
    again: Callable[[WritableStore, Redundancy | None], object] = renew,
) -> Pruning:
    """Remove the checkpoints that are not kept and that no kept one needs.

    Parameters
    ----------
    rewrite
        Whether to rewrite kept checkpoints, so that they need only kept ones.
    wait
        Whether to wait for other processes that pin or remove steps; if not, and there are any,
        nothing is removed.
    ancestry
        What an earlier prune has learned about the files.
    mirrored
        The steps by which mirrors are known to be of this chain; they stay.
    tell
        Is told how many checkpoints are rewritten, removed or stay, and how many there are.
    again
        Is given the redundancy that there was, and protects what is left. The parity of what goes
        went first.

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
    ancestry = Ancestry(store) if ancestry is None else ancestry
    if dry_run or not store.checkpoints():
        return _dry_run(store, keep, ancestry, mirrored, rewrite, tell)
    removed, freed = set[int](), 0
    written: list[Rewriting] = []
    lock = store.locked() if wait else store.locked_if_free()
    with storage_errors("cannot prune", store.path), lock as held:
        store.remove_stale()
        plan, doomed = _plan(store, keep, ancestry, mirrored)
        redundancy: Redundancy | None = None
        if held is None:
            return Pruning((), 0, plan.kept, plan.needed)
        total = len(plan.kept) + len(plan.needed) + len(doomed)
        if rewrite:
            written = _rewritten(store, plan, ancestry, False, tell)
        done = False
        while not done:
            plan, doomed = _plan(store, keep, ancestry, mirrored)
            pinned = store.pins()
            redundancy = forget(store, doomed.values()) or redundancy
            for group in Lineage.named(store, doomed).waves():
                if store.pins() != pinned:  # where there are no locks
                    break
                names = [doomed[step] for step in group]
                size = store.size(names)
                held.remove(names)
                removed.update(group)
                freed += size
                tell(total - sum(step not in removed for step in doomed), total)
            else:
                done = True
        if not removed:
            tell(total, total)
    if removed or written:
        again(store, redundancy)
    return Pruning(tuple(sorted(removed)), freed, plan.kept, plan.needed, tuple(written))


def _dry_run(  # as `prune`
    store: WritableStore,
    keep: Keep,
    ancestry: Ancestry,
    mirrored: Collection[int],
    rewrite: bool,
    tell: OnProgress,
) -> Pruning:
    plan, _ = _plan(store, keep, ancestry, mirrored)
    if not rewrite or not plan.needed:
        return plan
    written = _rewritten(store, plan, ancestry, True, tell)
    steps = store.checkpoints()
    parents = {each.step: () if each.parent is None else (each.parent,) for each in written}
    needed = ancestry.lineage(steps, parents).needed(plan.kept)
    removed = tuple(step for step in steps if step not in plan.kept and step not in needed)
    freed = store.size(steps[step] for step in removed)
    return Pruning(removed, freed, plan.kept, needed, tuple(written))


def _rewritten(
    store: WritableStore, plan: Pruning, ancestry: Ancestry, dry_run: bool, tell: OnProgress
) -> list[Rewriting]:
    """Write the kept steps anew whose parents are to go: against a kept one, or as keyframes.

    A step that cannot be restored stays as it is, with what it needs.
    """
    from .compact import rewrite as rewrite_step

    steps = store.checkpoints()
    lineage = ancestry.lineage(steps)
    deltas = set(steps) - lineage.interpolated().keys()  # may be parents of deltas
    written = []
    for step in counted(plan.kept, tell, len(steps)):
        if all(parent in plan.kept for parent in lineage.parents(step)):
            continue
        parent: int | None = step
        while parent is not None and (parent == step or parent not in plan.kept or parent not in deltas):
            parent = next(iter(lineage.parents(parent)), None)  # to the next that is kept, if any
        try:
            found = rewrite_step(store, step, parent, dry_run=dry_run)
        except (ChainError, DataError) as error:
            warn(f"{store.path}: step {step} cannot be rewritten, so what it needs stays: {error}")
            continue
        if found is not None:
            written.append(found)
            deltas.add(step)
    return written


def _plan(
    store: WritableStore, keep: Keep, ancestry: Ancestry, mirrored: Collection[int]
) -> tuple[Pruning, dict[int, str]]:
    """Return what goes and what stays, and the files that go."""
    names = store.names()
    steps = checkpoints_among(names)
    if not steps:
        raise ChainError(store.nothing())
    ancestry.unreadable.clear()
    kept = keep.choose(
        list(steps), lambda step: ancestry.numbers(step, steps), lambda step: store.written(steps[step])
    )
    if not kept:
        raise ArgumentError(f"{keep} keeps none of the {len(steps)} steps of {store.path}")
    newest = max(steps)
    kept.setdefault(newest, "newest")
    others = [("pinned", pins_among(names)), ("named by a link", linked_steps(store))]
    for why, staying in (*others, ("last in a mirror", mirrored)):
        for step in staying:
            if step in steps:
                kept.setdefault(step, why)
    kept = dict(sorted(kept.items()))
    if len(kept) == len(steps):
        return Pruning((), 0, kept), {}
    needed = ancestry.lineage(steps).needed(kept)
    for step, problem in ancestry.unreadable.items():
        why = f"cannot be read, so it is taken to need the step before: {problem}"
        warn(f"{store.path}: step {step} {why}")
    doomed = {step: name for step, name in steps.items() if step not in kept and step not in needed}
    return Pruning(tuple(doomed), store.size(doomed.values()), kept, needed), doomed


class KeepBehind(Behind):
    """Prunes a chain after each save, before that returns, if there is something to `keep`.

    Without `parity`, that which was there is made anew at once after a prune.
    """

    def __init__(
        self,
        store: WritableStore,
        keep: Keep | None,
        ancestry: Ancestry,
        parity: ParityBehind | None = None,
        mirrors: Mirrors | None = None,
    ) -> None:
        self.acts = keep is not None
        self._store, self._keep, self._ancestry = store, keep, ancestry
        self._again = renew if parity is None else lambda _, redundancy: parity.went(redundancy)
        self._mirrored = set if mirrors is None else mirrors.needed_steps

    def after(self, change: Change) -> None:
        """Remove what is not kept, if the change is a save. An error is only a warning."""
        if self._keep is None or not change.is_save:
            return
        how: dict[str, Any] = {"ancestry": self._ancestry, "again": self._again}
        try:
            prune(self._store, self._keep, wait=False, mirrored=self._mirrored(), **how)
        except (LccodecError, OSError) as error:
            warn(f"{self._store.path}: the state is saved, but pruning the chain failed: {error}")
