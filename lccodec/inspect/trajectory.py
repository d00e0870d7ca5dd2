"""The figures of arrays over the steps of a run, added step by step.

They are those of the run. What its saves measured is taken where an array has lost something: of
decoded states, movement would be that of the codec as well, and small values would count as zeros.
Where nothing was lost, all elements of the decoded array are measured, and have a histogram. Where
something was, there are the quantiles that the save measured: no histogram is made up from them.

Arrays of the step before that lost nothing are copied, as a delta is decoded over its parent's
arrays. So up to one state more is held than is decoded. With originals of several steps it is two
more: an original, and a copy of the one before.

**Movement.** One pass over the pieces of an array, each of which fits the cache and is converted to
float64 once. Root mean squares, range, zeros, difference and histogram are taken from it there.
Elements that are not finite count as such, and for nothing else; differences are taken over
elements that are finite in both states. A complex number counts by its magnitude; differences of
integers are exact.

**Bins** of a histogram are as wide as a power of two, and begin at multiples of their width. So two
neighbours become one bin of twice the width, and the counts are as if they had been counted in it.
Bins are merged when a value lies outside: there is one pass over the values, and nothing is
clipped. In the end there are more than 16 bins, or as many as the values need.

**Rank.** The effective rank of a change is ``exp(H)``, where H is the entropy of the singular
values, divided by their sum. It is 1 if all rows moved along one direction, and n if n directions
moved by the same amount. Source: Roy and Vetterli, "The effective rank" (EUSIPCO 2007). A matrix of
more than 48 rows and columns is projected to 48 rows first: each is a sum of evenly spaced rows
with random signs, always the same ones. So a low rank is found about as it is, and a high one is at
most 48. Of a matrix of more than a million elements, evenly spaced rows are taken. OpenBLAS uses
threads for larger products, and waits for them busily. Where other processes use the cores, as in
training, that takes 20 to 200 times as long. So products are cut into small ones.
"""

from __future__ import annotations

import math
import sys
from array import array as packed
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np

from ..chain.read.checkpoint import open_step
from ..chain.read.info import ArrayInfo
from ..chain.read.links import Link
from ..chain.read.replay import DecodedArray, replay_each
from ..chain.store.lineage import Lineage
from ..chain.store.store import Store
from ..constants import ElementType
from ..container.manifest import UNKNOWN, Figures
from ..element_types import Array, work
from ..errors import LccodecError
from .difference import distance, magnitude, numbers
from .inventory import array_row
from .loss import NOTHING_KNOWN, LossTable, Lost, Originals, measure_loss, original_bits
from .report import FIGURES, ArrayRow, Histogram

MAX_BINS: Final = 32

_LEAST_EXPONENT: Final = -1074  # of the width: the smallest float64
_MANTISSA_BITS: Final = 53
_MOST_FACTOR_LOG2: Final = 1023  # a larger power of two is no float64


