"""Search for the policy of highest ratio that a user's own measure of quality accepts.

Source: Inshrinkerator (SoCC 2024, arXiv 2306.11800), section 4: a configuration is searched
greedily around the last best one, with a bound on the loss of quality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..container.scratch import TemporaryFolder
from ..container.tree import flatten
from ..errors import ArgumentError
from ..policy.balanced import STEPS, Balanced
from ..policy.policy import Policy
from ..quantizers.logarithmic import LogSteps
from .chain import Chain

#: Errors of weights relative to their movement, and steps of second moments; from fine to coarse.
_ERRORS: Final = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
_LOG_STEPS: Final = (0.5, 1.0, 2.0, 3.0, 4.0)
_START_INDICES: Final = (5, 2)  # indices into these two, of the preset `balanced`


@dataclass(frozen=True)
class Trial:
    """A policy that was tried, and its results.

    Parameters
    ----------
    policy
        The policy, to be given to a `Chain`.
    ratio
        Bytes of the arrays divided by bytes of the files, for the deltas only.
    loss
        Loss of quality: what `evaluate` returns for the last state as restored, less what it
        returns for the exact state.
    """

    policy: Policy
    ratio: float
    loss: float


def tune(
    states: Chain | Sequence[Any],
    evaluate: Callable[[Any], float],
    max_loss: float = 0.05,
    *,
    intervals: float | None = None,
) -> Trial:
    """Find the policy of highest ratio whose last state `evaluate` accepts.

    Each policy that is tried saves all states as deltas in a temporary directory, which is removed.

    Parameters
    ----------
    states
        Two or more states of a run, in order, or a chain that holds them (best a lossless one).
    evaluate
        Returns how bad a state is: a validation loss, an error rate. It may change the state.
    max_loss
        How much more `evaluate` may return for the restored state than for the exact one.
    intervals
        The same in intervals, in place of `max_loss`: in units of what `evaluate` falls by from one
        state to the next, in the mean.

    Returns
    -------
    Trial
        The best one.

    Raises
    ------
    ArgumentError
        If there are fewer than two states, `max_loss` or `intervals` is not a number of at least 0,
        `evaluate` raises, does not return a finite number or, for `intervals`, does not fall, or if
        no policy keeps to the bound. Then the message has the nearest.

    Examples
    --------
    >>> import numpy as np, lccodec
    >>> rng = np.random.default_rng(0)
    >>> states = [{"w": w} for w in np.cumsum(rng.normal(size=(3, 1000)), axis=0)]
    >>> def error(state):
    ...     return abs(state["w"] - states[-1]["w"]).mean()
    >>> best = tune(states, error, max_loss=0.5)
    >>> best.loss <= 0.5
    True
    """
    for name, bound in (("max_loss", max_loss), ("intervals", 0 if intervals is None else intervals)):
        if not (isinstance(bound, int | float) and bound >= 0):
            raise ArgumentError(f"{name} must be a number of at least 0; got {bound!r}")
    if isinstance(states, Chain):
        states = [states.restore(step) for step in states.steps]
    if not isinstance(states, Sequence) or len(states) < 2:
        raise ArgumentError("tune needs at least two states of a run")
    exact = _evaluated(evaluate, _copy(states[-1]))
    if intervals is not None:
        fall = (_evaluated(evaluate, _copy(states[0])) - exact) / (len(states) - 1)
        if fall <= 0:
            raise ArgumentError(
                f"evaluate must fall over the states for intervals=; it rises by {-fall:.4g} a state"
            )
        max_loss = intervals * fall
    tried: dict[tuple[int, int], Trial] = {}

    def trial(place: tuple[int, int]) -> Trial:
        if place not in tried:
            tried[place] = _trial(states, place, evaluate, exact)
        return tried[place]

    place = _START_INDICES
    while (best := trial(place)).loss > max_loss:
        if place == (0, 0):
            nearest = min(t.loss for t in tried.values())
            raise ArgumentError(f"no policy loses at most {max_loss}; the nearest loses {nearest:.4g}")
        place = max(place[0] - 1, 0), max(place[1] - 1, 0)
    better = True
    while better:
        better = False
        for along in ((1, 0), (0, 1)):
            step = place[0] + along[0], place[1] + along[1]
            if step[0] == len(_ERRORS) or step[1] == len(_LOG_STEPS):
                continue
            found = trial(step)
            if found.loss <= max_loss and found.ratio > best.ratio:
                place, best, better = step, found, True
    return best


def _trial(
    states: Sequence[Any], place: tuple[int, int], evaluate: Callable[[Any], float], exact: float
) -> Trial:
    roles = STEPS | {"second_moment": LogSteps(_LOG_STEPS[place[1]])}
    policy = Balanced("tuned", roles, error=_ERRORS[place[0]])
    with (
        TemporaryFolder() as directory,
        Chain(directory, policy, keyframe_every=1 << 30, newest="history") as chain,
    ):
        sizes, deltas = 0, 0
        for step, state in enumerate(states):
            written = chain.save(step, state)
            if chain.info(step).parent is not None:
                sizes += written
                deltas += sum(array.nbytes for array in flatten(state).arrays)
        restored = chain.restore()
    return Trial(policy, deltas / max(sizes, 1), _evaluated(evaluate, restored) - exact)


def _evaluated(evaluate: Callable[[Any], float], state: Any) -> float:
    try:
        value = float(evaluate(state))
    except Exception as error:
        raise ArgumentError(f"evaluate failed: {type(error).__name__}: {error}") from error
    if not math.isfinite(value):
        raise ArgumentError(f"evaluate returned {value}, which is not a finite number")
    return value


def _copy(state: Any) -> Any:
    """Return a state that `evaluate` may change."""
    with TemporaryFolder() as directory, Chain(directory, "lossless") as chain:
        chain.save(0, state)
        return chain.restore()
