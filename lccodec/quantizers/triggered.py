"""Triggers: an array waits, stored as unchanged, until it has moved far enough.

What waits is not lost: the reference of a chain stays what was last stored, so that the next
difference holds all that has moved since.

Source: SPARQ-SGD (Singh et al., IEEE CDC 2020, arXiv 1910.14280), whose nodes send only what has
moved past a threshold. There the threshold is a square of the learning rate, which a codec does not
know: here it is relative to the array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..arguments import as_number
from ..element_types import Array, ElementType, subtract, work
from ..errors import ArgumentError
from ..parallel import PIECE
from .base import Partition, Quantizer
from .residual import Residual
from .signs import negative, spoiled

__all__ = ["Triggered"]


@dataclass(frozen=True)
class Triggered(Quantizer):
    """Lets the arrays of a chain wait until they have moved by a share of themselves.

    An array whose difference to what is stored has a root mean square below `threshold` times that
    of its values takes no bytes. So no array that waits is restored with a larger relative error
    than `threshold`, whatever its size and scale. A NaN or an infinity in the difference ends the
    wait, and so does an element that is to be 0, or not below 0, where the array has no negative
    ones. In one frame of :func:`lccodec.encode`, and in a keyframe, nothing waits.

    Not for second moments, where a small change of the array may be a large one of its small
    elements; `LogSteps` waits by itself, element by element.

    Parameters
    ----------
    then
        What codes an array that no longer waits: `ExponentBuckets`, `UniformDeadzone`, `Clusters`,
        `Lossless` or a quantizer of your own, but none of ordered integers. One that is `absolute`
        has no differences, and leaves more than any threshold.
    threshold
        Between 0 and 1, both excluded.

    Raises
    ------
    ArgumentError
        For another quantizer or threshold.

    Examples
    --------
    >>> import lccodec, numpy as np, tempfile
    >>> policy = lccodec.Policy("calm", {"weight": Triggered(lccodec.ExponentBuckets(2), threshold=0.01)})
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy)
    >>> for step in range(4):
    ...     _ = chain.save(step, {"w": np.full(1000, 1 + 0.004 * step)})
    >>> [float(chain.restore(step)["w"][0]) for step in range(4)]  # a move of 0.004, 0.008 and then 0.012
    [1.0, 1.0, 1.0, 1.012]
    """

    then: Quantizer
    threshold: float

    def __post_init__(self) -> None:
        if not isinstance(self.then, Quantizer) or self.then.ordered or self.then.awake is not self.then:
            raise ArgumentError(f"Triggered: not with {self.then!r}, which is no quantizer that waits")
        if self.then.absolute:
            raise ArgumentError(f"Triggered: not with {self.then!r}, which codes no differences")
        threshold = as_number(self.threshold)
        if threshold is None or not 0 < threshold < 1:
            raise ArgumentError(f"Triggered: threshold is a number between 0 and 1, not {self.threshold!r}")
        object.__setattr__(self, "threshold", threshold)

    @property
    def awake(self) -> Quantizer:
        """`then`."""
        return self.then

    @property
    def bin_width(self) -> float | None:
        """That of `then`."""
        return self.then.bin_width

    def scaled(self, factor: float) -> Triggered:
        """Return the quantizer with the steps of `then` multiplied."""
        return replace(self, then=self.then.scaled(factor))

    def waits(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether an array may stay as it is stored.

        Parameters
        ----------
        bits, reference
            Its components, and those that are stored, of a floating point type.
        """
        moved = size = 0.0
        unsigned, marked = True, False
        with np.errstate(over="ignore"):  # an infinite sum ends the wait
            for start in range(0, bits.size, PIECE):
                part = slice(start, start + PIECE)
                d = subtract(bits[part], reference[part], kind)
                moved += float(np.add.reduce(np.square(d, dtype=np.float64)))
                size += float(np.add.reduce(np.square(work(bits[part], kind), dtype=np.float64)))
                unsigned = unsigned and not negative(bits[part], kind).any()
                marked = marked or (unsigned and bool(spoiled(reference[part], bits[part], kind).any()))
        return math.isfinite(moved) and moved < self.threshold**2 * size and not (unsigned and marked)

    def fit(self, batch: Residual) -> Partition | None:
        """Return the partition of `then`."""
        return self.then.fit(batch)
