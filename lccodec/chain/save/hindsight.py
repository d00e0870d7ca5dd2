"""Whether a save is a keyframe or a delta, and to what; and groups that are coded with hindsight.

With hindsight, a history is saved in groups, and what lies within one is coded again from both
ends.

An end is a delta to the end before, so that no step between is needed any more. Its steps are
chosen for what is to lie between, as in :mod:`lccodec.policy.hindsight`. Between two ends saves go
on as in any chain, each a delta to the one before, until the next end is there. A group begins with
the first save of a process. So what lies before it stays as it is.

Settled, a step is interpolated between the ends, and what that misses is coded only where it has to
be. The steps are read from their files, a few arrays at a time: first how far the weights are on
their way at each step, then what each array loses. Memory holds these arrays at both ends and at
one step, and what must be coded. Then every step is coded, before the first file is replaced: the
first steps of a group stay as they were saved if that takes fewer bytes.

The last step goes first: nothing needs it, then nothing needs the one before it, and so on. Each is
replaced by an atomic commit. So at any moment each step can be restored, as it was saved or
settled.

Source: SPEC 9 (LCC-INT-06), :mod:`lccodec.policy.hindsight`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from ...constants import FORMAT_MINOR, MAX_WEIGHT
from ...container.checkpoint import size_of_file
from ...container.manifest import FIGURES, INHERITED, Manifest, Parent, StoredFigures
from ...container.piece_table import hashed
from ...container.system import storage_errors
from ...element_types import Array, work
from ...errors import LccodecError, reason_of, warn
from ...parallel import cached_property, slices
from ...policy.centered import squares_of_means
from ...policy.hindsight import between_quantizers, distance, gains, strays
from ...policy.policy import Candidate, Policy
from ...policy.record import EXACT_KEY, read_record
from ...quantizers.base import Quantizer
from ...workers.crew import Threads
from ..read.checkpoint import open_name
from ..read.info import ArrayInfo
from ..read.links import Link, interpolates, value_or_raise
from ..read.replay import Decoded, DecodedArray, copy_of, decoded_together, interpolated, replay_each
from ..store.lineage import Lineage
from ..store.store import Store, WritableStore, checkpoint_name
from .encode import encode_plan
from .measurement import Samples, movements, rounded_figures
from .plan import make_plan
from .reference import Latest, locked_soon

#: The newest steps that are looked at for groups that an earlier process has left, in groups.
_LOOKED_AT: Final = 3

#: Groups that may wait until one is settled at once: the ends of each are in memory.
_MAX_WAITING: Final = 1


@dataclass(frozen=True, eq=False)
class DeltaBase:
    """What a save is coded against.

    A keyframe is an end, too, since the next group begins with it. `reference` is `latest`, but at
    the end of a group of several steps: there it is the end before.
    """

    reference: Latest | None  # the checkpoint, if there is one
    latest: Latest | None  # the latest checkpoint
    is_end: bool  # whether a group ends here
    is_keyframe: bool  # whether it takes nothing from `reference`
    since: Latest | None = None  # the end before, if there are steps between the two
    is_renewed: bool = False  # whether it is a delta that stores its arrays as a keyframe does
    # Of a delta that ends a group of several steps: how far arrays moved in each interval.
    moved: Mapping[str, Sequence[float]] | None = None


@dataclass
class _Open:
    """The group that saves add to: its first end, and what came after it."""

    low: Latest
    newest: int
    count: int = 0
    moved: dict[str, list[float]] = field(default_factory=dict)
    paths: dict[str, list[Array]] = field(default_factory=dict)  # samples of weights, step by step

    def follow(self, latest: Latest, arrays: Sequence[Candidate]) -> None:
        """Note where the weights are at a step."""
        even = (latest.originals or Samples()).even
        for c in arrays:
            if c.role == "weight" and c.kind.kind == "f" and c.name in even and c.bits.size:
                self.paths.setdefault(c.name, []).append(work(even[c.name], c.kind).astype(np.float64))

    @cached_property
    def strays(self) -> bool:
        """Whether no line does for its weights, by the steps before the next end."""
        known = [path for path in self.paths.values() if len(path) == self.count + 1]
        with np.errstate(all="ignore"):
            return strays(path for path in known if len({point.shape for point in path}) == 1)

    def goes_on(self, latest: Latest) -> bool:
        """Return whether a group ends with the latest checkpoint, which needs its end as it was."""
        own = self.low.links
        return latest.step == self.newest and latest.links[: len(own)] == own


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A group to be settled: the steps of its ends, and both as decoded if they are in memory."""

    low: int
    high: int
    ends: tuple[Latest, Latest] | None = None