class Bins:
    """Counts of values in bins of equal width; one row of counts for each step.

    >>> bins = Bins()
    >>> for values in ([0.1, 0.3], [0.9, 3.5]):
    ...     bins.begin()
    ...     bins.add(np.array(values), min(values), max(values))
    >>> histogram = bins.histogram()
    >>> histogram.low, histogram.high, [sum(row) for row in histogram.counts]
    (0.0, 3.625, [2, 2])
    """

    def __init__(self) -> None:
        self._counts = np.zeros((0, MAX_BINS), np.int64)
        self._rows = 0
        self._exponent: int | None = None  # of the width
        self._start = 0  # number of the first bin: its lower end over the width
        self._ends = (math.inf, -math.inf)  # what the bins cover

    def begin(self) -> None:
        """Begin a row."""
        if self._rows == len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros((self._rows + 8, MAX_BINS), np.int64)])
        self._rows += 1

    def add(self, values: Array, low: float, high: float) -> None:
        """Count finite values (float64) in the last row; they lie between `low` and `high`."""
        if not (self._ends[0] <= low and high < self._ends[1]):
            self._cover(low, high)
        row, exponent = self._counts[self._rows - 1], self._exponent or 0
        if low == high:
            row[_number(low, exponent) - self._start] += values.size
            return
        if -exponent > _MOST_FACTOR_LOG2:
            numbers = np.ldexp(values, -exponent)
        else:
            numbers = values * 2.0**-exponent
        np.floor(numbers, out=numbers)
        if exponent > 0 and low < 0:  # what is tiny and negative may have vanished
            numbers[(numbers == 0) & (values < 0)] = -1
        numbers -= self._start
        row += np.bincount(numbers.astype(np.intp), minlength=MAX_BINS)

    def _cover(self, low: float, high: float) -> None:
        """Widen or move the bins so that they cover a range and all values before."""
        if self._exponent is None:
            self._exponent = max(math.frexp(max(abs(low), abs(high)))[1] - _MANTISSA_BITS, _LEAST_EXPONENT)
            if low == high == 0:
                self._exponent = _LEAST_EXPONENT
        ends = _number(low, self._exponent), _number(high, self._exponent)
        used = [self._start + int(place) for place in np.flatnonzero(self._counts.any(axis=0))]
        below, above = min([*used, *ends]), max([*used, *ends])
        shift = max((above - below).bit_length() - MAX_BINS.bit_length(), 0)
        while (above >> shift) - (below >> shift) >= MAX_BINS:
            shift += 1
        below, above = below >> shift, above >> shift
        start = below - (MAX_BINS - 1 - (above - below)) // 2  # room on both sides
        if used:
            moved = [((self._start + place) >> shift) - start for place in range(MAX_BINS)]
            counts = np.zeros_like(self._counts)
            for place, target in enumerate(moved):
                if 0 <= target < MAX_BINS:  # there are no counts in the others
                    counts[:, target] += self._counts[:, place]
            self._counts = counts
        self._start, self._exponent = start, self._exponent + shift
        self._ends = self._edge(start), self._edge(start + MAX_BINS)

    def _edge(self, number: int) -> float:
        try:
            return math.ldexp(number, self._exponent or 0)
        except OverflowError:
            return math.copysign(sys.float_info.max, number)

    def histogram(self) -> Histogram | None:
        """Return the rows over the bins that have values; ``None`` if there is no value."""
        if self._exponent is None:
            return None
        counts = self._counts[: self._rows]
        used = np.flatnonzero(counts.any(axis=0))
        first, last = int(used[0]), int(used[-1])
        rows = [row.tolist() if row.any() else [] for row in counts[:, first : last + 1]]
        return Histogram(self._edge(self._start + first), self._edge(self._start + last + 1), rows)


def _number(value: float, exponent: int) -> int:
    """Return ``floor(value / 2**exponent)``, exactly."""
    numerator, denominator = value.as_integer_ratio()
    if exponent < 0:
        return (numerator << -exponent) // denominator
    return numerator // (denominator << exponent)


# Sums of squares outside of these have overflowed, or lost digits by underflow.
_LEAST_SUM: Final = 1e-250
_MOST_SUM: Final = 1e300


@dataclass(frozen=True)
class Measures:
    """Figures of one array at one step; ``None`` where no element is finite."""

    size: int
    not_finite: int
    zeros: float  # share of all elements; 0 for an empty array
    minimum: float | None
    maximum: float | None
    rms: float | None
    movement: float | None  # rms of the difference over rms of the array before; None if that is 0


@dataclass
class _Sums:
    """What the pieces of an array add up to."""

    finite: int = 0
    zeros: int = 0
    low: float = math.inf
    high: float = -math.inf
    squares: float = 0.0
    before: float = 0.0  # squares of the elements before that are finite in both states
    differences: float = 0.0  # squares


