"""What an import has lost: every imported step beside its original, in units of the movement.

The movement of a step is how far the original has moved since the step before; of the first step,
how far it moves until the next.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..chain.read.replay import DecodedArray
from .measures.loss import measure_loss
from .measures.originals import Originals, original_bits
from .source import open_source


@dataclass(frozen=True)
class ImportLoss:
    """What the lossy arrays of imported steps have lost.

    An error is the root mean square of the error of an array at a step, over that of its movement.

    Parameters
    ----------
    typical, worst
        The median of these errors, and the largest; ``None`` if no array moved.
    name, step
        Where the largest is.
    unmoved
        The number of arrays that lost something at a step at which they did not move.
    unmeasured
        The number of arrays that lost something at a step of which no movement is known, as there
        is no step beside it.
    """

    typical: float | None
    worst: float | None
    name: str = ""
    step: int = 0
    unmoved: int = 0
    unmeasured: int = 0


def import_loss(
    directory: Path, originals: Originals, update: Callable[[int, int], object] | None = None
) -> ImportLoss:
    """Return what the steps of a chain that have an original have lost.

    Each checkpoint is decoded once. In memory are one state as decoded and two originals.
    """
    errors: list[tuple[float, str, int]] = []
    unmoved = unmeasured = 0
    steps = sorted(originals.steps)
    with closing(open_source(directory)) as source:
        before: Mapping[str, Any] = originals.state(steps[1]) if len(steps) > 1 else {}
        for done, (step, visit) in enumerate(source.visits(decode=True), 1):
            if step in originals.steps:
                exact = originals.state(step)
                visit.check()
                for name, array in visit.arrays().items():
                    if not isinstance(array, DecodedArray):
                        continue
                    original, earlier = (original_bits(state, name, array) for state in (exact, before))
                    if original is None:
                        continue
                    lost = measure_loss(array.bits, original, earlier, array.kind)
                    if lost.error is not None and lost.error > 0:
                        errors.append((lost.error, name, step))
                    if lost.error is None and lost.largest:
                        unmoved += earlier is not None
                        unmeasured += earlier is None
                before = exact
            if update is not None:
                update(done, len(source.steps))
    if not errors:
        return ImportLoss(None, None, unmoved=unmoved, unmeasured=unmeasured)
    worst, name, step = max(errors)
    typical = statistics.median(error for error, *_ in errors)
    return ImportLoss(typical, worst, name, step, unmoved, unmeasured)
