"""Saving the states of one chain: plan, code, commit; and the reference that the next delta needs.

A save commits the exact file, if it writes one, and then the checkpoint. If one of them cannot be
written, as on a full disk (ENOSPC), the state is kept in the other. A step that only the exact file
has is added to the history by the next save. So is a step whose checkpoint is lost, before its
exact file goes, unless parity or a mirror gives the checkpoint back as it was.

Source: SPEC 9 (LCC-EXA-05, LCC-EXA-06).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...container.manifest import Manifest
from ...container.tree import flatten
from ...errors import ChainError, DataError, LccodecError, StorageError, reason_of, warn
from ...frame.encode import Effort
from ...policy.hindsight import end_quantizers
from ...policy.record import Record, needed_record, read_record, write_record
from ...workers.crew import Crew
from ..overview import OnProgress, no_progress
from ..read.checkpoint import open_exact
from ..store.claim import ClaimedError
from ..store.store import OvertakenError, Store, WritableStore, checkpoint_name
from .encode import plan_manifest
from .exact import ExactRoot, Newest, renew_newest
from .hash_reference import HashReference
from .hindsight import DeltaBase, Groups
from .measurement import NOTHING, Measurement, Sampling
from .partial import over_parent
from .plan import SavedState, SavePlan, candidates, make_plan
from .reference import (
    Latest,
    LostParentError,
    NeededFile,
    Reference,
    ValueReference,
    find_latest,
    held_together,
)
from .settings import Settings

#: What settling a group may take, as a part of the time of the save that it follows.
_SETTLING_SHARE: Final = 0.5


@dataclass(eq=False)
class _Attempt:
    """A save. It is over when it says so, or when nobody has it any more."""

    step: Any
    state: SavedState
    tell: OnProgress  # told how many arrays are coded
    claim: Callable[[], object]  # takes the claim once the place of the chain is there
    exact_suffices: bool  # if the checkpoint cannot be written
    is_over: bool = False


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A save of which nothing is written yet."""

    base: DeltaBase  # what it is coded against
    state: SavedState  # what it stores, with what it takes from its parent
    plan: SavePlan  # how it stores that
    # `record`, `effort`: what the checkpoint must record, and how hard an encoder tries.
    record: Record
    effort: Effort
    sampling: Sampling  # what its figures sample

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of the checkpoint, without its frames."""
        parent, written = None, write_record(self.record)
        if self.plan.parent is not None and self.base.reference is not None:
            parent = self.base.reference.links[-1].root, self.base.reference.manifest.tree
        flat, metadata = self.state.flat, self.state.metadata
        return plan_manifest(self.plan, flat, step=step, policy=written, metadata=metadata, parent=parent)


class Saver:
    """Saves states to a store, and keeps the latest as decoded; for one thread at a time.

    `gives_back` returns whether parity or a mirror gives a checkpoint back, by its name.
    """

    def __init__(
        self,
        store: WritableStore,
        settings: Settings,
        crew: Crew,
        gives_back: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._settings = settings
        self._newest = Newest(store, settings.given.newest == "exact", settings.every.exact)
        self._reference: Reference = ValueReference(store, crew)
        if settings.reference == "hashes":
            self._reference = HashReference(store, crew.heartbeat)
        self._groups = Groups(store, settings.every.end, settings.every.keyframe)
        self._crew = crew
        self._renewed = partial(renew_newest, store, gives_back)
        self._latest: Latest | None = None
        self._attempt: weakref.ref[_Attempt] | None = None  # the last save, which alone may commit

    @property
    def latest(self) -> Latest | None:
        """The newest checkpoint as decoded, if it is at hand. The next save changes its arrays."""
        return self._latest if self._reference.has_values else None

    def forget(self) -> None:
        """Release the reference; the next save reads it from the files."""
        self._latest = None
        self._groups.forget()
        self._reference.forget()

    def settle(self) -> None:
        """Settle the groups that are complete: no save follows that would do it."""
        self._groups.settle_rest()

    def save(
        self,
        step: Any,
        state: SavedState,
        tell: OnProgress = no_progress,
        claim: Callable[[], object] = lambda: None,
    ) -> int:
        """Store a state, and return the bytes of its file; see `Chain.save`.

        `tell` is told after each frame how many arrays are coded. `claim` takes the claim, before
        anything is written, in the place of the chain, which is there then. By default the caller
        has it.
        """
        # The exact file of a selection cannot be written twice: it takes the place of that of the
        # parent, which has the rest.
        attempt = _Attempt(step, state, tell, claim, exact_suffices=state.is_selection)
        before = None if self._attempt is None else self._attempt()
        if before is not None and not before.is_over:  # a signal handler saves, within another save
            self._store.revoke_unfinished()
            self.forget()
        self._attempt = weakref.ref(attempt)
        try:
            return self._save(attempt)
        except ClaimedError:
            raise
        except (OvertakenError, LostParentError) as error:
            raise ChainError(str(error)) from error
        except ChainError as error:  # what the delta was taken against is gone
            self._check(attempt)
            warn(f"{self._store.path}: the save was started again: {error}")
            self._latest = None  # it may be what was wrong
            attempt.exact_suffices = True
            return self._save(attempt)
        finally:
            attempt.is_over = True

    def _check(self, attempt: _Attempt, _: object = None) -> None:
        """Raise ``OvertakenError`` if another save has begun since; called before each commit."""
        if self._attempt is None or self._attempt() is not attempt:
            self.forget()  # it was written to by two
            raise OvertakenError(
                f"{self._store.path}: step {attempt.step} is given up: a signal handler has saved meanwhile"
            )

    def _save(self, attempt: _Attempt) -> int:
        """Store a state as a delta to what is there now, or as a keyframe.

        Raises ``ChainError`` if what the delta was taken against is gone. In the last attempt, only
        if there is no exact file that keeps the state.
        """
        start = time.perf_counter()
        listed = self._store.snapshot()
        step, unfinished = listed.next_step(attempt.step)
        if unfinished is not None:
            self._finish(unfinished, attempt)
            listed = self._store.snapshot()
            if attempt.state.is_selection and unfinished not in listed.checkpoints():
                raise LostParentError(f"only= adds to step {unfinished}, which is not in the history")
        record = self._settings.record
        save = self._prepare(listed, attempt.state, record, self._renewed)
        self._settings.examine(save.plan, record, is_finished=save.state.again is not None)
        manifest = save.manifest(step)
        self._store.make()
        attempt.claim()
        self._store.remove_stale()
        exact: ExactRoot | None = None
        problem: str | None = None
        if record.newest == "exact":
            check = partial(self._check, attempt)
            exact, problem = self._newest.write(
                save.plan, save.state.flat, manifest, save.base.reference, check
            )
            manifest = replace(manifest, exact=None if exact is None else exact.root)
        try:
            link = self._write(save, manifest, attempt, attempt.tell)
        except (StorageError, DataError, ChainError, MemoryError) as error:
            self._check(attempt)  # or what is wrong is that it was overtaken
            if self._has_room(step, error):
                return self._save(attempt)
            if exact is None or (isinstance(error, ChainError) and not attempt.exact_suffices):
                raise
            warn(
                f"step {step} is saved, but only in the exact file; the next save adds it to the history:"
                f" {reason_of(error)}"
            )
            return exact.size
        if record.newest == "history":
            self._newest.remove(step)
        seconds = time.perf_counter() - start
        self._settings.saved(save.plan, step, link.size, seconds)
        self._groups.settle(_SETTLING_SHARE * seconds, self._crew.heartbeat)
        # Warnings come last: a user may have made errors of them.
        if problem is not None:
            warn(f"step {step} is saved, but {problem}")
        self._reference.warn()
        return link.size

    def _finish(self, step: int, attempt: _Attempt) -> None:
        """Add the step that only the exact file has to the history."""
        try:
            with open_exact(self._store) as file:
                manifest, root = file.links[-1].manifest, file.links[-1].reader.root
                flat = flatten(file.state(dtype="bits"))
            record = read_record(manifest.policy)
            state = SavedState(flat, manifest.metadata, record.known_of(flat.names))
            save = self._prepare(self._store.snapshot(), state, record)
            self._write(save, replace(save.manifest(step), exact=root), attempt, no_progress)
        except (LccodecError, OSError, MemoryError) as error:
            self._check(attempt)
            if self._has_room(step, error):
                return self._finish(step, attempt)
            warn(
                f"{self._store.path}: step {step}, which only the exact file has, cannot be added to the"
                f" history, and may be lost: {reason_of(error)}"
            )

    def _has_room(self, step: int, error: Exception) -> bool:
        """Return whether a step for which there was no room may have it now."""
        if not self._reference.makes_room(error):
            return False
        return step not in self._store.checkpoints()  # where only a sync may have failed

    def plan(self, state: SavedState) -> SavePlan:
        """Return what the next save would do with a state. Nothing is written."""
        with self._reference.planning():
            save = self._prepare(self._store.snapshot(), state, self._settings.record)
        return replace(save.plan, group=self._groups.fate(save.base), settles=bool(self._settings.every.end))

    def _prepare(
        self,
        listed: Store,
        state: SavedState,
        record: Record,
        mended: Callable[[], Store | None] = lambda: None,
    ) -> _Prepared:
        """Return what a save would write; `mended` is as for `find_latest`."""
        settings = self._settings
        latest = find_latest(
            self._latest,
            store=listed,
            steps=list(listed.checkpoints()),
            read=self._reference.read,
            mended=mended,
            is_needed=state.is_selection,
        )
        self._latest = latest or self._latest
        base = self._groups.base(latest, record.policy, state.closes)
        state, base = over_parent(state, base, settings.every.keyframe)
        reference = base.reference
        parents = {} if reference is None else reference.arrays
        compared = candidates(state.flat, parents, record.roles, state.known)
        for c in compared:
            c.inherited = c.name in state.inherited
        self._reference.compare(compared, reference, base.is_keyframe)
        # As a rule a state has the same arrays as that before, and is sampled as that.
        known = None
        if reference is not None and reference is base.latest and reference.originals is not None:
            known = reference.originals.sampling
        sampling = known if known is not None and known.fits(compared, parents) else Sampling(compared)
        if base.latest is not None:
            self._reference.look_back(base.latest, compared, sampling)
        policy = record.of_state(state.metadata).policy
        plan = make_plan(
            compared,
            policy,
            None if base.is_keyframe or reference is None else reference.step,
            width=settings.width,
            first=state.first,
            overrides={} if base.moved is None else end_quantizers(policy, compared, base.moved),
            renew=base.is_renewed,
            again=state.again or {},
        )
        self._reference.check(plan)
        needed = needed_record(record, compared, state.known)
        return _Prepared(base, state, plan, needed, record.policy.effort, sampling)

    def _write(self, save: _Prepared, manifest: Manifest, attempt: _Attempt, tell: OnProgress) -> NeededFile:
        """Write a checkpoint, and keep it as the reference of the next one."""
        base, plan = save.base, save.plan
        self._latest = None  # coding overwrites its arrays, so it must not stay if coding fails
        reference = base.reference
        if reference is not None and reference is not base.latest:
            reference = reference.copied()
        arrays, entries, step = dict({} if reference is None else reference.arrays), [], manifest.step or 0
        done, total = 0, sum(len(frame.arrays) for frame in plan.frames)
        before = base.latest
        originals = NOTHING if before is None else before.originals or NOTHING
        measurement = Measurement(plan.candidates, save.sampling, plan.losing(), originals)

        def before_commit(_: Path) -> None:
            self._check(attempt)
            self._crew.heartbeat()
            if plan.parent is not None and reference is not None:
                held.enter_context(held_together(reference, self._store))

        with self._store.writer(checkpoint_name(step)) as writer, ExitStack() as held:
            coded = self._reference.encode(plan, reference, save.effort)
            for frame, (chunks, decoded) in zip(plan.frames, coded, strict=True):
                entries.append(writer.write_frame(chunks))
                for index in frame.arrays:
                    measurement.take(index)
                arrays.update(decoded)
                done += len(decoded)
                tell(done, total)
            if plan.copies:
                arrays.update(self._reference.copies(plan, arrays))
            figures = measurement.figures(arrays, None if before is None else before.manifest)
            manifest = replace(manifest, frames=tuple(entries), figures=figures)
            root = writer.commit(manifest, before_commit)
        links = () if plan.parent is None or reference is None else reference.links
        link = NeededFile(step, root, writer.size)
        decoded = self._reference.keep(step, root, arrays, save.state.flat.names)
        manifest = replace(manifest, tree=save.state.flat.tree)
        self._latest = Latest((*links, link), manifest, decoded, measurement.samples)
        self._groups.saved(base, self._latest, plan.candidates)
        return link
