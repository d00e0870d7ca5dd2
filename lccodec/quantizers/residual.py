"""The residual of a batch of arrays: their differences to the reference, most of which become 0.

Most components of a delta lie inside the dead zone. Only three operations touch every component:
the subtraction, the comparison with the zone, and the search for the components outside it. All
other work is done for those few components. The differences that a quantizer finds while it is
fitted are kept for the encoder, up to a fixed amount of memory.

A batch is one array of any size, which is read in pieces, or several small arrays that form one
piece together. Small arrays share a batch because one NumPy call takes as long as the work on a
thousand elements.

Source: SPEC 7.7 (LCC-QNT-01).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Self, TypeAlias

import numpy as np

from ..constants import ElementType
from ..element_types import Array, stretches, subtract, work
from ..loops.search import Marked, found, octaves, outside, squares_inside, true_places
from ..parallel import PIECE, cached_property

_MAX_KEPT_BYTES: Final = 1 << 25  # of differences, and of their places
_SAMPLE_STRETCHES: Final = 64  # of a large array, evenly spread
_STRETCH_COMPONENTS: Final = 1 << 12  # of each

#: Function that marks the differences outside a zone, as :mod:`lccodec.loops.search` does. It gets
#: which components they are, by their places (int64) or as a slice; the values and the reference;
#: and the upper bound of the zone. A difference that is NaN or infinite is outside.
Outside: TypeAlias = Callable[[Array | slice, Array, Array, Any], Marked]

#: Index of the array of each component of a batch, int64, rising; 0 in a batch of one array.
Owner: TypeAlias = Array | int


@dataclass(frozen=True, eq=False)
class Zone:
    """The dead zone of each array of a batch: differences inside it become 0.

    A difference strictly between the bounds `low` and `high` (``kind.work``, one of each array) is
    inside. `beyond` marks the differences outside of a zone that is wider for some components than
    for others; only for a symmetric zone of a batch of one array.
    """

    low: Array
    high: Array
    beyond: Outside | None = None

    @classmethod
    def within(cls, edges: Array, work: np.dtype[Any], beyond: Outside | None = None) -> Self:
        """Return the zone of the differences smaller than each array's edge, in type `work`."""
        with np.errstate(over="ignore", under="ignore"):
            high = np.asarray(edges).astype(work)
        return cls(-high, high, beyond)

    @classmethod
    def joined(cls, zones: list[Zone]) -> Self:
        """Return the zone of a batch from the zones of its arrays."""
        return cls(np.concatenate([z.low for z in zones]), np.concatenate([z.high for z in zones]))

    def narrowed(self, differences: Array, owner: Owner, components: Array) -> tuple[Array, Array]:
        """Return the places of the differences outside, NaN included, and these differences.

        `components` are those of the batch that have these differences.
        """
        if isinstance(owner, int):
            return self.search(differences, differences[:0], components)
        places = true_places(self._beyond(differences, self.low[owner], self.high[owner]))
        return places, differences.take(places)

    def search(self, values: Array, reference: Array, components: Array | slice) -> tuple[Array, Array]:
        """Return the places of differences outside, and these, in a batch of one array.

        The reference may be empty.
        """
        if self.beyond is not None:
            return found(*self.beyond(components, values, reference, self.high[0]))
        return outside(values, reference, self.low[0], self.high[0])

    def outside_all(self, differences: Array, sizes: Array) -> Array:
        """Return the places of all differences outside, in a batch of several arrays."""
        high = np.repeat(self.high, sizes)  # faster than a look-up for each component
        low = high if self.symmetric else np.repeat(self.low, sizes)
        return true_places(self._beyond(differences, low, high))

    def _beyond(self, differences: Array, low: Array, high: Array) -> Array:
        if self.symmetric:
            inside = np.abs(differences) < high  # faster than two comparisons
        else:
            inside = differences < high
            inside &= differences > low
        return np.logical_not(inside, out=inside)  # a NaN compares false

    @cached_property
    def symmetric(self) -> bool:
        """Whether each zone has the same width on both sides of 0."""
        return bool((self.low == -self.high).all())


