"""Weights that are known by how they move: what follows a weight, and what is trained.

**Followers.** A name does not always say that an array is a copy or an average of a weight:
averages are kept in lists, and the copy that a network is trained towards is a ``target``. But such
an array moves towards its weight, or it was a copy of it at some moment since the save before.
Errors do to it what errors of the weight do. So it is a weight, too, if all of this holds:

- It has the type and shape of a weight, and is near it: closer than half of the spread of its
  values.
- It has moved since the parent, towards the weight as it is now. What it moved otherwise is less
  than the weight itself has moved.
- Nothing says what it is, or its name calls it an average or a target. A teacher is exact, and so
  is all that is named as something else.

What was copied as a whole rests until the next copy. Then a share of its differences would be one
of errors alone. So a copy has steps by the movement of its weight: what it has lost is inside the
dead zone until it moves again.

An array that does not move takes no bytes in a delta. So it is exact in the next keyframe, too.

**Trained weights of a partly frozen model.** An optimizer that was given the trained parameters
alone, without names, keeps moments of so many arrays of a shape, and the model has more of that
shape. Then the values tell: if as many of them have moved since the parent, these are its
parameters. What is frozen does not move. If others move, too, such as an average of the weights,
those count that are called weights, or those of them below a model. If that leaves more than one
way, all stay exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..element_types import Array, work
from ..quantizers.base import Quantizer
from ..quantizers.uniform import UniformDeadzone
from .optimizer import as_many, name_parts
from .policy import Candidate, Policy
from .roles import EXACT_NAME, FOLLOWER, OUTSIDE, PARAMETER, PERHAPS, UNNAMED, UNTRAINED, called_weight
from .vocabulary import says_follower

__all__ = ["following", "mark_followers", "mark_trained"]

_SILENT: Final = frozenset([UNNAMED, UNTRAINED, PERHAPS, OUTSIDE])
_MIN_ELEMENTS: Final = 256  # of an array: the correlations of fewer say little
_SAMPLE: Final = 1 << 12  # about how many elements are compared
_MAX_COMPARED: Final = 256  # weights of one shape

_NEAR: Final = 0.5  # of its spread: how far an array may lie from its weight
_LEAST_CORRELATION: Final = 0.7  # of its movement with the way to its weight
_MOST_OF_WAY: Final = 0.5  # as far goes a copy, from that before to its weight now
_STEP: Final = 1.0  # of a copy, in movements of its weight
_RESTS: Final = 0.9  # movements of the weight: a copy that has moved by less has only lost something


def mark_followers(arrays: Sequence[Candidate]) -> None:
    """Give the role of a weight to arrays that follow one, and a step to copies.

    Equal arrays and roundings are known by then.
    """
    perhaps: list[Candidate] = []
    for c in arrays:
        if c.role == "other" and _is_known(c) and c.elements >= _MIN_ELEMENTS:
            named = c.why.endswith(EXACT_NAME) and all(map(says_follower, name_parts(c.name)))
            if named or c.why in _SILENT:
                perhaps.append(c)
    if not perhaps:
        return
    shapes = {c.shape for c in perhaps}
    weights: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.role == "weight" and c.shape in shapes and _is_known(c):
            weights.setdefault((c.kind, c.shape), []).append(c)
    for c in perhaps:
        own = weights.get((c.kind, c.shape), [])[:_MAX_COMPARED]
        if not own:
            continue
        x, before = _values(c, c.bits), _values(c, c.reference)
        distances = [float(np.square(x - _values(w, w.bits)).mean()) for w in own]
        nearest = own[int(np.argmin(distances))]
        w, w_before = _values(nearest, nearest.bits), _values(nearest, nearest.reference)
        with np.errstate(all="ignore"):
            _mark(c, x, before, w, _rms(w - w_before))


def following(policy: Policy, arrays: Sequence[Candidate]) -> Policy:
    """Return the policy in which copies of weights have the steps of `mark_followers`."""
    found: dict[str, Quantizer] = {}
    for c in arrays:
        if c.step is not None and policy.choose(c.name, c.role, c.kind, c.elements).lossy:
            found[c.name] = UniformDeadzone(step=c.step)
    return policy.with_arrays(found)


def _is_known(c: Candidate) -> bool:
    return c.kind.kind == "f" and not c.inherited and isinstance(c.reference, np.ndarray)


def _mark(c: Candidate, x: Array, before: Array, weight: Array, movement: float) -> None:
    """Mark an array that follows a weight, given samples of both."""
    moved, way = x - before, weight - before
    if not (0 < _rms(moved) < np.inf and _rms(x - weight) <= _NEAR * float(np.std(x))):
        return
    share = float(moved @ way) / (float(way @ way) or 1.0)
    aside = _rms(moved - share * way)
    towards = share > 0 and aside <= movement and aside**2 <= (1 - _LEAST_CORRELATION**2) * _rms(moved) ** 2
    if towards or _rms(moved) <= _RESTS * movement:
        c.role, c.why = "weight", FOLLOWER
        # One that is equal to a weight is stored as its copy, and needs no step.
        if c.source is None and not (towards and share < _MOST_OF_WAY):
            c.step = _STEP * movement


def _values(c: Candidate, bits: Array | None) -> Array:
    """Return a sample of an array: the same elements of all that have its shape."""
    distance = max(c.elements // _SAMPLE, 1)
    return work((c.bits if bits is None else bits)[::distance].copy(), c.kind).astype(np.float64)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values).mean()))


def mark_trained(arrays: Sequence[Candidate]) -> None:
    """Give the role of a weight to arrays that may be parameters, where their movement tells."""
    perhaps: dict[tuple[int, ...], list[Candidate]] = {}
    for array in arrays:
        if array.why == PERHAPS:
            perhaps.setdefault(array.shape, []).append(array)
    for shape, found in perhaps.items():
        roles = Counter(array.role for array in arrays if array.shape == shape)  # none of them is here
        count = max(roles["first_moment"], roles["second_moment"]) - roles["weight"]
        moved = []
        for array in found:
            before = array.reference
            if before is not None and not array.inherited and not np.array_equal(array.bits, before):
                moved.append(array)
        chosen = as_many([array.name for array in moved], count, called_weight) if count > 0 else []
        for array in moved:
            if array.name in chosen:
                array.role, array.why = "weight", PARAMETER
