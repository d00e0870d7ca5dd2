"""The numbers that a user saves beside the arrays, such as a loss, over the checkpoints of a run.

They are in the metadata as text, where ``metrics=`` of a save puts them, or scalars of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: The first ones are shown: a state may have a counter for each of its arrays.
MAX_SERIES: Final = 24


def series_of(
    numbers: Sequence[Mapping[str, float]], steps: Sequence[int | None]
) -> dict[str, list[float | None]]:
    """Return numbers over checkpoints, by name; ``None`` where a checkpoint does not have it.

    A number that never changes is not among them, nor is the step. Of names that always have the
    same number, the first one stands for all.

    Examples
    --------
    >>> numbers = [{"loss": 2.0, "lr": 0.1, "step": 5}, {"loss": 1.5, "lr": 0.1, "step": 10}]
    >>> series_of(numbers, [5, 10])
    {'loss': [2.0, 1.5]}
    """
    found: dict[str, list[float | None]] = {}
    seen = {repr([None if step is None else float(step) for step in steps])}
    for name in dict.fromkeys(name for each in numbers for name in each):
        series = [each.get(name) for each in numbers]
        text = repr([None if number is None else float(number) for number in series])  # NaN is NaN
        if len(set(map(repr, series)) - {"None"}) < 2 or text in seen:
            continue
        seen.add(text)
        found[name] = series
        if len(found) == MAX_SERIES:
            break
    return found
