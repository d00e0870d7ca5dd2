"""Where the representatives of uniform bins lie: at their means, ahead of them, or larger.

Means leave the least squared error. A run that resumes feels other things first: what trails, and
what is lost.

Sources: SPEC 7.7; Sullivan, "Efficient scalar quantization of exponential and Laplacian random
variables", IEEE Trans. Inf. Theory 42 (1996) (dead zone with centroids). The measurements are in
``spec/decisions/0010-unbiased-representatives.md`` and ``0015-presets-by-promise.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, unwork, work

#: Half the width of the dead zone, in steps (widths of a bin).
DEAD_ZONE: Final = 0.6

_EDGE_EPSILONS: Final = 2  # of the quotient that says in which bin an element lies
_LEAD_RATIO: Final = 0.75  # of the zone: see `lead`
MAX_GAIN: Final = 2.0  # see `gain`
_GAIN_STEPS: Final = 64.0  # gains are rounded to so many to 1: the same on every machine


def lead(share: Array) -> Array:
    """Return how far representatives lie beyond the means, in steps.

    Means leave the least squared error, but in a chain of deltas they leave a state that trails:
    an element that keeps moving waits in the dead zone, is coded, has caught up, and waits again.
    So it is behind all the time, and a run that resumes goes back in time. Beyond the mean by a
    distance s, with a zone that ends at z, an element starts ahead instead. If it moves steadily,
    it is right on average at ``s = z``, less half of what it moves between two deltas. If it moves
    at random, with variance 1 between two deltas, it trails by ``(z - s)**2 / 6`` intervals, its
    squared error is ``(z**2 + s**2) / 6``, and a share ``1 / (z**2 - s**2)`` is coded each time. So
    a lead of three quarters of the zone leaves a 16th of the lag.

    Parameters
    ----------
    share
        Share of each array's elements that is outside the dead zone. If many are, elements move
        farther between two deltas than the zone is wide, and means are right on average.
    """
    inside = np.maximum(1 - share, 0)
    # A root is the same number on every machine. A power may not be.
    steps: Array = _LEAD_RATIO * DEAD_ZONE * (inside * np.sqrt(inside))
    return steps


def gain(inside: Array, along: Array) -> Array:
    """Return the factor by which representatives are larger than the means.

    A first moment is a step that the optimizer has yet to take, spread over the next updates. What
    lies in the zone is a part of it that is lost: the run falls behind. With representatives that
    are larger by this factor, the decoded moment reaches as far as the original, along the
    original. Squared errors are larger, but the run that goes on feels the lost step first.

    Parameters
    ----------
    inside
        Sum of the squares of each array's elements in the zone.
    along
        Sum of the products of the elements outside and the means of their bins.
    """
    wanted = 1 + np.divide(inside, along, out=np.zeros(inside.shape), where=along > 0)
    rounded: Array = np.round(np.minimum(wanted, MAX_GAIN) * _GAIN_STEPS) / _GAIN_STEPS
    return rounded


def representatives(
    codes: Array,
    steps: Array,
    ahead: Array,
    sums: Array,
    counts: Array,
    max_error: float | None,
    kind: ElementType | None,
) -> Array:
    """Return the representatives of bins, float64: their means, moved by the lead.

    Under a bound they are numbers of the element type that have the bound for the whole bin. An
    element may be coded again and again, each time in the company of others. As long as it stays in
    its bin, it has the bound for what it was at first. If a bin has no such number, its only
    representative is the one next to its middle.

    Parameters
    ----------
    codes, steps, ahead
        Symbol of each bin, its step and its lead; all lengths are in the same units.
    sums, counts
        Sum and number of the differences in each bin.
    max_error
        Largest distance from the representative to an edge of the bin; ``None`` for no bound.
    kind
        The element type of what is coded, if bins are of its numbers.
    """
    index = (codes >> 1) ^ -(codes & 1)  # bin number with its sign
    sign, number = np.sign(index), np.abs(index)
    mean: Array = np.divide(sums, counts, out=(number + DEAD_ZONE - 0.5) * steps * sign, where=counts > 0)
    mean += ahead * sign
    if max_error is None:
        return mean
    if kind is None:
        edges = (number + DEAD_ZONE) * steps, (number + DEAD_ZONE - 1) * steps
        clipped: Array = np.clip(np.abs(mean), edges[0] - max_error, edges[1] + max_error) * sign
        return clipped
    # The bin of an element beside an edge depends on the rounding of its quotient.
    width = np.promote_types(kind.work, np.float32)
    slack = _EDGE_EPSILONS * float(np.finfo(width).eps) * (number + 1) * steps
    far, near = (number + DEAD_ZONE) * steps + slack, (number + DEAD_ZONE - 1) * steps - slack
    low, high = far - max_error, near + max_error
    chosen = _rounded(np.clip(np.abs(mean), low, high), kind)
    middle = _rounded((far + near) / 2, kind)
    within: Array = np.where((chosen >= low) & (chosen <= high), chosen, middle) * sign
    return within


def _rounded(numbers: Array, kind: ElementType) -> Array:
    """Return numbers as an element type has them, float64."""
    with np.errstate(over="ignore"):
        rounded: Array = work(unwork(numbers.astype(np.promote_types(kind.work, np.float32)), kind), kind)
        return rounded.astype(np.float64)
