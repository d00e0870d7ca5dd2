"""Rate and distortion on a sample: what a step costs and what it leaves, before anything is coded.

With uniform bins the last bit of an array lowers its squared error by an amount that is proportional to the
square of its step, and to nothing else. So bytes are spent best where all arrays have the same product of
step and root of their weight in the damage, and one factor for all steps is left to choose.

In a closed loop, what a delta leaves joins the next difference: where a share f of the squared difference is
left, the error settles at f / (1 - f) of the squared movement.

Sources: Shoham & Gersho, "Efficient bit allocation for an arbitrary set of quantizers", IEEE Trans. ASSP 36
(1988); SPEC 7.7 (the bins).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..element_types import Array, ElementType
from ..quantizers.grid import DEAD_ZONE
from ..quantizers.residual import difference

__all__ = ["SAMPLE", "entropy", "left", "sample"]

_STRETCHES: Final = 16  # of an array's sample, spread evenly
_STRETCH: Final = 256
SAMPLE: Final = _STRETCHES * _STRETCH  # elements of an array that are looked at, about


def sample(bits: Array, reference: Array | None, kind: ElementType, ordered: bool) -> tuple[Array, float]:
    """Return a few thousand finite differences of components, or values without a reference.

    Returns
    -------
    tuple
        float64, and the share that was finite.
    """
    if bits.size <= SAMPLE:
        d = difference(bits.copy(), reference, kind, ordered)  # the caller's may change
    else:
        parts = []
        for start in range(0, bits.size, bits.size // _STRETCHES):
            part = slice(start, start + _STRETCH)
            base = None if reference is None else reference[part]
            parts.append(difference(bits[part], base, kind, ordered))
        d = np.concatenate(parts)
    finite = d[np.isfinite(d)].astype(np.float64)
    return finite, finite.size / max(d.size, 1)


def entropy(d: Array, step: float) -> float:
    """Return the bits of an element whose differences are like `d`: the entropy of its bins."""
    bins = (np.abs(d) / step + (1 - DEAD_ZONE)).astype(np.int64)
    counts = np.unique(np.where(d < 0, -bins, bins), return_counts=True)[1]
    shares = counts / max(d.size, 1)
    return float(-(shares * np.log2(shares)).sum())


def left(d: Array, step: float) -> float:
    """Return the mean of what is left of the squared differences: all in the dead zone, little in a bin."""
    if d.size == 0:
        return 0.0
    dropped = d[np.abs(d) < DEAD_ZONE * step]
    kept = d.size - dropped.size
    return float(np.add.reduce(np.square(dropped)) + kept * step**2 / 12) / d.size
