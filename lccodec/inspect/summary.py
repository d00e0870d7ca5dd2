"""What an array looks like: figures and a histogram.

They are computed in float64 and in pieces that fit the cache, so that a large array needs no second
one. Values are first scaled by a power of two, so that no sum or square overflows or vanishes. A
complex number counts by its magnitude. bfloat16 may come as :data:`lccodec.BFLOAT16_BITS`, which
needs no ml_dtypes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_table import ElementType
from ..element_types import Array, components, work
from ..parallel import WIDE_PIECE, slices

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
    """Return figures of an array.

    Integers of a range narrower than `bins` get one bar for each value. Raise ``ArgumentError`` for
    a dtype that a checkpoint cannot hold.

    Examples
    --------
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
