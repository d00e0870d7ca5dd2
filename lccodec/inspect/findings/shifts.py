"""What most arrays of a run do at the same step: gradients that grow, weights that move farther.

One array may do that by chance. If most do it at once, something has changed for all of them: the
data, their order, the rate. A loss shows it later, or not at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ...policy.roles import Role
from ..report import ArrayRow, Flag, Series

_EARLIER: Final = 4  # changes before, at least
_RECENT: Final = 12
_NEIGHBOURS: Final = 3  # what shifts is above each of so many numbers before
_SPREADS: Final = 4  # and by more than so many times the median of recent changes
_LEAST_FACTOR: Final = 1.5
_LEAST_ARRAYS: Final = 3


_FIGURES: Final[Mapping[Role, str]] = {"second_moment": "rms", "weight": "movement"}

#: Weights of which so many move so many times as far: as where the learning rate changes.
_NEARLY_ALL: Final = 0.9
_LIKE_A_RATE: Final = 5.0


class Shift(NamedTuple):
    """Where most arrays of a role rise: the place of the step, how many times, and which arrays."""

    role: Role
    place: int
    times: float
    rows: Sequence[ArrayRow]
    known: int  # arrays that have a figure there

    @property
    def sentence(self) -> str:
        """What it is, in words."""
        count = f"All {self.known}" if len(self.rows) == self.known else f"{len(self.rows)} of {self.known}"
        if self.role == "second_moment":
            return f"Gradients grow: {count.lower()} second moments rise, typically {self.times:.2g} times."
        nearly_all = len(self.rows) >= _NEARLY_ALL * self.known
        like = ", as when the learning rate changes" if nearly_all and self.times >= _LIKE_A_RATE else ""
        return f"{count} weights move farther at once, typically {self.times:.2g} times as far{like}."


def shifts(
    rows: Sequence[ArrayRow],
    steps: Sequence[int],
    figures: Mapping[str, Sequence[Series]],
    saved: Sequence[int],
) -> list[Shift]:
    """Return at most a shift for each role: where most of its arrays rise for the first time.

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
    for role, figure in _FIGURES.items():
        chosen = [place for place, row in enumerate(rows) if row.role == role]
        places = [i for i, each in enumerate(intervals) if figure != "movement" or each == usual]
        logarithms = [[_log(figures[figure][row][place]) for row in chosen] for place in places]
        for place, rises in _rises(logarithms):
            own = [rows[row] for row, rise in zip(chosen, rises, strict=True) if _counts(rise)]
            some = [rise for rise in rises if rise is not None]
            found.append(Shift(role, places[place], math.exp(statistics.median(some)), own, len(some)))
            break
    return found


def shift_flags(found: Sequence[Shift], steps: Sequence[int]) -> list[Flag]:
    """Return the flags of shifts."""
    return [
        Flag(
            "warning",
            "shifting",
            None,
            steps[shift.place],
            shift.sentence,
            steps[shift.place - 1],
            [row.name for row in shift.rows],
        )
        for shift in found
    ]


def _counts(rise: float | None) -> bool:
    return rise is not None and rise > math.log(_LEAST_FACTOR)


def _log(value: float | None) -> float | None:
    return math.log(value) if value and math.isfinite(value) else None


def _rises(logarithms: Sequence[Sequence[float | None]]) -> Iterator[tuple[int, list[float | None]]]:
    """Yield places at which most arrays rise far above their noise, and how far each."""
    changes = [
        statistics.median(abs(change) for change in each) if each else None
        for each in (_known(_differences(then, now)) for then, now in pairwise(logarithms))
    ]
    for place in range(_EARLIER + 1, len(logarithms)):
        recent = [x for x in changes[max(place - 1 - _RECENT, 0) : place - 1] if x is not None]
        rises = _differences(_highest(logarithms[place - _NEIGHBOURS : place]), logarithms[place])
        known = _known(rises)
        if len(recent) < _EARLIER or len(known) < _LEAST_ARRAYS:
            continue
        if statistics.median(known) > max(_SPREADS * statistics.median(recent), math.log(_LEAST_FACTOR)):
            yield place, rises


def _differences(then: Sequence[float | None], now: Sequence[float | None]) -> list[float | None]:
    pairs = zip(then, now, strict=True)
    return [None if a is None or b is None else b - a for a, b in pairs]


def _known(numbers: Sequence[float | None]) -> list[float]:
    return [x for x in numbers if x is not None]


def _highest(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [max((x for x in column if x is not None), default=None) for column in zip(*rows, strict=True)]
