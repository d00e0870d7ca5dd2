"""What a history with hindsight codes: ends in steps of the movement, and next to nothing between.

A checkpoint between two known ones is close to their interpolation. A random walk is off by half a
movement for each root of an interval in the gap, at most, and by what its ends lost. Nothing lags.
So weights and moments between two ends take no bytes, unless something happened there: a restart,
a jump of the learning rate, a run that diverges.

The ends carry all of it. Their steps are counted in movements of one interval, so that the error
stays in a proportion to that of the walk itself.

What a quantizer guarantees is asked for each array, in the ends and between them: a bound is never
used twice, and second moments are coded wherever the line is too far off
(:mod:`lccodec.policy.again`).

Source: the measurements in ``spec/decisions/0017-hindsight.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..element_types import Array, octaves, subtract, work
from ..parallel import slices
from ..quantizers.base import Quantizer, guarantee_of
from ..quantizers.grid import DEAD_ZONE
from ..quantizers.guarantee import has_negative, spoiled, zero
from ..quantizers.logarithmic import LogSteps
from ..quantizers.uniform import UniformDeadzone
from .again import AsReference, between_quantizer, promised
from .centered import CenteredMean, CenteredSquare, centered
from .declared import obeying
from .policy import Candidate, Policy

#: Checkpoints from one end to the next.
GROUP: Final = 8

#: The steps of weights at the ends, in movements of one interval.
_END_STEP: Final = 2.0

#: What weights may be off between two ends, in movements. A walk between two ends is off by less.
_MOST_MOVEMENTS: Final = 3.0

#: What a first moment may be off, in its root mean squares. Another one is off by the root of 2.
_MOST_MOMENTS: Final = 2.0

#: What second moments may be off in the mean, in octaves.
_MOST_OCTAVES: Final = 1.0


def end_quantizers(
    policy: Policy, arrays: Sequence[Candidate], movements: Mapping[str, Sequence[float]]
) -> dict[str, Quantizer]:
    """Return the quantizers of weights at the end of a group, by name.

    `movements` has, for each array that moved, how far it did in each interval of the group: root
    mean squares. Only arrays whose policy has steps that can be scaled are among the result.
    """
    found: dict[str, Quantizer] = {}
    for c in arrays:
        quantizer = _scalable(policy, c)
        moved = [m for m in movements.get(c.name, ()) if math.isfinite(m)]
        if quantizer is not None and c.role == "weight" and _typical(moved) > 0:
            found[c.name] = UniformDeadzone(step=_END_STEP * policy.width * _typical(moved))
    return found


def gains(policy: Policy) -> bool:
    """Return whether anything that a policy loses may be lost between two ends."""
    coders = (*policy.roles.values(), *policy.patterns.values())
    return any(coder.lossy and not guarantee_of(coder).is_strict for coder in coders)


def between_quantizers(
    policy: Policy,
    arrays: Sequence[Candidate],
    movements: Mapping[str, Sequence[float]],
) -> dict[str, Quantizer | None]:
    """Return the quantizers of arrays between two ends, by name; ``None`` if the reference will do.

    Arrays that are up to the policy are not among them, nor are those that must be exact.

    Parameters
    ----------
    policy, movements
        As for `end_quantizers`. The arrays have lost what the policy guarantees.
    arrays
        Against what the ends make of them.
    """
    policy = centered(obeying(policy, arrays), arrays, alone=False)
    found: dict[str, Quantizer | None] = {}
    for c in arrays:
        quantizer = policy.choose(c.name, c.role, c.kind, c.elements)
        if not quantizer.lossy or isinstance(quantizer, CenteredMean | CenteredSquare):
            continue
        guarantee = promised(policy, c)
        if coder := between_quantizer(guarantee):
            found[c.name] = None if _is_near(c, coder) else coder
            continue
        if c.reference is None:
            continue
        if c.role == "second_moment":
            fits = not _far(c, c.reference)
        else:
            typical = _typical(movements.get(c.name, ()))
            most = _MOST_MOMENTS * _rms(c, None) if c.role == "first_moment" else _MOST_MOVEMENTS * typical
            off = _rms(c, c.reference)
            fits = off <= most and math.isfinite(off)
            if not fits and c.role == "weight" and typical > 0 and _scalable(policy, c) is not None:
                found[c.name] = UniformDeadzone(step=_END_STEP * policy.width * typical)
                continue
        if fits:
            found[c.name] = AsReference() if _is_spoiled(c, c.reference) else None
    return found


def _is_near(c: Candidate, coder: Quantizer) -> bool:
    """Return whether all elements lie inside the dead zone of steps of the logarithm."""
    if c.reference is None or not isinstance(coder, LogSteps):
        return False
    most = DEAD_ZONE * coder.step * (1 - 2.0 ** (1 - c.kind.mantissa))
    parts = slices(c.bits.size)
    return all(bool((np.abs(octaves(c.bits[p], c.reference[p], c.kind)) < most).all()) for p in parts)


def _is_spoiled(c: Candidate, reference: Array) -> bool:
    """Return whether an array without negative numbers would have some, or other zeros."""
    if has_negative(c.bits, c.kind):
        return False
    return any(bool(spoiled(reference[p], c.bits[p], c.kind).any()) for p in slices(c.bits.size))


def _typical(movements: Sequence[float]) -> float:
    """Return the median of movements, which one jump does not change; 0 if there are none."""
    return sorted(movements)[len(movements) // 2] if movements else 0.0


def _scalable(policy: Policy, c: Candidate) -> Quantizer | None:
    quantizer = policy.choose(c.name, c.role, c.kind, c.elements)
    if not quantizer.lossy or quantizer.scaled(2.0) is quantizer or between_quantizer(promised(policy, c)):
        return None
    return quantizer


def _rms(c: Candidate, reference: Array | None) -> float:
    """Return the root mean square of an array, or of its distance from a reference; NaN spreads."""
    total = 0.0
    with np.errstate(all="ignore"):
        for part in slices(c.bits.size):
            d = subtract(c.bits[part], None if reference is None else reference[part], c.kind)
            total += float(np.add.reduce(np.square(d, dtype=np.float64)))
    return math.sqrt(total / c.bits.size) if c.bits.size and total >= 0 else math.nan


def _far(c: Candidate, whole: Array) -> bool:
    """Return whether second moments are far from their reference, or would become 0 or negative."""
    total, count = 0.0, 0
    for part in slices(c.bits.size):
        bits, reference = c.bits[part], whole[part]
        finite = np.isfinite(work(bits, c.kind)) & np.isfinite(work(reference, c.kind))
        lost = zero(reference) & ~zero(bits)  # a step divided by its root would be huge
        if not finite.all() or (lost | spoiled(reference, bits, c.kind)).any():
            return True
        d = np.abs(octaves(bits, reference, c.kind))
        known = np.isfinite(d)
        total += float(d[known].sum(dtype=np.float64))
        count += int(known.sum())
    return total > _MOST_OCTAVES * count
