"""How much of a movement the momentum explains: what a run loses that loses its first moments.

A first moment is a step that the optimizer has yet to take. A run that resumes without it falls
behind by what it would have coasted: about the square of the correlation of the last movement with
the update that the moment stands for. That is half an interval where saves are some iterations
apart, and next to nothing where an interval is many times as long as the memory of the moment.

Source: the measurements in ``spec/decisions/0015-presets-by-promise.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..element_types import Array
from ..quantizers.base import Quantizer
from ..quantizers.bins.residual import difference
from .policy import Candidate, Past
from .roles import AVERAGE, find_moments

_EPSILON: Final = 1e-8  # of Adam: second moments far below its square divide nothing


_MIN_MOVED: Final = 64  # elements of a sample that moved: fewer say nothing

_TYPICAL_CORRELATION: Final = 0.5  # where the step of a first moment is that of its role
_MAX_STEP_RATIO: Final = 2.5  # of its step to that of its role

#: Of a promise in intervals, first moments may cost this part. Without a promise, they cost this.
_SHARE_OF_PROMISE: Final = 1 / 3
_COST_BY_DEFAULT: Final = 0.08


def moment_scale(correlation: float) -> float:
    """Return the factor of a first moment's step for its correlation with the movement."""
    wanted = _TYPICAL_CORRELATION / max(abs(correlation), 1e-3)
    return round(min(max(wanted, 1 / _MAX_STEP_RATIO), _MAX_STEP_RATIO), 2)


def moment_width(intervals: float) -> float:
    """Return the factor of all first moments' steps for a promise in intervals."""
    return math.sqrt(_SHARE_OF_PROMISE * intervals / _COST_BY_DEFAULT)


def correlations(candidates: Sequence[Candidate], quantizers: Mapping[str, Quantizer]) -> dict[str, float]:
    """Return the correlation of each first moment's update with the movement of its weight.

    The movement is that of the originals since the save before. Elements that did not move are left
    out: an update of a few rows leaves the moments of all others as they are.

    Parameters
    ----------
    candidates
        All arrays of a delta.
    quantizers
        Those of first moments, by name. A moment that is not lossy is left out.

    Returns
    -------
    dict
        By the name of the moment, -1 to 1; without moments whose weight did not move, or whose
        originals are not known.
    """
    by_name = {c.name: c for c in candidates}
    # No optimizer has moments of averages.
    roles = {c.name: c.role for c in candidates if c.why != AVERAGE}
    shapes = {c.name: c.shape for c in candidates}
    second = find_moments(roles, shapes, "second_moment")
    found = {}
    for weight, moment in find_moments(roles, shapes, "first_moment").items():
        if moment not in quantizers or not quantizers[moment].lossy:
            continue
        w, m, v = by_name[weight], by_name[moment], by_name.get(second.get(weight, ""))
        if w.past is None or not (w.kind.is_float and m.kind.is_float) or w.bits.size != m.bits.size:
            continue
        d = difference(w.past.of(w.bits), w.past.bits, w.kind, ordered=False).astype(np.float64)
        update = _values(m, w.past)
        if v is not None and v.bits.size == m.bits.size and v.kind.is_float:
            update /= np.sqrt(np.maximum(_values(v, w.past), 0)) + _EPSILON
        known = np.isfinite(d) & np.isfinite(update) & (d != 0)
        d, update = d[known], update[known]
        product = math.sqrt(float(d @ d) * float(update @ update))
        if d.size >= _MIN_MOVED and product > 0:
            found[moment] = float(d @ update) / product
    return found


def _values(c: Candidate, past: Past) -> Array:
    return difference(past.of(c.bits), None, c.kind, ordered=False).astype(np.float64)
