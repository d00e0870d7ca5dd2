"""What should be looked at in a run: checkpoints that cannot be restored, arrays that stand out.

A flag is a hint. The bounds are wide on purpose: a run that learns has none, or few.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from ...container.figures import UNKNOWN
from ..report import ArrayRow, Checkpoint, Flag, Series

_ORDER: Final = {"error": 0, "warning": 1, "note": 2}

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

#: More arrays with the same flag at the same step are one flag.
_MOST_ALIKE: Final = 8
_NAMED: Final = 3


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
    sentence = (
        f"At step {first} the error is {error:.2g} of the weights' spread; it should be below a third.{more}"
    )
    return [Flag("warning", "coarse", None, first, sentence)]


def array_flags(
    rows: Sequence[ArrayRow], steps: Sequence[int], figures: Mapping[str, Sequence[Series]]
) -> list[Flag]:
    """Return the flags of arrays, by their figures at the shown steps."""
    moving = _moving(rows, figures["movement"], len(steps))
    weights = [x for row, x in zip(rows, figures["movement"], strict=True) if row.role == "weight"]
    flags: list[Flag] = []
    for index, row in enumerate(rows):
        own = {name: series[index] for name, series in figures.items()}
        flags += _not_finite(row, steps, own["not_finite"])
        dead = list(_dead(row, steps, own["zeros"]))
        flags += (
            dead
            or [*_frozen(row, steps, own["movement"], moving)]
            or _stalled(row, steps, own["movement"], weights)
        )
        flags += _exploding(row, steps, own)
    return _grouped(flags)


def in_order(flags: Sequence[Flag]) -> list[Flag]:
    """Return flags with the most severe first, then by step, then as they came."""
    return sorted(
        flags, key=lambda flag: (_ORDER[flag.severity], math.inf if flag.step is None else flag.step)
    )


def _moving(rows: Sequence[ArrayRow], movement: Sequence[Series], count: int) -> list[bool]:
    """Return for each step whether any weight moves."""
    weights = [series for row, series in zip(rows, movement, strict=True) if row.role == "weight"]
    return [any(series[i] for series in weights) for i in range(count)]


def _not_finite(row: ArrayRow, steps: Sequence[int], counts: Series) -> Iterator[Flag]:
    places = [i for i, count in enumerate(counts) if count]
    if not places:
        return
    first, stays = places[0], bool(counts[-1])
    count = int(counts[places[-1]] or 0)
    last = "" if stays else f", and none at step {steps[-1]}"
    sentence = (
        f"{count:,} of {row.size:,} elements are NaN or infinite at step {steps[places[-1]]}, "
        f"the first at step {steps[first]}{last}."
    )
    yield Flag("error" if stays else "warning", "not finite", row.name, steps[first], sentence)


def _dead(row: ArrayRow, steps: Sequence[int], zeros: Series) -> Iterator[Flag]:
    count = _run_at_end(zeros, 1.0)
    if not row.size or count < min(_LEAST_STEPS, len(steps)) or len(steps) == 1:
        return
    if row.role == "first_moment" and not row.quantizer.startswith("Lossless"):
        return  # small first moments decode as 0
    if all(share in (1.0, None) for share in zeros):
        yield Flag("note", "dead", row.name, None, "All elements are 0 at every shown step.")
    else:
        step = steps[len(steps) - count]
        yield Flag("warning", "dead", row.name, step, f"All elements are 0 from step {step} on.")


def _frozen(row: ArrayRow, steps: Sequence[int], movement: Series, moving: Sequence[bool]) -> Iterator[Flag]:
    count = _run_at_end(movement, 0.0)
    start = len(steps) - count
    if row.role != "weight" or count < _LEAST_STEPS or not any(moving[start:]):
        return
    if any(movement[:start]):
        step = steps[start - 1]
        sentence = f"It does not move after step {step}, while other weights do."
        yield Flag("warning", "frozen", row.name, step, sentence)
    else:
        sentence = "It does not move at any shown step, while other weights do."
        yield Flag("note", "frozen", row.name, None, sentence)


def _stalled(
    row: ArrayRow, steps: Sequence[int], series: Series, weights: Sequence[Series]
) -> Iterator[Flag]:
    """Yield a flag if a weight nearly stands from some step on, while others move as before."""
    highest = max((x for x in series if x is not None), default=0.0)
    latest = [x for x in series[-_LEAST_STEPS:] if x is not None and x < _STALLED * highest]
    if row.role != "weight" or len(latest) < _LEAST_STEPS:
        return
    for place in range(_EARLIER, len(series) - _LEAST_STEPS + 1):
        before = _middle(series[:place])
        if all(x is None or x < _STALLED * before for x in series[place:]):
            if any(_middle(each[place:]) > _MOVING * _middle(each[:place]) for each in weights):
                sentence = f"It hardly moves from step {steps[place]} on, while other weights do."
                yield Flag("warning", "frozen", row.name, steps[place], sentence)
            return


def _middle(series: Series) -> float:
    return statistics.median([x for x in series if x is not None] or [0.0])


def _run_at_end(series: Series, value: float) -> int:
    """Return how many numbers at the end of a series are equal to a value."""
    count = 0
    while count < len(series) and series[-1 - count] == value:
        count += 1
    return count


def _exploding(row: ArrayRow, steps: Sequence[int], own: Mapping[str, Series]) -> Iterator[Flag]:
    """Yield at most one flag, for the first step at which a figure is far above those before."""
    for name, factor in _FACTORS.get(row.role, {}).items():
        earlier: list[float] = []
        for step, value in zip(steps, own[name], strict=True):
            if not value or not math.isfinite(value):
                continue
            if len(earlier) >= _EARLIER and (name != "movement" or value > _LEAST_MOVEMENT):
                times = value / statistics.median(earlier)
                if times > factor and _stands_out(value, earlier):
                    what = "movement" if name == "movement" else "root mean square"
                    sentence = (
                        f"Its {what} at step {step} is {times:,.0f} times the median of the steps before."
                    )
                    severe = times > _SEVERE[row.role]
                    severity: Literal["error", "warning"] = "error" if severe else "warning"
                    yield Flag(severity, "exploding", row.name, step, sentence)
                    return
            earlier.append(value)


def _stands_out(value: float, earlier: Sequence[float]) -> bool:
    logarithms = [math.log(each) for each in earlier]
    middle = statistics.median(logarithms)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in logarithms)
    return math.log(value) - middle > _SPREADS * max(spread, _LEAST_SPREAD)


def _grouped(flags: Sequence[Flag]) -> list[Flag]:
    """Return flags; those of many arrays that are alike as one flag of all of them."""
    alike: dict[tuple[str, str, int | None], list[Flag]] = {}
    for flag in flags:
        alike.setdefault((flag.severity, flag.kind, flag.step), []).append(flag)
    found: list[Flag] = []
    for group in alike.values():
        if len(group) <= _MOST_ALIKE:
            found += group
            continue
        names = ", ".join(str(flag.array) for flag in group[:_NAMED])
        rest = f"{len(group) - _NAMED} more"
        sentence = f"{len(group)} arrays: {names} and {rest}. The first: {_continued(group[0].sentence)}"
        found.append(replace(group[0], array=None, sentence=sentence))
    return found


def _continued(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
