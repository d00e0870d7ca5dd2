"""What a save measures: how arrays are spread, how far they moved, what their restored values lost.

Only the save has both a state and what a restore of its checkpoint will return. It compares them on
a sample of each floating point array, and keeps that of the state for the next save. Only extremes,
and what is not finite, are looked for in all elements: a single one matters.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from ....container.figures import FIGURES, QUANTILES, StoredFigures
from ....element_table import ElementType
from ....element_types import Array, work
from ....parallel import slices
from ....policy.policy import Candidate
from ...read.replay import DecodedArray
from .drawing import PIECE, Drawn
from .extremes import Extremes
from .rounding import rounded_figures
from .sampling import NOTHING, Batch, Group, Samples, Sampling
from .sums import descriptions, first_figures

_OF_STATE: Final = ("spread", "rms", "error")  # need no save before
_OF_MOVEMENT: Final = ("movement", "lag")
_BELOW_ONE: Final = 1 - 2**-8  # the largest bfloat16 number below 1


@dataclass(frozen=True, eq=False)
class _Group:
    """Arrays that are measured together.

    Parameters
    ----------
    sampled
        Which they are.
    arrays
        The arrays.
    batch
        Their samples.
    loses
        Whether one of them may lose something.
    past
        Their samples at the save before, if that had the same arrays.
    """

    sampled: Group
    arrays: Sequence[Candidate]
    batch: Batch
    loses: bool
    past: Batch | None

    @property
    def kind(self) -> ElementType:
        """Their type."""
        return self.arrays[0].kind


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample that is taken before it is coded.

    Parameters
    ----------
    arrays
        The arrays of the state.
    sampling
        Which of their components are sampled.
    losing
        The indices of the arrays that may lose something.
    before
        Samples of the state of the save before, as far as they are known.

    Attributes
    ----------
    samples
        What is sampled of the arrays that are saved.
    is_partial
        Whether the save leaves out some arrays.
    """

    def __init__(
        self,
        arrays: Sequence[Candidate],
        sampling: Sampling,
        losing: AbstractSet[int] = frozenset(),
        before: Samples = NOTHING,
    ) -> None:
        self._count = len(arrays)
        self._sampling = sampling
        self._before = before
        self._groups: list[_Group] = []
        self._drawn: dict[str, Drawn] = {}
        self._again: dict[str, Array] = {}  # components that were drawn at the save before
        self._extremes: dict[int, tuple[int, int, int]] = {}  # of arrays that are not sampled whole
        same = before.sampling is sampling
        self.is_partial = not same and any(c.inherited for c in arrays)
        for number, every in enumerate(sampling.groups):
            group = every
            if self.is_partial:
                group = every.of([p for p, index in enumerate(every.indices) if not arrays[index].inherited])
            if not group.indices:
                continue
            own = [arrays[index] for index in group.indices]
            if group.is_whole:
                bits = np.concatenate([c.bits for c in own])
            else:
                taken = [self._taken(index, arrays[index], index in losing) for index in group.indices]
                bits = np.concatenate(taken)
            past = before.batches[number] if same else None
            batch = Batch([c.name for c in own] if past is None else past.names, group.sizes, bits)
            loses = bool(losing) and not losing.isdisjoint(group.indices)
            self._groups.append(_Group(group, own, batch, loses, past))
        batches = [group.batch for group in self._groups]
        self.samples = Samples(batches, self._drawn, None if self.is_partial else sampling)

    def _taken(self, index: int, c: Candidate, loses: bool) -> Array:
        """Return the sample of an array at equal distances.

        While the array is in the cache, all else is taken of it that is needed.
        """
        distance = self._sampling.distances[index]
        if distance == 1:
            return c.bits
        ends = Extremes(c.kind)
        look = ends.add if loses else np.asarray
        pieces = (look(c.bits[part]) for part in slices(c.bits.size, PIECE))
        if self._sampling.draws(index):
            even = c.bits[::distance].copy()
            found = Drawn.of_parts(even, pieces, c.bits.size, c.kind, distance)
            if found is not None:
                self._drawn[c.name] = found
            past, known = self._before.drawn.get(c.name), self._before.even.get(c.name)
            if past is not None and known is not None and known.size == even.size:
                self._again[c.name] = past.again(c.bits)
        else:
            deque(pieces, 0)
            even = c.bits[::distance].copy()
        if loses:
            self._extremes[index] = ends.found()
        return even

    def figures(
        self,
        decoded: Mapping[str, DecodedArray],
        since: int | None,
        inherited: Mapping[str, Array] = MappingProxyType({}),
    ) -> StoredFigures | None:
        """Return the figures of the checkpoint.

        Parameters
        ----------
        decoded
            The arrays as a restore returns them, by name.
        since
            The step of the save before.
        inherited
            By name, the figures of arrays that the save leaves out.
        """
        columns = {name: np.full(self._count, np.nan) for name in FIGURES}
        columns["quantiles"] = np.full((self._count, len(QUANTILES)), np.nan)
        columns.update(inherited)
        for group in self._groups:
            found = (self._of_drawn if group.sampled.draws else self._of_even)(group, decoded)
            places = group.sampled.places
            for name, numbers in found.items():
                columns[name][places] = numbers
            lost = np.flatnonzero(found["error"] > 0) if group.loses else np.empty(0, np.intp)
            for name, numbers in self._descriptions(group, lost).items() if lost.size else ():
                columns[name][np.array(group.sampled.indices)[lost]] = numbers
        # A sample may have met nothing but zeros.
        some = (columns["minimum"] != 0) | (columns["maximum"] != 0)
        most = np.where(some | (columns["zeros"] < 1), _BELOW_ONE, 1.0)
        columns["zeros"] = np.minimum(columns["zeros"], most)
        return rounded_figures(since, columns)

    def _descriptions(self, group: _Group, places: Array) -> dict[str, Array]:
        """Return how the values lie of those arrays of a group that lost something."""
        sizes, bits = group.batch.sizes, group.batch.bits
        if places.size < sizes.size:
            lost = np.zeros(sizes.size, bool)
            lost[places] = True
            bits, sizes = bits[np.repeat(lost, sizes)], sizes[places]
        found = descriptions(sizes, work(bits, group.kind))
        indices = [group.sampled.indices[place] for place in places.tolist()]
        large = [number for number, index in enumerate(indices) if index in self._extremes]
        if large:
            low, high, bad = zip(*(self._extremes[indices[number]] for number in large), strict=True)
            found["minimum"][large] = work(np.array(low, group.kind.bits), group.kind)
            found["maximum"][large] = work(np.array(high, group.kind.bits), group.kind)
            found["not_finite"][large] = bad
        return found

    def _decoded(self, group: _Group, decoded: Mapping[str, DecodedArray]) -> Array | None:
        """Return the samples as a restore returns them; ``None`` if nothing was lost."""
        if not group.loses:
            return None
        return self._sampling.joined(group.sampled, [decoded[c.name].bits for c in group.arrays])

    def _of_even(self, group: _Group, decoded: Mapping[str, DecodedArray]) -> dict[str, Array]:
        batch, kind = group.batch, group.kind
        known, past = _past(group, self._before)
        after = self._decoded(group, decoded)
        found = first_figures(
            batch.sizes,
            work(batch.bits, kind),
            None if after is None else work(after, kind),
            None if past is None else work(past, kind),
        )
        for name in _OF_MOVEMENT if past is None or not known.all() else ():
            found[name] = np.where(known, found[name], np.nan)
        return found

    def _of_drawn(self, group: _Group, decoded: Mapping[str, DecodedArray]) -> dict[str, Array]:
        own = dict(group.batch.each())
        after = self._decoded(group, decoded)
        even = own if after is None else dict(replace(group.batch, bits=after).each())
        now = self._compared(group, range(len(group.arrays)), own, even, decoded, None)
        found = {name: now[name] for name in _OF_STATE}
        known, _ = _past(group, self._before)
        places = np.flatnonzero(known)
        for name in _OF_MOVEMENT:
            found[name] = np.full(len(group.arrays), np.nan)
        if places.size:
            moved = self._compared(group, places.tolist(), own, even, decoded, self._before)
            for name in _OF_MOVEMENT:
                found[name][places] = moved[name]
        return found

    def _compared(
        self,
        group: _Group,
        places: Sequence[int],
        own: Mapping[str, Array],
        even: Mapping[str, Array],
        decoded: Mapping[str, DecodedArray],
        before: Samples | None,
    ) -> dict[str, Array]:
        """Compare arrays where samples were taken of this state, or of the one before.

        `own` are their components at equal distances, which each array has first, and `even` the
        same as decoded.
        """
        x: list[Array] = []
        d: list[Array] = []
        p: list[Array] = []
        sizes, rates = [], []
        samples = self.samples if before is None else before
        for place in places:
            name = group.arrays[place].name
            drawn = samples.drawn.get(name)
            x.append(own[name])
            d.append(even[name])
            p.append(own[name] if before is None else before.even[name])
            sizes.append(p[-1].size)
            rates.append(0.0 if drawn is None else drawn.rate)
            if drawn is not None:
                x.append(drawn.bits if before is None else self._again[name])
                d.append(drawn.again(decoded[name].bits) if group.loses else x[-1])
                p.append(drawn.bits)
                sizes[-1] += drawn.bits.size
        values, after, sampled = (
            work(np.concatenate(bits), group.kind) for bits in (x, d if group.loses else x[:1], p)
        )
        distances = np.array([self._sampling.distances[group.sampled.indices[place]] for place in places])
        counted = _counts(np.array(sizes), distances, np.array(rates), sampled)
        past = None if before is None else sampled
        return first_figures(
            np.array(sizes), values, after if group.loses else None, past, counted, spreads=before is None
        )