class Residual:
    """The differences of a batch of arrays to their reference; without one, the arrays themselves.

    Parameters
    ----------
    bits, reference
        Components (bit patterns) of the arrays and of the reference, 1-D; ``None`` for no
        reference. In a batch of one array, `bits` may change at any time. A piece that is read
        again may then have other differences. The reference must not change.
    kind
        The element type, a floating point one.
    ordered
        Whether differences are taken of the order-preserving integers (:func:`difference`).
    sizes
        Number of components of each array, int64. In a batch of several arrays, no size is 0 and
        their sum is at most `PIECE`. By default there is one array.
    """

    def __init__(
        self,
        bits: Array,
        reference: Array | None,
        kind: ElementType,
        ordered: bool = False,
        sizes: Array | None = None,
    ) -> None:
        self.bits = bits
        self.reference = reference
        self.kind = kind
        self.ordered = ordered
        self.sizes: Array = np.array([bits.size]) if sizes is None else sizes
        self.arrays = self.sizes.size
        #: The first component of each piece.
        self.pieces = range(0, bits.size, PIECE)
        #: Which components are stored exactly, whatever their differences; in a batch of one array.
        self.exact: Array | None = None
        #: Whether something will be added to the differences before they are coded.
        self.is_shifted = False
        self._owner = np.repeat(np.arange(self.arrays), self.sizes) if self.arrays > 1 else None
        self._last_owner: tuple[Array, Array] | None = None  # found by the fit, kept for the encoder
        self._all: Array | None = None  # differences of a batch of several arrays
        self._sampled: tuple[int | None, tuple[Array, Owner, list[int], int]] | None = None
        self._found: dict[int, tuple[Zone, Array, Array]] = {}
        self._kept = 0
        self._shift: Shift | None = None  # that is added to all differences of one array

    def owner(self, places: Array | None = None) -> Owner:
        """Return the owner of the components at some places, or of all components."""
        if self._owner is None:
            return 0
        if places is None or places.size == self._owner.size:
            return self._owner
        if self._last_owner is None or self._last_owner[0] is not places:
            self._last_owner = places, self._owner.take(places)
        return self._last_owner[1]

    def each(self) -> Iterator[Residual]:
        """Yield each array as a batch of one array."""
        start = 0
        for size in self.sizes.tolist():
            part = slice(start, start + size)
            reference = None if self.reference is None else self.reference[part]
            yield Residual(self.bits[part], reference, self.kind, self.ordered)
            start += size

    def outside(self, start: int, zone: Zone) -> tuple[Array, Array]:
        """Return the components of the piece at `start` whose differences are outside a zone.

        Parameters
        ----------
        start
            First component of the piece.
        zone
            The zone. It must contain the zone of the call before for the same piece.

        Returns
        -------
        tuple of ndarray
            Places of the components in the piece (int64, rising), and their differences
            (``kind.work``). Differences that are not finite are always included.
        """
        if start in self._found:
            known, kept, held = self._found[start]
            places = kept.astype(np.int64)
            if known is zone:
                return places, held
            chosen, d = zone.narrowed(held, self.owner(places), places + start)
            places = places.take(chosen)
            self._kept -= held.nbytes + kept.nbytes
        elif self.arrays > 1:
            differences = self.differences(0)
            places = zone.outside_all(differences, self.sizes)
            every = places.size == differences.size
            d = differences if every else differences.take(places, mode="clip")
        else:
            # The search in a symmetric zone reads each difference once, so it needs no copy.
            values, reference = self.operands(start, copy=not zone.symmetric)
            part = slice(start, start + values.size)
            places, d = zone.search(values, reference, part)
        kept = places.astype(np.uint32)  # half the memory of int64
        if self._kept + kept.nbytes + d.nbytes <= _MAX_KEPT_BYTES:
            self._kept += kept.nbytes + d.nbytes
            self._found[start] = zone, kept, d
        return places, d

    def finite_outside(self, start: int, zone: Zone) -> tuple[Array, Owner]:
        """Return the finite differences of a piece outside a zone, and their owner."""
        if self.arrays == 1 and start in self._found and self._found[start][0] is zone:
            return finite(self._found[start][2], 0)  # places are not needed
        places, d = self.outside(start, zone)
        return finite(d, self.owner(places))

    def squares_inside(self, start: int, zone: Zone, unit: float) -> Array:
        """Return the sum of squares of each array's differences in a zone, float64.

        Those of the piece at `start`, multiplied by `unit` before, so that squares do not overflow.
        The zone has one width on both sides of 0.
        """
        if self.arrays == 1:
            return np.array([squares_inside(*self.operands(start), zone.high[0], unit)])
        d, owner = self.differences(start), self.owner()
        d = np.where(np.abs(d) < zone.high[owner], d, 0)  # NaN is not inside
        with np.errstate(under="ignore"):
            return array_sums(np.square(d * unit, dtype=np.float64), owner, self.arrays)

    def forget(self) -> None:
        """Drop the differences that were kept, so that the next zone may be narrower."""
        self._found.clear()
        self._kept = 0

    def add(self, shifts: list[Shift | None]) -> None:
        """Add to the differences of each array from now on."""
        self.forget()
        if self.arrays == 1:
            self._shift = shifts[0]
            return
        moved = self.differences(0).copy()
        with np.errstate(all="ignore"):
            for shift, own in zip(shifts, np.split(moved, np.cumsum(self.sizes)[:-1]), strict=True):
                if shift is not None:
                    matrix = own.reshape(-1, shift.row)  # a view
                    matrix += shift.numbers
        self._all = moved

    def release(self, start: int, count: int = PIECE) -> None:
        """Drop the differences of pieces that are not needed any more; none take their room."""
        for piece in range(start, start + count, PIECE):
            self._found.pop(piece, None)

    def sample(self, most: int | None = None) -> Iterator[tuple[Array, Owner]]:
        """Yield differences and their owner: all of several arrays, a sample of a single array.

        `most` is how many of each stretch of a single array are enough.
        """
        if self.arrays > 1:
            yield self.differences(0), self.owner()
            return
        for part in stretches(self.bits.size, _SAMPLE_STRETCHES, _STRETCH_COMPONENTS):
            yield self.differences(part.start, most or _STRETCH_COMPONENTS, copy=True), 0

    def sampled(self, most: int | None = None) -> tuple[Array, Owner, list[int], int]:
        """Return all of `sample` at once: what is finite, its owner, where each stretch ends.

        And how many differences were looked at. The last sample is kept.
        """
        if self._sampled is not None and self._sampled[0] == most:
            return self._sampled[1]
        ends = [self.bits.size]
        if self.arrays > 1:
            d = self.differences(0)
        else:
            count = most or _STRETCH_COMPONENTS
            starts = [each.start for each in stretches(ends[0], _SAMPLE_STRETCHES, _STRETCH_COMPONENTS)]
            parts = [slice(start, min(start + count, ends[0])) for start in starts or [0]]
            ends = list(accumulate(part.stop - part.start for part in parts))
            bits, reference = np.concatenate([self.bits[part] for part in parts]), None
            if self.reference is not None:
                reference = np.concatenate([self.reference[part] for part in parts])
            d = difference(bits, reference, self.kind, self.ordered)
            if self.exact is not None:
                d[np.concatenate([self.exact[part] for part in parts])] = np.nan
        kept, owner = np.isfinite(d), self.owner()
        if not kept.all():
            ends = np.cumsum(kept)[np.array(ends) - 1].tolist()
            d, owner = d[kept], owner if isinstance(owner, int) else owner[kept]
        found = d, owner, ends, kept.size
        self._sampled = most, found
        return found

    def operands(self, start: int, copy: bool = False, count: int = PIECE) -> tuple[Array, Array]:
        """Return two arrays whose differences are those of a piece; see `Zone.search`."""
        part = slice(start, start + count)
        if self.reference is None or self.ordered or self.kind.name == "bfloat16":
            d = self.differences(start, count, copy)
            return d, d[:0]
        values = work(self.bits[part], self.kind)
        if self._shift is not None:
            values = _sum(values, self._shift.part(start, values.size))
        return values, work(self.reference[part], self.kind)

    def differences(self, start: int, count: int = PIECE, copy: bool = False) -> Array:
        """Return the differences of some components; without a reference, the values themselves."""
        if self.arrays > 1:
            if self._all is None:
                self._all = difference(self.bits, self.reference, self.kind, self.ordered)
            return self._all
        part = slice(start, start + count)
        if self.reference is None:
            bits = self.bits[part].copy() if copy or self.exact is not None else self.bits[part]
            found = difference(bits, None, self.kind, self.ordered)
        else:
            found = difference(self.bits[part], self.reference[part], self.kind, self.ordered)
        if self._shift is not None:
            found = _sum(found, self._shift.part(start, found.size))
        if self.exact is not None:
            found[self.exact[part]] = np.nan  # which no bin has
        return found


