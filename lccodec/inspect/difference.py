"""What an array looks like, and how two states differ: which leaves came, went and changed.

Figures and histograms are computed in float64 and in pieces that fit the cache, so that a large
array needs no second one. Values are first scaled by a power of two, so that no sum or square
overflows or vanishes. A complex number counts by its magnitude. bfloat16 may come as
:data:`lccodec.BFLOAT16_BITS`, which needs no ml_dtypes.

Elements are equal if their bit patterns are: a NaN equals itself, and 0.0 differs from -0.0.
Differences are taken in float64 over the elements that are finite in both states. Between integers
they are exact, and a complex number counts by its magnitude. Everything is computed piece by piece,
like a summary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..chain.read.checkpoint import OpenCheckpoint
from ..chain.read.links import Head
from ..chain.read.replay import DecodedArray
from ..constants import ElementType
from ..container.tree import array_names, select
from ..element_types import Array, components, element_type, work
from ..parallel import WIDE_PIECE, cached_property, slices

_DEFAULT_BINS: Final = 16


@dataclass(frozen=True)
class Bin:
    """One bar of a histogram: the number of elements from `low` up to, but without, `high`.

    If both are equal, it is the number of elements of that value.
    """

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Distribution:
    """How the finite elements of an array are spread."""

    minimum: float  # exact for integers, as is `maximum`
    maximum: float
    mean: float
    std: float
    histogram: tuple[Bin, ...]  # bins of equal width; the last one includes its `high`


@dataclass(frozen=True)
class ArraySummary:
    """Figures of one array: its type, shape, and numbers of elements."""

    dtype: str
    shape: tuple[int, ...]
    size: int
    finite: int
    nans: int
    infinities: int
    zeros: int
    distribution: Distribution | None  # of the finite elements; None if there are none


def summarize(array: Array, bins: int = _DEFAULT_BINS) -> ArraySummary:
    """Return figures of an array; raise ``ArgumentError`` for a dtype that no checkpoint can hold.

    Integers of a range narrower than `bins` get one bar for each value.

    >>> figures = summarize(np.array([0, 1, 1, np.nan], np.float32), bins=2)
    >>> figures.finite, figures.nans, figures.zeros, figures.distribution.maximum
    (3, 1, 1, 1.0)
    >>> [bar.count for bar in figures.distribution.histogram]
    [1, 2]
    """
    kind, bits = components(array)
    size = bits.size // kind.components
    nans = zeros = finite = 0
    low, high = math.inf, -math.inf
    for values in numbers(bits, kind):
        kept = _finite(values)
        nans += int(np.isnan(values).sum())
        zeros += int((kept == 0).sum())
        finite += kept.size
        if kept.size:
            low, high = min(low, kept.min().item()), max(high, kept.max().item())
    spread = _distribution(bits, kind, low, high, finite, bins) if finite else None
    return ArraySummary(kind.name, array.shape, size, finite, nans, size - finite - nans, zeros, spread)


def _distribution(
    bits: Array, kind: ElementType, low: float, high: float, finite: int, bins: int
) -> Distribution:
    """Return how the `finite` elements from `low` to `high` are spread."""
    exponent = math.frexp(max(abs(low), abs(high)))[1]
    start, stop = math.ldexp(low, -exponent), math.ldexp(high, -exponent)
    single = low == high or (kind.kind in "biu" and high - low < bins)  # each bin holds one value
    if single:
        bins = int(high - low) + 1
    per_unit = (bins - single) / (stop - start) if start < stop else 0.0
    offset = 0.5 if single else 0.0  # rounds if a bin holds one value

    def scaled() -> Iterator[Array]:  # into [-1, 1]
        for values in numbers(bits, kind):
            yield np.ldexp(_finite(values).astype(np.float64), -exponent)

    mean = sum(float(y.sum()) for y in scaled()) / finite
    squares, counts = 0.0, np.zeros(bins, np.int64)
    for y in scaled():
        squares += float(np.square(y - mean).sum())
        places = ((y - start) * per_unit + offset).astype(np.intp)
        counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)
    if single:
        edges = [(low + i, low + i) for i in range(bins)]
    else:
        inner = [math.ldexp(start + (stop - start) * i / bins, exponent) for i in range(1, bins)]
        edges = list(itertools.pairwise([low, *inner, high]))
    return Distribution(
        minimum=low,
        maximum=high,
        mean=math.ldexp(mean, exponent),
        std=math.ldexp(math.sqrt(squares / finite), exponent),
        histogram=tuple(Bin(*edge, int(count)) for edge, count in zip(edges, counts, strict=True)),
    )


def numbers(bits: Array, kind: ElementType) -> Iterator[Array]:
    """Yield components as numbers to compute with, in pieces of `WIDE_PIECE` elements.

    These are float64, complex128, or integers as they are (bool as uint8).
    """
    for part in slices(bits.size, WIDE_PIECE * kind.components):
        piece = bits[part]
        if not kind.is_float:
            yield piece.view(np.uint8 if kind.kind == "b" else kind.native)
        else:
            with np.errstate(invalid="ignore"):  # widening a signaling NaN sets this flag
                wide = work(piece, kind).astype(np.float64)
            yield wide.view(np.complex128) if kind.kind == "c" else wide


def _finite(values: Array) -> Array:
    """Return the finite values, and the magnitudes of complex ones."""
    kept: Array = values[np.isfinite(values)]
    if kept.dtype.kind != "c":
        return kept
    with np.errstate(over="ignore"):  # a magnitude that is too large counts as the largest float64
        return np.minimum(np.abs(kept), np.finfo(np.float64).max)


#: Of arrays that are decoded together: if they take more, each is decoded when it is asked for.
_MAX_KEPT_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class ArrayChange:
    """How an array of one dtype and shape changed. Elements change if their bit patterns do."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    changed: int  # elements
    share: float  # of the elements changed, from 0 to 1
    not_finite: int  # changed elements that are NaN or infinite before or after; not counted below
    max_abs: float | None  # largest difference of all elements; None if none is finite
    rms: float | None  # root mean square difference of all elements, also of those that did not change
    relative_rms: float | None  # by the root mean square of the old elements; None if that is 0
    cosine: float | None  # of the angle between old and new elements; None if all of either are 0


