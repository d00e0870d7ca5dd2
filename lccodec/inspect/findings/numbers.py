"""What stands out of the numbers beside the arrays, such as a loss: jumps, ends, settings.

Of what should fall or rise, the name tells which it should. Numbers are compared with the noise of
their last changes, so that a noisy run has no flags.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from ..report import Flag, Series

#: Words in the name of a number that should fall, and that should rise.
_FALLING: Final = ("loss", "perplexity", "nll", "error", "wer", "rmse", "mse", "mae")
_RISING: Final = ("acc", "accuracy", "bleu", "f1", "auc", "score", "reward", "return")

_EARLIER: Final = 4  # changes before a jump, at least
_RECENT: Final = 24
_NEIGHBOURS: Final = 3  # a jump is one from the worst of so many numbers before
_SPREADS: Final = 4  # a jump is larger than so many times the median of recent changes
_SPREADS_ALONE: Final = 6  # the same, if no number after it is as bad: that may be noise
_LEAST_JUMP: Final = 0.2  # of the number before
_LEAST_FACTOR: Final = 1.3  # of what should fall and is positive
_LEAST_LASTING: Final = 0.1  # of the number before, where no later number is as good again
_LASTING: Final = 3  # later numbers, at least
_LEAST_DIP: Final = 3.0  # times lower than the number before
_LEAST_CONSTANT: Final = 3  # checkpoints before and after a setting was changed

Points = Sequence[tuple[int, float]]


def number_flags(scalars: Mapping[str, Series], steps: Sequence[int | None]) -> list[Flag]:
    """Return the flags of numbers that were saved beside the arrays."""
    return [flag for name, series in scalars.items() for flag in _number_flags(name, series, steps)]


def calmed(flags: Sequence[Flag], scalars: Mapping[str, Series], steps: Sequence[int | None]) -> list[Flag]:
    """Return flags; what explodes is a warning if the loss goes on falling all the same."""
    goals = [(sign, _points(series, steps)) for name, series in scalars.items() if (sign := good(name))]

    def goes_on(step: int | None) -> bool:
        return any(points for _, points in goals) and all(
            _better_than_before(sign, points, step) for sign, points in goals
        )

    return [
        replace(flag, severity="warning")
        if (flag.severity, flag.kind) == ("error", "exploding") and goes_on(flag.step)
        else flag
        for flag in flags
    ]


def good(name: str) -> int:
    """Return -1 if a number should fall, 1 if it should rise, 0 if that is not known."""
    words = name.lower().replace("/", "_").replace("-", "_").replace(".", "_").replace(" ", "_").split("_")
    if any(word in _FALLING for word in words):
        return -1
    return 1 if any(word in _RISING for word in words) else 0


def course(scalars: Mapping[str, Series]) -> str | None:
    """Return how the first number that should fall or rise went."""
    for name, series in scalars.items():
        known = [x for x in series if x is not None and math.isfinite(x)]
        if good(name) and len(known) > 1:
            word = "falls" if known[-1] < known[0] else "rises"
            return f"{name} {word} from {known[0]:.3g} to {known[-1]:.3g}"
    return None


def _points(series: Series, steps: Sequence[int | None]) -> list[tuple[int, float]]:
    return [(step, x) for step, x in zip(steps, series, strict=True) if step is not None and x is not None]


def _better_than_before(sign: int, points: Points, step: int | None) -> bool:
    """Return whether the last number is better than the last one before a step."""
    before = [x for at, x in points if step is not None and at < step]
    return bool(before) and math.isfinite(points[-1][1]) and sign * (points[-1][1] - before[-1]) > 0


def _number_flags(name: str, series: Series, steps: Sequence[int | None]) -> Iterator[Flag]:
    points = _points(series, steps)
    unknown = [place for place, (_, x) in enumerate(points) if not math.isfinite(x)]
    if unknown:
        stays = not math.isfinite(points[-1][1])
        sentence = f"{name} is not finite{'' if stays else ', but is later'}."
        step, since = points[unknown[0]][0], _step_before(points, unknown[0])
        yield Flag("error" if stays else "warning", "not finite", None, step, sentence, since)
    points = [(step, x) for step, x in points if math.isfinite(x)]
    if (sign := good(name)) != 0:
        yield from _jumps(name, points, sign)
    else:
        yield from _settings(name, points)


def _step_before(points: Points, place: int) -> int | None:
    return points[place - 1][0] if place else None


class _Scale(NamedTuple):
    """Numbers as they are compared: higher is worse.

    What should fall and is positive, such as a loss, is compared by ratios: late in a run, a small
    change may be a large one.
    """

    values: Sequence[float]
    numbers: Sequence[float]
    by_ratio: bool

    def least(self, place: int, share: float, factor: float) -> float:
        """Return the least change that counts at a place, by the number before."""
        return math.log(factor) if self.by_ratio else share * abs(self.numbers[place - 1])

    def noise(self, place: int) -> float:
        """Return the median of the changes before a place."""
        recent = self.values[max(place - _RECENT, 0) : place]
        return statistics.median(abs(now - then) for then, now in pairwise(recent))

    @classmethod
    def of(cls, points: Points, sign: int) -> _Scale:
        """Return the scale of a number that should fall (-1) or rise (1)."""
        numbers = [x for _, x in points]
        by_ratio = sign < 0 and min(numbers, default=0) > 0
        return cls([math.log(x) if by_ratio else -sign * x for x in numbers], numbers, by_ratio)


def _jumps(name: str, points: Points, sign: int) -> Iterator[Flag]:
    """Yield at most one flag: the first change for the worse that is far above the noise.

    It is an error if the run ends no better than it began.
    """
    scale = _Scale.of(points, sign)
    place = next((i for i in range(_EARLIER + 1, len(points)) if _is_jump(scale, i)), None)
    lost = _all_lost(scale)
    above = "above" if sign < 0 else "below"
    start = f", {above} where it started ({points[0][1]:.3g})" if lost else ""
    if place is not None:
        before, now, last = (points[i][1] for i in (place - 1, place, -1))
        word, first = "rises" if now > before else "falls", place
        sentence = f"{name} {word} suddenly from {before:.3g} to {now:.3g}"
        if _is_dip(scale, place - 1):
            first = place - 1
            low = points[place - 2][1]
            sentence = f"{name} falls suddenly from {low:.3g} to {before:.3g}, then rises to {now:.3g}"
        end = "" if place == len(points) - 1 and not lost else f", and ends at {last:.3g}{start}"
        severity: Literal["error", "warning"] = "error" if lost else "warning"
        yield Flag(severity, "jumping", None, points[first][0], f"{sentence}{end}.", points[first - 1][0])
    elif lost:
        best = min(range(len(points)), key=scale.values.__getitem__)
        step, number = points[best]
        sentence = f"{name} ends at {points[-1][1]:.3g}{start}. Its best was {number:.3g}, at step {step}."
        yield Flag("error", "jumping", None, points[best + 1][0], sentence)


def _is_jump(scale: _Scale, place: int) -> bool:
    """Return whether a number is far worse than those before.

    One that is worse than its neighbours is no jump, if a noisy run may have it. A smaller rise
    counts if no later number is as good again as those before.
    """
    values, usual = scale.values, scale.noise(place)
    worst = max(values[max(place - _NEIGHBOURS, 0) : place])
    least = scale.least(place, _LEAST_JUMP, _LEAST_FACTOR)
    rise, later = values[place] - worst, values[place + 1 :]
    near = later[:_NEIGHBOURS]
    stays = bool(near) and max(near) > worst + max(_SPREADS * usual, least)
    if rise > max((_SPREADS if stays else _SPREADS_ALONE) * usual, least):
        return True
    small = scale.least(place, _LEAST_LASTING, 1 + _LEAST_LASTING)
    return len(later) >= _LASTING and min(later) > worst and rise > max(_SPREADS * usual, small)


def _is_dip(scale: _Scale, place: int) -> bool:
    """Return whether a number is suddenly several times lower than the one before."""
    fall = scale.values[place - 1] - scale.values[place]
    return scale.by_ratio and fall > max(_SPREADS_ALONE * scale.noise(place), math.log(_LEAST_DIP))


def _all_lost(scale: _Scale) -> bool:
    """Return whether a run ends no better than it began, and was clearly better between."""
    values = scale.values
    if len(values) <= _EARLIER + 1 or min(values[-2:]) < values[0]:
        return False
    best = min(statistics.median(values[i : i + 3]) for i in range(len(values) - 2))
    least = scale.least(1, _LEAST_JUMP, _LEAST_FACTOR)
    return values[0] - best > max(_SPREADS_ALONE * scale.noise(len(values)), least)


def _settings(name: str, points: Points) -> Iterator[Flag]:
    """Yield a flag if a number that is constant, such as a rate, was changed once."""
    places = [i for i in range(1, len(points)) if points[i][1] != points[i - 1][1]]
    if len(places) != 1 or not _LEAST_CONSTANT <= places[0] <= len(points) - _LEAST_CONSTANT:
        return
    (since, before), (step, now) = points[places[0] - 1], points[places[0]]
    sentence = f"{name} changes once, from {before:.3g} to {now:.3g}."
    yield Flag("warning" if abs(now) > abs(before) else "note", "changed", None, step, sentence, since)
