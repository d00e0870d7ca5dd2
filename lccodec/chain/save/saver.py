"""Saving the states of one chain: plan, code, commit; and the reference that the next delta needs.

A save commits the exact file, if it writes one, and then the checkpoint. If one of them cannot be
written, the state is kept in the other. A step that only the exact file has is added to the history
by the next save. So is a step whose checkpoint is lost, before its exact file goes, unless parity
or a mirror gives the checkpoint back as it was.

Source: SPEC 9 (LCC-EXA-05, LCC-EXA-06).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...container.manifest import Manifest
from ...container.tree import Flat, flatten
from ...errors import ChainError, DataError, LccodecError, StorageError, reason_of, warn
from ...frame.encode import Effort
from ...policy.copies import mark_copies
from ...policy.presets import POLICIES
from ...policy.record import EXACT_KEY, Record, needed_record, read_record, write_record
from ...policy.roles import Assignment
from ...policy.trained import mark_trained
from ...workers.crew import Crew
from ..progress import Tell, untold
from ..read.exact import open_exact
from ..store.names import checkpoint_name
from ..store.store import OvertakenError, Store, WritableStore
from .encode import decoded_copies, encode_plan, plan_manifest
from .exact.anew import renew_newest
from .exact.newest import Newest
from .exact.write import ExactRoot
from .figures.measurement import Measurement
from .figures.sampling import NOTHING, Sampling
from .hashes.reference import HashReference
from .hindsight.groups import Base, Groups
from .options import Every
from .partial.inherit import (
    Whole,
    inherit,
    inherited_figures,
    inherited_samples,
    is_put_off,
    is_renewed,
    mark_inherited,
)
from .partial.selection import Selection
from .past import look_back, sampling_after
from .plan import SavePlan, candidates, make_plan
from .reference import LostParentError, Tail, TailFile, find_parent, find_tail, held_together, read_values
from .settings import Settings


class _Attempt:
    """A save. It is over when it says so, or when nobody has it any more."""

    is_over = False


class Saver:
    """Saves states to a store, and keeps the latest as decoded; for one thread at a time.

    Parameters
    ----------
    store
        Where the chain is kept.
    settings
        Policy, roles, and what is kept of the newest state.
    every
        How often there are keyframes, exact files and ends.
    crew
        Who codes.
    comes_back
        Returns whether parity or a mirror gives a checkpoint back, by its name.
    """

    def __init__(
        self,
        store: WritableStore,
        settings: Settings,
        every: Every,
        crew: Crew,
        comes_back: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._settings = settings
        self._newest = Newest(store, settings.given[2] == "exact", every.exact)
        self._hashes = HashReference(store, crew.between) if settings.reference == "hashes" else None
        self._groups = Groups(store, every.end, every.keyframe)
        self._every = every
        self._crew = crew
        self._renewed = partial(renew_newest, store, comes_back)
        self._tail: Tail | None = None
        self._attempt: weakref.ref[_Attempt] | None = None  # the last save, which alone may commit

    @property
    def tail(self) -> Tail | None:
        """The newest checkpoint as decoded, if it is at hand. The next save changes its arrays."""
        return self._tail if self._hashes is None else None

    def forget(self) -> None:
        """Release the reference; the next save reads it from the files."""
        self._tail = None
        self._groups.forget()
        if self._hashes is not None:
            self._hashes.forget()

    def settle(self) -> None:
        """Settle the groups that are complete: no save follows that would do it."""
        self._groups.settle_rest()

    def save(
        self,
        step: Any,
        flat: Flat,
        metadata: dict[str, str],
        known: Mapping[str, Assignment],
        tell: Tell = untold,
    ) -> int:
        """Store a state, and return the bytes of its file; see `Chain.save`.

        A `Selection` is stored over the state of the parent. `tell` is told after each frame how
        many arrays are coded.
        """
        # The exact file of a selection cannot be written twice: it takes the place of that of the
        # parent, which has the rest.
        once = isinstance(flat, Selection)
        before = None if self._attempt is None else self._attempt()
        if before is not None and not before.is_over:  # a signal handler saves, within another save
            self._store.revoke_unfinished()
            self.forget()
        attempt = _Attempt()
        own = self._attempt = weakref.ref(attempt)

        def check(_: object = None) -> None:
            if self._attempt is not own:
                self.forget()  # it was written to by two
                raise OvertakenError(
                    f"{self._store.path}: step {step} is given up: a signal handler has saved meanwhile"
                )

        try:
            return self._save(step, flat, metadata, known, tell, check, last=once)
        except (OvertakenError, LostParentError) as error:
            raise ChainError(str(error)) from error
        except ChainError as error:  # what the delta was taken against is gone
            check()
            warn(f"{self._store.path}: the save was started again: {error}")
            self._tail = None  # it may be what was wrong
            return self._save(step, flat, metadata, known, tell, check, last=True)
        finally:
            attempt.is_over = True

    def _save(  # as `save`
        self,
        step: Any,
        flat: Flat,
        metadata: dict[str, str],
        known: Mapping[str, Assignment],
        tell: Tell,
        check: Callable[[object], None],
        last: bool = False,
    ) -> int:
        """Store a state as a delta to what is there now, or as a keyframe.

        `check` is called before each commit; its error is raised.

        Raises
        ------
        ChainError
            If what the delta was taken against is gone. In the last attempt, only if there is no
            exact file that keeps the state.
        """
        start = time.perf_counter()
        listed = self._store.snapshot()
        step = listed.next_step(step)
        unfinished = listed.unfinished_step()
        if unfinished is not None and unfinished < step:
            self._finish(unfinished, check)
            listed = self._store.snapshot()
            if isinstance(flat, Selection) and unfinished not in listed.checkpoints():
                raise LostParentError(f"only= adds to step {unfinished}, which is not in the history")
        record = self._settings.record
        base, whole = self._base(listed, flat, metadata, known, record, self._renewed)
        flat, metadata = whole.flat, whole.metadata
        plan, needed, sampling = self._plan(whole, record, base)
        self._groups.check(record)
        self._settings.examine(plan, record)
        manifest = _manifest(plan, flat, step, needed, metadata, base.tail)
        self._store.make()
        self._store.remove_stale()
        exact: ExactRoot | None = None
        problem: str | None = None
        if record.newest == "exact":
            exact, problem = self._newest.write(plan, flat, manifest, base.tail, check)
            manifest = replace(manifest, exact=None if exact is None else exact.root)
        try:
            link = self._write(plan, sampling, manifest, flat, base, record.policy.effort, tell, check)
        except (StorageError, DataError, ChainError, MemoryError) as error:
            check(None)  # or what is wrong is that it was overtaken
            if self._has_room(step, error):
                return self._save(step, flat, metadata, known, tell, check, last)
            if exact is None or (isinstance(error, ChainError) and not last):
                raise
            warn(
                f"step {step} is saved, but only in the exact file; the next save adds it to the history:"
                f" {reason_of(error)}"
            )
            return exact.size
        if record.newest == "history":
            self._newest.remove(step)
        seconds = time.perf_counter() - start
        self._settings.saved(plan, link, seconds)
        self._groups.settle(seconds, self._crew.between)
        # Warnings come last: a user may have made errors of them.
        if problem is not None:
            warn(f"step {step} is saved, but {problem}")
        if self._hashes is not None:
            self._hashes.warn()
        return link.size

    def _finish(self, step: int, check: Callable[[object], None]) -> None:
        """Add the step that only the exact file has to the history."""
        try:
            with open_exact(self._store) as file:
                manifest, root = file.links[-1].manifest, file.links[-1].reader.root
                flat = flatten(file.state(dtype="bits"))
            record = read_record(manifest.policy)
            known = record.known_of(flat.names)
            base, whole = self._base(self._store.snapshot(), flat, manifest.metadata, known, record)
            plan, needed, sampling = self._plan(whole, record, base)
            manifest = replace(_manifest(plan, flat, step, needed, manifest.metadata, base.tail), exact=root)
            self._write(plan, sampling, manifest, flat, base, record.policy.effort, untold, check)
        except (LccodecError, OSError, MemoryError) as error:
            check(None)
            if self._has_room(step, error):
                return self._finish(step, check)
            warn(
                f"{self._store.path}: step {step}, which only the exact file has, cannot be added to the"
                f" history, and may be lost: {reason_of(error)}"
            )

    def _has_room(self, step: int, error: Exception) -> bool:
        """Return whether a step for which there was no room may have it now."""
        has_room = self._hashes is not None and self._hashes.makes_room(error)
        return has_room and step not in self._store.checkpoints()  # where only a sync may have failed

    def plan(self, flat: Flat, known: Mapping[str, Assignment]) -> SavePlan:
        """Return what the next save would do with a state. Nothing is written."""
        if self._hashes is not None:
            self._hashes.keeps = False
        try:
            record = self._settings.record
            base, whole = self._base(self._store.snapshot(), flat, {}, known, record)
            plan, *_ = self._plan(whole, record, base)
        finally:
            if self._hashes is not None:
                self._hashes.keeps = True
        return replace(plan, group=self._groups.fate(base), settles=bool(self._every.end))

    def _base(  # what is saved, and after what
        self,
        listed: Store,
        flat: Flat,
        metadata: dict[str, str],
        known: Mapping[str, Assignment],
        record: Record,
        mended: Callable[[], Store | None] = lambda: None,
    ) -> tuple[Base, Whole]:
        """Return what the next save is taken against, and the whole state that it stores.

        `mended` is as for `find_tail`.
        """
        steps = list(listed.checkpoints())
        read = partial(read_values, self._crew.empty) if self._hashes is None else self._hashes.read
        if not isinstance(flat, Selection):
            tail = find_tail(self._tail, listed, steps, read, mended)
            self._tail = tail or self._tail
            return self._groups.base(tail, record.policy), Whole(flat, metadata, known)
        parent = self._tail = find_parent(self._tail, listed, steps, read, mended)
        base = self._groups.base(parent, record.policy)
        if base.is_keyframe and is_put_off(parent, self._every.keyframe):
            renewed = is_renewed(parent, self._every.keyframe)
            base = replace(base, is_keyframe=False, is_end=False, is_renewed=renewed)
        return base, inherit(flat, metadata, known, parent)

    def _plan(self, whole: Whole, record: Record, base: Base) -> tuple[SavePlan, Record, Sampling]:
        """Return the plan of a checkpoint, what it must record, and what its figures sample."""
        tail, settings, known = base.tail, self._settings, whole.known
        compared = candidates(whole.flat, {} if tail is None else tail.arrays, record.roles, known)
        mark_inherited(compared, whole.inherited)
        if self._hashes is None:
            mark_trained(compared)
            mark_copies(compared)
        else:
            self._hashes.look(compared, base.is_keyframe)
        sampling = sampling_after(tail if tail is base.before else None, compared)
        if base.before is not None and self._hashes is None:
            look_back(self._store, base.before, compared, sampling)
        parent = None if base.is_keyframe or tail is None else tail.step
        if EXACT_KEY in whole.metadata:
            plan = make_plan(compared, POLICIES["lossless"], parent, renew=base.is_renewed)
        else:
            instead = self._groups.quantizers(base, record.policy, compared)
            plan = make_plan(
                *(compared, record.policy, parent, settings.width, settings.first, instead),
                *(base.is_renewed, settings.again),
            )
        if self._hashes is not None:
            self._hashes.check(plan)
        return plan, needed_record(record, compared, known), sampling

    def _write(  # what is written, and how
        self,
        plan: SavePlan,
        sampling: Sampling,
        manifest: Manifest,
        flat: Flat,
        base: Base,
        effort: Effort,
        tell: Tell,
        check: Callable[[object], None],
    ) -> TailFile:
        """Write a checkpoint, and keep it as the reference of the next one."""
        self._tail = None  # coding overwrites its arrays, so it must not stay if coding fails
        tail = self._groups.take(base)
        parents = {} if tail is None else tail.arrays
        arrays, entries, step = dict(parents), [], manifest.step or 0
        done, total = 0, sum(len(frame.arrays) for frame in plan.frames)
        before = base.before
        originals = NOTHING if before is None else before.originals or NOTHING
        measurement = Measurement(plan.candidates, sampling, plan.losing(), originals)

        def before_commit(_: Path) -> None:
            check(None)
            self._crew.between()
            if plan.parent is not None and tail is not None:
                held.enter_context(held_together(tail, self._store))

        with self._store.writer(checkpoint_name(step)) as writer, ExitStack() as held:
            if self._hashes is None:
                coded = encode_plan(plan, parents, effort, self._crew)
            else:
                coded = self._hashes.encode(plan, tail)
            for chunks, decoded in coded:
                entries.append(writer.write_frame(chunks))
                arrays.update(decoded)
                done += len(decoded)
                tell(done, total)
            if self._hashes is None:
                arrays.update(decoded_copies(plan, arrays))
            inherited = {}
            if before is not None and measurement.is_partial:
                inherited = inherited_figures(plan.candidates, before.manifest)
            since = None if before is None else before.step
            figures = measurement.figures(arrays, since, inherited)
            manifest = replace(manifest, frames=tuple(entries), figures=figures)
            root = writer.commit(manifest, before_commit)
        links = () if plan.parent is None or tail is None else tail.links
        link = TailFile(step, root, writer.size)
        if self._hashes is None:
            decoded = {name: arrays[name] for name in flat.names}
        else:
            decoded = self._hashes.saved(step, root, flat.names)
        samples = measurement.samples
        if before is not None and measurement.is_partial:
            samples = samples.with_those_of(inherited_samples(plan.candidates, before))
        self._tail = Tail((*links, link), replace(manifest, tree=flat.tree), decoded, samples)
        self._groups.saved(base, self._tail, plan.candidates)
        return link


def _manifest(  # what is saved, and after which checkpoint
    plan: SavePlan, flat: Flat, step: int, record: Record, metadata: dict[str, str], tail: Tail | None
) -> Manifest:
    """Return the manifest of a planned checkpoint, without its frames."""
    parent = None if plan.parent is None or tail is None else (tail.links[-1].root, tail.manifest.tree)
    written = write_record(record)
    return plan_manifest(plan, flat, step=step, policy=written, metadata=metadata, parent=parent)
