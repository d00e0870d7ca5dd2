"""Rate and distortion on a sample: what a step costs and what it leaves, before anything is coded.

With uniform bins, one more bit for an array lowers its squared error in proportion to the square of
its step. So bytes are spent best if the product of the step and the root of the weight in the
damage is the same for all arrays. Then only one factor for all steps remains to be chosen.

In a closed loop, the error of a delta joins the next difference. If a share f of the squared
difference remains, the error settles at f / (1 - f) of the squared movement.

Sources: Shoham & Gersho, "Efficient bit allocation for an arbitrary set of quantizers", IEEE Trans.
ASSP 36 (1988); SPEC 7.7 (the bins).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..element_table import ElementType
from ..element_types import Array
from ..quantizers.bins.representatives import DEAD_ZONE, lead
from ..quantizers.bins.residual import difference

_SAMPLE_STRETCHES: Final = 16  # of one array, evenly spread
_STRETCH_COMPONENTS: Final = 256  # of each
SAMPLE: Final = _SAMPLE_STRETCHES * _STRETCH_COMPONENTS  # about how many components of an array are sampled


def sample(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> tuple[Array, float]:
    """Return a sample of an array's finite differences; without a reference, of its values.

    These are about `SAMPLE` numbers, float64, and the share of the sample that was finite.
    """
    if bits.size <= SAMPLE:
        d = difference(bits.copy(), reference, kind, ordered)  # the caller's array may change
    else:
        parts = []
        for start in range(0, bits.size, bits.size // _SAMPLE_STRETCHES):
            part = slice(start, start + _STRETCH_COMPONENTS)
            base = None if reference is None else reference[part]
            parts.append(difference(bits[part], base, kind, ordered))
        d = np.concatenate(parts)
    finite = d[np.isfinite(d)].astype(np.float64)
    return finite, finite.size / max(d.size, 1)


def entropy(d: Array, step: float) -> float:
    """Return the bits per element for differences like `d`: the entropy of their bins."""
    bins = (np.abs(d) / step + (1 - DEAD_ZONE)).astype(np.int64)
    counts = np.unique(np.where(d < 0, -bins, bins), return_counts=True)[1]
    shares = counts / max(d.size, 1)
    return float(-(shares * np.log2(shares)).sum())


def left(d: Array, step: float) -> float:
    """Return the mean squared error of a step: all in the zone; in a bin, its width and lead."""
    if d.size == 0:
        return 0.0
    dropped = d[np.abs(d) < DEAD_ZONE * step]
    kept = d.size - dropped.size
    share = np.array(kept / d.size)
    in_bin = step**2 * (1 / 12 + float(lead(share)) ** 2)
    return float(np.add.reduce(np.square(dropped)) + kept * in_bin) / d.size


def widest(d: Array, share: float) -> float:
    """Return about the widest step that leaves a share of the sum of squares outside the zone."""
    sizes = np.sort(np.abs(d))
    inside = np.add.accumulate(np.square(sizes))
    if d.size == 0 or inside[-1] == 0:
        return math.inf
    edge = float(sizes[np.searchsorted(inside, (1 - share) * inside[-1])])
    return edge / DEAD_ZONE
