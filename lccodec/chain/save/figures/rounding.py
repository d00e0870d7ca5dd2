"""The figures of a manifest, made of the numbers that a save measured (SPEC 8, LCC-FIG-05)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

import numpy as np

from ....byteorder import stored_bytes
from ....container.figures import (
    FIGURES,
    NEGATIVE_ZERO,
    OF_LOST,
    OF_MOVEMENT,
    UNKNOWN_PATTERN,
    StoredFigures,
    have_lost,
)
from ....element_types import Array, narrow

_LARGEST: Final = np.float32(255 * 2.0**120)  # the largest number of bfloat16


def rounded_figures(since: int | None, numbers: Mapping[str, Array]) -> StoredFigures | None:
    """Return figures from float64 numbers by array, NaN where they are not known.

    Figures that know nothing are left out. So is how values lie that a restore returns as they
    were: that can be measured any time. The result is ``None`` if nothing is left.
    """
    errors = numbers.get("error")
    lost = slice(0) if errors is None or not (errors > 0).any() else have_lost(_rounded(errors))
    known = {}
    for name in FIGURES:
        own = numbers.get(name)
        if own is not None and name in OF_LOST:
            own = own[lost]
        if own is not None and not np.isnan(own).all():
            known[name] = own.reshape(-1)
    if not known:
        return None
    # All are rounded together: a checkpoint has ten figures, most of a few numbers.
    data = stored_bytes(_rounded(np.concatenate(list(known.values()))))
    ends = itertools.accumulate(2 * own.size for own in known.values())
    stored = {
        name: data[stop - 2 * own.size : stop] for (name, own), stop in zip(known.items(), ends, strict=True)
    }
    return StoredFigures(None if OF_MOVEMENT.isdisjoint(known) else since, stored)


@np.errstate(all="ignore")
def _rounded(numbers: Array) -> Array:
    """Return numbers as bfloat16 patterns."""
    single = numbers.astype(np.float32)
    np.minimum(single, _LARGEST, out=single)
    np.maximum(single, -_LARGEST, out=single)
    patterns = narrow(single)
    patterns[np.isnan(single)] = UNKNOWN_PATTERN
    patterns[patterns == NEGATIVE_ZERO] = 0  # also what was too small for a number below 0
    return patterns
