"""A group to be settled: how far each step is on its way, what must be coded, and its new file.

The steps are read from their files, a few arrays at a time: first how far the weights are on their
way at each step, then what each array loses. Memory holds these arrays at both ends and at one
step, and what must be coded. Then every step is coded, before the first file is replaced: the first
steps of a group stay as they were saved if that takes fewer bytes.

Source: SPEC 9 (LCC-INT-06), :mod:`lccodec.policy.hindsight`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from ....constants import FORMAT_MINOR, MAX_WEIGHT
from ....container.figures import FIGURES, StoredFigures
from ....container.manifest import INHERITED, Manifest, Parent
from ....container.piece_table import hashed
from ....element_types import Array, subtract, work
from ....errors import LccodecError
from ....parallel import slices
from ....policy.hindsight import between_quantizers
from ....policy.policy import Candidate, Policy
from ....quantizers.base import Quantizer
from ....workers.crew import Threads
from ...read.heads import interpolates
from ...read.info import ArrayInfo
from ...read.links import Link, value_or_raise
from ...read.needed import decoded_together
from ...read.replay import Decoded, DecodedArray, copy_of, interpolated, replay_each
from ...store.names import checkpoint_name
from ...store.store import WritableStore
from ..encode import encode_plan
from ..measurement import rounded_figures
from ..plan import make_plan
from ..reference import locked_soon

#: What part of the weights says how far a step is on its way, and the elements that are enough.
_SAMPLED_SHARE: Final = 1 / 8
_MIN_SAMPLED: Final = 1 << 18

#: Arrays by name.
Arrays: TypeAlias = dict[str, DecodedArray]


@dataclass
class Between:
    """A step between two ends.

    Parameters
    ----------
    link
        Its checkpoint.
    along
        What `Group.place` sums up: the products of its way from the earlier end and the whole way.
    weight
        How much the later end counts, in 256ths.
    coded, quantizers
        What must be coded, and what codes it if that is not up to the policy.
    lost
        By name, the root mean square of what arrays lose that are not coded, or coded with a loss.
    frames, manifest
        The frames of its new file, and its manifest, once they are made.
    """

    link: Link
    along: float = 0.0
    weight: int = 0
    coded: list[Candidate] = field(default_factory=list)
    quantizers: dict[str, Quantizer | None] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    frames: list[bytes] = field(default_factory=list)
    manifest: Manifest | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of its frames as it was saved, and as it is coded anew."""
        new = 0 if self.manifest is None else self.manifest.payload_length
        return self.link.manifest.payload_length, new

    @property
    def step(self) -> int:
        """Its step."""
        return self.link.manifest.step or 0


@dataclass
class Group:
    """Two ends, and the steps between them that are to be settled, by rising step."""

    store: WritableStore
    links: Sequence[Link]  # all that is needed to decode them, parents first
    ends: Sequence[Arrays]  # both ends as decoded, if that is known
    low: Link
    high: Link
    between: list[Between]
    known: Mapping[str, ArrayInfo]  # what is known of the arrays, by name
    policy: Policy

    def place(self) -> Iterator[None]:
        """Find how far the weights are on their way at each step, by least squares."""
        across = 0.0
        for names in self._some_weights():
            for step, low, high, arrays in self._decoded(names):
                for name in filter(self._is_weight, names):
                    own = low[name].form
                    if interpolates(own, high[name].form) and interpolates(own, arrays[name].form):
                        products = _products(low[name], high[name], arrays[name])
                        step.along += products[0]
                        across += products[1] if step is self.between[0] else 0.0
            yield
        first, last = self.low.manifest.step or 0, self.high.manifest.step or 0
        for step in self.between:
            part = step.along / across if across > 0 else (step.step - first) / (last - first)
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
        return self.known[name].role == "weight"

    def compare(self) -> Iterator[None]:
        """Find what each array loses, and keep what must be coded."""
        moved = [_movements(link) for link in (*(step.link for step in self.between), self.high)]
        movements = {name: [found[name] for found in moved if name in found] for name in self.known}
        for names in self._together():
            for step, low, high, arrays in self._decoded(names):
                before, after = Decoded(dict(low), set()), Decoded(dict(high), set())
                above = interpolated(step.weight / 256, before, after, names).arrays
                copies = {name: step.link.copies[name] for name in names if name in step.link.copies}
                own = (name for name in names if name not in copies)
                found = [self._candidate(name, arrays[name], above[name]) for name in own]
                chosen = between_quantizers(self.policy, found, movements)
                for c in found:
                    if c.reference is not None and chosen.get(c.name, ...) is None:
                        step.lost[c.name] = _distance(c)
                    elif c.reference is None or not np.array_equal(c.bits, c.reference):
                        step.quantizers.update({c.name: chosen[c.name]} if c.name in chosen else {})
                        step.coded.append(_copied(c))
                for name, (source, _) in copies.items():
                    if source in step.lost:  # the copy is made of what is left of it
                        made = copy_of(value_or_raise(above[source]), arrays[name].kind)
                        step.lost[name] = _distance(self._candidate(name, arrays[name], made))
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
        del self.between[: total.index(min(total))]

    def _code(self, step: Between) -> None:
        link, own = step.link, {c.name: c for c in step.coded}
        step.coded.sort(key=lambda c: link.names[c.name])
        alone = {name: coder for name, coder in step.quantizers.items() if coder is not None}
        plan = make_plan(
            step.coded, self.policy, self.low.manifest.step, first=alone, instead=step.quantizers
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
                    step.lost[name] = _distance(replace(own[name], reference=array.bits))
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
        """Return the names of all arrays, those together that are decoded together."""
        link = self.links[-1]
        together, found = decoded_together(self.links), dict[int, list[str]]()
        for name in self.known:
            found.setdefault(id(together[link.names[name]]), []).append(name)
        return list(found.values())

    def _decoded(self, names: Sequence[str]) -> Iterator[tuple[Between, Arrays, Arrays, Arrays]]:
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


def _products(low: DecodedArray, high: DecodedArray, array: DecodedArray) -> tuple[float, float]:
    """Return the product of the way to an array and of the whole way, and the square of that."""
    along = across = 0.0
    with np.errstate(all="ignore"):
        for part in slices(array.bits.size):
            x, before, after = (work(a.bits[part], a.kind).astype(np.float64) for a in (array, low, high))
            own, way = x - before, after - before
            finite = np.isfinite(own) & np.isfinite(way)
            along += float(np.dot(own[finite], way[finite]))
            across += float(np.dot(way[finite], way[finite]))
    return along, across


def _movements(link: Link) -> dict[str, float]:
    """Return how far arrays moved since the save before, as it was measured, by name."""
    found = link.figures().items()
    return {name: figures.movement for name, figures in found if figures.movement is not None}


def _distance(c: Candidate) -> float:
    """Return the root mean square of the distances of components from their reference."""
    total = 0.0
    with np.errstate(all="ignore"):
        for part in slices(c.bits.size):
            d = subtract(c.bits[part], None if c.reference is None else c.reference[part], c.kind)
            total += float(np.add.reduce(np.square(d, dtype=np.float64)))
    return math.sqrt(total / c.bits.size) if c.bits.size else 0.0


def _copied(c: Candidate) -> Candidate:
    reference = None if c.reference is None else c.reference.copy()
    return Candidate(c.name, c.role, c.why, c.kind, c.shape, c.bits.copy(), reference)


def _figures(step: Between) -> StoredFigures | None:
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