@dataclass(frozen=True)
class Replacement:
    """A leaf with another kind, dtype or shape, or a scalar with another value, as texts."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class ScalarChange:
    """A scalar with another value."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Difference:
    """How one state differs from another, by the names of leaves, in the order of the states."""

    appeared: tuple[str, ...]
    disappeared: tuple[str, ...]
    replaced: tuple[Replacement, ...]
    changed: tuple[ArrayChange, ...]
    unchanged: int
    scalars: tuple[ScalarChange, ...]
    unchanged_scalars: int


class Leaves(Mapping[str, Any]):
    """The leaves of an open checkpoint by name. An array is decoded when it is asked for.

    Small arrays can share a frame, and copies have that of their source. When one of them is
    decoded, all that are decoded with it are kept until they are asked for, so that few frames are
    decoded twice. What is decoded together but takes much memory is not kept. The file must be open
    while this is used.
    """

    def __init__(self, file: OpenCheckpoint) -> None:
        manifest = file.links[-1].manifest
        # Below a key of its own, the whole state can be selected even if it has the key "".
        tree = {"": manifest.tree}
        self._file = file
        self._values = {name[1:]: value for name, value in select(tree, manifest.scalars, [""])[1].items()}
        self._indices = {name[1:]: index for name, index in array_names(tree).items()}
        self._groups = file.together
        self._kept: dict[int, DecodedArray] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._indices:
            return self._values[name]
        index = self._indices[name]
        if index in self._kept:
            return self._kept.pop(index).array("bits")
        group = self._groups[index]
        decoded = self._file.decode_some(group if len(group) == 1 or self._is_small(group) else [index])
        values = decoded.pop(index)
        self._kept.update(decoded)
        return values.array("bits")

    def _is_small(self, group: Sequence[int]) -> bool:
        """Return whether arrays take so little memory that all of them may be kept."""
        names = self._file.links[-1].index_names
        heads = (self._heads[names[index]] for index in group)
        return sum(math.prod(head.shape) * head.header.kind.itemsize for head in heads) <= _MAX_KEPT_BYTES

    @cached_property
    def _heads(self) -> dict[str, Head]:
        return self._file.heads()

    def __contains__(self, name: object) -> bool:
        return name in self._indices or name in self._values  # without this, Mapping would decode the array

    def __iter__(self) -> Iterator[str]:
        yield from self._indices
        yield from self._values

    def __len__(self) -> int:
        return len(self._indices) + len(self._values)


