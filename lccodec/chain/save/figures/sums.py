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

_MAX_SORTED: Final = 1 << 9  # components of an array: what a share of elements is not above is rough


def starts_of(sizes: Array) -> Array:
    """Return where each array of a batch starts, by the sizes of all."""
    starts: Array = np.cumsum(sizes) - sizes
    return starts


@np.errstate(all="ignore")  # of hostile values too
def even_figures(sizes: Array, values: Array, decoded: Array, before: Array | None) -> dict[str, Array]:
    """Return the first figures of arrays from components that count equally, float64.

    NaN stands for what is not known. `sizes` (int64) are those of the samples; `before` is ``None``
    if nothing is known of the save before.
    """
    counts, starts = sizes, starts_of(sizes)
    x, d = values.astype(np.float64), decoded.astype(np.float64)
    p = x if before is None else before.astype(np.float64)
    sums = _sums(x, d, p, starts, sizes)
    if not np.isfinite(sums).all():
        finite = np.isfinite(x) & np.isfinite(d) & np.isfinite(p)
        counts = np.add.reduceat(finite, starts, dtype=np.int64)
        most = np.maximum.reduceat(np.where(finite, x, -np.inf), starts)
        x = np.where(finite, x, np.repeat(most, sizes))  # adds nothing to the sums
        d, p = np.where(finite, d, x), np.where(finite, p, x)
        sums = _sums(x, d, p, starts, sizes)
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


def _sums(x: Array, d: Array, p: Array, starts: Array, sizes: Array) -> list[Array]:
    """Return what the figures of arrays are made of: five sums for each array.

    They are those of the distances from the first value and of their squares, of the squares of the
    errors and of the movements, and of the products of these two.
    """
    around, error, movement = x - np.repeat(x[starts], sizes), d - x, x - p
    products = (around, around * around, error * error, movement * movement, error * movement)
    return [np.add.reduceat(each, starts) for each in products]


@np.errstate(all="ignore")
def state_figures(sizes: Array, weights: Array, values: Array, decoded: Array) -> dict[str, Array]:
    """Return spread, rms and error of arrays from components that count by their weights, float64.

    The weights of an array add up to about the number of its components.
    """
    starts = starts_of(sizes)
    x, d, weights = _finite(values, decoded, weights)
    total = np.add.reduceat(weights, starts)
    first = x[starts]
    mean = first + np.add.reduceat(weights * (x - np.repeat(first, sizes)), starts) / total
    around = x - np.repeat(mean, sizes)
    spreads, rms, error = (
        np.sqrt(np.add.reduceat(weights * np.square(each), starts) / total) for each in (around, x, d - x)
    )
    return {"rms": rms, "spread": np.where(spreads != 0, spreads, rms), "error": error}


@np.errstate(all="ignore")
def movement_figures(
    sizes: Array, weights: Array, values: Array, decoded: Array, before: Array
) -> dict[str, Array]:
    """Return movement and lag of arrays from components that count by their weights, float64."""
    starts = starts_of(sizes)
    x, d, weights = _finite(values, decoded, weights)
    x, p, weights = _finite(x, before, weights)
    movement = x - p
    total = np.add.reduceat(weights, starts)
    moved = np.add.reduceat(weights * np.square(movement), starts)
    along = np.add.reduceat(weights * (d - x) * movement, starts)
    return {"movement": np.sqrt(moved / total), "lag": -along / moved}


def _finite(values: Array, other: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return both as float64, and weights that are 0 where one of them is not finite."""
    x, y = values.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(weights)
    if finite.all():
        return x, y, weights
    return np.where(finite, x, 0), np.where(finite, y, 0), np.where(finite, weights, 0)


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
        places = starts[own, None] + np.arange(length) * steps[own, None]
        ordered = np.sort(values[places], axis=1)
        found[own] = ordered[:, [round(share * (length - 1)) for share in QUANTILES]]
        found[own[np.isnan(ordered[:, -1])]] = np.nan
    return found