def measure(bits: Array, before: Array | None, kind: ElementType, bins: Bins | None = None) -> Measures:
    """Return the figures of an array, given by its components.

    `before` has those of the step before, if it has an array of this type and shape. `bins` counts
    the values in its last row.

    >>> from lccodec.element_types import components
    >>> kind, bits = components(np.array([0, 3, 4, np.nan], np.float32))
    >>> measured = measure(bits, components(np.array([0, 3, 3, 1], np.float32))[1], kind)
    >>> measured.not_finite, measured.zeros, measured.maximum
    (1, 0.25, 4.0)
    >>> round(measured.movement, 3)  # the root of (0 + 0 + 1) / (0 + 9 + 9)
    0.236
    """
    sums = _Sums()

    def pieces() -> Iterator[_Piece]:
        return _pieces(bits, before, kind)

    vanishes = kind.is_float and kind.size == 8  # squares of others do not
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces():
            _add(sums, piece, bins)
        rms = _root(sums.squares, lambda: (piece.finite() for piece in pieces()), vanishes)
        old = _root(sums.before, lambda: (piece.common()[0] for piece in pieces()), vanishes)
        moved = _root(sums.differences, lambda: (piece.common()[1] for piece in pieces()), vanishes)
    size = bits.size // kind.components
    return Measures(
        size=size,
        not_finite=size - sums.finite,
        zeros=sums.zeros / size if size else 0.0,
        minimum=sums.low if sums.finite else None,
        maximum=sums.high if sums.finite else None,
        rms=_product(rms[0] / math.sqrt(sums.finite), rms[1]) if sums.finite else None,
        movement=_product(moved[0] / old[0], moved[1] - old[1]) if old[0] else None,
    )


class _Piece(NamedTuple):
    """A part of an array as float64: values, values before, differences; not all are finite."""

    values: Array
    old: Array | None
    gaps: Array | None

    def finite(self) -> Array:
        kept: Array = self.values[np.isfinite(self.values)]
        return kept

    def common(self) -> tuple[Array, Array]:
        """Return values before and differences where both states are finite."""
        if self.old is None or self.gaps is None:
            return np.empty(0), np.empty(0)
        kept = np.isfinite(self.gaps)
        return self.old[kept], self.gaps[kept]


def _add(sums: _Sums, piece: _Piece, bins: Bins | None) -> None:
    values, old, gaps = piece
    low, high = (float(values.min()), float(values.max())) if values.size else (math.inf, -math.inf)
    if not (math.isfinite(low) and math.isfinite(high)):  # a NaN is minimum and maximum
        values = piece.finite()
        low, high = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
    if values.size:
        sums.finite += values.size
        sums.low, sums.high = min(sums.low, low), max(sums.high, high)
        sums.squares += _squares(values)
        if low <= 0 <= high:
            sums.zeros += values.size - int(np.count_nonzero(values))
        if bins is not None:
            bins.add(values, low, high)
    if old is None or gaps is None:
        return
    differences = _squares(gaps)
    if not math.isfinite(differences):
        old, gaps = piece.common()
        differences = _squares(gaps)
    sums.before += _squares(old)
    sums.differences += differences


def _root(squares: float, arrays: Callable[[], Iterator[Array]], vanishes: bool) -> tuple[float, int]:
    """Return the root of a sum of squares, as a float and the power of two to multiply it by.

    If the sum has overflowed or lost digits, it is taken again from the arrays, scaled.
    """
    if _LEAST_SUM < squares < _MOST_SUM or (squares == 0 and not vanishes):
        return math.sqrt(squares), 0
    peak = max((float(np.abs(values).max(initial=0.0)) for values in arrays()), default=0.0)
    exponent = math.frexp(peak)[1]
    return math.sqrt(sum(_squares(np.ldexp(values, -exponent)) for values in arrays())), exponent


