"""What should be looked at in a run: checkpoints that cannot be restored, arrays that stand out.

A flag is a hint. The bounds are wide on purpose: a run that learns has none, or few.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from ...container.figures import UNKNOWN
from ..report import ArrayRow, Checkpoint, Flag, Series
from .grouping import Finding, Severity, grouped

_ORDER: Final = {"error": 0, "warning": 1, "note": 2}
_FIRST_KINDS: Final = ("not finite", "jumping", "changed", "shifting")  # of those at the same step

#: Shown steps in a row that are all 0, or without any movement: fewer may be a pause.
_LEAST_STEPS: Final = 3

_STALLED: Final = 1 / 50  # of what a weight moved before: it hardly moves
_MOVING: Final = 1 / 5  # of the same: it still moves

#: What is exploding is above so many times the median of the steps before, by role and figure.
#: Second moments grow as the squares of gradients.
_FACTORS: Final[Mapping[str, Mapping[str, float]]] = {
    "weight": {"movement": 10, "rms": 10},
    "first_moment": {"rms": 100},
    "second_moment": {"rms": 10_000},
}
_SEVERE: Final = {"weight": 1_000, "first_moment": 1_000, "second_moment": 1_000_000}  # times the median
_LEAST_MOVEMENT: Final = 0.02  # of weights, that may be exploding
_SPREADS: Final = 6  # above the median, in robust standard deviations of the logarithm
_LEAST_SPREAD: Final = 0.3  # of the logarithm: what is very regular may also rise a little
_EARLIER: Final = 4  # steps before, at least

_LARGEST_ERROR: Final = 1 / 3  # of weights, in their spread: beyond it, what they learned drowns

_MUCH_FARTHER: Final = 10  # times as far as most weights
_SAME: Final = 0.01  # of the value: elements that lie no farther apart are nearly the same


def checkpoint_flags(
    checkpoints: Sequence[Checkpoint], lacking: Collection[int | None] = frozenset()
) -> list[Flag]:
    """Return a flag for each problem of checkpoints; `lacking` are those without a parent."""
    steps: dict[str, list[int | None]] = {}
    for checkpoint in checkpoints:
        for problem in checkpoint.problems[:1]:
            steps.setdefault(problem, []).append(checkpoint.step)
    flags = []
    for problem, (first, *others) in steps.items():
        where = "The file" if first is None else f"Step {first}"
        more = f" Nor can {_count(len(others), 'later step')}." if others else ""
        kind: Literal["missing", "damaged"] = "missing" if first in lacking else "damaged"
        flags.append(Flag("error", kind, None, first, f"{where} cannot be fully restored: {problem}.{more}"))
    return flags


def coarse_flags(checkpoints: Sequence[Checkpoint]) -> list[Flag]:
    """Return a flag if restored weights are too far off at any checkpoint, as its save measured."""
    errors = [(each.step, each.figures.get("weight", UNKNOWN).error_in_spreads) for each in checkpoints]
    coarse = [(step, error) for step, error in errors if error is not None and error >= _LARGEST_ERROR]
    if not coarse:
        return []
    first, error = coarse[0]
    more = f" The same at {_count(len(coarse) - 1, 'later step')}." if len(coarse) > 1 else ""
    sentence = f"Restored weights are off by {error:.2g} of their spread; it should be below a third.{more}"
    return [Flag("warning", "coarse", None, first, sentence)]


def array_flags(
    rows: Sequence[ArrayRow],
    steps: Sequence[int],
    figures: Mapping[str, Sequence[Series]],
    shifted: Mapping[int, float] | None = None,
) -> list[Flag]:
    """Return the flags of arrays, by their figures at the shown steps.

    `shifted` has the steps at which most weights move farther, and how many times as far. There,
    only weights that move much farther than these are flagged.
    """
    moving = _moving(rows, figures["movement"], len(steps))
    weights = [x for row, x in zip(rows, figures["movement"], strict=True) if row.role == "weight"]
    found: list[Finding] = []
    for index, row in enumerate(rows):
        own = {name: series[index] for name, series in figures.items()}
        found += _not_finite(row, steps, own["not_finite"])
        dead = list(_dead(row, steps, own["zeros"]))
        found += dead or [*_frozen(row, own, len(steps), moving)] or _stalled(row, own, weights)
        found += _exploding(row, steps, own, shifted or {})
    return grouped(found, rows, steps)


def in_order(flags: Sequence[Flag]) -> list[Flag]:
    """Return flags with the most severe first, then by step, then with what says most first."""

    def key(flag: Flag) -> tuple[int, float, int]:
        rank = _FIRST_KINDS.index(flag.kind) if flag.kind in _FIRST_KINDS else len(_FIRST_KINDS)
        return _ORDER[flag.severity], math.inf if flag.step is None else flag.step, rank

    return sorted(flags, key=key)


def _moving(rows: Sequence[ArrayRow], movement: Sequence[Series], count: int) -> list[bool]:
    """Return for each step whether any weight moves."""
    weights = [series for row, series in zip(rows, movement, strict=True) if row.role == "weight"]
    return [any(series[i] for series in weights) for i in range(count)]


def _not_finite(row: ArrayRow, steps: Sequence[int], counts: Series) -> Iterator[Finding]:
    places = [i for i, count in enumerate(counts) if count]
    if not places:
        return
    first, stays = places[0], bool(counts[-1])
    count = int(counts[places[-1]] or 0)
    last = "" if stays else f", and none at step {steps[-1]}"
    one = (
        f"has elements that are NaN or infinite: {count:,} of {row.size:,} at step {steps[places[-1]]}{last}"
    )
    many = "have elements that are NaN or infinite"
    yield Finding("error" if stays else "warning", "not finite", row, first, one, many)


def _dead(row: ArrayRow, steps: Sequence[int], zeros: Series) -> Iterator[Finding]:
    count = _run_at_end(zeros, 1.0)
    if not row.size or count < min(_LEAST_STEPS, len(steps)) or len(steps) == 1:
        return
    if row.role == "first_moment" and not row.quantizer.startswith("Lossless"):
        return  # small first moments decode as 0
    if all(share in (1.0, None) for share in zeros):
        words = "0 everywhere, at every shown step"
        yield Finding("note", "dead", row, None, f"is {words}", f"are {words}")
    else:
        one, many = "becomes 0 everywhere, and stays so", "become 0 everywhere, and stay so"
        yield Finding("warning", "dead", row, len(steps) - count, one, many)


def _frozen(
    row: ArrayRow, own: Mapping[str, Series], steps: int, moving: Sequence[bool]
) -> Iterator[Finding]:
    count = _run_at_end(own["movement"], 0.0)
    start = steps - count
    if row.role != "weight" or count < _LEAST_STEPS or not any(moving[start:]):
        return
    value = _constant(own, steps - 1)
    if any(own["movement"][:start]):
        one, many = "stops moving, while other weights go on", "stop moving, while other weights go on"
        yield Finding("warning", "frozen", row, start, one + value, many)
    else:
        rest = "not move at any shown step, while other weights do"
        yield Finding("note", "frozen", row, None, f"does {rest}{value}", f"do {rest}")


def _stalled(row: ArrayRow, own: Mapping[str, Series], weights: Sequence[Series]) -> Iterator[Finding]:
    """Yield a finding if a weight nearly stands from some step on, while others move as before."""
    series = own["movement"]
    highest = max((x for x in series if x is not None), default=0.0)
    latest = [x for x in series[-_LEAST_STEPS:] if x is not None and x < _STALLED * highest]
    if row.role != "weight" or len(latest) < _LEAST_STEPS:
        return
    for place in range(_EARLIER, len(series) - _LEAST_STEPS + 1):
        before = _middle(series[:place])
        if all(x is None or x < _STALLED * before for x in series[place:]):
            if any(_middle(each[place:]) > _MOVING * _middle(each[:place]) for each in weights):
                now = f"{_number(_middle(series[place:]))} of its size, before {_number(before)}"
                one = f"hardly moves any more, while other weights do: {now}{_constant(own, place)}"
                yield Finding("warning", "frozen", row, place, one, "hardly move any more, while others do")
            return


def _constant(own: Mapping[str, Series], place: int) -> str:
    """Return the value of an array, in words, if all of its elements have nearly the same."""
    low, high = own["minimum"][place], own["maximum"][place]
    if low is None or high is None or not high or high - low > _SAME * max(abs(low), abs(high)):
        return ""
    return f"; all its elements are {'' if low == high else 'about '}{_number(high)}"


def _middle(series: Series) -> float:
    return statistics.median([x for x in series if x is not None] or [0.0])


def _run_at_end(series: Series, value: float) -> int:
    """Return how many numbers at the end of a series are equal to a value."""
    count = 0
    while count < len(series) and series[-1 - count] == value:
        count += 1
    return count


def _exploding(
    row: ArrayRow, steps: Sequence[int], own: Mapping[str, Series], shifted: Mapping[int, float]
) -> Iterator[Finding]:
    """Yield at most one finding, for the first step at which a figure is far above those before."""
    for name, factor in _FACTORS.get(row.role, {}).items():
        earlier: list[float] = []
        for place, value in enumerate(own[name]):
            if not value or not math.isfinite(value):
                continue
            if len(earlier) >= _EARLIER and (name != "movement" or value > _LEAST_MOVEMENT):
                before = statistics.median(earlier)
                times = value / before
                if times > factor and _stands_out(value, earlier):
                    if name == "movement" and times < _MUCH_FARTHER * shifted.get(steps[place], 0):
                        return  # as most weights
                    yield _explosion(row, name, place, (value, before), own)
                    return
            earlier.append(value)


def _explosion(
    row: ArrayRow, name: str, place: int, figures: tuple[float, float], own: Mapping[str, Series]
) -> Finding:
    now, before = figures
    times = now / before
    if name == "movement":
        verbs, what = ("moves", "move"), f"{_number(now)} of its size, before {_number(before)}"
        words = "times as far as before"
    else:
        verbs, what = ("is", "are"), f"root mean square {_number(now)}, before {_number(before)}"
        words = "times as large as before"
    severity: Severity = "error" if times > _SEVERE[row.role] else "warning"
    one = f"{verbs[0]} {times:,.0f} {words} ({what}){_constant(own, place)}"
    return Finding(severity, "exploding", row, place, one, f"{verbs[1]} {{}} {words}", times)


def _stands_out(value: float, earlier: Sequence[float]) -> bool:
    logarithms = [math.log(each) for each in earlier]
    middle = statistics.median(logarithms)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in logarithms)
    return math.log(value) - middle > _SPREADS * max(spread, _LEAST_SPREAD)


def _number(value: float) -> str:
    """Return a number in two digits, or whole."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.2g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