def compare_states(
    old: Mapping[str, Any], new: Mapping[str, Any], progress: Callable[[int, int], object] | None = None
) -> Difference:
    """Return how two states differ: arrays and scalars by name, `Leaves` of a checkpoint or dicts.

    >>> old = {"w": np.zeros(4, np.float32), "b": np.ones(2), "epoch": 1}
    >>> new = {"w": np.array([0, 0, 0, 2], np.float32), "b": np.ones(2), "epoch": 2}
    >>> difference = compare_states(old, new)
    >>> difference.changed[0].name, difference.changed[0].share, difference.changed[0].max_abs
    ('w', 0.25, 2.0)
    >>> difference.unchanged, difference.scalars
    (1, (ScalarChange(name='epoch', old=1, new=2),))
    """
    replaced: list[Replacement] = []
    changed: list[ArrayChange] = []
    scalars: list[ScalarChange] = []
    unchanged = unchanged_scalars = 0
    for done, name in enumerate(new, 1):
        if name in old:
            before, after = old[name], new[name]
            if (kind := _describe(before)) != _describe(after):
                replaced.append(Replacement(name, kind, _describe(after)))
            elif isinstance(after, np.ndarray):
                if (change := _compare_arrays(name, before, after)) is not None:
                    changed.append(change)
                else:
                    unchanged += 1
            elif repr(before) != repr(after):  # as texts, NaN equals NaN and -0.0 differs from 0.0
                scalars.append(ScalarChange(name, before, after))
            else:
                unchanged_scalars += 1
        if progress is not None:
            progress(done, len(new))
    return Difference(
        appeared=tuple(name for name in new if name not in old),
        disappeared=tuple(name for name in old if name not in new),
        replaced=tuple(replaced),
        changed=tuple(changed),
        unchanged=unchanged,
        scalars=tuple(scalars),
        unchanged_scalars=unchanged_scalars,
    )


def _describe(leaf: Any) -> str:
    """Return what two leaves must have in common so that they can be compared."""
    if isinstance(leaf, np.ndarray):
        return f"{element_type(leaf.dtype).name} {leaf.shape}"
    return "None" if leaf is None else f"scalar {type(leaf).__name__}"


def _compare_arrays(name: str, old: Array, new: Array) -> ArrayChange | None:
    """Return how an array changed, or None if it did not."""
    kind, before = components(old)
    _, after = components(new)
    if np.array_equal(before, after):
        return None
    differs = (before != after).reshape(-1, kind.components).any(axis=1)

    def finite_pairs() -> Iterator[tuple[Array, Array, Array]]:
        for left, right in zip(numbers(before, kind), numbers(after, kind), strict=True):
            finite = np.isfinite(left) & np.isfinite(right)
            yield finite, left[finite], right[finite]

    count = broken = 0
    for part, (finite, *_) in zip(slices(new.size, WIDE_PIECE), finite_pairs(), strict=True):
        count += int(finite.sum())
        broken += int((differs[part] & ~finite).sum())
    peak, rms = _peak_and_rms(lambda: (distance(left, right) for _, left, right in finite_pairs()), count)
    _, old_rms = _peak_and_rms(lambda: (magnitude(left) for _, left, _ in finite_pairs()), count)
    _, new_rms = _peak_and_rms(lambda: (magnitude(right) for *_, right in finite_pairs()), count)
    cosine = None
    if 0 < old_rms < math.inf and 0 < new_rms < math.inf:
        products = sum(_product(left / old_rms, right / new_rms) for _, left, right in finite_pairs())
        cosine = min(max(products / count, -1.0), 1.0)
    changed = int(differs.sum())
    return ArrayChange(
        name=name,
        dtype=kind.name,
        shape=new.shape,
        changed=changed,
        share=changed / new.size,
        not_finite=broken,
        max_abs=peak if count else None,
        rms=rms if count else None,
        relative_rms=rms / old_rms if old_rms else None,
        cosine=cosine,
    )


def _product(left: Array, right: Array) -> float:
    """Return the sum of products; of complex numbers the real part of the inner product."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float((np.conj(left) * right).real.sum())


def distance(left: Array, right: Array) -> Array:
    """Return ``|right - left|`` as float64."""
    if left.dtype.kind in "iu":
        # Read as unsigned, the larger less the smaller is right even if the subtraction overflows.
        gap = np.where(left > right, left - right, right - left)
        return gap.view(f"u{gap.itemsize}").astype(np.float64)
    with np.errstate(over="ignore"):
        return magnitude(right - left)


def magnitude(values: Array) -> Array:
    """Return absolute values as float64."""
    magnitude: Array = np.abs(values.astype(np.float64) if values.dtype.kind in "iu" else values)
    return magnitude


def _peak_and_rms(magnitudes: Callable[[], Iterator[Array]], count: int) -> tuple[float, float]:
    """Return maximum and root mean square; dividing by the former keeps squares in range."""
    peak = max((float(piece.max(initial=0.0)) for piece in magnitudes()), default=0.0)
    if not 0 < peak < math.inf:
        return peak, peak
    total = sum(float(np.square(piece / peak).sum()) for piece in magnitudes())
    return peak, peak * math.sqrt(total / count)