class Groups:
    """Says what each save is coded against, and settles groups.

    `size` is the number of saves from one end to the next; 0 for a chain without groups. A restore
    replays at most `keyframe_every` deltas.
    """

    def __init__(self, store: WritableStore, size: int, keyframe_every: int) -> None:
        self._store, self._size, self._every = store, size, keyframe_every
        self._open: _Open | None = None
        self._waiting: deque[_Waiting] = deque()
        self._settling: Generator[None, None, bool] | None = None
        self._looked = False
        self._gains = True
        self._made: deque[int] = deque(maxlen=2)  # the later ends of the last groups
        self._pays: dict[int, bool] = {}  # by later end
        self._rests, self._pause = 0, 1  # ends that begin no group; how many, next time

    def forget(self) -> None:
        """Begin a new group with the next save, and release memory: files may change meanwhile."""
        self._open, self._settling, self._looked = None, None, False
        self._waiting = deque(replace(group, ends=None) for group in self._waiting)

    def settle_rest(self) -> None:
        """Settle all groups that an end of this process may leave."""
        if self._size:
            self._look()
            self.settle(math.inf, lambda: None)

    def base(self, latest: Latest | None, policy: Policy, closes: bool = False) -> DeltaBase:
        """Return what the next save is coded against; `latest` is the checkpoint before it.

        With `closes`, it ends its group, however few steps that has: no state follows.
        A policy that may lose nothing between two ends has no groups: an end would take more bytes
        than a delta to the step before.
        """
        if self._size:
            if not self._looked:
                self._looked = True
                self._look()
            self._gains = gains(policy)
        group = self._open
        if latest is None or not (self._size and self._gains) or (group and not group.goes_on(latest)):
            group = self._open = None
        if latest is None:
            return DeltaBase(None, None, is_end=True, is_keyframe=True)
        since = group.low if group and group.count else None
        too_deep = latest.deltas >= self._every
        if group is None or (group.count + 1 < self._size and not (closes and group.count)):
            return DeltaBase(latest, latest, is_end=too_deep, is_keyframe=too_deep, since=since)
        if self._is_resting or group.strays:
            return DeltaBase(latest, latest, is_end=True, is_keyframe=too_deep)
        # Depths count to the last step before the end that follows on this one, if one does.
        if group.low.deltas + (1 if closes else self._size) > self._every:
            return DeltaBase(latest, latest, is_end=True, is_keyframe=True, since=since)
        return DeltaBase(group.low, latest, is_end=True, is_keyframe=False, since=since, moved=group.moved)

    @property
    def _is_resting(self) -> bool:
        """Whether a group stays as it is saved, as others took more bytes than they saved.

        It is the group before the last that decides: however long settling takes, it is settled by
        then, so the same states make the same files.
        """
        return self._rests > 0 or (len(self._made) == 2 and not self._pays.get(self._made[0], True))

    def _note_end(self, base: DeltaBase, step: int) -> None:
        """Count the ends of groups, and those that are none for once."""
        if base.since is not None:
            self._made.append(step)
            if len(self._made) == 2 and self._pays.get(self._made[0], True):
                self._pause = 1
        elif self._is_resting:
            if not self._rests:
                self._made.clear()
                self._rests, self._pause = self._pause, 2 * self._pause
            self._rests -= 1

    def fate(self, base: DeltaBase) -> str | None:
        """Return what becomes of the next save in a group, in words; ``None`` without groups."""
        if not self._size:
            return None
        if not self._gains:
            return "It stays as it is saved: a bound leaves nothing to lose between two ends."
        group = self._open
        if group is None or (base.is_end and base.since is None):
            return "It begins a group."
        if base.is_end:
            between = "1 step" if group.count == 1 else f"{group.count} steps"
            return (
                f"It ends a group: {between} between step {group.low.step} and this one are coded again from"
                " both, in the background."
            )
        place = f"number {group.count + 1} of {self._size - 1} between two ends, after step {group.low.step}"
        return f"It is {place}. It is coded again from both when the later end is there."

    def saved(self, base: DeltaBase, latest: Latest, arrays: Sequence[Candidate]) -> None:
        """Note a save: what it was coded against, and what it has become."""
        if not self._size or not self._gains:
            return
        group = self._open
        if group is None or base.is_end:
            low = latest.copied()
            self._note_end(base, latest.step)
            if base.since is not None:
                self._waiting.append(_Waiting(base.since.step, latest.step, (base.since, low)))
            self._open = _Open(low, latest.step)
            self._open.follow(latest, arrays)
            return
        group.follow(latest, arrays)
        group.newest, group.count = latest.step, group.count + 1
        before = base.latest.originals if base.latest else None
        for name, moved in movements(arrays, latest.originals or Samples(), before or Samples()).items():
            group.moved.setdefault(name, []).append(moved)

    def _look(self) -> None:
        """Find the groups that an earlier process has left."""
        waiting = [(group.low, group.high) for group in self._waiting]
        found = unsettled(self._store, _LOOKED_AT * self._size)
        self._waiting.extend(_Waiting(*group) for group in found if group not in waiting)

    def settle(self, seconds: float, heartbeat: Callable[[], None]) -> None:
        """Settle what waits, for about so many seconds.

        `heartbeat` is called again and again: the worker lives.
        """
        end = time.perf_counter() + seconds
        while self._waiting and (time.perf_counter() < end or len(self._waiting) > _MAX_WAITING):
            heartbeat()
            try:
                if self._settling is None:
                    group = self._waiting[0]
                    self._settling = settle(self._store, group.low, group.high, group.ends)
                next(self._settling)
            except StopIteration as done:
                self._settling = None
                self._pays[self._waiting.popleft().high] = done.value
                self._pays = {step: pays for step, pays in self._pays.items() if step in self._made}
            except Exception as error:  # whatever it is: the save is done
                self._settling = None
                self._waiting.popleft()
                message = f"a part of the history stays larger than it could be: {reason_of(error)}"
                warn(f"{self._store.path}: {message}")
            except BaseException:  # an interrupt ends the generator: it would seem to be done
                self._settling = None
                raise


