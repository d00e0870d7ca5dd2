"""How wide the steps of weights may be for a promise in intervals.

What an error of the weights does to a run cannot be seen in the state alone: the same error costs
nothing in a wide valley, and intervals of work in a narrow one. So at some saves, and where weights
begin to move by another length, a judge lets the loss of the history's newest state be computed, as
it is restored, beside that of the exact one. The cost that it estimates has two terms. A state that
lies behind its run costs what it lies behind; one that has an error costs a part of the rise of its
loss, as most of such a rise heals in the next iterations. The steps are then widened as far as the
promise allows, or narrowed. They change little at a time: errors take some saves to settle.

Source: the measurements in ``spec/decisions/0015-presets-by-promise.md``.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ...container.tree import Adapter, as_framework, flatten, unflatten
from ...element_types import Array, components, from_components
from ...errors import LccodecError, reason_of, warn
from ...policy.policy import Policy
from ..read.checkpoint import open_step
from ..store.store import Store, step_index
from .settings import Settings, log

_COST_OF_LAG: Final = 1.5  # intervals, of a state that lies one interval behind
_COST_OF_RISE: Final = 1 / 12  # intervals, of a loss that is higher by the fall of one interval
_SHARE_OF_PROMISE: Final = 2 / 3  # what weights may cost; the rest is for first moments

_FIRST_SAVES: Final = (1, 2, 4, 6, 8, 12, 16, 24)  # that are judged, whatever the time it takes
_JUMP: Final = 2.0  # of the movement since the last judgement: another one is due
_SAVES_BETWEEN: Final = 4  # two judgements later on, at least: errors take so long to settle
_SHARE_OF_TIME: Final = 0.01
_SHARE_OF_TIME_IN_JUMPS: Final = 0.05
_LOSSES: Final = 8  # of exact states, from which the fall of an interval is estimated

_WIDER, _NARROWER = 1.25, 0.6  # the most that one judgement changes the steps by
_WIDEST, _NARROWEST = 4.0, 1 / 16  # of all


@dataclass(frozen=True)
class Judgement:
    """What came of one look."""

    step: int  # the step that was restored
    rise: float  # its loss less that of the exact state
    fall: float  # by how much the loss of the run falls in an interval; at least by how much it scatters
    lag: float  # of the weights, in intervals; 0 if it is not known, or they lie ahead
    cost: float  # of the weights, in intervals, as estimated
    width: float  # the factor of the steps of weights from now on


class Judge:
    """Judges the states of a chain by the `loss` of its policy, whose steps it widens in the
    settings.

    The policy is the one that was given; without a loss it is never judged.
    """

    def __init__(
        self, store: Store, adapter: Adapter | None, policy: Policy | None, settings: Settings
    ) -> None:
        self._store, self._adapter, self._settings = store, adapter, settings
        self._loss: Callable[[Any], Any] | None
        self._loss, self._promise = (policy and policy.promise) or (None, 0.0)
        self._exact: list[tuple[int, float]] = []  # steps and losses of exact states
        self._saves, self._first, self._judged = 0, 0, 0
        self._began, self._spent = 0.0, 0.0  # in seconds
        self._moved: float | None = None  # the weights in the interval before the last judgement

    def look(self, step: object, state: Any) -> Judgement | None:
        """Judge the newest step of the history, if it is time to, before `state` is saved.

        The loss is given copies; the last is one of the exact state, so that a loss which loads
        what it is given into the model of the run leaves that as it was. An error of the loss is a
        warning, and ends judging.
        """
        index = step_index(step) if self._loss is not None else None
        if index is None:
            return None
        now = time.monotonic()
        if not self._saves or (self._exact and index <= self._exact[-1][0]):  # it begins, or anew
            self._exact, self._saves, self._first, self._judged, self._began = [], 0, index, 0, now
        self._saves += 1
        moved = self._movement()
        self._moved = self._moved or moved
        elapsed = now - self._began
        if not self._is_due(elapsed) and not self._has_jumped(moved, elapsed):
            return None
        self._judged, self._moved = self._saves, moved
        try:
            return self._look(index, state)
        except Exception as error:
            self._loss = None
            warn(f"{self._store.path}: loss= raised an error and is not called again: {reason_of(error)}")
            return None
        finally:
            self._spent += time.monotonic() - now

    def _is_due(self, elapsed: float) -> bool:
        if self._saves <= _FIRST_SAVES[-1]:
            return self._saves in _FIRST_SAVES
        rested = self._saves - self._judged >= _SAVES_BETWEEN
        return rested and self._spent <= _SHARE_OF_TIME * elapsed

    def _has_jumped(self, moved: float | None, elapsed: float) -> bool:
        """Return whether weights move by another length, as after a restart of the rate."""
        if self._spent > _SHARE_OF_TIME_IN_JUMPS * elapsed:
            return False
        return bool(moved and self._moved) and not 1 / _JUMP < (moved or 0) / (self._moved or 1) < _JUMP

    def _movement(self) -> float | None:
        """Return how far the weights moved before the newest step; ``None`` if it is not known."""
        step = max(self._store.steps(), default=None)
        if step is None:
            return None
        try:
            with open_step(self._store, step) as file:
                figures = file.info().figures.get("weight")
        except LccodecError:  # a save says so
            return None
        return None if figures is None else figures.movement

    def _look(self, step: int, state: Any) -> Judgement | None:
        arrays, metadata = (state, {}) if self._adapter is None else self._adapter.to_numpy(state, {})
        flat = flatten(arrays)
        copies = [_copied(array, None if self._adapter is None else "bits") for array in flat.arrays]
        found = None
        try:
            if self._exact and self._exact[-1][0] in self._store.steps():
                found = self._restored(*self._exact[-1])
        finally:
            exact = unflatten(flat.tree, copies, flat.scalars)
            loss = self._evaluated(as_framework(self._adapter, exact, metadata, None))
        if math.isfinite(loss):
            self._exact = [*self._exact, (step, loss)][-_LOSSES:]
        return None if found is None else self._judgement(step, *found)

    def _evaluated(self, state: Any) -> float:
        return math.nan if self._loss is None else float(self._loss(state))

    def _restored(self, step: int, exact: float) -> tuple[int, float, float | None]:
        """Return a step, the rise of its loss as restored, and its lag."""
        with open_step(self._store, step) as file:
            figures = file.info().figures.get("weight")
            lag = None if figures is None else figures.lag
            bits: Literal["bits"] | None = None if self._adapter is None else "bits"
            state = as_framework(self._adapter, file.state(dtype=bits), file.metadata(), None)
        return step, self._evaluated(state) - exact, lag

    def _judgement(self, now: int, step: int, rise: float, lag: float | None) -> Judgement | None:
        """Change the steps of weights for what was found of a step."""
        policy = self._settings.record.policy
        fall = self._fall((now - self._first) / max(self._saves - 1, 1))
        if not math.isfinite(rise) or fall <= 0:
            return None
        behind = max(lag or 0.0, 0.0)
        cost = _COST_OF_LAG * behind + _COST_OF_RISE * max(rise, 0.0) / fall
        allowed = _SHARE_OF_PROMISE * self._promise
        change = math.sqrt(allowed / cost) if cost > 0 else math.inf
        width = policy.width * min(max(change, _NARROWER), _WIDER)
        width = round(min(max(width, _NARROWEST), _WIDEST), 3)
        self._settings.judged = width
        log(
            logging.INFO,
            "%s: step %s as restored costs %.2g intervals (lag %.2g, rise %.2g of a fall of %.2g); the"
            " steps of weights are those of the policy times %s",
            *(self._store.path, step, cost, behind, rise, fall, width),
        )
        return Judgement(step, rise, fall, behind, cost, width)

    def _fall(self, interval: float) -> float:
        """Return by how much the loss of exact states falls in an interval, or scatters."""
        steps, losses = np.array(self._exact, np.float64).reshape(-1, 2).T
        if steps.size < 2:
            return 0.0
        slope, start = np.polyfit(steps - steps[-1], losses, 1)
        scatter = float(np.std(losses - start - slope * (steps - steps[-1])))
        return max(-float(slope) * interval, scatter)


def _copied(array: Array, dtype: str | None) -> Array:
    """Return a copy of an array, as a restore returns it."""
    kind, bits = components(array)
    return from_components(bits.copy(), kind, array.shape, dtype)