@np.errstate(all="ignore")
def _counts(sizes: Array, distances: Array, rates: Array, sampled: Array) -> Array:
    """Return what each component counts: one over the probability that it is there.

    `sampled` are the values that the samples were taken of, array after array.
    """
    evenly = 1 / distances  # the probability that it is there by its place
    there = np.repeat(rates * (1 - evenly), sizes)
    there *= np.abs(sampled)
    there += np.repeat(evenly, sizes)
    np.minimum(there, 1, out=there)
    found: Array = np.reciprocal(there, out=there)
    return found


def _past(group: _Group, before: Samples) -> tuple[Array, Array | None]:
    """Return of which arrays the samples of the save before are known, and these end to end.

    An array that was not there, or had another shape, is in its place as it is now. The second
    result is ``None`` if nothing is known.
    """
    batch = group.batch
    if group.past is not None:
        return np.ones(len(group.arrays), bool), group.past.bits
    fits = [c.reference is not None for c in group.arrays]
    known = np.array(fits)
    there = before.like(batch)
    if there is not None and all(fits):
        return known, there.bits
    bits = []
    for place, (name, now) in enumerate(batch.each()):
        past = before.even.get(name) if fits[place] else None
        known[place] = past is not None and past.size == now.size
        bits.append(past if past is not None and known[place] else now)
    return known, np.concatenate(bits) if known.any() else None
