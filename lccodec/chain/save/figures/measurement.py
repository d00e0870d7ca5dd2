"""What a save measures: how arrays are spread, how far they moved, what their restored values lost.

Only the save has both a state and what a restore of its checkpoint will return. It compares them on
a sample of each floating point array, and keeps that of the state for the next save. Only extremes,
and what is not finite, are looked for in all elements: a single one matters.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from ....container.figures import FIGURES, QUANTILES, StoredFigures
from ....element_types import Array, work
from ....policy.policy import Candidate
from ...read.replay import DecodedArray
from .drawing import Drawn
from .extremes import extremes
from .sampling import Samples, Sampling
from .sums import descriptions, even_figures, movement_figures, state_figures

_OF_STATE: Final = frozenset({"spread", "rms", "error"})  # need no save before
_BELOW_ONE: Final = 1 - 2**-8  # the largest bfloat16 number below 1


@dataclass(frozen=True, eq=False)
class _Batch:
    """Arrays of one type: their indices, the sizes of their even samples, and these end to end."""

    indices: list[int]
    sizes: Array
    bits: Array


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample that is taken before it is coded.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    samples
        What is sampled of the arrays that are saved.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        self._arrays = arrays
        self._sampling = Sampling(arrays)
        self._batches: list[_Batch] = []
        even: dict[str, Array] = {}
        drawn: dict[str, Drawn] = {}
        for every, of_every in self._sampling.batches():
            saved = np.array([not arrays[index].inherited for index in every])
            indices, sizes = np.array(every)[saved].tolist(), of_every[saved]
            if not indices:
                continue
            batch = _Batch(indices, sizes, self._joined(indices, [arrays[index].bits for index in indices]))
            self._batches.append(batch)
            ends = np.cumsum(sizes).tolist()
            for index, end, size in zip(indices, ends, sizes.tolist(), strict=True):
                even[arrays[index].name] = batch.bits[end - size : end]
                own = self._sampling.draw(index, arrays[index].bits, arrays[index].kind)
                if own is not None:
                    drawn[arrays[index].name] = own
        self.samples = Samples(even, drawn)

    def _joined(self, indices: Sequence[int], arrays: Sequence[Array]) -> Array:
        """Return the even samples of arrays end to end: a copy."""
        return np.concatenate(list(map(self._sampling.of, indices, arrays)))

    def figures(
        self,
        decoded: Mapping[str, DecodedArray],
        before: Samples,
        since: int | None,
        inherited: Mapping[str, Array] = MappingProxyType({}),
    ) -> StoredFigures | None:
        """Return the figures of the checkpoint.

        Parameters
        ----------
        decoded
            The arrays as a restore returns them, by name.
        before
            Samples of the state of the save before, as far as they are known.
        since
            The step of that save.
        inherited
            By name, the figures of arrays that the save leaves out.
        """
        columns = {name: np.full(len(self._arrays), np.nan) for name in FIGURES}
        columns["quantiles"] = np.full((len(self._arrays), len(QUANTILES)), np.nan)
        columns.update(inherited)
        for batch in self._batches:
            arrays = [self._arrays[index] for index in batch.indices]
            values = work(batch.bits, arrays[0].kind)
            for name, numbers in descriptions(batch.sizes, values).items():
                columns[name][batch.indices] = numbers
            for index, c in zip(batch.indices, arrays, strict=True):
                if self._sampling.distances[index] > 1:
                    ends = extremes(c.bits, c.kind)
                    for name, number in zip(("minimum", "maximum", "not_finite"), ends, strict=True):
                        columns[name][index] = number
            measure = self._of_drawn if self._sampling.draws(batch.indices[0]) else self._of_even
            for name, numbers in measure(batch, arrays, decoded, before).items():
                columns[name][batch.indices] = numbers
        # A sample may have met nothing but zeros.
        some = (columns["minimum"] != 0) | (columns["maximum"] != 0)
        most = np.where(some | (columns["zeros"] < 1), _BELOW_ONE, 1.0)
        columns["zeros"] = np.minimum(columns["zeros"], most)
        return StoredFigures.of(since, columns)

    def _of_even(
        self,
        batch: _Batch,
        arrays: Sequence[Candidate],
        decoded: Mapping[str, DecodedArray],
        before: Samples,
    ) -> dict[str, Array]:
        kind = arrays[0].kind
        after = self._joined(batch.indices, [decoded[c.name].bits for c in arrays])
        past = [_fitting(c, n, before) for c, n in zip(arrays, batch.sizes.tolist(), strict=True)]
        fits = [there is not None for there in past]
        moved = None
        if any(fits):  # the others did not move, as far as is known
            own = self.samples.even
            both = zip(arrays, past, strict=True)
            known = [own[c.name] if there is None else there for c, there in both]
            moved = work(np.concatenate(known), kind)
        found = even_figures(batch.sizes, work(batch.bits, kind), work(after, kind), moved)
        return {
            name: numbers if name in _OF_STATE else np.where(fits, numbers, np.nan)
            for name, numbers in found.items()
        }

    def _of_drawn(
        self,
        batch: _Batch,
        arrays: Sequence[Candidate],
        decoded: Mapping[str, DecodedArray],
        before: Samples,
    ) -> dict[str, Array]:
        found = self._compared(batch.indices, decoded, self.samples).state()
        past = [_fitting(c, n, before) for c, n in zip(arrays, batch.sizes.tolist(), strict=True)]
        fits = [place for place, there in enumerate(past) if there is not None]
        for name in ("movement", "lag"):
            found[name] = np.full(len(arrays), np.nan)
        if fits:
            compared = self._compared([batch.indices[place] for place in fits], decoded, before)
            for name, numbers in compared.movement().items():
                found[name][fits] = numbers
        return found

    def _compared(
        self, indices: Sequence[int], decoded: Mapping[str, DecodedArray], samples: Samples
    ) -> _Compared:
        """Return arrays at the places of samples, which are of this state or of the one before."""
        x: list[Array] = []
        d: list[Array] = []
        p: list[Array] = []
        sizes, rates = [], []
        for index in indices:
            c = self._arrays[index]
            after, drawn = decoded[c.name].bits, samples.drawn.get(c.name)
            x.append(self.samples.even[c.name])
            d.append(self._sampling.of(index, after))
            p.append(samples.even[c.name])
            if drawn is not None:
                x.append(drawn.again(c.bits))
                d.append(drawn.again(after))
                p.append(drawn.bits)
            sizes.append(p[-1].size + (0 if drawn is None else samples.even[c.name].size))
            rates.append(0 if drawn is None else drawn.rate)
        kind = self._arrays[indices[0]].kind
        distances = np.array([self._sampling.distances[index] for index in indices])
        values = [work(np.concatenate(bits), kind) for bits in (x, d, p)]
        return _Compared(np.array(sizes), distances, np.array(rates), *values)


@dataclass(frozen=True, eq=False)
class _Compared:
    """Arrays at the places of samples: end to end, of each those at equal distances first.

    Parameters
    ----------
    sizes
        How many components there are of each array.
    distances, rates
        Of each array, the distance between those at equal distances, and the rate of those drawn.
    values, decoded
        The state, and what a restore returns.
    sampled
        The values that the samples were taken of.
    """

    sizes: Array
    distances: Array
    rates: Array
    values: Array
    decoded: Array
    sampled: Array

    @np.errstate(all="ignore")
    def _weights(self) -> Array:
        """Return what each component counts: one over the probability that it is there."""
        by_place, rates = np.repeat([1 / self.distances, self.rates], self.sizes, axis=1)
        by_size = np.minimum(rates * np.abs(self.sampled), 1)
        found: Array = 1 / (by_place + by_size - by_place * by_size)
        return found

    def state(self) -> dict[str, Array]:
        return state_figures(self.sizes, self._weights(), self.values, self.decoded)

    def movement(self) -> dict[str, Array]:
        return movement_figures(self.sizes, self._weights(), self.values, self.decoded, self.sampled)


def _fitting(c: Candidate, size: int, before: Samples) -> Array | None:
    """Return the even sample of an array at the save before, if it is known and of this size."""
    past = before.even.get(c.name) if c.reference is not None else None
    return past if past is not None and past.size == size else None
