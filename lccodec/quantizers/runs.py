"""Runs of small arrays: quantized together, each array with a partition of its own.

A network has many small arrays, and a NumPy call costs as much as the work of a thousand elements.
So small arrays of one type are laid end to end in one frame. Nothing of the quantizers changes: the
buckets, steps and representatives of an array are chosen from that array alone.

Sources: SPEC 6.1 (runs), 6.3 and 7.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..element_types import Array, ElementType
from .promote import promotion_order

__all__ = [
    "FittedRun",
    "centroids",
    "entries",
    "fit_buckets",
    "fit_grid",
    "midpoints",
    "unit_of",
    "worth_sparing",
]

_MOST_BINS: Final = 127  # bins a side, so that symbols fit 8 bits

_FEWEST_SPARED: Final = (8, 64)  # representatives, in a small and in a large array
_TAIL: Final = 0.75


@dataclass(frozen=True)
class FittedRun:
    """What a quantizer chose for a run of arrays.

    Parameters
    ----------
    counts
        Representatives of each array, int64.
    representatives
        Those of the first array, of the second, ..., ``kind.work``.
    symbols
        Of all components, uint8.
    entries
        Number of each component's representative among all of them, from 1 on; 0 for symbol 0; int64.
    outside
        Components that fit no part, to be stored exactly, with symbol 0; bool, ``None`` where there are none.
    max_error
        As in `Partition`.
    """

    counts: Array
    representatives: Array
    symbols: Array
    entries: Array
    outside: Array | None = None
    max_error: float | None = None


def entries(symbols: Array, counts: Array, sizes: Array) -> Array:
    """Return the entries of a `FittedRun` for its symbols and counts, and the size of each array."""
    numbers: Array = np.repeat(np.cumsum(counts) - counts, sizes)
    numbers += symbols
    numbers *= symbols != 0
    return numbers


def midpoints(low: Array, high: Array, kind: ElementType) -> Array:
    """Return ``(low + high) / 2`` as real numbers rounded once to `kind.work` (SPEC 7.7)."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(over="ignore"):
        middle = (high + low) / 2
    return np.where(np.isfinite(middle), middle, high / 2 + low / 2).astype(kind.work)


