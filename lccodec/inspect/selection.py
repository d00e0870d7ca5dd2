"""Which steps and arrays a report shows, where there are more than a page can hold.

Of the arrays the largest are shown, of the steps evenly spaced ones with the first and the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from .report import ArrayRow

MAX_ARRAYS: Final = 300
#: Arrays times steps: 300 arrays at 200 steps.
MAX_CELLS: Final = 60_000
MAX_STEPS: Final = 1000
#: Checkpoints that are listed.
MAX_CHECKPOINTS: Final = 5000

Item = TypeVar("Item")


def largest(rows: Sequence[ArrayRow], count: int = MAX_ARRAYS) -> list[ArrayRow]:
    """Return the largest arrays in their order; of equal ones the first."""
    chosen = sorted(range(len(rows)), key=lambda i: (-rows[i].size, i))[:count]
    return [rows[i] for i in sorted(chosen)]


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """Return at most `count` items with the first and the last.

    Examples
    --------
    >>> evenly_spaced(range(11), 3)
    [0, 5, 10]
    """
    if len(items) <= count:
        return list(items)
    distance = (len(items) - 1) / max(count - 1, 1)
    return [items[round(place * distance)] for place in range(count)]


def step_limit(arrays: int) -> int:
    """Return how many steps of so many arrays are shown."""
    return min(MAX_STEPS, max(2, MAX_CELLS // max(arrays, 1)))
