"""A checkpoint in a new file with the same state, and a finished run in fewer bytes.

The new file of a checkpoint says which file it takes the place of. So what names the old one (a
delta, an exact file, a link of a framework) may stay as it is, and each rewriting is one atomic
commit. Nothing gets lost or changed: arrays are stored as they decode, without loss, and the new
file is decoded and compared before it gets its name. So the figures that the save measured stay
true, and are kept.

Without a policy, compacting leaves every state as it is, bit for bit: keyframes become deltas where
that is smaller, and deltas become keyframes where a restore would replay too many. With a policy
the states are coded anew, in a new directory, and what that loses is told. A state whose exact file
is at hand is coded from that. Of all others it is known what they may have lost already
(:mod:`lccodec.policy.hindsight`).

Source: SPEC 9 (LCC-CHN-04, LCC-CHN-10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...constants import EXACT_NAME, ElementType
from ...container.checkpoint import open_checkpoint, size_of_file
from ...container.manifest import Manifest
from ...container.piece_table import hashed
from ...container.system import storage_errors
from ...container.tree import Flat, flatten, unflatten
from ...element_types import Array, work
from ...entropy.stream_writer import Piece
from ...errors import ArgumentError, ChainError, DataError, StorageError, warn
from ...frame.content import Content
from ...frame.encode import encode_content
from ...parallel import slices
from ...policy.declared import obeying
from ...policy.hindsight import kept_between, promised, quantizer_again
from ...policy.policy import Candidate, Policy
from ...policy.presets import POLICIES
from ...policy.record import EXACT_KEY, Record, read_record
from ...policy.roles import BY_NAME, Assignment
from ...policy.values import mark_copies
from ...quantizers.base import EXACT, Guarantee, Quantizer, guarantee_of
from ..mend.protect import renew
from ..overview import OnProgress, counted, no_progress
from ..read.checkpoint import OpenCheckpoint, open_exact, open_name, open_newest, open_step
from ..read.info import CheckpointInfo
from ..read.links import value_or_raise
from ..read.replay import DecodedArray
from ..read.survey import survey
from ..save.encode import plan_manifest
from ..save.plan import SavePlan, candidates, make_plan
from ..save.writer import SaveRequest
from ..store.claim import Claim
from ..store.lineage import Ancestry
from ..store.store import Store, WritableStore, checkpoint_name

#: What a name said was given, or asked of the values, when the checkpoint was saved.
_BY_NAME_BEFORE: Final = f"{BY_NAME} when it was saved"


@dataclass(frozen=True)
class Rewriting:
    """A checkpoint that was rewritten with the same state, or would be.

    Parameters
    ----------
    step
        Its step.
    parent
        Its new parent; ``None`` for a keyframe.
    before, after
        Bytes of the old file and of the new one.
    """

    step: int
    parent: int | None
    before: int
    after: int


def rewrite(
    store: WritableStore,
    step: int,
    parent: int | None,
    *,
    dry_run: bool = False,
    smaller: bool = False,
) -> Rewriting | None:
    """Write the checkpoint of a step anew, as a keyframe or as a delta to an earlier step.

    Without a `parent` it becomes a keyframe. With `dry_run` it is only coded, for the number of
    bytes. With `smaller` it is written only if it gets smaller, and ``None`` is returned if it does
    not. Raises ``ChainError`` if a step or a parent is missing, or if the new file does not decode
    to the same values. After an error, the old file is as before.
    """
    name = checkpoint_name(step)
    with open_name(store, name) as file:
        file.check_name()
        old, before = file.links[-1], file.links[-1].reader.file_size
        kept, metadata = old.manifest, file.metadata()
        state = dict(zip(old.index_names, file.decoded(), strict=True))
    flat = Flat(kept.tree, [], kept.scalars, list(state))
    link, parents = None, dict[str, DecodedArray]()
    if parent is not None:
        with open_name(store, checkpoint_name(parent)) as file:
            above = file.links[-1]
            link = (above.reader.root, above.manifest.tree)
            parents = dict(zip(above.index_names, file.decoded(), strict=True))
    plan = _plan(state, parents, parent)
    manifest = plan_manifest(plan, flat, step=step, policy=kept.policy, metadata=metadata, parent=link)
    roots = (*kept.replaces, old.reader.root)
    manifest = replace(manifest, exact=kept.exact, replaces=roots, figures=kept.figures)

    def check(temporary: Path) -> None:
        with OpenCheckpoint(open_checkpoint(temporary), store) as new:
            if not _is_same(new, flat, metadata, list(state.values())):
                message = "the rewritten file has another state, so the old file stays"
                raise ChainError(f"{store.path / name}: {message}")

    if dry_run:
        entries = [hashed(frame)[0] for frame in _frames(plan)]
        after = size_of_file(replace(manifest, frames=tuple(entries)))
        return None if smaller and after >= before else Rewriting(step, parent, before, after)
    with store.writer(name, overwrite=True) as writer:
        entries = [writer.write_frame(frame) for frame in _frames(plan)]
        manifest = replace(manifest, frames=tuple(entries))
        if smaller and size_of_file(manifest) >= before:
            return None
        writer.commit(manifest, check)
    return Rewriting(step, parent, before, writer.size)


def end_at(store: WritableStore, step: int) -> list[Rewriting]:
    """Rewrite the checkpoints up to a step that need later ones, so that these may go.

    Such a checkpoint is interpolated. It becomes a delta to the checkpoint before it. Errors are
    those of `rewrite`; what is there can be restored.
    """
    ancestry, names, steps = Ancestry(store), store.checkpoints(), list[int]()
    lineage = ancestry.lineage(names)
    for each in sorted((each for each in lineage.steps if each <= step), reverse=True):
        steps.append(each)
        if not lineage.parents(each):
            break  # nothing before a keyframe needs what is after it (LCC-INT-05)
    written, parent = list[Rewriting](), None
    for each in reversed(steps):
        if any(above > step for above in lineage.needed([each])):
            found = rewrite(store, each, parent)
            written += [] if found is None else [found]
            lineage = ancestry.lineage(names)  # its parents are others now
        if len(lineage.parents(each)) < 2:
            parent = each
    return written


def _plan(
    state: Mapping[str, DecodedArray], parents: Mapping[str, DecodedArray], parent: int | None
) -> SavePlan:
    """Return the plan of a lossless checkpoint of decoded arrays."""
    arrays = []
    for name, array in state.items():
        above = parents.get(name)
        reference = above.bits if above is not None and above.form == array.form else None
        arrays.append(Candidate(name, "other", "", array.kind, array.shape, array.bits, reference))
    mark_copies(arrays)
    return make_plan(arrays, POLICIES["lossless"], parent)


def _frames(plan: SavePlan) -> Iterator[Iterator[Piece]]:
    """Yield the chunks of each frame."""
    for frame in plan.frames:
        arrays = [plan.candidates[index] for index in frame.arrays]
        content = Content(
            _joined([c.bits for c in arrays]),
            arrays[0].kind,
            tuple(c.shape for c in arrays),
            _joined([c.reference for c in arrays if c.reference is not None]) if frame.relative else None,
            len(arrays) > 1,
        )
        yield encode_content(content, frame.quantizer, effort="high")


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _is_same(
    new: OpenCheckpoint, flat: Flat, metadata: Mapping[str, str], arrays: Sequence[DecodedArray]
) -> bool:
    """Return whether a file decodes to a state, bit for bit."""
    manifest = new.links[-1].manifest
    told = repr((manifest.tree, manifest.scalars)) == repr((flat.tree, flat.scalars))
    if not told or manifest.metadata != metadata or new.links[-1].index_names != flat.names:
        return False
    for left, right in zip(new.decoded(), arrays, strict=True):
        if left.form != right.form:
            return False
        if not all((left.bits[part] == right.bits[part]).all() for part in slices(left.bits.size)):
            return False
    return True


@dataclass(frozen=True)
class Compaction:
    """What became of a chain.

    Parameters
    ----------
    steps
        The number of its checkpoints.
    before, after
        Bytes of all checkpoints. The exact file does not count, unless it alone has a step.
    rewritten
        Checkpoints that were rewritten with the same state.
    errors
        With a policy, by role: the root mean square of what the states lost beyond what they had
        lost before, over that of their values.
    guarantees
        With a policy, by array: what holds of its values at every step against what was saved
        first, as far as the chain tells. As text it is empty if nothing does.
    """

    steps: int
    before: int
    after: int
    rewritten: tuple[Rewriting, ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict)
    guarantees: Mapping[str, Guarantee] = field(default_factory=dict)


def compact(
    store: WritableStore,
    keyframe_every: int,
    *,
    dry_run: bool = False,
    claim: Claim | None = None,
    tell: OnProgress = no_progress,
) -> Compaction:
    """Write checkpoints anew, each with the same state, where that saves bytes or depth.

    A checkpoint that cannot be restored stays as it is, and an `LccodecWarning` names it. A restore
    may replay at most `keyframe_every` deltas. With `dry_run` all is only coded, for the numbers of
    bytes. `claim` is that of a `Chain`, which may be held already. `tell` is told how many
    checkpoints are done, and how many there are.

    Raises
    ------
    ChainError
        If there is no checkpoint, or another writer saves to the chain.
    StorageError
        If the operating system refuses. What is there can be restored.
    """
    found: list[Rewriting] = []
    with (
        nullcontext() if dry_run else (claim or store.claim()).held(),
        storage_errors("cannot compact", store.path),
        store.locked(),
    ):
        steps = store.checkpoints()
        if not steps:
            raise ChainError(store.nothing())
        if not dry_run:
            store.remove_stale()
        before = store.size(steps.values())
        lineage, depths, last = Ancestry(store).lineage(steps), dict[int, int](), None
        follow, inside = lineage.deltas_after(), lineage.inside()
        deltas = [step for step in steps if len(lineage.parents(step)) < 2]
        for step in counted(deltas, tell):
            parent = next(iter(lineage.parents(step)), None)
            depth = 0 if parent is None else depths.get(parent, 0) + 1
            becomes: int | None = parent
            if parent is None and last is not None and depths[last] + 1 + follow[step] <= keyframe_every:
                becomes = last  # and none of those that follow has to become a keyframe
            elif depth > keyframe_every and step not in inside:
                becomes = None
            depths[step], last = depth, step
            if becomes == parent:
                continue
            smaller = becomes is not None
            try:
                done = rewrite(store, step, becomes, dry_run=dry_run, smaller=smaller)
            except (ChainError, DataError) as error:
                warn(f"{store.path}: step {step} stays as it is: {error}")
                continue
            if done is not None:
                found.append(done)
                depths[step] = 0 if becomes is None else depths[becomes] + 1
    if found and not dry_run:
        renew(store)
    after = before + sum(each.after - each.before for each in found)
    return Compaction(len(steps), before, after, tuple(found))


def code_anew(
    store: Store,
    policy: Policy,
    save: Callable[..., int],
    tell: OnProgress = no_progress,
    *,
    settles: bool = False,
) -> dict[str, Guarantee]:
    """Save every state of a chain to another chain; return what holds of each array at every step.

    `policy` is that of the other chain, and `save` its `Writer.save`, without an adapter. `tell` is
    told how many checkpoints are done, and how many there are. `settles`: the other chain codes
    states again between two ends. Raises ``ArgumentError`` if the policy has a finer bound than
    that which an array has lost.
    """
    steps = store.steps()
    if not steps:
        raise ChainError(store.nothing())
    held, pins, found = exact_step(store), store.pins(), dict[str, Guarantee]()
    following: Any = None
    if len(steps) > 1:
        with open_known(store, list(steps)[1], held) as file:
            following = file.state(dtype="bits")
    for done, old in enumerate(_states(store, steps, held), 1):
        # What a name says was asked of the values at its save, or given.
        known = {
            array.name: Assignment(array.role, array.why.replace(BY_NAME, _BY_NAME_BEFORE))
            for array in old.info.arrays
        }
        state = old.state()
        arrays = candidates(flatten(state), {}, {}, known)
        # It was asked for exactly: at its save, which the metadata say, or by a pin since.
        is_exact = old.step in pins and not any(array.lossy for array in old.info.arrays)
        noted = {**old.manifest.metadata, **({EXACT_KEY: "true"} if is_exact else {})}
        coder = Record(policy).of_state(noted).policy
        again = coded_again(arrays, coder, old.manifest, found, settles=settles)
        given = SaveRequest(state, noted, known, again=again, closes=done == len(steps))
        save(old.step, given, following=following)
        following = None
        tell(done, len(steps))
    return found


def compared(store: Store, target: Store, guarantees: Mapping[str, Guarantee]) -> Compaction:
    """Return what became of a chain whose states were saved to another one."""
    steps, lost = store.steps(), Losses()
    both = _states(store, steps, exact_step(store)), _states(target, target.steps(), None)
    for old, new in zip(*both, strict=True):
        roles = {array.name: array.role for array in old.info.arrays}
        for name, was in old.arrays.items():
            lost.add(roles[name], was.bits, new.arrays[name].bits, was.kind)
    before, after = store.size(steps.values()), target.size(target.steps().values())
    return Compaction(len(steps), before, after, (), lost.errors(), guarantees)


@dataclass(frozen=True, eq=False)
class _OldState:
    """A state of a chain, and its arrays by name, until the next one is asked for."""

    step: int
    info: CheckpointInfo
    manifest: Manifest
    arrays: Mapping[str, DecodedArray]

    def state(self) -> Any:
        """Return it as it is saved, with its element types."""
        arrays = [array.array("bits") for array in self.arrays.values()]
        return unflatten(self.manifest.tree, arrays, self.manifest.scalars)


def _states(store: Store, steps: Mapping[int, str], held: int | None) -> Iterator[_OldState]:
    """Yield the states of a chain by rising step, each decoded once."""
    for visit in survey(store, steps, decode=True, rising=True):
        if visit.step == held:
            with open_known(store, visit.step, held) as file:
                link = file.links[-1]
                arrays = dict(zip(link.index_names, file.decoded(), strict=True))
                yield _OldState(visit.step, file.info(), link.manifest, arrays)
        else:
            visit.check()
            link = visit.left.link
            arrays = {name: value_or_raise(visit.arrays()[name]) for name in link.index_names}
            yield _OldState(visit.step, visit.info(), link.manifest, arrays)


def exact_step(store: Store) -> int | None:
    """Return the step whose state the exact file holds; ``None`` if there is no sound one."""
    if not store.has(EXACT_NAME):
        return None
    try:
        with open_exact(store, strict=True) as file:
            return file.links[-1].manifest.step
    except (DataError, StorageError):
        return None


def open_known(store: Store, step: int, held: int | None) -> OpenCheckpoint:
    """Open the best that is known of a step: the exact file if it holds that, or its checkpoint."""
    return open_newest(store, step) if step == held else open_step(store, step)


def coded_again(
    arrays: Sequence[Candidate],
    policy: Policy,
    manifest: Manifest,
    total: dict[str, Guarantee],
    *,
    settles: bool = False,
) -> dict[str, Quantizer]:
    """Return the quantizers of arrays that the policy alone would let lose too much, by name.

    The arrays were read from a file with this manifest, and the policy codes them anew. `total` has
    what holds of each array at all steps before; that of this step is added. `settles`: they are
    coded again between two ends, too.
    """
    coders, recorded, exact = dict[str, Quantizer](), None, manifest.is_exact
    with suppress(ArgumentError):  # of another version or program: nothing is known
        recorded = read_record(manifest.policy).policy
    policy = obeying(policy, arrays)
    recorded = None if recorded is None else obeying(recorded, arrays)
    settled = len(manifest.parents) == 2 or bool(manifest.replaces)
    for c in arrays:
        lost = Guarantee()
        if exact or not c.kind.is_float:
            lost = EXACT
        elif recorded is not None:
            lost = promised(recorded, c)
            if manifest.parent is None and not settled:
                lost = guarantee_of(recorded.choose_keyframe(c.name, c.role, c.kind, c.elements))
            lost = kept_between(lost) if settled else lost
        coder, result = quantizer_again(c, policy, lost)
        if settles and not result.is_strict:
            result = kept_between(promised(policy, c)).after(lost)
        if coder is not None:
            coders[c.name] = coder
        total[c.name] = result.either(total.get(c.name, EXACT))
    return coders


class Losses:
    """What the arrays of each role lose, over the root mean square of their values."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}

    def add(self, role: str, was: Array, now: Array, kind: ElementType) -> None:
        """Add the squares of what components of an array have lost, and of what they were."""
        if not kind.is_float:
            return
        sums = self._sums.setdefault(role, [0.0, 0.0])
        lost = had = 0.0
        with np.errstate(all="ignore"):
            for part in slices(was.size):
                values = work(was[part], kind).astype(np.float64)
                difference = work(now[part], kind) - values
                finite = np.isfinite(difference)
                lost += float(np.square(difference[finite]).sum())
                had += float(np.square(values[finite]).sum())
        sums[:] = sums[0] + lost, sums[1] + had

    def errors(self) -> dict[str, float]:
        """Return the losses by role."""
        return {role: math.sqrt(lost / had) if had else 0.0 for role, (lost, had) in self._sums.items()}
