"""Equal steps of an array's values, for keyframes: as fine as the array moves.

A keyframe needs no reference, but it need not be exact either. An error of the size of a delta's
error costs a resumed run nothing that could be seen, and takes a tenth of the bytes. The movement
since the last checkpoint says how large that is. The first keyframe of a chain knows no movement,
so its steps are small parts of the values' spread, or finer ones if it is known what follows.

Sources: SPEC 7.7; ``spec/decisions/0011-lossy-keyframes.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..arguments import positive
from ..element_table import ElementType
from ..element_types import Array
from .base import Quantizer
from .grid import Grid, fit_grid
from .lossless import Lossless
from .residual import Residual, array_sums
from .uniform import UniformDeadzone, root_mean_squares, spreads

_MAX_SPREADS: Final = 1 / 4  # a step is at most this part of the spread of the values


@dataclass(frozen=True)
class KeyframeSteps(Quantizer):
    """Equal steps of the values themselves, for the weights of keyframes.

    Steps are rounded to powers of two, so that small arrays share frames. An array that did not
    move is stored exactly.

    Parameters
    ----------
    movements
        The step in units of the root mean square of the differences to the last checkpoint as
        decoded. It is at most a quarter of the spread of the values: an array that was replaced by
        another one, as after a run that diverged, moved farther than it is wide.
    first
        The step in units of the spread of the values, the root mean square of their distances from
        their mean, where there is no checkpoint before.

    Raises
    ------
    ArgumentError
        Unless both are positive and finite.
    """

    absolute = True  # no reference is needed

    movements: float = 1.0
    first: float = 1 / 64

    def __post_init__(self) -> None:
        for name in ("movements", "first"):
            object.__setattr__(self, name, positive(f"KeyframeSteps: {name}", getattr(self, name)))

    def settled(self, bits: Array, reference: Array | None, kind: ElementType) -> Quantizer:
        """Return the quantizer with the step for an array; both arrays are components."""
        if reference is None:
            return self
        (moved,) = root_mean_squares(Residual(bits, reference, kind))
        if moved == 0:
            return Lossless()
        (spread,) = spreads(Residual(bits, None, kind))
        widest = _MAX_SPREADS * spread if spread > 0 else math.inf
        step = float(_power_of_two(np.array(min(self.movements * moved, widest))))
        return UniformDeadzone(step=step, absolute=True) if 0 < step < math.inf else Lossless()

    def foreseen(self, bits: Array, following: Array, kind: ElementType) -> Quantizer:
        """Return steps of the movement until the next state, if they are finer than `first`."""
        found = self.settled(bits, following, kind)
        if isinstance(found, UniformDeadzone):
            (spread,) = spreads(Residual(bits, None, kind))
            return found if (found.step or 0.0) < self.first * spread else self
        return found

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the steps by the values, as in a first keyframe."""
        with np.errstate(over="ignore"):
            steps = _power_of_two(self.first * spreads(batch))
        if not steps.all():
            # Of zeros alone, or of numbers whose squares are too small: those are stored exactly.
            numbers = np.zeros(batch.arrays)
            for sampled, owner in batch.sample():
                numbers += array_sums(sampled != 0, owner, batch.arrays)
            steps = np.where(steps != 0, steps, np.where(numbers > 0, math.inf, 1.0))
        return fit_grid(batch, steps, None)


def _power_of_two(lengths: Array) -> Array:
    """Return the nearest powers of two by their ratio; 0, infinity and NaN as they are."""
    fractions, exponents = np.frexp(lengths)
    with np.errstate(over="ignore"):
        powers = np.ldexp(1.0, exponents - (fractions < math.sqrt(0.5)))
    nearest: Array = np.where(np.isfinite(lengths) & (lengths > 0), powers, lengths)
    return nearest