def settle(
    store: WritableStore, low: int, high: int, ends: Sequence[Latest] | None = None
) -> Generator[None, None, bool]:
    """Code again what lies between two ends, piece by piece; return whether the group pays.

    It does not if it saves fewer bytes than its end takes over another delta. `ends` are both as
    decoded, if known.

    Nothing happens if the steps between are not a row of deltas that begins at the earlier end, or
    if their arrays are not those of the ends. Pinned steps stay as they are, with what they need.
    So do those that were asked for exactly; what was rewritten, as it may have been settled before
    and must not lose a second time; what is settled already; and all that is left while others
    remove checkpoints.

    Raises
    ------
    DataError, ChainError, StorageError
        If a checkpoint cannot be restored or written. Every step is as it was saved, or settled.
    """
    with storage_errors("cannot settle a group of", store.path), ExitStack() as files:
        group = _open(store, low, high, ends, files)
        if group is None:
            return True
        yield from group.place()
        yield from group.compare()
        yield from group.code()
        while group.write_last():
            yield
        return group.pays


def unsettled(store: Store, among: int) -> list[tuple[int, int]]:
    """Return the ends of groups that are not settled, the oldest first.

    A delta shows that there is a group if it is not to the step before, or what is settled of the
    group. Nothing else does where the later end is a keyframe. `among` says how many of the newest
    steps are read.
    """
    found, row = set[tuple[int, int]](), list[int]()  # steps that are not interpolated, since an end
    lineage = Lineage.named(store)
    for step in lineage.steps[-among:]:
        parents = lineage.parents(step)
        if len(parents) == 2:
            if row and row[-1] > parents[0]:
                found.add((parents[0], parents[1]))
            continue
        if not parents or parents[0] not in row:
            row = []
        elif parents[0] != row[-1]:
            found.add((parents[0], step))
            row = []
        row.append(step)
    return sorted(found)


