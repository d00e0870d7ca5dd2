"""What most arrays of a run do at the same step: gradients that grow, weights that move farther.

One array may do that by chance. If most do it at once, something has changed for all of them: the
data, their order, the rate. A loss shows it later, or not at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..report import ArrayRow, Flag, Series

_EARLIER: Final = 4  # changes before, at least
_RECENT: Final = 12
_NEIGHBOURS: Final = 3  # what shifts is above each of so many numbers before
_SPREADS: Final = 4  # and by more than so many times the median of recent changes
_LEAST_FACTOR: Final = 1.5
_LEAST_ARRAYS: Final = 3


@dataclass(frozen=True)
class _Shift:
    """A figure of a role, and what it says if it rises in most arrays at once."""

    role: str
    figure: str
    sentence: str


_SHIFTS: Final = (
    _Shift(
        "second_moment",
        "rms",
        "Gradients are larger from step {step} on: second moments are {times:.2g} times what they were at "
        "most before, in the median array.",
    ),
    _Shift(
        "weight",
        "movement",
        "Weights move farther at step {step}: {times:.2g} times what they moved at most before, in the "
        "median array.",
    ),
)


def shift_flags(
    rows: Sequence[ArrayRow],
    steps: Sequence[int],
    figures: Mapping[str, Sequence[Series]],
    saved: Sequence[int],
) -> list[Flag]:
    """Return at most a flag for each role: where most of its arrays shift for the first time.

    Parameters
    ----------
    rows, steps, figures
        The arrays, the shown steps, and figures at these.
    saved
        All steps of the run. Movements are compared where as many steps lie between saves.
    """
    before = dict(zip(saved[1:], saved, strict=False))
    intervals = [step - before[step] if step in before else None for step in steps]
    known = [each for each in intervals if each is not None]
    usual = statistics.mode(known) if known else None
    found = []
    for shift in _SHIFTS:
        chosen = [place for place, row in enumerate(rows) if row.role == shift.role]
        of_movement = shift.figure == "movement"
        places = [i for i, each in enumerate(intervals) if not of_movement or each == usual]
        logarithms = [[_log(figures[shift.figure][row][place]) for row in chosen] for place in places]
        for place, rise in _rises(logarithms):
            step = steps[places[place]]
            sentence = shift.sentence.format(step=step, times=math.exp(rise))
            found.append(Flag("warning", "shifting", None, step, sentence))
            break
    return found


def _log(value: float | None) -> float | None:
    return math.log(value) if value and math.isfinite(value) else None


def _rises(logarithms: Sequence[Sequence[float | None]]) -> Iterator[tuple[int, float]]:
    """Yield places at which most arrays rise far above the noise of their changes, and how far."""
    changes = [
        statistics.median(abs(change) for change in each) if each else None
        for each in (_differences(then, now) for then, now in pairwise(logarithms))
    ]
    for place in range(_EARLIER + 1, len(logarithms)):
        recent = [x for x in changes[max(place - 1 - _RECENT, 0) : place - 1] if x is not None]
        rises = _differences(_highest(logarithms[place - _NEIGHBOURS : place]), logarithms[place])
        if len(recent) < _EARLIER or len(rises) < _LEAST_ARRAYS:
            continue
        rise = statistics.median(rises)
        if rise > max(_SPREADS * statistics.median(recent), math.log(_LEAST_FACTOR)):
            yield place, rise


def _differences(then: Sequence[float | None], now: Sequence[float | None]) -> list[float]:
    pairs = zip(then, now, strict=True)
    return [b - a for a, b in pairs if a is not None and b is not None]


def _highest(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [max((x for x in column if x is not None), default=None) for column in zip(*rows, strict=True)]