def _sum(values: Array, numbers: Array) -> Array:
    with np.errstate(all="ignore"):  # values may be infinite, or no numbers
        total: Array = values + numbers
    return total


@dataclass(frozen=True, eq=False)
class Shift:
    """Numbers that are added to the components of a matrix: one to each row, or to each column.

    `numbers` have the shape (rows, 1) or (1, columns) of a matrix whose rows have `row` components.
    """

    numbers: Array
    row: int

    def part(self, start: int, count: int) -> Array:
        """Return the numbers of `count` components of the matrix."""
        first, last = start // self.row, -(-(start + count) // self.row)
        rows = self.numbers[first:last] if self.numbers.shape[1] == 1 else self.numbers
        rows = np.broadcast_to(rows, (last - first, self.row))
        skipped = start - first * self.row
        if last - first > 2:
            return rows.reshape(-1)[skipped : skipped + count]
        # Rows may be much longer than the part.
        parts = [row[max(skipped - k * self.row, 0) :] for k, row in enumerate(rows)]
        return np.concatenate([parts[0][:count], *(part[: count - parts[0].size] for part in parts[1:])])


_MIN_ROW: Final = 16  # elements: in a mean of fewer there is as much as in their errors
_MAX_SUMS: Final = 1 << 20  # of more, as of a table of short rows, there is no memory for the sums
_MIN_WIDTH: Final = 256  # of rows whose columns NumPy adds: shorter ones are laid side by side