def _open(
    store: WritableStore, low: int, high: int, ends: Sequence[Latest] | None, files: ExitStack
) -> HindsightGroup | None:
    """Open the checkpoints of a group; ``None`` if there is nothing to settle."""
    steps = store.checkpoints()
    if low not in steps or high not in steps:
        return None
    inside = [step for step in steps if low < step < high]
    spans = Lineage.named(store, inside).interpolated()
    left = [step for step in inside if step not in spans]
    if not left or any(span != (low, high) for span in spans.values()):
        return None
    line = files.enter_context(open_name(store, steps[left[-1]]))
    later = files.enter_context(open_name(store, steps[high])).links[-1]
    row = [link.manifest.step for link in line.links]
    if low not in row or row[row.index(low) + 1 :] != left:
        return None
    place = row.index(low)
    first = line.links[place]
    above = [parent.step for parent in later.manifest.parents]
    if above not in ([], [low]):
        return None
    end = Link(later.reader, first) if above else later
    between = line.links[place + 1 :]
    if any(link.index_names != first.index_names for link in (*between, end)):
        return None
    stay = [step for step in store.pins() if step in left]
    stay += [
        link.manifest.step or 0
        for link in between
        if link.manifest.replaces or EXACT_KEY in link.manifest.metadata
    ]
    settled = [
        StepBetween(link, number)
        for number, link in enumerate(between, 1)
        if (link.manifest.step or 0) > max(stay, default=low)
    ]
    roots = [first.reader.root, end.reader.root]
    known = [latest.arrays for latest in ends or () if [t.links[-1].root for t in ends or ()] == roots]
    links = [*line.links[place if known else 0 : place + 1], end, *between]
    for link in links:
        link.reader.rest()
    told = {array.name: array for array in line.info().arrays}
    records = [read_record(link.manifest.policy) for link in between]
    policy = records[-1].policy
    if not settled or not policy.lossy:
        return None
    figures = [link.figures() for link in (*between, end)]
    moved = {name: [own[name].movement if name in own else None for own in figures] for name in told}
    movements = {name: [math.nan if each is None else each for each in row] for name, row in moved.items()}
    for index, name in enumerate(first.index_names):  # what was exact at a step is not lost later
        roles = [record.known.get(index) for record in records]
        exact = [own == "other" or (own is None and roles[-1] not in (None, "other")) for own in roles]
        if any(
            own != roles[-1] and kept and x
            for own, kept, x in zip(roles, exact, movements[name], strict=False)
        ):
            told[name] = replace(told[name], role="other")
    return HindsightGroup(store, links, known, first, end, settled, told, policy, movements)


#: What part of the weights says how far a step is on its way, and the elements that are enough.
_SAMPLED_SHARE: Final = 1 / 8
_MIN_SAMPLED: Final = 1 << 18

#: How much of a walk's energy means of columns must have to count, and how far ahead they may be.
_LEAST_OF_COLUMNS: Final = 0.5
_MOST_AHEAD: Final = 0.3

#: Arrays by name.
Arrays: TypeAlias = dict[str, DecodedArray]


