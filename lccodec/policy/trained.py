"""Which weights of a partly frozen model are trained, where the optimizer has no names for them.

An optimizer that was given the trained parameters alone, without names, keeps moments of so many
arrays of a shape, and the model has more of that shape. Then the values tell: if as many of them
have moved since the parent, these are its parameters. What is frozen does not move. If others move,
too, such as an average of the weights, those count that are called weights, or those of them below
a model. If that leaves more than one way, all stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from .optimizer import as_many
from .policy import Candidate
from .roles import PARAMETER, PERHAPS, called_weight

__all__ = ["mark_trained"]


def mark_trained(arrays: Sequence[Candidate]) -> None:
    """Give the role of a weight to arrays that may be parameters, where their movement tells."""
    perhaps: dict[tuple[int, ...], list[Candidate]] = {}
    for array in arrays:
        if array.why == PERHAPS:
            perhaps.setdefault(array.shape, []).append(array)
    for shape, found in perhaps.items():
        roles = Counter(array.role for array in arrays if array.shape == shape)  # none of them is here
        count = max(roles["first_moment"], roles["second_moment"]) - roles["weight"]
        moved = [array for array in found if _has_moved(array)]
        chosen = as_many([array.name for array in moved], count, called_weight) if count > 0 else []
        for array in moved:
            if array.name in chosen:
                array.role, array.why = "weight", PARAMETER


def _has_moved(array: Candidate) -> bool:
    before = array.reference
    return before is not None and not array.inherited and not np.array_equal(array.bits, before)
