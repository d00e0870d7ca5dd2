"""Coding a whole run anew with hindsight: what lies between two checkpoints is coded from both.

Every so many steps there is an end, a delta against the end before. The steps between are filled in
from both sides: first the middle, then the middle of each half, and so on. Each of them is
interpolated (LCC-INT), and what the interpolation misses is coded only where it has to be.

A `Saver` overwrites its reference with each save. Here the references are needed again, for other
checkpoints between them. So they are copied where they would be overwritten.

Source: SPEC 9 (LCC-INT), :mod:`lccodec.policy.hindsight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from ...container.manifest import Manifest, Parent
from ...container.scalars import Json
from ...container.tree import Flat
from ...errors import ChainError
from ...policy.copies import mark_copies
from ...policy.hindsight import between_quantizers, end_quantizers, kept
from ...policy.policy import Candidate, Policy
from ...policy.presets import POLICIES
from ...policy.record import EXACT_KEY, Record, needed_record, write_record
from ...policy.roles import Assignment
from ...quantizers.base import Quantizer
from ...quantizers.guarantee import EXACT, Guarantee
from ...workers.crew import Crew, Threads
from ..caller import OnProgress, no_progress
from ..read.checkpoint import open_name
from ..read.links import value_or_raise
from ..read.replay import Decoded, DecodedArray, interpolated
from ..read.survey import Visit, survey
from ..save.encode import decoded_copies, encode_plan, plan_manifest
from ..save.hindsight import way_products, weight_between
from ..save.measurement import NOTHING, Measurement, Samples, Sampling, add_past, movements
from ..save.plan import candidates, make_plan
from ..save.writer import first_keyframe
from ..store.store import Store, WritableStore, checkpoint_name
from .compact import Compaction, Losses, coded_again, exact_step, open_known, with_promise


@dataclass(frozen=True, eq=False)
class Anchor:
    """A checkpoint that others are coded against: what names it, and its arrays as decoded."""

    step: int
    root: bytes
    tree: Json
    arrays: Mapping[str, DecodedArray]


def anchor_of(store: Store, step: int) -> Anchor:
    """Return the checkpoint of a step as an anchor; errors are those of `open_name`."""
    with open_name(store, checkpoint_name(step)) as file:
        link = file.links[-1]
        decoded = dict(zip(link.index_names, file.decoded(), strict=True))
        return Anchor(step, link.reader.root, link.manifest.tree, decoded)


@dataclass(frozen=True, eq=False)
class Task:
    """A state to be saved, and how.

    Parameters
    ----------
    step, flat, metadata
        What is saved.
    known
        Roles by name, as for a save.
    since, past
        The step of the save before, whatever it is coded against, and samples of its arrays.
    """

    step: int
    flat: Flat
    metadata: Mapping[str, str]
    known: Mapping[str, Assignment]
    since: int | None = None
    past: Samples = NOTHING


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
        self._decoded, self._owned = dict[str, DecodedArray](), set[str]()
        if len(anchors) == 1:
            self._decoded = dict(anchors[0].arrays)
        elif anchors:
            low, high = (Decoded(dict(anchor.arrays), set()) for anchor in anchors)
            found = interpolated(weight / 256, low, high, task.flat.names)
            self._decoded = {name: value_or_raise(array) for name, array in found.arrays.items()}
            self._owned = found.owned
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
        add_past(self.arrays, sampling, task.past)
        parent = anchors[0] if anchors else None
        above = None if parent is None else parent.step
        if EXACT_KEY in task.metadata:
            policy, first, instead, again = POLICIES["lossless"], {}, {}, {}
        plan = make_plan(self.arrays, policy, above, 1.0, first, instead, again=again)
        for frame in plan.frames:  # coding overwrites the references
            for name in [self.arrays[index].name for index in frame.arrays] if frame.inherits else ():
                if name not in self._owned:
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
        measurement = Measurement(plan.candidates, sampling, plan.losing(), task.past)
        entries = []
        with store.writer(checkpoint_name(task.step)) as writer:
            for chunks, decoded in encode_plan(plan, self._decoded, record.policy.effort, crew):
                entries.append(writer.write_frame(chunks))
                self._decoded.update(decoded)
            self._decoded.update(decoded_copies(plan, self._decoded))
            figures = measurement.figures(self._decoded, task.since)
            root = writer.commit(replace(manifest, frames=tuple(entries), figures=figures))
        found = {name: self._decoded[name] for name in task.flat.names}
        return Anchor(task.step, root, task.flat.tree, found), writer.size


def code_with_hindsight(
    store: Store,
    target: WritableStore,
    policy: Policy,
    group: int,
    keyframe_every: int,
    *,
    tell: OnProgress = no_progress,
) -> Compaction:
    """Save every state of a chain to another store, in groups.

    Memory holds the states of one group, and a few more.

    Parameters
    ----------
    target
        Where the other chain is kept; it has no checkpoint yet.
    policy
        What the states are coded with. Arrays that it stores without loss stay as they are, bit for
        bit.
    group
        How many checkpoints it is from one end to the next.
    keyframe_every
        How many ends at most are deltas in a row.
    tell
        Is told how many checkpoints are done, and how many there are.

    Raises
    ------
    ChainError, DataError, StorageError
        If there is no checkpoint, a state cannot be restored, or the operating system refuses.
    ArgumentError
        If the policy has a finer bound than that which an array has lost.
    """
    steps = store.steps()
    if not steps:
        raise ChainError(store.nothing())
    target.make()
    coder = _Coder(target, policy, keyframe_every, len(steps), tell)
    waiting: list[_State] = []
    states = _states(store, steps, policy)
    state = next(states)
    for following in chain(states, (None,)):
        waiting.append(state)
        if len(waiting) == group or coder.is_new or following is None:
            coder.add(waiting, following)
            waiting = []
        if following is not None:
            state = following
    size = store.size(steps.values())
    return Compaction(len(steps), size, coder.bytes, (), coder.lost.errors(), coder.guarantees)


@dataclass(frozen=True, eq=False)
class _State:
    """A state to be saved, a sample of it, and how far each array moved since the one before.

    `again` and `guarantees` are what `coded_again` has found.
    """

    task: Task
    samples: Samples
    movements: Mapping[str, float]
    again: Mapping[str, Quantizer]
    guarantees: Mapping[str, Guarantee]


def _states(store: Store, steps: Mapping[int, str], policy: Policy) -> Iterator[_State]:
    """Yield the states of a chain by rising step."""
    since, past, held, pins = None, NOTHING, exact_step(store), store.pins()
    for visit in survey(store, steps, decode=True, rising=True):
        if visit.step == held:
            with open_known(store, visit.step, held) as file:
                values = dict(zip(file.links[-1].index_names, file.decoded(), strict=True))
                manifest = file.links[-1].manifest
        else:
            visit.check()
            own = {name: value_or_raise(visit.arrays()[name]) for name in visit.left.link.index_names}
            values = {name: replace(array, bits=array.bits.copy()) for name, array in own.items()}
            manifest = visit.left.link.manifest
        state = _state_of(visit, values, manifest, policy, since, past, visit.step in pins)
        del values
        since, past = visit.step, state.samples
        yield state


def _state_of(
    visit: Visit,
    arrays: Mapping[str, DecodedArray],
    manifest: Manifest,
    policy: Policy,
    since: int | None,
    past: Samples,
    pinned: bool,
) -> _State:
    """Return a state as a file has it; `since` and `past` are the state before."""
    info = visit.info()
    known = {array.name: Assignment(array.role, array.why) for array in info.arrays}
    is_exact = manifest.is_exact or not any(array.lossy for array in info.arrays)
    metadata = with_promise(manifest.metadata, pinned and is_exact)
    names = list(known)
    flat = Flat(manifest.tree, [arrays[name].array("bits") for name in names], manifest.scalars, names)
    task = Task(visit.step, flat, metadata, known, since, past)
    own = candidates(flat, {}, {}, known)
    samples = Measurement(own, Sampling(own)).samples
    total: dict[str, Guarantee] = {}
    again = coded_again(own, policy, manifest, total)
    for c in own:  # what nothing is coded of between two ends keeps nothing else
        if kept(policy, c) == Guarantee():
            total[c.name] = Guarantee()
    return _State(task, samples, movements(own, samples, past), again, total)


class _Coder:
    """Saves groups of states, each with the end of the group before as its beginning."""

    def __init__(
        self, target: WritableStore, policy: Policy, keyframe_every: int, total: int, tell: OnProgress
    ) -> None:
        self._target, self._record = target, Record(policy, newest="history")
        self._keyframe_every, self._total, self._tell = keyframe_every, total, tell
        self._crew: Crew = Threads()
        self._end: Anchor | None = None
        self._deltas = 0  # in a row
        self.lost = Losses()
        self._done = 0
        self.bytes = 0
        self.guarantees: dict[str, Guarantee] = {}

    @property
    def is_new(self) -> bool:
        """Whether there is no end yet; then the first state becomes one."""
        return self._end is None

    def add(self, states: Sequence[_State], following: _State | None) -> None:
        """Save the states that follow on the last end, in rising order. The last becomes an end.

        `following` is the state after them, if there is one.
        """
        *between, last = states
        moved: dict[str, list[float]] = {}
        for state in states:
            for name, movement in state.movements.items():
                moved.setdefault(name, []).append(movement)
        low = self._end
        self._end = self._save_end(last, following, moved)
        if low is not None:
            self._fill(low, self._end, between, moved)

    def _save_end(
        self, state: _State, following: _State | None, moved: Mapping[str, Sequence[float]]
    ) -> Anchor:
        policy = self._record.policy
        if self._end is not None and self._deltas < self._keyframe_every:
            self._deltas += 1
            save = AnchoredSave(state.task, [self._end], self._record)
            return self._write(save, state, instead=end_quantizers(policy, save.arrays, moved))
        self._deltas = 0
        save = AnchoredSave(state.task, [], self._record)
        next_arrays = () if following is None else candidates(following.task.flat, {}, {}, {})
        first = {} if policy.keyframes == "exact" else first_keyframe(save.arrays, next_arrays, policy)
        return self._write(save, state, first=first)

    def _fill(
        self, low: Anchor, high: Anchor, states: Sequence[_State], moved: Mapping[str, Sequence[float]]
    ) -> None:
        """Save what lies between two checkpoints, the middle first."""
        if not states:
            return
        middle = len(states) // 2
        state = states[middle]
        weight = _weight(state.task, low, high)
        save = AnchoredSave(state.task, [low, high], self._record, weight)
        chosen = between_quantizers(self._record.policy, save.arrays, moved, saved=False)
        anchor = self._write(save, state, instead=chosen)
        self._fill(low, anchor, states[:middle], moved)
        self._fill(anchor, high, states[middle + 1 :], moved)

    def _write(self, save: AnchoredSave, state: _State, **quantizers: Mapping[str, Any]) -> Anchor:
        policy = self._record.policy
        anchor, size = save.write(self._target, policy, self._crew, again=state.again, **quantizers)
        for name, guarantee in state.guarantees.items():
            self.guarantees[name] = guarantee.either(self.guarantees.get(name, EXACT))
        self.bytes += size
        for c in save.arrays:
            self.lost.add(c.role, c.bits, anchor.arrays[c.name].bits, c.kind)
        self._done += 1
        self._tell(self._done, self._total)
        return anchor


def _weight(task: Task, low: Anchor, high: Anchor) -> int:
    """Return how much the later anchor counts, by samples of the weights; see `weight_between`."""
    along = across = 0.0
    own = candidates(task.flat, low.arrays, {}, task.known)
    sampling, ends = Sampling(own), high.arrays
    for index, c in enumerate(own):
        end = ends.get(c.name)
        if c.role != "weight" or c.reference is None or end is None or end.bits.size != c.bits.size:
            continue
        now, before, after = (sampling.of(index, bits) for bits in (c.bits, c.reference, end.bits))
        products = way_products(now, before, after, c.kind)
        along, across = along + products[0], across + products[1]
    return weight_between(along, across, (task.step - low.step) / (high.step - low.step))
