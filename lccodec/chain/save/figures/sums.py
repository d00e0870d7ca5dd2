"""The figures of many arrays of one type at once, from sums over their samples.

Numbers of a batch lie end to end, array after array. An element that is not finite, here or in what
it is compared with, counts in no sum.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....container.figures import QUANTILES
from ....element_types import Array

#: The least variance, over the mean of the squares, that the difference of two sums gives rightly.
_LEAST_VARIANCE: Final = 2.0**-30

_MAX_SORTED: Final = 1 << 9  # components of an array: what a share of elements is not above is rough


def starts_of(sizes: Array) -> Array:
    """Return where each array of a batch starts, by the sizes of all."""
    starts: Array = np.cumsum(sizes) - sizes
    return starts


@np.errstate(all="ignore")  # of hostile values too
def first_figures(
    sizes: Array,
    values: Array,
    decoded: Array | None,
    before: Array | None,
    weights: Array | None = None,
    spreads: bool = True,
) -> dict[str, Array]:
    """Return the figures of arrays that are made of sums over their components, float64.

    NaN stands for what is not known. `sizes` (int64) are those of the samples. `decoded` is
    ``None`` if nothing was lost, and `before` if nothing is known of the save before. Components
    count by their weights, or equally. Without `spreads`, spread, rms and error are not known.
    """
    starts = starts_of(sizes)
    sums = _sums(values, decoded, before, weights, spreads, starts, sizes)
    if not np.isfinite(sums if spreads else [sums[0], *sums[4:]]).all():
        given = [each for each in (values, decoded, before, weights) if each is not None]
        finite = np.logical_and.reduce([np.isfinite(each) for each in given])
        most = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
        values = np.where(finite, values, np.repeat(most, sizes))
        decoded, before = (None if e is None else np.where(finite, e, values) for e in (decoded, before))
        weights = np.where(finite, 1 if weights is None else weights, 0)
        sums = _sums(values, decoded, before, weights, spreads, starts, sizes)
    total, around, squares, errors, moved, along = sums
    total = np.where(total > 0, total, np.nan)
    found = {
        "movement": np.sqrt(moved / total),
        "error": np.sqrt(errors / total),
        "lag": -along / moved,
    }
    if spreads:
        squares /= total
        around /= total
        variance = squares - np.square(around)
        close = ~(variance >= _LEAST_VARIANCE * squares)  # of a NaN too
        found["rms"], found["spread"] = np.sqrt(squares), np.sqrt(variance)
        if close.any():
            own = np.repeat(close, sizes)
            counted = None if weights is None else weights[own]
            found["rms"][close], found["spread"][close] = _of_close(sizes[close], values[own], counted)
    return found


def _of_close(sizes: Array, values: Array, weights: Array | None) -> tuple[Array, Array]:
    """Return rms and spread of arrays whose values lie close together, but far from 0."""
    starts = starts_of(sizes)
    x = values.astype(np.float64)
    first = x[starts]
    x -= np.repeat(first, sizes)
    product = x if weights is None else x * weights
    total = sizes if weights is None else np.add.reduceat(weights, starts)
    total = np.where(total > 0, total, np.nan)
    around = np.add.reduceat(product, starts) / total
    squares = np.add.reduceat(product * x, starts) / total
    spread = np.sqrt(squares - np.square(around))
    rms = np.hypot(first + around, spread)
    return rms, np.where(squares != 0, spread, rms)


def _sums(
    values: Array,
    decoded: Array | None,
    before: Array | None,
    weights: Array | None,
    spreads: bool,
    starts: Array,
    sizes: Array,
) -> list[Array]:
    """Return what the figures of arrays are made of: six sums for each array.

    They are those of the weights, of the values and of their squares, of the squares of the errors
    and of the movements, and of the products of these two.
    """
    x = values.astype(np.float64)
    moved = along = np.zeros(len(starts))
    around = squares = errors = moved if spreads else np.full(len(starts), np.nan)

    def sum_of(a: Array, b: Array, out: Array | None = None) -> Array:
        product = np.multiply(a, b, out=out)
        if weights is not None:
            np.multiply(product, weights, out=product)
        found: Array = np.add.reduceat(product, starts)
        return found

    if decoded is not None:
        error = decoded.astype(np.float64)
        error -= x
    if before is not None:
        movement = before.astype(np.float64)
        np.subtract(x, movement, out=movement)
        if decoded is not None:
            along = sum_of(error, movement)
        moved = sum_of(movement, movement, movement)
    if decoded is not None and spreads:
        errors = sum_of(error, error, error)
    total = sizes.astype(np.float64) if weights is None else np.add.reduceat(weights, starts)
    if spreads:
        around = np.add.reduceat(x if weights is None else x * weights, starts)
        squares = sum_of(x, x, x)
    return [total, around, squares, errors, moved, along]


@np.errstate(all="ignore")
def descriptions(sizes: Array, values: Array) -> dict[str, Array]:
    """Return the figures of the values alone, of samples that may be whole arrays."""
    counts, starts = sizes, starts_of(sizes)
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
        "quantiles": _quantiles(sizes, kept),
    }


def _quantiles(sizes: Array, values: Array) -> Array:
    """Return a row of quantiles for each array; NaN where a value is not finite."""
    starts = starts_of(sizes)
    found = np.empty((len(starts), len(QUANTILES)))
    steps = -(-sizes // _MAX_SORTED)
    lengths = -(-sizes // steps)
    for length in set(lengths.tolist()):  # those of a size are sorted together
        own = np.flatnonzero(lengths == length)
        if own.size * length == values.size:
            rows = values.reshape(-1, length)
        else:
            rows = values[starts[own, None] + np.arange(length) * steps[own, None]]
        ordered = np.sort(rows, axis=1)
        found[own] = ordered[:, [round(share * (length - 1)) for share in QUANTILES]]
        found[own[np.isnan(ordered[:, -1])]] = np.nan
    return found
