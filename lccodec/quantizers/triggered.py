"""Triggers: an array waits, stored as unchanged, until it has moved far enough.

A change that waits is not lost. The reference of a chain stays the array that was last stored, so
the next difference holds everything that has changed since.

Source: SPARQ-SGD (Singh et al., IEEE CDC 2020, arXiv 1910.14280): a node sends only what has moved
past a threshold. There the threshold depends on the learning rate. A codec does not know the
learning rate, so here the threshold is relative to the array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..constants import ElementType
from ..element_types import Array, negative, subtract, work
from ..errors import ArgumentError, number
from ..parallel import slices
from .base import Partition, Quantizer, spoiled
from .residual import Residual


@dataclass(frozen=True)
class Triggered(Quantizer):
    """Lets an array of a chain wait until it has moved by a given share of its values.

    An array waits while the root mean square of its difference to the stored array is below
    `threshold` times that of its values. An array that waits takes no bytes, and is restored with a
    relative error of less than `threshold`. A NaN or an infinity in the difference ends the wait.
    If the array has no negative numbers, the wait also ends when the stored array has a negative
    number, or another number where the array has 0. Nothing waits in a keyframe, or in
    :func:`lccodec.encode`.

    Do not use it for second moments: a small change of the array may be a large change of its small
    elements. `LogSteps` lets each element wait by itself.

    Parameters
    ----------
    then
        The quantizer of an array that no longer waits: `ExponentBuckets`, `UniformDeadzone`,
        `Clusters`, `Lossless` or one of your own. It must not be `ordered`, `absolute`, or another
        `Triggered`.
    threshold
        Between 0 and 1, both excluded.

    Raises
    ------
    ArgumentError
        For another quantizer or threshold.

    Examples
    --------
    >>> import lccodec, numpy as np, tempfile
    >>> quantizer = Triggered(lccodec.ExponentBuckets(2), threshold=0.01)
    >>> policy = lccodec.Policy("calm", {"weight": quantizer})
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy)
    >>> for step in range(4):
    ...     _ = chain.save(step, {"w": np.full(1000, 1 + 0.004 * step)})
    >>> [float(chain.restore(step)["w"][0]) for step in range(4)]  # moves: 0.004, 0.008, 0.012
    [1.0, 1.0, 1.0, 1.012]
    """

    then: Quantizer
    threshold: float

    def __post_init__(self) -> None:
        if not isinstance(self.then, Quantizer) or self.then.ordered or self.then.trigger is not None:
            raise ArgumentError(f"Triggered: then must be another quantizer; got {self.then!r}")
        if self.then.absolute:
            raise ArgumentError(
                f"Triggered: then must code differences; got {self.then!r}, which codes values"
            )
        wanted = "a number between 0 and 1"
        threshold = number("Triggered: threshold", self.threshold, wanted, lambda n: 0 < n < 1)
        object.__setattr__(self, "threshold", threshold)

    @property
    def trigger(self) -> Triggered:  # type: ignore[override]
        """Itself: an array waits."""
        return self

    def bin_width(self, differences: Array) -> float | None:
        """Return the width of the bins of `then`."""
        return self.then.bin_width(differences)

    def scaled(self, factor: float) -> Triggered:
        """Return the quantizer with the steps of `then` multiplied."""
        return replace(self, then=self.then.scaled(factor))

    def waits(self, bits: Array, reference: Array, kind: ElementType) -> bool:
        """Return whether an array of floating point components stays as it was stored last."""
        moved = size = 0.0
        unsigned, marked = True, False
        with np.errstate(over="ignore"):  # an infinite sum ends the wait
            for part in slices(bits.size):
                d = subtract(bits[part], reference[part], kind)
                moved += float(np.add.reduce(np.square(d, dtype=np.float64)))
                size += float(np.add.reduce(np.square(work(bits[part], kind), dtype=np.float64)))
                unsigned = unsigned and not negative(bits[part], kind).any()
                marked = marked or (unsigned and bool(spoiled(reference[part], bits[part], kind).any()))
        return math.isfinite(moved) and moved < self.threshold**2 * size and not (unsigned and marked)

    def fit(self, batch: Residual) -> Partition | None:
        """Return the partition of `then`."""
        return self.then.fit(batch)
