"""Coding again what has lost something already, so that a guarantee holds for the two losses.

A history is coded again between its ends, and as a whole by `compact`. What is known then of an
array is what it decodes to, and what that may have lost. So a second loss gets what the guarantee
leaves: nothing of a bound that is used up, and steps of its own where steps of the logarithm add
up. What a guarantee says is the business of :mod:`lccodec.quantizers.base`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import ArgumentError
from ..quantizers.base import Exact, Guarantee, Quantizer, guarantee_of
from ..quantizers.grid import DEAD_ZONE
from ..quantizers.logarithmic import LogSteps
from ..quantizers.lossless import Lossless
from ..quantizers.residual import Residual, Zone
from .policy import Candidate, Policy

#: Steps of the logarithm between two ends, in those of the policy. Fewer would code many elements
#: that differ by the noise of three codings, the two ends and the step itself.
_STEPS_BETWEEN: Final = 2.0

_ROUNDING: Final = 1 - 2.0**-20  # of what a bound leaves, which is computed in binary64


def promised(policy: Policy, c: Candidate) -> Guarantee:
    """Return what a policy guarantees of an array, in deltas and in keyframes."""
    told = c.name, c.role, c.kind, c.elements
    return guarantee_of(policy.choose(*told)).either(guarantee_of(policy.choose_keyframe(*told)))


def kept_between(guarantee: Guarantee) -> Guarantee:
    """Return what holds of a history with hindsight, if a guarantee holds of what is saved.

    Bounds stay as they are. Steps of the logarithm become larger. The sign of a value that is coded
    without its reference is that of a line between two others, so nothing is said of it.
    """
    if guarantee.is_strict:
        return guarantee
    octaves = guarantee.max_octaves
    return Guarantee(max_octaves=None if octaves is None else octaves * (1 + _STEPS_BETWEEN))


def between_quantizer(guarantee: Guarantee) -> Quantizer | None:
    """Return what codes an array between two ends, so that `kept_between` holds.

    The array has lost what the guarantee permits. ``None`` if nothing has to hold.
    """
    if guarantee.is_strict:
        return Lossless()
    octaves = guarantee.max_octaves
    return None if octaves is None else LogSteps(min(max(_STEPS_BETWEEN * octaves / DEAD_ZONE, 1e-3), 64))


def quantizer_again(c: Candidate, policy: Policy, lost: Guarantee) -> tuple[Quantizer | None, Guarantee]:
    """Return what codes an array that has lost something, and what holds of the result.

    The quantizer is ``None`` if that of the policy does.

    Raises
    ------
    ArgumentError
        If the bound of the policy cannot hold, because more has been lost.
    """
    own = promised(policy, c)
    if lost.exact or not own.is_strict or own.exact:
        return None, own.after(lost)
    if not (own.max_error is None and own.range_share is None):
        coder = policy.choose(c.name, c.role, c.kind, c.elements)
        extent = coder.extent(c.bits, c.kind) if c.kind.kind == "f" else None
        wide = 0.0 if extent is None else extent.share(1.0)
        allowed, used = _bound(own, lost, c, wide, least=True), _bound(lost, lost, c, wide, least=False)
        if allowed - used > 0:
            finer = coder.finer((allowed - used) * _ROUNDING)
            if finer is not None:
                both = own.after(lost)
                return finer, Guarantee(
                    max_error=own.max_error, range_share=own.range_share, further=both.further
                )
        elif not own.follows_from(lost):
            raise ArgumentError(
                f"array {c.name!r} was saved with {str(lost) or 'no guarantee'}, so the policy cannot keep:"
                f" {own}; a wider bound can be kept, and compact() without a policy loses nothing"
            )
    return Lossless(), lost


def _bound(guarantee: Guarantee, lost: Guarantee, c: Candidate, wide: float, *, least: bool) -> float:
    """Return a bound in the units of an array, at least or at most as large as it really is.

    The array has lost what `lost` says, so its range, `wide`, is known to within twice that.
    """
    share = guarantee.range_share
    bounds = [] if guarantee.max_error is None else [guarantee.max_error]
    if share is not None and c.kind.kind == "f":
        if least:
            wide = max(wide - 2 * _bound(lost, lost, c, wide, least=False), 0.0) if lost.is_strict else 0.0
        else:
            wide = wide / (1 - 2 * share) if share < 1 / 2 else math.inf
        bounds.append(share * wide)
    return min(bounds, default=math.inf)


@dataclass(frozen=True)
class AsReference(Quantizer):
    """Leaves an array as its reference is, but for what no reference may change.

    Exact are numbers that are not finite, and those that would become negative, or no longer be 0,
    in an array without negative numbers.
    """

    def fit(self, batch: Residual) -> Partition:
        """Return a zone that holds all finite differences."""
        return Partition(np.empty(0, batch.kind.work), batch.arrays)


@dataclass(frozen=True)
class Partition(Exact):
    """The partition of `AsReference`."""

    @property
    def zone(self) -> Zone:
        """Return a zone that contains every finite difference."""
        return Zone.within(np.full(self.arrays, np.inf), self.representatives.dtype)
