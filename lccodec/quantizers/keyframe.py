"""Equal steps of an array's values, for keyframes: as fine as the array moves.

A keyframe needs no reference, but it need not be exact either. An error of the size of a delta's
error costs a resumed run nothing that could be seen, and takes a tenth of the bytes. The movement
since the last checkpoint says how large that is. The first keyframe of a chain knows no movement,
so its steps are small parts of the values.

Sources: SPEC 7.7; ``spec/decisions/0010-lossy-keyframes.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from .base import Quantizer
from .grid import Grid, fit_grid
from .lossless import Lossless
from .residual import Residual
from .uniform import UniformDeadzone, root_mean_squares


@dataclass(frozen=True)
class KeyframeSteps(Quantizer):
    """Equal steps of the values themselves, for the weights of keyframes.

    Steps are rounded to powers of two, so that small arrays share frames. An array that did not
    move is stored exactly.

    Parameters
    ----------
    movements
        The step in units of the root mean square of the differences to the last checkpoint as
        decoded.
    first
        The step in units of the root mean square of the values, where there is no checkpoint
        before.

    Raises
    ------
    ArgumentError
        Unless both are positive and finite.
    """

    movements: float = 1.0
    first: float = 1 / 64

    def __post_init__(self) -> None:
        for name in ("movements", "first"):
            number = as_number(getattr(self, name))
            if number is None or not math.isfinite(number) or number <= 0:
                raise ArgumentError(
                    f"KeyframeSteps: {name} is a positive finite number, not {getattr(self, name)!r}"
                )
            object.__setattr__(self, name, number)

    @property
    def absolute(self) -> bool:
        """True: no reference is needed."""
        return True

    def settled(self, bits: Array, reference: Array | None, kind: ElementType) -> Quantizer:
        """Return the quantizer with the step for an array; both arrays are components."""
        if reference is None:
            return self
        (moved,) = root_mean_squares(Residual(bits, reference, kind))
        if moved == 0:
            return Lossless()
        step = float(_power_of_two(np.array(self.movements * moved)))
        return UniformDeadzone(step=step, absolute=True) if 0 < step < math.inf else Lossless()

    def fit(self, batch: Residual) -> Grid | None:
        """Choose the steps by the values, as in a first keyframe."""
        with np.errstate(over="ignore"):
            steps = _power_of_two(self.first * root_mean_squares(batch))
        return fit_grid(batch, np.where(steps == 0, 1.0, steps), None)


def _power_of_two(lengths: Array) -> Array:
    """Return the nearest powers of two; 0 and infinity as they are."""
    with np.errstate(divide="ignore"):
        powers: Array = np.exp2(np.round(np.log2(lengths)))
    return powers