@dataclass
class StepBetween:
    """A step between two ends."""

    link: Link  # its checkpoint
    number: int  # how many intervals of the group lie before it
    weight: int = 0  # how much the later end counts, in 256ths
    coded: list[Candidate] = field(default_factory=list)  # what must be coded
    # What codes it, by name, if that is not up to the policy.
    quantizers: dict[str, Quantizer | None] = field(default_factory=dict)
    # By name, the root mean square of what arrays lose that are not coded, or coded with a loss.
    lost: dict[str, float] = field(default_factory=dict)
    # `frames`, `manifest`: of its new file, once they are made.
    frames: list[bytes] = field(default_factory=list)
    manifest: Manifest | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of its file as it was saved, and as it is coded anew."""
        return self.link.reader.file_size, 0 if self.manifest is None else size_of_file(self.manifest)

    @property
    def step(self) -> int:
        """Its step."""
        return self.link.manifest.step or 0


@dataclass
class HindsightGroup:
    """Two ends, and the steps between them that are to be settled, by rising step."""

    store: WritableStore
    links: Sequence[Link]  # all that is needed to decode them, parents first
    ends: Sequence[Arrays]  # both ends as decoded, if that is known
    low: Link
    high: Link
    between: list[StepBetween]
    known: Mapping[str, ArrayInfo]  # what is known of the arrays, by name
    policy: Policy
    movements: Mapping[str, Sequence[float]]  # by name, one of each interval; NaN if it is not known
    pays: bool = True  # whether it saves more bytes than its end takes over another delta

    def place(self) -> Iterator[None]:
        """Find how far the weights are on their way at each step, by least squares.

        So are the means of their columns, in which there is less of a random walk: what a young run
        learns shows in them first. A step that lies behind its run costs, one that is ahead does
        not. So the farther of the two counts.
        """
        along, across = {step.step: np.zeros(2) for step in self.between}, np.zeros(2)
        heard = np.zeros(2)  # how many elements, and columns
        for names in self._some_weights():
            for step, low, high, arrays in self._decoded(names):
                for name in filter(self._is_weight, names):
                    own = low[name].form
                    if interpolates(own, high[name].form) and interpolates(own, arrays[name].form):
                        products = _way_products(arrays[name], low[name].bits, high[name].bits)
                        along[step.step] += products[0]
                        if step is self.between[0]:
                            across, heard = across + products[1], heard + products[2]
            yield
        first, last = self.low.manifest.step or 0, self.high.manifest.step or 0
        for step in self.between:
            # Where no weight moves, time decides.
            way = along[step.step]
            part = way[0] / across[0] if across[0] > 0 else (step.step - first) / (last - first)
            if across[1] * heard[0] > _LEAST_OF_COLUMNS * across[0] * heard[1] > 0:
                part = max(part, min(way[1] / across[1], part + _MOST_AHEAD, 1.0))
            step.weight = min(max(round(256 * part), 0), MAX_WEIGHT) if math.isfinite(part) else 128

    def _some_weights(self) -> list[list[str]]:
        """Return names of some weights, by chance but always the same: decoding takes long.

        Those of other arrays are among them that are decoded together with a weight.
        """
        sizes = {n: math.prod(a.shape) for n, a in self.known.items() if self._is_weight(n)}
        together = [names for names in self._together() if not sizes.keys().isdisjoint(names)]
        left, chosen = max(sum(sizes.values()) * _SAMPLED_SHARE, _MIN_SAMPLED), list[list[str]]()
        for place in np.random.default_rng(0).permutation(len(together)).tolist():
            if left > 0:
                chosen.append(together[place])
                left -= sum(sizes.get(name, 0) for name in together[place])
        return chosen

    def _is_weight(self, name: str) -> bool:
        return self.known[name].role == "weight" and 0 not in self.movements[name]  # a copy rests

    def compare(self) -> Iterator[None]:
        """Find what each array loses, and keep what must be coded."""
        firsts = {name for name in self.known if self.known[name].role == "first_moment"}
        for names in self._together():
            before = dict[str, Array]()
            for step, low, high, arrays in self._decoded(names):
                if not before:
                    before = {name: low[name].bits for name in firsts.intersection(names)}
                ends = Decoded(dict(low), set()), Decoded(dict(high), set())
                above = interpolated(step.weight / 256, *ends, names).arrays
                copies = {name: step.link.copies[name] for name in names if name in step.link.copies}
                own = (name for name in names if name not in copies)
                found = [self._candidate(name, arrays[name], above[name]) for name in own]
                chosen = between_quantizers(self.policy, found, self.movements, step.number, before)
                before = {c.name: c.bits.copy() for c in found if c.name in firsts}
                for c in found:
                    if c.reference is not None and chosen.get(c.name, ...) is None:
                        step.lost[c.name] = distance(c, c.reference)
                    elif c.reference is None or not np.array_equal(c.bits, c.reference):
                        step.quantizers.update({c.name: chosen[c.name]} if c.name in chosen else {})
                        reference = None if c.reference is None else c.reference.copy()
                        step.coded.append(replace(c, bits=c.bits.copy(), reference=reference))
                for name, (source, _) in copies.items():
                    if source in step.lost:  # the copy is made of what is left of it
                        made = copy_of(value_or_raise(above[source]), arrays[name].kind)
                        c = self._candidate(name, arrays[name], made)
                        step.lost[name] = distance(c, c.reference)
            yield

    def code(self) -> Iterator[None]:
        """Code each step, and leave out the first ones if they are smaller as they were saved.

        Those are needed by the deltas that follow them. So what stays is a row from the earlier end
        on.
        """
        for step in self.between:
            self._code(step)
            yield
        saved, settled = (
            [0, *accumulate(sizes)] for sizes in zip(*(s.sizes for s in self.between), strict=True)
        )
        total = [stays + settled[-1] - gone for stays, gone in zip(saved, settled, strict=True)]
        delta = saved[-1] // len(self.between)
        self.pays = not self.high.parents or saved[-1] - min(total) > self.high.reader.file_size - delta
        del self.between[: total.index(min(total))]

    def _code(self, step: StepBetween) -> None:
        link, own = step.link, {c.name: c for c in step.coded}
        step.coded.sort(key=lambda c: link.names[c.name])
        alone = {name: coder for name, coder in step.quantizers.items() if coder is not None}
        plan = make_plan(
            step.coded, self.policy, self.low.manifest.step, first=alone, overrides=step.quantizers
        )
        numbers = [None if name in link.copies else 0 for name in link.index_names]
        for number, frame in enumerate(plan.frames, 1):
            for index in frame.arrays:
                numbers[link.names[step.coded[index].name]] = number
        references = {
            c.name: DecodedArray(c.kind, c.shape, c.reference) for c in step.coded if c.reference is not None
        }
        entries = []
        for chunks, decoded in encode_plan(plan, references, self.policy.effort, Threads()):
            step.frames.append(b"".join(chunks))
            entries.append(hashed([step.frames[-1]])[0])
            for name, array in decoded.items():
                if not np.array_equal(array.bits, own[name].bits):
                    step.lost[name] = distance(own[name], array.bits)
        manifest = replace(
            link.manifest,
            minor=FORMAT_MINOR,
            parent=Parent(self.low.manifest.step or 0, self.low.reader.root),
            later=Parent(self.high.manifest.step or 0, self.high.reader.root),
            weight=step.weight,
            replaces=(*link.manifest.replaces, link.reader.root),
            figures=_figures(step),
            arrays=tuple(numbers),
            frames=tuple(entries),
        )
        same = repr(manifest.tree) == repr(self.low.manifest.tree)
        step.manifest = replace(manifest, tree=INHERITED) if same else manifest
        step.coded, step.quantizers = [], {}

    def write_last(self) -> bool:
        """Replace the last step that is left; return whether another one is left then."""
        step = self.between[-1] if self.between else None
        if step is None or step.manifest is None:
            return False
        with locked_soon(self.store) as held:
            if held is None or not self._is_as_it_was():
                return False
            with self.store.writer(checkpoint_name(step.step), overwrite=True) as writer:
                for frame in step.frames:
                    writer.write_frame(frame)
                writer.commit(step.manifest)
        self.between.pop()
        return bool(self.between)

    def _is_as_it_was(self) -> bool:
        """Return whether the last step that is left, and all that it is to need, are still there.

        Somebody else may have pinned, removed or replaced some of them.
        """
        needed = {link.manifest.step: link for link in (self.low, self.high, self.between[-1].link)}
        steps = self.store.checkpoints()
        if not steps.keys() >= needed.keys() or self.between[-1].step in self.store.pins():
            return False
        return all(self.store.root(steps[s or 0])[0] == link.reader.root for s, link in needed.items())

    def _together(self) -> list[list[str]]:
        """Return the names of all arrays, those together that are decoded or coded together."""
        link = self.links[-1]
        together, found = decoded_together(self.links), dict[int, list[str]]()
        places = {name: id(together[link.names[name]]) for name in self.known}
        pairs = squares_of_means({name: own.role for name, own in self.known.items()})
        places |= {square: places[mean] for mean, square in pairs.items()}
        for name, place in places.items():
            found.setdefault(place, []).append(name)
        return list(found.values())

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[StepBetween, Arrays, Arrays, Arrays]]:
        """Yield the steps between: each with arrays of the earlier end, the later one, its own."""
        steps = {id(step.link): step for step in self.between}
        places = [i for i, link in enumerate(self.links) if link is self.low or link is self.high]
        known = [{name: end[name] for name in names} for end in self.ends]
        given = dict(zip(places, known, strict=True)) if known else {}
        wanted = {i: names for i, link in enumerate(self.links) if id(link) in steps or i in places}
        wanted = {i: names for i, names in wanted.items() if i not in given}
        for position, arrays in replay_each(self.links, wanted, known=given):
            step = steps.get(id(self.links[position]))
            if step is None:  # an end: its memory is used for what follows
                known.append({name: replace(a, bits=a.bits.copy(), start=0) for name, a in arrays.items()})
            else:
                low, high = known
                yield step, low, high, arrays

    def _candidate(self, name: str, array: DecodedArray, above: DecodedArray | LccodecError) -> Candidate:
        found, known = value_or_raise(above), self.known[name]
        fits = (found.kind, found.shape) == (array.kind, array.shape)
        reference = found.bits if fits else None
        return Candidate(name, known.role, known.why, array.kind, array.shape, array.bits, reference)


def _way_products(array: DecodedArray, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return the product of the way to an array and of the whole way, and the square of that.

    Both are of elements, and of means of columns, scaled so that those of noise have its size. The
    third array has the numbers of elements and of columns; a vector has none.

    `low` and `high` are the components at the ends.
    """
    along, across, size = np.zeros(2), np.zeros(2), array.bits.size
    width = size // array.shape[0] if len(array.shape) > 1 and size else 0
    columns = np.zeros((2, width))
    with np.errstate(all="ignore"):
        for part in slices(size):
            x, before, after = (
                work(each[part], array.kind).astype(np.float64) for each in (array.bits, low, high)
            )
            own, way = x - before, after - before
            finite = np.isfinite(own) & np.isfinite(way)
            own[~finite] = way[~finite] = 0
            along[0] += own @ way
            across[0] += way @ way
            if width:
                places = np.arange(part.start, part.start + own.size) % width
                columns += [np.bincount(places, each, width) for each in (own, way)]
    if width:
        along[1], across[1] = (columns @ columns[1]) * (width / size)
    return along, across, np.array([size, width], np.float64)


def _figures(step: StepBetween) -> StoredFigures | None:
    """Return the figures of a settled step: those of its save, with its errors as they are now.

    What was lost before is a part of the distance between both, since the two have nothing to do
    with each other. How far the step lags is not known any more.
    """
    stored, link = step.link.manifest.figures, step.link
    if stored is None:
        return None
    count = len(link.index_names)
    columns: dict[str, Array] = {name: stored.read(name, count).astype(np.float64) for name in FIGURES}
    for name, lost in step.lost.items():
        place = link.names[name]
        before = columns["error"][place]
        columns["error"][place] = math.sqrt(max(lost**2 - before**2, before**2))
    columns["lag"][:] = math.nan
    return rounded_figures(stored.since, columns)