class RowSums:
    """Sums over the rows, and over the columns, of what the elements of a matrix have missed.

    Most inputs of a layer have one sign, as pixels have, or what an activation returns. So errors
    of one side in the weights of an output add up, as an error of its bias does, and it is off for
    all examples alike. If an encoder adds what a row would miss to each of its elements, those near
    the edge of the zone make up for it, in as many bytes.

    Frameworks differ in whether the first or the last axis has the outputs. It is the one along
    which sums move more.

    Parameters
    ----------
    shape, size
        Of the array, and how many components it has.
    """

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        row, column = (size // shape[0], size // math.prod(shape[:-1])) if len(shape) > 1 else (1, 1)
        #: Components of a row whose sum may be kept, and of one whose columns' may; 0 for none.
        self._row = row if max(_MIN_ROW, -(-size // _MAX_SUMS)) <= row < size else 0
        self._column = column if row > 1 < column <= min(size // _MIN_ROW, _MAX_SUMS) else 0
        self._size, self._width = size, self._column * -(-_MIN_WIDTH // max(self._column, 1))
        # Of errors, and of differences.
        self._of_rows = np.zeros((2, size // self._row if self._row else 0))
        self._of_columns = np.zeros((2, self._width))

    def add(self, start: int, missed: Array, d: Array) -> None:
        """Add errors and differences of the components from `start` on."""
        work = np.float32 if d.itemsize < 4 else d.dtype
        for numbers, rows, columns in zip((missed, d), self._of_rows, self._of_columns, strict=True):
            first = start // max(self._row, 1)
            for some in _cut(numbers, start, self._row):
                rows[first : first + len(some)] += np.add.reduce(some, axis=1, dtype=work)
                first += len(some)
            begin = start % max(self._width, 1)
            for some in _cut(numbers, start, self._width):
                columns[begin : begin + some.shape[1]] += np.add.reduce(some, axis=0, dtype=work)
                begin = 0

    def shift(self, most: Any) -> Shift | None:
        """Return what each row, or column, has missed in the mean, at most so much on either side.

        ``None`` is returned where there is nothing to keep.
        """
        best, found = 0.0, None
        columns = self._of_columns[:, None]
        if self._width > self._column:
            columns = columns.reshape(2, -1, 1, self._column).sum(axis=1)
        by_rows = self._of_rows[:, :, None], self._row, self._row
        for sums, row, added in (by_rows, (columns, self._column, self._size // max(self._column, 1))):
            if row:
                with np.errstate(all="ignore"):
                    missed, d = sums / added
                    moved = added * float(np.add.reduce(np.square(d), axis=None)) / d.size
                if moved > best:
                    numbers = np.minimum(np.maximum(missed.astype(most.dtype), -most), most)
                    best, found = moved, Shift(numbers, row)
        return found


def _cut(numbers: Array, start: int, row: int) -> list[Array]:
    """Return the end of a row, whole rows, and the begin of a row: 2-D, of those that there are."""
    if not row:
        return []
    if start % row == numbers.size % row == 0:
        return [numbers.reshape(-1, row)]
    head = min(-start % row, numbers.size)
    stop = numbers.size - (numbers.size - head) % row
    cut = numbers[None, :head], numbers[head:stop].reshape(-1, row), numbers[None, stop:]
    return [some for some in cut if some.size]


def difference(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> Array:
    """Return differences to a reference, by `subtract` or, if `ordered`, by `octaves`."""
    if ordered and reference is not None:
        return octaves(bits, reference, kind)
    return subtract(bits, reference, kind)


def finite(differences: Array, owner: Owner) -> tuple[Array, Owner]:
    """Return the finite differences and their owner."""
    kept = np.isfinite(differences)
    if kept.all():
        return differences, owner
    return differences[kept], owner if isinstance(owner, int) else owner[kept]


def root_mean_square(d: Array) -> float:
    """Return the root mean square of finite numbers, at least one."""
    return math.sqrt(np.add.reduce(np.square(d)) / d.size)  # faster than np.mean


def array_sums(values: Array, owner: Owner, arrays: int) -> Array:
    """Return the sum of the values of each array, float64."""
    if isinstance(owner, int):
        return np.add.reduce(values, dtype=np.float64, keepdims=True)
    return np.bincount(owner, values, minlength=arrays)
