"""Saving the states of one chain: plan, code, commit; and the reference that the next delta needs.

Source: SPEC 9.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..container.manifest import Manifest
from ..container.system import storage_errors
from ..container.tree import Flat
from ..container.whole_file import remove_stale_temporaries
from ..container.writer import CheckpointWriter
from ..errors import ChainError, warn
from ..frame.encode import Effort
from ..policy.record import Record, needed_record, write_record
from ..policy.roles import Assignment
from ..workers.crew import Crew
from .coding import encode_plan, plan_manifest
from .directory import checkpoint_path, next_step, stored_steps
from .newest import Newest
from .plan import Plan, candidates, make_plan
from .progress import Tell, untold
from .settings import Settings
from .tail import Tail, TailFile, find_tail, held_together


class Saver:
    """Saves states to a directory, and keeps the latest as decoded; for one thread at a time.

    Parameters
    ----------
    directory
        Directory of the chain.
    settings, newest
        Policy and roles; and what is kept of the newest state.
    keyframe_every
        As in `Chain`.
    crew
        Who codes.
    """

    def __init__(
        self, directory: Path, settings: Settings, newest: Newest, keyframe_every: int, crew: Crew
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._newest = newest
        self._keyframe_every = keyframe_every
        self._crew = crew
        self._tail: Tail | None = None

    def forget(self) -> None:
        """Release the reference; the next save reads it from the files."""
        self._tail = None

    def save(
        self,
        step: Any,
        flat: Flat,
        metadata: dict[str, str],
        known: Mapping[str, Assignment],
        tell: Tell = untold,
    ) -> int:
        """Store a state, and return the bytes of its file; see `Chain.save`.

        `tell` is told after each frame how many arrays are coded.
        """
        try:
            return self._save(step, flat, metadata, known, tell)
        except ChainError as error:  # what the delta was taken against is gone
            warn(f"{self._directory}: the save begins anew, because {error}")
            return self._save(step, flat, metadata, known, tell)

    def _save(
        self, step: Any, flat: Flat, metadata: dict[str, str], known: Mapping[str, Assignment], tell: Tell
    ) -> int:
        """Store a state as a delta to what is there now, or as a keyframe."""
        start = time.perf_counter()
        steps = stored_steps(self._directory)
        step = next_step(step, steps, self._directory)
        record = self._settings.record
        tail = self._find_reference(steps)
        plan, needed = self._plan(flat, record, known, tail)
        self._settings.examine(plan, record)
        parent = None if plan.parent is None or tail is None else (tail.links[-1].root, tail.tree)
        written = write_record(needed)
        manifest = plan_manifest(plan, flat, step=step, policy=written, metadata=metadata, parent=parent)
        # Coding overwrites the arrays of the tail. So the tail must not stay if coding fails.
        self._tail = None
        self._tail = self._write(plan, manifest, flat, tail, record.policy.effort, tell)
        link = self._tail.links[-1]
        self._newest.save(plan, flat, manifest, link.root)
        self._settings.saved(plan, link, time.perf_counter() - start)
        return link.size

    def plan(self, flat: Flat, known: Mapping[str, Assignment]) -> Plan:
        """Return what the next save would do with a state."""
        tail = self._find_reference(stored_steps(self._directory))
        return self._plan(flat, self._settings.record, known, tail)[0]

    def _find_reference(self, steps: list[int]) -> Tail | None:
        """Return the checkpoint that a delta may be taken against; ``None`` for a keyframe."""
        tail = find_tail(self._tail, self._directory, steps)
        self._tail = tail or self._tail
        return tail

    def _plan(
        self, flat: Flat, record: Record, known: Mapping[str, Assignment], tail: Tail | None
    ) -> tuple[Plan, Record]:
        """Return the plan of a checkpoint, and the policy and roles that it must record."""
        compared = candidates(flat, {} if tail is None else tail.arrays, record.roles, known)
        keyframe = tail is None or tail.deltas >= self._keyframe_every
        parent = None if keyframe or tail is None else tail.step
        plan = make_plan(compared, record.policy, parent, self._settings.width)
        return plan, needed_record(record, compared, known)

    def _write(  # what is written, and how
        self, plan: Plan, manifest: Manifest, flat: Flat, tail: Tail | None, effort: Effort, tell: Tell
    ) -> Tail:
        """Write a checkpoint; return it as the reference of the next one."""
        with storage_errors("cannot make the directory", self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(self._directory)
        parents = {} if tail is None else tail.arrays
        arrays, entries, step = dict(parents), [], manifest.step or 0
        done, total = 0, sum(len(frame.arrays) for frame in plan.frames)

        def check(_: Path) -> None:
            self._crew.between()
            if plan.parent is not None and tail is not None:
                held.enter_context(held_together(tail, self._directory))

        path = checkpoint_path(self._directory, step)
        with CheckpointWriter(path) as writer, ExitStack() as held:
            for pieces, decoded in encode_plan(plan, parents, effort, self._crew):
                entries.append(writer.write_frame(pieces))
                arrays.update(decoded)
                done += len(decoded)
                tell(done, total)
            manifest = replace(manifest, frames=tuple(entries))
            root = writer.commit(manifest, check)
        before = () if plan.parent is None or tail is None else tail.links
        links = (*before, TailFile(step, root, writer.size))
        return Tail(links, flat.tree, {name: arrays[name] for name in flat.names})