def _product(value: float, exponent: int) -> float | None:
    """Return ``value * 2**exponent``; ``None`` if that is no finite number."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return None


def _squares(values: Array) -> float:
    """Return the sum of squares. ``values @ values`` would wait for threads (see `rank`)."""
    return float(np.einsum("i,i->", values, values))


def _pieces(bits: Array, before: Array | None, kind: ElementType) -> Iterator[_Piece]:
    """Yield pieces: of integers as float64, of complex numbers by their magnitudes."""
    is_real = kind.is_float and kind.kind != "c"
    earlier = iter(()) if before is None else numbers(before, kind)
    for values in numbers(bits, kind):
        own, old = values if is_real else _magnitudes(values), next(earlier, None)
        if old is None:
            yield _Piece(own, None, None)
        elif is_real:
            yield _Piece(own, old, values - old)
        else:
            yield _Piece(own, _magnitudes(old), distance(old, values))


def _magnitudes(values: Array) -> Array:
    """Return integers as float64, and complex numbers by magnitudes of finite float64."""
    if values.dtype.kind in "iu":
        return values.astype(np.float64)
    magnitudes = magnitude(values)
    magnitudes[np.isinf(magnitudes) & np.isfinite(values)] = np.finfo(np.float64).max
    return magnitudes


DIRECTIONS: Final = 48
_MAX_ELEMENTS: Final = 1 << 20
_ROWS: Final = 64  # of a product; of 64 columns at most
_SEED: Final = 20200713  # any number: reports of the same chain must be equal


def change_rank(
    bits: Array, before: Array, kind: ElementType, shape: tuple[int, ...], rows: int = 0
) -> float | None:
    """Return the effective rank of the difference of two arrays, given by their components.

    The first dimension is that of the rows, all others are columns. At most `rows` are taken; by
    default as many as have a million elements. ``None`` if it is no matrix of finite floating point
    numbers, or did not change.

    >>> from lccodec.element_types import components
    >>> kind, before = components(np.zeros((200, 100)))
    >>> after = np.outer(np.arange(200.0), np.ones(100))
    >>> round(change_rank(components(after)[1], before, kind, after.shape), 3)
    1.0
    """
    if not kind.is_float or kind.kind == "c" or len(shape) < 2 or math.prod(shape) == 0:
        return None
    height, width = shape[0], math.prod(shape[1:])
    if height == 1 or width == 1:
        return None
    step = -(-height // max(rows or _MAX_ELEMENTS // width, 1))
    with np.errstate(invalid="ignore", over="ignore"):
        now, then = (work(a.reshape(height, width)[::step], kind) for a in (bits, before))
        change = np.subtract(now, then, dtype=np.float64)
        peak = float(np.abs(change).max())
    if not (math.isfinite(peak) and peak > 0):
        return None
    return effective_rank(np.ldexp(change, -math.frexp(peak)[1]))


def effective_rank(matrix: Array) -> float:
    """Return the effective rank of a matrix (float64) that is not 0 and has no large elements."""
    if matrix.shape[0] < matrix.shape[1]:
        matrix = np.ascontiguousarray(matrix.T)
    if matrix.shape[1] > DIRECTIONS:
        matrix = project(matrix).T
    values = np.sqrt(np.clip(np.linalg.eigvalsh(_products(matrix)), 0, None))
    shares = values[values > 0] / values.sum()
    return math.exp(float(-(shares * np.log(shares)).sum()))


def project(matrix: Array) -> Array:
    """Return 48 rows: row i is the sum of rows i, i + 48 and so on, with random signs."""
    whole = len(matrix) // DIRECTIONS * DIRECTIONS
    signs = random_signs(len(matrix))
    blocks = matrix[:whole].reshape(-1, DIRECTIONS, matrix.shape[1])
    rows: Array = np.einsum("br,brc->rc", signs[:whole].reshape(-1, DIRECTIONS), blocks)
    rows[: len(matrix) - whole] += signs[whole:, None] * matrix[whole:]
    return rows


@lru_cache(maxsize=32)
def random_signs(size: int) -> Array:
    """Return 1.0 and -1.0 in a random order, which is always the same."""
    return np.random.default_rng([_SEED, size]).integers(0, 2, size) * 2.0 - 1.0


def _products(matrix: Array) -> Array:
    """Return ``matrix.T @ matrix``, as a sum of products that OpenBLAS computes in this thread."""
    height, width = matrix.shape
    whole = height // _ROWS * _ROWS
    blocks = matrix[:whole].reshape(-1, _ROWS, width)
    products: Array = np.matmul(blocks.transpose(0, 2, 1), blocks).sum(axis=0)
    rest = matrix[whole:]
    products += rest.T @ rest
    return products


_COUNT = "not_finite"  # elements; all else is measured
_MEASURED = ("movement", "rms", "zeros", "minimum", "maximum", _COUNT)
_OF_VALUES = ("rms", "minimum", "maximum", _COUNT)  # a small error changes them little


class SavedFigures(NamedTuple):
    """What is known of an array at a step: what its save measured, and whether it lost something.

    A save that measured no error lost nothing. Without figures, `lossy` decides.
    """

    figures: Figures
    lossy: bool

    @classmethod
    def of(cls, figures: Figures, lossy: bool) -> Self:
        """Return what is known, by the figures if they say it."""
        return cls(figures, lossy if figures.error is None else figures.error != 0)


_EXACT = SavedFigures(UNKNOWN, False)


class Trajectory:
    """What is measured of the shown arrays at the shown steps.

    With `originals`, `losses` has what was lost, `original` that of the step added last, and
    `problems` why originals could not be read.
    """

    def __init__(self, rows: Sequence[ArrayRow], originals: Originals | None = None) -> None:
        self.steps: list[int] = []
        # Eight bytes a number: as Python objects, those of a long run take as much as a state.
        self._series = {name: [packed("d") for _ in rows] for name in FIGURES}
        self.losses = LossTable(originals.label if originals else "", rows)
        self.original: Mapping[str, Any] | None = None
        self.problems: list[str] = []
        self._rows = rows
        self._originals = originals
        self._bins = [Bins() for _ in rows]
        self._quantiles: list[list[Sequence[float]]] = [[] for _ in rows]
        self._step: int | None = None  # the step before
        self._before: dict[str, DecodedArray] = {}  # of it, what lost nothing
        self._sizes: dict[str, tuple[int, float | None]] = {}  # root mean squares, and of which step
        self._originals_before: dict[str, DecodedArray] = {}
        self._last_original = max(originals.steps, default=None) if originals else None

    def add(
        self,
        step: int,
        arrays: Mapping[str, DecodedArray | LccodecError],
        told: Mapping[str, SavedFigures] | None = None,
        since: int | None = None,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Add a step. Arrays that are missing, or are errors, have no figures at it.

        `told` is what is known of arrays; others count as exact. Movements that the save measured
        begin at the step `since`. `sizes` are the elements of arrays that were not decoded.
        """
        self.steps.append(step)
        originals = self.original = self._original(step)
        if originals is None:
            self._originals_before.clear()
        lost: list[Lost] = []
        for row, bins, index in zip(self._rows, self._bins, range(len(self._rows)), strict=True):
            array = arrays.get(row.name)
            decoded = array if isinstance(array, DecodedArray) else None
            figures, lossy = (told or {}).get(row.name, _EXACT)
            bins.begin()
            values: dict[str, float | None] = {}
            if decoded is None:
                if row.name in sizes:
                    values = _values_told(figures)
            elif lossy:
                values = _values_of_lossy(decoded, figures, bins)
            else:
                values = self._of_exact(row.name, decoded, figures, since, bins)
            told_here = (row.name in sizes if decoded is None else lossy) and bool(values)
            self._quantiles[index].append(_quantiles(figures) if told_here else ())
            if values and lossy:
                values["movement"] = self._relative(row.name, figures, since)
                values["error"] = figures.error_in_movements
                values["lag"] = figures.lag
            if values:
                self._sizes[row.name] = step, values.get("rms")
            self._append(index, values)
            if originals is not None:
                lost.append(self._lost(step, originals, decoded, row.name, figures))
            if decoded is None or lossy:
                self._before.pop(row.name, None)
            else:
                _keep(self._before, row.name, decoded)
        self._step = step
        if originals is not None:
            self.losses.add(step, lost)

    def _of_exact(
        self, name: str, array: DecodedArray, figures: Figures, since: int | None, bins: Bins
    ) -> dict[str, float | None]:
        """Return the figures of an array that lost nothing."""
        before = _fitting(self._before, name, array)
        measured = measure(array.bits, before, array.kind, bins)
        values: dict[str, float | None] = {figure: getattr(measured, figure) for figure in _MEASURED}
        if before is not None:
            values["rank"] = change_rank(array.bits, before, array.kind, array.shape)
        if figures.movement is not None and (before is None or since != self._step):
            values["movement"] = self._relative(name, replace(figures, rms=measured.rms), since)
        moved = values["movement"]
        return {**values, "error": 0.0 if moved else None, "lag": 0.0 if moved else None}

    def _relative(self, name: str, figures: Figures, since: int | None) -> float | None:
        """Return a movement over the size of the values that moved, or of what they became."""
        step, size = self._sizes.get(name, (None, None))
        if step != since or since is None or not size:
            return figures.relative_movement
        return None if figures.movement is None else figures.movement / size

    def _original(self, step: int) -> Mapping[str, Any] | None:
        if self._originals is None or step not in self._originals.steps:
            return None
        try:
            return self._originals.state(step)
        except LccodecError as error:
            self.problems.append(f"The original of step {step} cannot be read: {error}")
            return None

    def _lost(
        self,
        step: int,
        originals: Mapping[str, Any],
        array: DecodedArray | None,
        name: str,
        measured: Figures,
    ) -> Lost:
        """Return what an array lost, beside what its save `measured`."""
        exact = None if array is None else original_bits(originals, name, array)
        if array is None or exact is None:
            self._originals_before.pop(name, None)
            return NOTHING_KNOWN
        before = _fitting(self._originals_before, name, array)
        if before is None:
            before = _fitting(self._before, name, array)
        lost = measure_loss(array.bits, exact, before, array.kind, measured)
        if step != self._last_original:
            _keep(self._originals_before, name, DecodedArray(array.kind, array.shape, exact))
        return lost

    def _append(self, index: int, values: Mapping[str, float | None]) -> None:
        for name in FIGURES:
            value = values.get(name)
            self._series[name][index].append(math.nan if value is None else value)

    def finish(self) -> dict[str, list[list[float | None]]]:
        """Return the figures, and give up the states that were kept for the next step.

        For each of `FIGURES` there is one list for each array, with one number for each step.
        """
        self._before.clear()
        self._originals_before.clear()
        self.original = None
        by_figure: dict[str, list[list[float | None]]] = {}
        for name, rows in self._series.items():
            kind = int if name == _COUNT else float
            by_figure[name] = [[None if math.isnan(x) else kind(x) for x in series] for series in rows]
        return by_figure

    def histograms(self) -> list[Histogram | None]:
        """Return the histogram of each array over the steps."""
        return [bins.histogram() for bins in self._bins]

    def quantiles(self) -> list[list[Sequence[float]] | None]:
        """Return what the saves measured of each array over the steps, as `Run.quantiles`."""
        return [series if any(series) else None for series in self._quantiles]


