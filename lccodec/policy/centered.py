"""Optimizers that divide by a spread: a mean of squares less the square of a mean.

A centered RMSprop keeps both means and takes the root of ``square_avg - grad_avg**2``. If an error
of one of them is larger than that difference, it is negative, and the update is NaN. So the two are
coded together:

- Where the mean is large, so that its square is more than half of the mean of squares, both stay
  exact.
- Elsewhere the difference itself is coded in the place of the mean of squares, in steps of its
  logarithm, so that it stays positive. The mean decodes as 0.

So the first update after a restore has the right size. As the optimizer goes on, its mean comes
back from 0, and the difference is too large by at most a quarter of what the mean had: the update
is too small by at most a ninth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from ..constants import ElementType
from ..element_types import Array, unwork, work
from ..quantizers.base import AsReference, Guarantee, Lossless, Partition, Quantizer, guarantee_of
from ..quantizers.residual import Residual
from .optimizer import path_of
from .policy import Candidate, Policy
from .vocabulary import Role

__all__ = ["centered", "squares_of_means"]

_MEAN: Final = "grad_avg"  # the entry of an optimizer, beside that of the mean of squares
_SQUARES: Final = "square_avg"
_MAX_SHARE: Final = 0.5  # of the mean of squares, that is the square of the mean


def centered(policy: Policy, arrays: Sequence[Candidate], alone: bool) -> Policy:
    """Return the policy that codes both means of centered optimizers together.

    It is the same policy if there are none, or if it loses nothing of them. `alone` says that no
    array has a reference.
    """
    pairs = squares_of_means({c.name: c.role for c in arrays})
    by_name = {c.name: c for c in arrays} if pairs else {}
    found: dict[str, Quantizer] = {}
    for mean, square in ((by_name[name], by_name[other]) for name, other in pairs.items()):
        coder = _coder(policy, square, alone)
        fits = (square.kind, square.shape) == (mean.kind, mean.shape) and mean.kind.kind == "f"
        both = (mean, square)
        lossy = coder.lossy, _coder(policy, mean, alone).lossy
        if not any(lossy):
            continue
        known = not any(c.inherited or (c.reference is None and not alone) for c in both)
        if not (all(lossy) and coder.ordered and fits and known):
            found |= {c.name: Lossless() for c in both}
        else:
            x, m = (work(c.bits, c.kind).astype(np.float64) for c in (square, mean))
            with np.errstate(all="ignore"):
                spread = x - m * m
                exact = ~(spread >= (1 - _MAX_SHARE) * x)  # NaN is exact, too
            spread[exact] = x[exact]
            found[mean.name] = CenteredMean(exact)
            spreads = unwork(spread.astype(square.kind.work), square.kind)
            found[square.name] = CenteredSquare(coder, exact, spreads)
    return policy.with_arrays(found) if found else policy


def squares_of_means(roles: Mapping[str, Role]) -> dict[str, str]:
    """Return the name of the mean of squares for that of each mean, of centered optimizers."""
    return {
        mean: square
        for mean, square in means_of_squares(roles).items()
        if (roles[mean], roles[square]) == ("first_moment", "second_moment")
    }


def means_of_squares(names: Collection[str]) -> dict[str, str]:
    """Return the array called the mean of squares beside each that is called the mean."""
    there = any(_MEAN in name.lower() for name in names)  # else all paths would be made for nothing
    by_path = {path_of(name): name for name in names} if there else {}
    squares = {
        name: by_path.get(tuple(_SQUARES if part == _MEAN else part for part in path))
        for path, name in by_path.items()
        if _MEAN in path
    }
    return {mean: square for mean, square in squares.items() if square is not None}


def _coder(policy: Policy, c: Candidate, alone: bool) -> Quantizer:
    told = c.name, c.role, c.kind, c.elements
    return policy.choose_keyframe(*told) if alone else policy.choose(*told)


@dataclass(frozen=True, eq=False)
class CenteredMean(Quantizer):
    """Leaves nothing of a mean but what is exact. It is for one array of one checkpoint."""

    in_keyframes: ClassVar[bool] = True

    exact: Array = field(repr=False)  # which elements are
    absolute: bool = True

    @property
    def guarantee(self) -> Guarantee:
        """The mean is 0, or as it was."""
        return Guarantee(max_growth=1.0)

    def shares_frames(self, size: int) -> bool:  # noqa: ARG002
        """Return False: each array has its own elements that are exact."""
        return False

    def sampled(self, parts: Sequence[slice]) -> CenteredMean:
        """Return the quantizer for a sample of the array, made of these parts end to end."""
        return replace(self, exact=_joined(self.exact, parts))

    def fit(self, batch: Residual) -> Partition:
        """Return a zone that holds all but the exact elements."""
        batch.exact = self.exact
        return AsReference().fit(batch)


@dataclass(frozen=True, eq=False)
class CenteredSquare(Quantizer):
    """Codes a difference in the place of a mean of squares: for one array of one checkpoint."""

    ordered: ClassVar[bool] = True
    in_keyframes: ClassVar[bool] = True

    then: Quantizer  # codes what is not exact
    exact: Array = field(repr=False)  # which elements are
    bits: Array = field(repr=False)  # components: the differences, and the exact elements

    @property
    def guarantee(self) -> Guarantee:
        """That of the steps, and the square of the mean may be missing."""
        octaves = guarantee_of(self.then).max_octaves
        return Guarantee(max_octaves=None if octaves is None else octaves + 1)

    def shares_frames(self, size: int) -> bool:  # noqa: ARG002
        """Return False: each array has its own elements that are exact."""
        return False

    def sampled(self, parts: Sequence[slice]) -> CenteredSquare:
        """Return the quantizer for a sample of the array, made of these parts end to end."""
        return replace(self, exact=_joined(self.exact, parts), bits=_joined(self.bits, parts))

    def stands_alone(self, bits: Array, reference: Array, kind: ElementType) -> bool:  # noqa: ARG002
        """Return whether the differences are coded without their reference."""
        alone = self.then.stands_alone
        return alone is not None and alone(self.bits, reference, kind)

    def fit(self, batch: Residual) -> Partition | None:
        """Fit the steps to the differences."""
        batch.bits, batch.exact = self.bits, self.exact
        return self.then.fit(batch)


def _joined(array: Array, parts: Sequence[slice]) -> Array:
    return np.concatenate([array[part] for part in parts])
