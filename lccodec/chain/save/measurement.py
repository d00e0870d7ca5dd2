"""What a save measures: how arrays are spread, how far they moved, what their restored values lost.

Only the save has both a state and what a restore of its checkpoint will return. It compares them on
a sample of each floating point array, and keeps that of the state for the next save. Only extremes,
and what is not finite, are looked for in all elements: a single one matters. After a restart,
samples of the last state come from the exact file, if it is of that save; or else from the
checkpoint as decoded, where its figures say that nothing was lost.

All of a small state is in the sample. Of a large one it takes at most a quarter of the memory, but
`_MIN_SAMPLED` components of any array, and never more than `_MAX_SAMPLED`. These lie at equal
distances, which have no divisor in common with a row, so that no column is left out. How much is
sampled depends on the sizes of all arrays. So states with the same arrays have samples that fit
each other.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from ...constants import EXACT_NAME
from ...container.figures import FIGURES, QUANTILES, StoredFigures
from ...element_types import Array, ElementType, work
from ...errors import LccodecError
from ...frame.content import MAX_SHARED_COMPONENTS
from ...parallel import slices
from ...policy.policy import Candidate, Past
from ..read.checkpoint import OpenCheckpoint
from ..read.needed import Ranges
from ..read.replay import DecodedArray
from ..store.names import checkpoint_name
from ..store.store import Store
from .reference import Tail

_MAX_SAMPLED: Final = 1 << 13  # components of an array
_MIN_SAMPLED: Final = 1 << 6  # of which fewer are less than what else is kept of an array
_MIN_SAMPLE_BYTES: Final = 1 << 20  # that may be taken of any state
_SAMPLED_SHARE: Final = 4  # a quarter of a large state

_BATCH_COMPONENTS: Final = 1 << 15  # so that their float64 numbers stay in the cache
_PIECE: Final = 1 << 15  # components: the second of two passes finds them in the cache
_MAX_SORTED: Final = 1 << 9  # components of an array: what a share of elements is not above is rough
_OF_STATE: Final = frozenset({"spread", "rms", "error"})  # need no save before
_BELOW_ONE: Final = 1 - 2**-8  # the largest bfloat16 number below 1


class Sampling:
    """Which components of a state are sampled.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    distances
        Of each array, the distance between two sampled components; 1 if all are sampled.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        self._of_type: dict[ElementType, list[int]] = {}
        for index, c in enumerate(arrays):
            if c.kind.is_float and c.bits.size:
                self._of_type.setdefault(c.kind, []).append(index)
        sizes = {
            kind: np.array([arrays[index].bits.size for index in indices], np.int64)
            for kind, indices in self._of_type.items()
        }
        limit = _limit(sizes)
        self.distances = [1] * len(arrays)
        self._samples: dict[ElementType, Array] = {}  # their sizes
        for kind, indices in self._of_type.items():
            for place in np.flatnonzero(sizes[kind] > limit).tolist():
                c = arrays[indices[place]]
                row = c.bits.size // c.shape[0]  # of one dimension: one component
                self.distances[indices[place]] = _distance(c.bits.size, limit, row)
            distances = np.array([self.distances[index] for index in indices])
            self._samples[kind] = -(-sizes[kind] // distances)

    def of(self, index: int, bits: Array) -> Array:
        """Return a view of the sampled components of the array of an index."""
        distance = self.distances[index]
        return bits if distance == 1 else bits[::distance]

    def batches(self) -> Iterator[tuple[list[int], Array]]:
        """Yield the indices of arrays of one type, and the sizes of their samples (int64).

        There are as many as can be measured together: a call for each small array would be slow.
        """
        for kind, indices in self._of_type.items():
            sizes = self._samples[kind]
            numbers = (np.cumsum(sizes) - sizes) // _BATCH_COMPONENTS  # of the batch of each array
            cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(indices)]
            for start, stop in pairwise(cuts):
                yield indices[start:stop], sizes[start:stop]


