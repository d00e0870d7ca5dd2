"""Saving a checkpoint against others that stay: none, the one before, or both that it lies between.

A `Saver` overwrites its reference with each save. Here the references are needed again, for other
checkpoints between them. So they are copied where they would be overwritten.

Source: SPEC 9 (LCC-INT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ...container.manifest import Parent
from ...container.scalars import Json
from ...container.tree import Flat
from ...policy.copies import mark_copies
from ...policy.policy import Candidate, Policy
from ...policy.presets import POLICIES
from ...policy.record import EXACT_KEY, Record, needed_record, write_record
from ...policy.roles import Assignment
from ...quantizers.base import Quantizer
from ...workers.crew import Crew
from ..read.checkpoint import open_name
from ..read.links import value_or_raise
from ..read.replay import Decoded, DecodedArray, interpolated
from ..save.encode import decoded_copies, encode_plan, plan_manifest
from ..save.measurement import Measurement, add_past
from ..save.plan import candidates, make_plan
from ..save.sampling import Samples, Sampling
from ..store.names import checkpoint_name
from ..store.store import Store, WritableStore


@dataclass(frozen=True, eq=False)
class Anchor:
    """A checkpoint that others are coded against: what names it, and its arrays as decoded."""

    step: int
    root: bytes
    tree: Json
    decoded: Decoded

    @property
    def arrays(self) -> dict[str, DecodedArray]:
        """The arrays by name."""
        return {name: value_or_raise(array) for name, array in self.decoded.arrays.items()}


@dataclass(frozen=True, eq=False)
class Before:
    """The save before: its step, and samples of its arrays by name, as they were."""

    step: int | None = None
    samples: Samples = field(default_factory=Samples)


@dataclass(frozen=True, eq=False)
class Task:
    """A state to be saved, and how.

    Parameters
    ----------
    step, flat, metadata
        What is saved.
    known
        Roles by name, as for a save.
    before
        The save before, whatever it is coded against.
    """

    step: int
    flat: Flat
    metadata: Mapping[str, str]
    known: Mapping[str, Assignment]
    before: Before


def anchor_of(store: Store, step: int) -> Anchor:
    """Return the checkpoint of a step as an anchor; errors are those of `open_name`."""
    with open_name(store, checkpoint_name(step)) as file:
        link = file.links[-1]
        decoded = dict(zip(link.index_names, file.decoded(), strict=True))
        return Anchor(step, link.reader.root, link.manifest.tree, Decoded(dict(decoded), set()))


class AnchoredSave:
    """The save of a state against anchors: first its arrays are compared, then it is written.

    Parameters
    ----------
    task
        The state.
    anchors
        None for a keyframe, one for a delta, two for an interpolated checkpoint, the earlier first.
    record
        What the checkpoint records of policy and roles.
    weight
        How much the later of two anchors counts, in 256ths.

    Attributes
    ----------
    arrays
        The arrays of the state, with the references that they are coded against.

    Raises
    ------
    ArgumentError
        If the state cannot be stored.
    """

    def __init__(self, task: Task, anchors: Sequence[Anchor], record: Record, weight: int = 0) -> None:
        self._task, self._anchors, self._record, self._weight = task, anchors, record, weight
        self._references = Decoded({}, set())
        if len(anchors) == 1:
            self._references = Decoded(dict(anchors[0].decoded.arrays), set())
        elif anchors:
            low, high = anchors
            self._references = interpolated(weight / 256, low.decoded, high.decoded, task.flat.names)
        self._decoded = {name: value_or_raise(a) for name, a in self._references.arrays.items()}
        self.arrays: Sequence[Candidate] = candidates(task.flat, self._decoded, record.roles, task.known)
        mark_copies(self.arrays)

    def write(
        self,
        store: WritableStore,
        policy: Policy,
        crew: Crew,
        first: Mapping[str, Quantizer] = MappingProxyType({}),
        instead: Mapping[str, Quantizer | None] = MappingProxyType({}),
        again: Mapping[str, Quantizer] = MappingProxyType({}),
    ) -> tuple[Anchor, int]:
        """Write the checkpoint; return it as an anchor, and the bytes of its file.

        `policy`, `first`, `instead` and `again` choose quantizers, as in `make_plan`.

        Raises
        ------
        ArgumentError
            If the store has the step already.
        StorageError
            If the operating system refuses. Nothing has changed.
        """
        task, anchors, record = self._task, self._anchors, self._record
        sampling = Sampling(self.arrays)
        add_past(self.arrays, sampling, task.before.samples)
        parent = anchors[0] if anchors else None
        above = None if parent is None else parent.step
        if EXACT_KEY in task.metadata:
            policy, first, instead, again = POLICIES["lossless"], {}, {}, {}
        plan = make_plan(self.arrays, policy, above, 1.0, first, instead, again=again)
        for frame in plan.frames:  # coding overwrites the references
            for name in [self.arrays[index].name for index in frame.arrays] if frame.inherits else ():
                if name not in self._references.owned:
                    array = self._decoded[name]
                    self._decoded[name] = replace(array, bits=array.bits.copy(), start=0)
        manifest = plan_manifest(
            plan,
            task.flat,
            step=task.step,
            policy=write_record(needed_record(record, self.arrays, task.known)),
            metadata=dict(task.metadata),
            parent=None if parent is None else (parent.root, parent.tree),
        )
        if len(anchors) == 2:
            later = Parent(anchors[1].step, anchors[1].root)
            manifest = replace(manifest, later=later, weight=self._weight)
        past = task.before
        measurement = Measurement(plan.candidates, sampling, plan.losing(), past.samples)
        entries = []
        with store.writer(checkpoint_name(task.step)) as writer:
            for chunks, decoded in encode_plan(plan, self._decoded, record.policy.effort, crew):
                entries.append(writer.write_frame(chunks))
                self._decoded.update(decoded)
            self._decoded.update(decoded_copies(plan, self._decoded))
            figures = measurement.figures(self._decoded, past.step)
            root = writer.commit(replace(manifest, frames=tuple(entries), figures=figures))
        found = {name: self._decoded[name] for name in task.flat.names}
        return Anchor(task.step, root, task.flat.tree, Decoded(dict(found), set())), writer.size
