"""Which steps of a chain are to stay: a rule in the words of Orbax, restic and Lightning.

A step stays if any part of the rule wants it. What it needs stays with it, and so do the newest
step and pinned ones: that is up to :mod:`lccodec.chain.life.prune`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from ...arguments import as_integer
from ...errors import ArgumentError
from ..store.names import step_index

_BEST_OF: Final = ("min", "max")
_BEST_PARTS: Final = 3  # how many, of what, and of which end


@dataclass(frozen=True)
class Keep:
    """Which steps `prune` keeps: those that any of these rules names.

    Parameters
    ----------
    latest
        Number of newest steps to keep.
    every
        Keep the steps that are a multiple of this number.
    best
        Keep the best steps by a metric: how many, the key of the metric in the metadata, and
        ``"min"`` or ``"max"``, as in ``(3, "loss", "min")``. On a tie the later step is kept. A
        step whose value is missing, NaN or not a number is never among the best.
    steps
        Keep these steps.
    newer_than
        Keep the steps whose files were written within this `timedelta`, or after this `datetime`. A
        file dated in the future, because the clock was set back, counts as newer.

    Raises
    ------
    ArgumentError
        For a value of another form, or without any rule.

    Examples
    --------
    >>> Keep(latest=3, every=100, best=(2, "loss", "min"))
    Keep(latest=3, every=100, best=(2, 'loss', 'min'), steps=(), newer_than=None)
    """

    latest: int | None = None
    every: int | None = None
    best: tuple[int, str, Literal["min", "max"]] | None = None
    steps: Iterable[int] = ()
    newer_than: timedelta | datetime | None = None

    def __post_init__(self) -> None:
        try:
            steps = tuple(sorted({step_index(step) for step in self.steps}))
        except TypeError:
            raise ArgumentError(f"steps must be integers; got {self.steps!r}") from None
        object.__setattr__(self, "steps", steps)
        for name in ("latest", "every"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _positive(value, name))
        if self.best is not None:
            object.__setattr__(self, "best", _checked_best(self.best))
        limit = self.newer_than
        if limit is not None and not isinstance(limit, timedelta | datetime):
            raise ArgumentError(f"newer_than must be a timedelta or a datetime; got {limit!r}")
        if not (self.latest or self.every or self.best or self.steps or limit is not None):
            raise ArgumentError("Keep() would keep nothing: give latest, every, best, steps or newer_than")

    def choose(
        self,
        there: Sequence[int],
        metadata: Callable[[int], Mapping[str, str]],
        written: Callable[[int], float],
    ) -> dict[int, str]:
        """Return the steps that stay, in rising order, and with each what wants it.

        Parameters
        ----------
        there
            The steps of a chain, rising.
        metadata
            Returns the metadata of a step. It is called only for `best`.
        written
            Returns when the file of a step was written, in seconds since 1970. It is called only
            for `newer_than`.
        """
        found: dict[int, str] = {}
        if self.latest is not None:
            found.update(dict.fromkeys(there[-self.latest :], "latest"))
        if self.every is not None:
            every = self.every
            _add(found, (step for step in there if step % every == 0), f"every {every}")
        if self.best is not None:
            _add(found, self._best(there, metadata), f"best {self.best[1]}")
        _add(found, (step for step in self.steps if step in there), "asked for")
        if self.newer_than is not None:
            _add(found, self._newer(there, written), "newer")
        return dict(sorted(found.items()))

    def _best(self, there: Iterable[int], metadata: Callable[[int], Mapping[str, str]]) -> list[int]:
        count, key, which = self.best or (0, "", "min")
        sign = 1 if which == "min" else -1
        values = {step: _number(metadata(step).get(key)) for step in there}
        ranked = sorted((sign * value, -step) for step, value in values.items() if not math.isnan(value))
        return [-step for _, step in ranked[:count]]

    def _newer(self, there: Iterable[int], written: Callable[[int], float]) -> list[int]:
        limit = self.newer_than
        if isinstance(limit, timedelta):
            oldest = time.time() - limit.total_seconds()
        else:
            oldest = limit.timestamp() if limit is not None else math.inf
        return [step for step in there if written(step) >= oldest]


def check_keep(keep: Keep | None) -> Keep | None:
    """Return the parameter `keep` of a chain; raise ``ArgumentError`` if it is something else."""
    if keep is not None and not isinstance(keep, Keep):
        raise ArgumentError(f"keep must be an lccodec.Keep; got {keep!r}")
    return keep


def _add(found: dict[int, str], steps: Iterable[int], why: str) -> None:
    for step in steps:
        found[step] = f"{found[step]}, {why}" if step in found else why


def _positive(value: object, name: str) -> int:
    index = as_integer(value)
    if index is None or index < 1:
        raise ArgumentError(f"{name} must be a positive integer; got {value!r}")
    return index


def _checked_best(best: object) -> tuple[int, str, str]:
    if not isinstance(best, tuple | list) or len(best) != _BEST_PARTS:
        raise ArgumentError(f'best must be a tuple such as (3, "loss", "min"); got {best!r}')
    count, key, which = best
    if not isinstance(key, str) or which not in _BEST_OF:
        raise ArgumentError(
            f'best must be a tuple such as (3, "loss", "min") or (3, "accuracy", "max"); got {best!r}'
        )
    return _positive(count, "the first of best"), key, which


def _number(text: str | None) -> float:
    """Return a value of the metadata as a number; NaN for others."""
    try:
        return math.nan if text is None else float(text)
    except ValueError:
        return math.nan
