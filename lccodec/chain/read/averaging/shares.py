"""Which steps an average takes, and what each of them counts.

Sources: stochastic weight averaging (Izmailov et al., UAI 2018) counts all steps the same; an
exponential average counts each step a fixed factor less than the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ....arguments import as_integer, as_number
from ....errors import ArgumentError, ChainError
from ...store.names import step_index
from ...store.store import Store


def select_shares(
    store: Store,
    steps: Iterable[int] | None = None,
    last: int | None = None,
    weights: Iterable[float] | None = None,
    decay: float | None = None,
) -> dict[int, float]:
    """Return what each of the chosen steps counts, by rising steps. The sum is 1.

    Parameters
    ----------
    steps
        The steps, in any order.
    last
        Instead of `steps`: how many of the newest steps. All are taken if there are fewer.
    weights
        A weight for each step: in the order of `steps`, or for `last` the oldest step first. They
        need not add up to 1. A step with the weight 0 counts nothing. By default all steps count
        the same.
    decay
        Instead of `weights`, for an exponential average: the newest step has the weight 1, and each
        older one `decay` times that of the next. Ages are counted in checkpoints, not in steps.
        Above 0 and at most 1.

    Raises
    ------
    ArgumentError
        If not exactly one of `steps` and `last` is given, both `weights` and `decay` are, no step
        is chosen or one twice, or the weights do not fit: another number of them than steps, one
        that is negative, NaN or infinite, or all of them 0.
    ChainError
        If the chain has no checkpoint to take the last of. Other steps are not looked up.
    StorageError
        If the directory cannot be listed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from lccodec.chain.store.opening import writable_store
    >>> run = writable_store(Path("run"))
    >>> select_shares(run, [30, 10, 20], weights=[2, 1, 1])
    {10: 0.25, 20: 0.25, 30: 0.5}
    >>> select_shares(run, [10, 30], decay=0.25)
    {10: 0.2, 30: 0.8}
    """
    return _shares(_steps(store, steps, last), weights, decay)


def _steps(store: Store, steps: Iterable[int] | None, last: int | None) -> list[int]:
    """Return the chosen steps, as they are given or rising."""
    if (steps is None) == (last is None):
        raise ArgumentError("average needs either steps= or last=, the number of newest steps")
    if last is not None:
        count = as_integer(last)
        if count is None or count < 1:
            raise ArgumentError(f"last must be a positive integer; got {last!r}")
        there = list(store.steps())
        if not there:
            raise ChainError(store.nothing())
        return there[-count:]
    try:
        chosen = [step_index(step) for step in iter(steps or ())]
    except TypeError:
        raise ArgumentError(f"steps must be an iterable of steps; got {steps!r}") from None
    if not chosen:
        raise ArgumentError("average needs at least one step; got none")
    if len(set(chosen)) < len(chosen):
        twice = next(step for step in chosen if chosen.count(step) > 1)
        raise ArgumentError(f"step {twice} is given twice")
    return chosen


def _shares(steps: list[int], weights: Iterable[float] | None, decay: float | None) -> dict[int, float]:
    """Return what each step counts, by rising steps; the sum is 1."""
    if weights is not None and decay is not None:
        raise ArgumentError("average takes either weights= or decay=; got both")
    if decay is not None:
        factor = as_number(decay)
        if factor is None or not 0 < factor <= 1:
            raise ArgumentError(f"decay must be a number above 0 and at most 1; got {decay!r}")
        numbers = {step: float(factor) ** age for age, step in enumerate(sorted(steps, reverse=True))}
    elif weights is not None:
        numbers = dict(zip(steps, _numbers(weights, len(steps)), strict=True))
    else:
        numbers = dict.fromkeys(steps, 1.0)
    largest = max(numbers.values())
    if not largest > 0:
        raise ArgumentError("at least one weight must be above 0; all are 0")
    scaled = {step: numbers[step] / largest for step in sorted(numbers)}  # a sum of large ones may overflow
    total = math.fsum(scaled.values())
    return {step: number / total for step, number in scaled.items()}


def _numbers(weights: Iterable[float], count: int) -> list[float]:
    try:
        given = list(iter(weights))
    except TypeError:
        message = f"weights must be an iterable of one number for each step; got {weights!r}"
        raise ArgumentError(f"{message}; for an exponential average, use decay=") from None
    if len(given) != count:
        raise ArgumentError(f"weights must have one number for each of {count} steps; got {len(given)}")
    numbers = []
    for value in given:
        number = as_number(value)
        if number is None or not 0 <= number < math.inf:
            raise ArgumentError(f"a weight must be a finite number of at least 0; got {value!r}")
        numbers.append(float(number))
    return numbers