def _limit(sizes: dict[ElementType, Array]) -> int:
    """Return how many components of an array are sampled at most, for arrays of these sizes."""

    def nbytes(limit: float) -> int:
        return sum(int(np.minimum(counts, limit).sum()) * kind.size for kind, counts in sizes.items())

    most = max(nbytes(math.inf) // _SAMPLED_SHARE, _MIN_SAMPLE_BYTES)
    limit = _MAX_SAMPLED
    while limit > _MIN_SAMPLED and nbytes(limit) > most:
        limit //= 2
    return limit


@lru_cache  # the arrays of a state have few sizes
def _distance(size: int, limit: int, row: int) -> int:
    """Return the distance between sampled components of an array of `size`, of rows of `row`.

    Examples
    --------
    >>> _distance(9 * 5 * 64, limit=200, row=5 * 64)
    17
    """
    distance = -(-size // limit)
    while math.gcd(distance, 2 * row) > 1:
        distance += 1
    return distance


def look_back(store: Store, tail: Tail, arrays: Sequence[Candidate]) -> None:
    """Give the weights of the next state a sample of what they were at the save before."""
    sampling = Sampling(arrays)
    if tail.originals is None:  # of another process: from the files, which are not yet replaced
        tail.originals = _originals(store, tail, arrays, sampling)
    add_past(arrays, sampling, tail.originals)


def add_past(arrays: Sequence[Candidate], sampling: Sampling, before: Mapping[str, Array]) -> None:
    """Give weights a sample of what they were at the save before; `before` has samples by name."""
    for c, distance in zip(arrays, sampling.distances, strict=True):
        found = before.get(c.name) if c.role == "weight" and not c.inherited else None
        if found is not None and c.reference is not None and found.size == -(-c.bits.size // distance):
            c.past = Past(distance, found)


def _originals(store: Store, tail: Tail, arrays: Sequence[Candidate], sampling: Sampling) -> dict[str, Array]:
    """Return samples of the state that the latest checkpoint was made of, by the names of arrays.

    An array that is not known has no sample.
    """
    # Those with a reference have its type and shape.
    wanted = {c.name: i for i, c in enumerate(arrays) if c.kind.is_float and c.reference is not None}
    try:
        with store.open(checkpoint_name(tail.step)) as reader:
            manifest = reader.manifest
        if manifest.exact is not None:
            with OpenCheckpoint(store.open(EXACT_NAME), None) as file:
                if file.links[-1].reader.root == manifest.exact:
                    return dict(_of_exact_file(file, arrays, wanted, sampling))
    except LccodecError:  # missing or damaged: a restore says so
        return {}
    if manifest.figures is None or len(manifest.arrays) != len(tail.arrays):
        return {}
    errors = manifest.figures.read("error", len(tail.arrays)).tolist()
    lossless = [name for name, error in zip(tail.arrays, errors, strict=True) if error == 0]
    return {n: sampling.of(wanted[n], tail.arrays[n].bits).copy() for n in lossless if n in wanted}


def _of_exact_file(
    file: OpenCheckpoint, arrays: Sequence[Candidate], wanted: Mapping[str, int], sampling: Sampling
) -> Iterator[tuple[str, Array]]:
    """Yield samples of arrays. A large array is read piece by piece, not held whole."""
    link, together = file.links[-1], []
    for name, index in wanted.items():
        c, place = arrays[index], link.names.get(name)
        ranges = (
            Ranges.of(file.links, name) if place is not None and c.bits.size > MAX_SHARED_COMPONENTS else None
        )
        if ranges is not None and (ranges.header.kind, ranges.header.shapes) == (c.kind, (c.shape,)):
            yield name, _sampled(ranges, sampling.distances[index])
        elif place is not None:
            together.append(place)
    for place, array in file.decode_each(together):
        name = link.index_names[place]
        c = arrays[wanted[name]]
        if (array.kind, array.shape) == (c.kind, c.shape):
            yield name, sampling.of(wanted[name], array.bits).copy()


def _sampled(ranges: Ranges, distance: int) -> Array:
    """Return the components of an array at equal distances."""
    ranges.verify()
    found, size = [], ranges.header.components
    for part in slices(size, ranges.block):
        piece = np.empty(min(ranges.block, size - part.start), ranges.header.kind.bits)
        ranges.decode(slice(part.start, part.start + piece.size), piece, ())
        found.append(piece[-part.start % distance :: distance].copy())
    return np.concatenate(found)


def movements(
    arrays: Sequence[Candidate], now: Mapping[str, Array], before: Mapping[str, Array]
) -> dict[str, float]:
    """Return how far arrays moved between two states by samples of them: root mean squares.

    Arrays that were not there before, or had another shape, are not among them.
    """
    found = {}
    with np.errstate(all="ignore"):
        for c in arrays:
            past, own = before.get(c.name), now.get(c.name)
            if past is None or own is None or past.shape != own.shape or past.dtype != own.dtype:
                continue
            d = work(own, c.kind).astype(np.float64) - work(past, c.kind)
            d = d[np.isfinite(d)]
            found[c.name] = math.sqrt(float(np.square(d).mean())) if d.size else 0.0
    return found


class Measurement:
    """Measures what a checkpoint makes of a state, from a sample that is taken before it is coded.

    Parameters
    ----------
    arrays
        The arrays of the state.

    Attributes
    ----------
    samples
        The sample of each floating point array that is saved, by name.
    """

    def __init__(self, arrays: Sequence[Candidate]) -> None:
        self._arrays = arrays
        self._sampling = Sampling(arrays)
        self._batches: list[_Batch] = []
        self.samples: dict[str, Array] = {}
        for every, of_every in self._sampling.batches():
            own = np.array([not arrays[index].inherited for index in every])
            indices, sizes = np.array(every)[own].tolist(), of_every[own]
            if not indices:
                continue
            batch = _Batch(indices, sizes, self._joined(indices, [arrays[index].bits for index in indices]))
            self._batches.append(batch)
            ends = np.cumsum(sizes).tolist()
            for index, end, size in zip(indices, ends, sizes.tolist(), strict=True):
                self.samples[arrays[index].name] = batch.bits[end - size : end]

    def _joined(self, indices: Sequence[int], arrays: Sequence[Array]) -> Array:
        """Return the samples of arrays end to end: a copy."""
        return np.concatenate(list(map(self._sampling.of, indices, arrays)))

    def figures(
        self,
        decoded: Mapping[str, DecodedArray],
        before: Mapping[str, Array],
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
            after = self._joined(batch.indices, [decoded[c.name].bits for c in arrays])
            past = [before.get(c.name) if c.reference is not None else None for c in arrays]
            sizes = batch.sizes.tolist()
            fits = [there is not None and there.size == n for there, n in zip(past, sizes, strict=True)]
            values = partial(work, kind=arrays[0].kind)
            moved = None
            if any(fits):
                own = (self.samples[c.name] for c in arrays)  # they did not move, as far as is known
                both = zip(past, own, fits, strict=True)
                moved = values(np.concatenate([there if fit else here for there, here, fit in both]))
            found = batch.measure(values(batch.bits), values(after), moved)
            for name, numbers in found.items():
                known = numbers if name in _OF_STATE else np.where(fits, numbers, np.nan)
                columns[name][batch.indices] = known
            for name, numbers in batch.describe(values(batch.bits)).items():
                columns[name][batch.indices] = numbers
            for index, c in zip(batch.indices, arrays, strict=True):
                if self._sampling.distances[index] > 1:
                    ends = extremes(c.bits, c.kind)
                    for name, number in zip(("minimum", "maximum", "not_finite"), ends, strict=True):
                        columns[name][index] = number
        # A sample may have met nothing but zeros.
        some = (columns["minimum"] != 0) | (columns["maximum"] != 0)
        most = np.where(some | (columns["zeros"] < 1), _BELOW_ONE, 1.0)
        columns["zeros"] = np.minimum(columns["zeros"], most)
        return StoredFigures.of(since, columns)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Arrays of one type: their indices, the sizes of their samples, and these end to end."""

    indices: list[int]
    sizes: Array
    bits: Array

    @np.errstate(all="ignore")  # of hostile values too
    def measure(self, values: Array, decoded: Array, before: Array | None) -> dict[str, Array]:
        """Return the figures of each array (LCC-FIG-05), float64; NaN where they are not known."""
        counts, starts = self.sizes, np.cumsum(self.sizes) - self.sizes
        x, d = values.astype(np.float64), decoded.astype(np.float64)
        p = x if before is None else before.astype(np.float64)
        sums = _sums(x, d, p, starts, self.sizes)
        if not np.isfinite(sums).all():
            finite = np.isfinite(x) & np.isfinite(d) & np.isfinite(p)
            counts = np.add.reduceat(finite, starts, dtype=np.int64)
            most = np.maximum.reduceat(np.where(finite, x, -np.inf), starts)
            x = np.where(finite, x, np.repeat(most, self.sizes))  # adds nothing to the sums
            d, p = np.where(finite, d, x), np.where(finite, p, x)
            sums = _sums(x, d, p, starts, self.sizes)
        counts = np.where(counts > 0, counts, np.nan)
        around, squares, errors, moved, along = sums
        spreads = np.sqrt((squares - np.square(around) / counts) / counts)
        rms = np.hypot(x[starts] + around / counts, spreads)
        return {
            "rms": rms,
            "spread": np.where(squares != 0, spreads, rms),
            "movement": np.sqrt(moved / counts),
            "error": np.sqrt(errors / counts),
            "lag": -along / moved,
        }

    @np.errstate(all="ignore")
    def describe(self, values: Array) -> dict[str, Array]:
        """Return the figures of the values alone, of a sample that may be the whole array."""
        counts, starts = self.sizes, np.cumsum(self.sizes) - self.sizes
        low = np.minimum.reduceat(values, starts)
        high = np.maximum.reduceat(values, starts)
        bad = np.zeros(len(counts))
        kept = values
        if not (np.isfinite(low) & np.isfinite(high)).all():
            finite = np.isfinite(values)
            bad = counts - np.add.reduceat(finite, starts, dtype=np.int64)
            counts = np.where(counts > bad, counts - bad, np.nan)
            low, high = (
                np.where(np.isnan(counts), np.nan, which.reduceat(np.where(finite, values, end), starts))
                for which, end in ((np.minimum, np.inf), (np.maximum, -np.inf))
            )
            kept = np.where(finite, values, values.dtype.type(np.nan))
        zeros = np.searchsorted(starts, np.flatnonzero(kept == 0), "right") - 1  # of few, as a rule
        return {
            "minimum": low,
            "maximum": high,
            "zeros": np.bincount(zeros, minlength=len(starts)) / counts,
            "not_finite": bad,
            "quantiles": self._quantiles(kept, starts),
        }

    def _quantiles(self, values: Array, starts: Array) -> Array:
        """Return a row of quantiles for each array; NaN where a value is not finite."""
        found = np.empty((len(starts), len(QUANTILES)))
        steps = -(-self.sizes // _MAX_SORTED)
        lengths = -(-self.sizes // steps)
        for length in np.unique(lengths).tolist():  # those of a size are sorted together
            own = np.flatnonzero(lengths == length)
            places = starts[own, None] + np.arange(length) * steps[own, None]
            ordered = np.sort(values[places], axis=1)
            found[own] = ordered[:, [round(share * (length - 1)) for share in QUANTILES]]
            found[own[np.isnan(ordered[:, -1])]] = np.nan
        return found


def extremes(bits: Array, kind: ElementType) -> tuple[float, float, int]:
    """Return the least and the greatest finite component, and how many are not finite.

    The patterns of floating point numbers have the order of their magnitudes, and two passes over
    integers are as fast as memory. Both ends are NaN if no component is finite.

    Examples
    --------
    >>> from lccodec.element_types import components
    >>> kind, bits = components(np.array([1.0, -3.0, np.inf, np.nan], np.float32))
    >>> extremes(bits, kind)
    (-3.0, 1.0, 2)
    """
    signed = np.dtype(f"i{kind.size}")
    infinite = bits.dtype.type(((1 << (8 * kind.size - 1 - kind.mantissa)) - 1) << kind.mantissa)
    sign = bits.dtype.type(1 << (8 * kind.size - 1))
    top, low, least, bad = -1, 0, infinite, 0
    for part in slices(bits.size, _PIECE):
        piece = bits[part]
        above, below = int(piece.view(signed).max()), int(piece.max())
        if above >= infinite or (below >= sign and below - int(sign) >= infinite):
            finite = (piece & ~sign) < infinite
            bad += piece.size - int(np.count_nonzero(finite))
            piece = piece[finite]
            if not piece.size:
                continue
            above, below = int(piece.view(signed).max()), int(piece.max())
        top, low = max(top, above), max(low, below)
        if (top < 0) or low < sign:
            least = min(least, piece.min() & ~sign)
    if bad == bits.size:
        return math.nan, math.nan, bad
    ends = (low if low >= sign else int(least)), (top if top >= 0 else int(least) | int(sign))
    found = work(np.array(ends, bits.dtype), kind)
    return float(found[0]), float(found[1]), bad


def _sums(x: Array, d: Array, p: Array, starts: Array, sizes: Array) -> list[Array]:
    """Return what the figures of arrays are made of: five sums for each array.

    They are those of the distances from the first value and of their squares, of the squares of the
    errors and of the movements, and of the products of these two.
    """
    around, error, movement = x - np.repeat(x[starts], sizes), d - x, x - p
    products = (around, around * around, error * error, movement * movement, error * movement)
    return [np.add.reduceat(each, starts) for each in products]