def _fitting(arrays: Mapping[str, DecodedArray], name: str, like: DecodedArray) -> Array | None:
    """Return the components of the step before, if they have the same type and shape."""
    before = arrays.get(name)
    fits = before is not None and (before.kind, before.shape) == (like.kind, like.shape)
    return before.bits if before is not None and fits else None


def _keep(arrays: dict[str, DecodedArray], name: str, array: DecodedArray) -> None:
    """Copy an array for the next step, over the copy before if that has its type and shape."""
    before = _fitting(arrays, name, array)
    if before is None:
        arrays[name] = DecodedArray(array.kind, array.shape, array.bits.copy())
    else:
        np.copyto(before, array.bits)


def _values_of_lossy(array: DecodedArray, figures: Figures, bins: Bins) -> dict[str, float | None]:
    """Return how the values of an array lie that lost something; as decoded, if that is all."""
    if figures.rms is None or array.kind.kind == "c":  # a complex number counts by its magnitude
        measured = measure(array.bits, None, array.kind, bins)
        return {figure: getattr(measured, figure) for figure in _OF_VALUES}
    if not _quantiles(figures):
        measure(array.bits, None, array.kind, bins)
    return _values_told(figures)


def _values_told(figures: Figures) -> dict[str, float | None]:
    """Return how the values of an array lie, as its save measured them."""
    return {figure: getattr(figures, figure) for figure in (*_OF_VALUES, "zeros")}