def fit_buckets(d: Array, sizes: Array, kind: ElementType, bits: int, mean: bool) -> FittedRun:
    """Fit exponent buckets to each array of a run.

    Parameters
    ----------
    d
        Finite differences of all arrays, ``kind.work``.
    sizes
        Components of each array, int64.
    bits, mean
        As in `ExponentBuckets`.
    """
    shift = 23 if kind.name == "bfloat16" else kind.mantissa
    patterns = d.view(f"u{d.itemsize}")
    keys = 1 << (8 * d.itemsize - shift)  # sign and exponent field of a difference
    fields = (patterns >> shift).astype(np.intp)
    # Few of the fields occur. Those get numbers, from 1 on in the order of promotion, so that the tables of
    # all arrays stay small and each array's buckets are in that order.
    occurs = np.zeros(keys, bool)
    occurs[fields] = True
    occurs[[0, keys // 2]] = False  # zero and the subnormals have no bucket
    occurring = np.flatnonzero(occurs)
    order = promotion_order(occurring & (keys // 2 - 1), occurring >= keys // 2)
    span = order.size + 1
    number = np.zeros(keys, np.intp)
    number[occurring[order]] = np.arange(1, span)
    bucket = number.take(fields, mode="clip")
    bucket += np.repeat(np.arange(0, sizes.size * span, span), sizes)
    most = np.zeros(sizes.size * span, patterns.dtype)
    np.maximum.at(most, bucket, patterns)  # of one sign, the order of patterns is that of magnitudes
    most[::span] = 0
    occupied = np.flatnonzero(most != 0)
    before = np.searchsorted(occupied, np.arange(sizes.size) * span)  # buckets of the arrays before each
    symbol = np.arange(1, occupied.size + 1) - before[occupied // span]
    kept = symbol < 1 << bits
    promoted, symbol = occupied[kept], symbol[kept]
    if mean:
        sums, held = np.bincount(bucket, d, most.size), np.bincount(bucket, minlength=most.size)
        means = sums[promoted] / held[promoted]
    if not mean or not np.isfinite(means).all():
        least = np.full(most.size, np.iinfo(patterns.dtype).max, patterns.dtype)
        np.minimum.at(least, bucket, patterns)
        middle = midpoints(least[promoted].view(d.dtype), most[promoted].view(d.dtype), kind)
        if mean:  # a sum of the largest numbers overflows
            middle = np.where(np.isfinite(means), means, middle).astype(kind.work)
    else:
        middle = means.astype(kind.work)
    symbol_of, entry_of = np.zeros(most.size, np.uint8), np.zeros(most.size, np.int64)
    symbol_of[promoted] = symbol
    entry_of[promoted] = np.arange(1, promoted.size + 1)
    counts = np.bincount(promoted // span, minlength=sizes.size)
    return FittedRun(counts, middle, symbol_of.take(bucket, mode="clip"), entry_of.take(bucket, mode="clip"))


def worth_sparing(cost: Array, least: Array, size: Array) -> Array:
    """Return whether the last bins of arrays are left out: where these are outliers', and not a thin tail's.

    Parameters
    ----------
    cost, least
        Representatives and exact elements with all bins, and with those that make them fewest.
    size
        Elements of the array.
    """
    worth: Array = (cost - least >= np.clip(size >> 10, *_FEWEST_SPARED)) & (least <= _TAIL * cost)
    return worth


def centroids(
    codes: Array,
    steps: Array,
    sums: Array,
    counts: Array,
    zone: float,
    bound: float | None,
    unit: float = 1.0,
) -> Array:
    """Return the means of uniform bins, float64; the middle of a bin that nothing is known of.

    Parameters
    ----------
    codes
        Zigzag numbers of the bins, from 1 on.
    steps
        Step of each bin.
    sums, counts
        Of the differences in each bin.
    zone
        Half the width of the dead zone, in steps.
    bound
        Largest distance from the mean to an edge of the bin; ``None`` for any.
    unit
        What the sums are to be divided by.
    """
    steps = steps * unit
    bound = None if bound is None else bound * unit
    index = (codes >> 1) ^ -(codes & 1)  # bin number with its sign
    sign, number = np.sign(index), np.abs(index)
    mean: Array = np.divide(sums, counts, out=(number + zone - 0.5) * steps * sign, where=counts > 0)
    if bound is not None:
        low = (number + zone) * steps - bound
        high = (number + zone - 1) * steps + bound
        mean = np.clip(np.abs(mean), low, high) * sign
    with np.errstate(over="ignore"):  # of a bin without elements
        return mean / unit


def unit_of(step: float) -> float:
    """Return a power of two to multiply differences by, so that sums of some steps do not overflow."""
    return 2.0**-64 if step > 2.0**900 else 1.0


def fit_grid(
    d: Array, sizes: Array, kind: ElementType, steps: Array, zone: float, bound: float | None
) -> FittedRun:
    """Fit uniform bins with a dead zone to each array of a run.

    Parameters
    ----------
    d, sizes
        As in :func:`fit_buckets`; no array is empty.
    steps
        Step of each array, float64; one that cannot be computed with leaves all to be stored exactly.
    zone, bound
        As in :func:`centroids`.
    """
    work = np.promote_types(d.dtype, np.float32)
    finest = float(np.finfo(work).tiny) * 4
    usable = (steps >= finest) & np.isfinite(steps)
    steps = np.where(usable, steps, 1.0)
    # As many bins as bytes can number, and no more than an array's elements pay for.
    most = np.where(usable, np.minimum(_MOST_BINS, np.maximum(sizes // 4, 4)), 0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = d.astype(work) * np.repeat(1 / steps, sizes).astype(work)
    scaled += np.copysign(work.type(1 - zone), scaled)
    outside = ~(np.abs(scaled) < np.repeat(most + 1, sizes))
    outside |= np.repeat(~usable, sizes)
    scaled[outside] = 0
    index = scaled.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    bins = np.maximum.reduceat(np.abs(index), starts)
    if 2 * int(bins.max()) >= _FEWEST_SPARED[0]:
        bins = _worthwhile(index, outside, bins, sizes)
        far = np.abs(index) > np.repeat(bins, sizes)
        index[far] = 0
        outside |= far
    codes = (index << 1) ^ (index >> 63)
    owner = np.repeat(np.arange(sizes.size), sizes)
    places = owner * 256 + codes
    filled = np.bincount(places, minlength=256 * sizes.size)
    unit = unit_of(float(steps.max()))
    sums = np.bincount(places, d if unit == 1 else d * unit, minlength=256 * sizes.size)
    counts = 2 * bins
    owners = np.repeat(np.arange(sizes.size), counts)
    code = np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    at = owners * 256 + code
    with np.errstate(over="ignore"):
        means = centroids(code, steps[owners], sums[at], filled[at], zone, bound, unit).astype(kind.work)
    symbols = codes.astype(np.uint8)
    return FittedRun(counts, means, symbols, entries(symbols, counts, sizes), outside, bound)


def _worthwhile(index: Array, outside: Array, bins: Array, sizes: Array) -> Array:
    """Return how many bins on either side each array had better have: what is past them is stored exactly.

    A bin on both sides takes two representatives in the codebook, an element past the last bin about as
    much as one.

    Parameters
    ----------
    index
        Number of each element's bin, with its sign.
    outside
        Elements that are stored exactly anyway.
    bins, sizes
        Bins on either side that reach all others, and elements, of each array.
    """
    span = _MOST_BINS + 1
    places = np.repeat(np.arange(sizes.size) * span, sizes) + np.abs(index)
    held = np.bincount(places, ~outside, minlength=span * sizes.size).reshape(-1, span)
    past = sizes[:, None] - np.cumsum(held, axis=1)
    costs = 2 * np.arange(span) + past
    best = costs.argmin(axis=1)
    arrays = np.arange(sizes.size)
    worth = worth_sparing(costs[arrays, bins], costs[arrays, best], sizes)
    return np.where(worth, best, bins)