def _quantiles(figures: Figures) -> tuple[float, ...]:
    """Return the smallest value, the quantiles and the largest; nothing if one is unknown."""
    low, high, quantiles = figures.minimum, figures.maximum, figures.quantiles
    if low is None or high is None or quantiles is None:
        return ()
    # They are rounded apart from each other.
    return tuple(np.clip(np.maximum.accumulate([low, *quantiles, high]), low, high).tolist())


def course(
    store: Store, about: ArrayInfo, progress: Callable[[int, int], object] | None = None
) -> Trajectory:
    """Return the figures of an array at every step that can be read and has it.

    `progress` is called as ``progress(done, total)`` with numbers of steps.
    """
    total, trajectory, name = len(store.steps()), Trajectory([array_row(about)]), about.name
    for link, array in _arrays(store, name):
        step = link.manifest.step or 0
        if trajectory.steps and step <= trajectory.steps[-1]:
            continue  # a branch of the chain: the steps of the newest branch are shown
        told = SavedFigures.of(link.figures()[name], about.lossy)
        trajectory.add(step, {name: array}, {name: told}, link.since)
        if progress is not None:
            progress(len(trajectory.steps), total)
    return trajectory


def _arrays(store: Store, name: str) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at every step. It is valid until the next one is asked for."""
    steps = store.steps()
    interpolated = Lineage.named(store, steps).interpolated()
    waiting = iter(interpolated)
    due = next(waiting, None)
    for link, array in _lines(store, name, set(steps).difference(interpolated)):
        while due is not None and due < (link.manifest.step or 0):  # interpolated, with a walk of its own
            yield from _line(store, due, {due}, name)
            due = next(waiting, None)
        yield link, array


def _lines(store: Store, name: str, left: set[int]) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at the steps that are `left`, none of them interpolated."""
    lines: list[tuple[int, set[int]]] = []  # the newest step of a line, and its steps that no other has
    while left:
        newest = max(left)
        own = {newest}
        try:
            with open_step(store, newest) as file:
                own |= {link.manifest.step or 0 for link in file.links}
        except LccodecError:
            pass  # this step cannot be read, but its parents may be
        else:
            lines.append((newest, own & left))
        left -= own
    for newest, own in reversed(lines):
        yield from _line(store, newest, own, name)


def _line(store: Store, newest: int, steps: set[int], name: str) -> Iterator[tuple[Link, DecodedArray]]:
    """Yield the array at some of the steps that lead to one, until it cannot be decoded."""
    try:
        with open_step(store, newest) as file:
            wanted = {
                position: [name]
                for position, link in enumerate(file.links)
                if (link.manifest.step or 0) in steps and name in link.names
            }
            for position, arrays in replay_each(file.links, wanted):
                yield file.links[position], arrays[name]
    except LccodecError:
        return
