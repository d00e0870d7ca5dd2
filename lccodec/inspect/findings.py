"""What should be looked at in a run: flags of what stands out, and a verdict in a few sentences.

A flag is a hint. The bounds are wide on purpose: a run that learns has none, or few. What is alike
of several arrays at the same step is one flag.

Flags are of checkpoints that cannot be restored, and of arrays that stand out. Others are of the
numbers beside the arrays, such as a loss: jumps, ends, settings. The name tells whether a number
should fall or rise, and it is compared with the noise of its last changes, so that a noisy run has
no flags. Others are of what most arrays do at the same step: gradients that grow, weights that move
farther. One array may do that by chance. If most do it at once, something has changed for all of
them: the data, their order, the rate. A loss shows it later, or not at all. The last are of steps
from which on a state has other arrays.

A verdict is a hint, too: it says what a reader who has a minute should look at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ..container.manifest import UNKNOWN
from ..container.tree import unescaped
from ..element_types import Array
from ..policy.roles import Role
from .report import ArrayRow, Checkpoint, Flag, Series, Verdict

Severity: TypeAlias = Literal["error", "warning", "note"]

_NAMED: Final = 3
_NOUNS: Final = {
    "weight": "weights",
    "first_moment": "first moments",
    "second_moment": "second moments",
    "other": "arrays",
}


class Finding(NamedTuple):
    """What stands out of one array, in words that follow its name, and that follow several.

    `place` is that of its step among the shown ones. With a number, those of several arrays stand
    where `many` has braces.
    """

    severity: Severity
    kind: Literal["dead", "frozen", "exploding", "not finite"]
    row: ArrayRow
    place: int | None
    one: str
    many: str
    number: float | None = None


def grouped(findings: Sequence[Finding], rows: Sequence[ArrayRow], steps: Sequence[int]) -> list[Flag]:
    """Return a flag for all findings that say the same of arrays of a role at the same step."""
    alike: dict[tuple[str, str, str, int | None], list[Finding]] = {}
    for finding in findings:
        key = (finding.severity, finding.many, finding.row.role, finding.place)
        alike.setdefault(key, []).append(finding)
    return [_flag(group, rows, steps) for group in alike.values()]


def _flag(group: Sequence[Finding], rows: Sequence[ArrayRow], steps: Sequence[int]) -> Flag:
    first = group[0]
    if len(group) == 1:
        sentence = f"{first.row.label} {first.one}."
    else:
        total = sum(row.role == first.row.role for row in rows)
        which = f"All {total}" if len(group) == total else f"{len(group)}"
        words = first.many.format(_range([finding.number for finding in group if finding.number is not None]))
        names = _listed([finding.row.label for finding in group])
        sentence = f"{which} {_NOUNS[first.row.role]} {words}: {names}."
    return Flag(
        first.severity,
        first.kind,
        first.row.name,
        None if first.place is None else steps[first.place],
        sentence,
        steps[first.place - 1] if first.place else None,
        [finding.row.name for finding in group],
    )


def _range(numbers: Sequence[float]) -> str:
    low, high = (f"{end(numbers, default=0):,.0f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _listed(names: Sequence[str]) -> str:
    separator = "; " if any(", " in name for name in names) else ", "
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return separator.join(names[:_NAMED]) + more


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

    def is_better(sign: int, points: Points, step: int | None) -> bool:
        """Return whether the last number is better than the last one before a step."""
        before = [x for at, x in points if step is not None and at < step]
        return bool(before) and math.isfinite(points[-1][1]) and sign * (points[-1][1] - before[-1]) > 0

    def goes_on(step: int | None) -> bool:
        return any(points for _, points in goals) and all(is_better(*goal, step) for goal in goals)

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


def _number_flags(name: str, series: Series, steps: Sequence[int | None]) -> Iterator[Flag]:
    points = _points(series, steps)
    unknown = [place for place, (_, x) in enumerate(points) if not math.isfinite(x)]
    if unknown:
        stays = not math.isfinite(points[-1][1])
        sentence = f"{name} is not finite{'' if stays else ', but is later'}."
        first = unknown[0]
        step, since = points[first][0], points[first - 1][0] if first else None
        yield Flag("error" if stays else "warning", "not finite", None, step, sentence, since)
    points = [(step, x) for step, x in points if math.isfinite(x)]
    if (sign := good(name)) != 0:
        yield from _jumps(name, points, sign)
    else:
        yield from _settings(name, points)


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
    """Yield the first change for the worse far above the noise: an error if all is lost."""
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
    """Return whether a number is far worse than those before, and noise cannot explain it.

    A smaller rise counts if no later number is as good again as those before.
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


_EARLIER_MOVES: Final = 4  # changes before, at least
_RECENT_MOVES: Final = 12
_MOVES_BEFORE: Final = 3  # what shifts is above each of so many numbers before
_MOVE_SPREADS: Final = 4  # and by more than so many times the median of recent changes
_LEAST_RISE: Final = math.log(1.5)
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

    `steps` are the shown ones, `saved` all. Movements are compared where as many lie between saves.
    """
    before = dict(zip(saved[1:], saved, strict=False))
    intervals = [step - before[step] if step in before else None for step in steps]
    known = [interval for interval in intervals if interval is not None]
    usual = statistics.mode(known) if known else None
    jumps = []
    for role, figure in _FIGURES.items():
        chosen = [place for place, row in enumerate(rows) if row.role == role]
        places = [i for i, interval in enumerate(intervals) if figure != "movement" or interval == usual]
        values = np.array([[figures[figure][row][place] for row in chosen] for place in places], float)
        for place, rises in _rises(values):
            own = [rows[row] for row, rise in zip(chosen, rises, strict=True) if rise > _LEAST_RISE]
            some = _known(rises)
            jumps.append(Shift(role, places[place], math.exp(np.median(some)), own, some.size))
            break
    return jumps


def shift_flags(jumps: Sequence[Shift], steps: Sequence[int]) -> list[Flag]:
    """Return the flags of shifts."""
    flags = []
    for shift in jumps:
        step, since = steps[shift.place], steps[shift.place - 1]
        names = [row.name for row in shift.rows]
        flags.append(Flag("warning", "shifting", None, step, shift.sentence, since, names))
    return flags


def _rises(values: Array) -> Iterator[tuple[int, Array]]:
    """Yield places at which most arrays, in columns, rise far above their noise.

    Also how far the logarithm of each rises; NaN where it is not known.
    """
    with np.errstate(all="ignore"):
        logarithms = np.log(values)
    logarithms[~np.isfinite(logarithms)] = np.nan
    apart = map(_known, np.abs(np.diff(logarithms, axis=0)))
    changes = np.array([np.median(known) if known.size else np.nan for known in apart])
    for place in range(_EARLIER_MOVES + 1, len(logarithms)):
        recent = _known(changes[max(place - 1 - _RECENT_MOVES, 0) : place - 1])
        rises = logarithms[place] - np.fmax.reduce(logarithms[place - _MOVES_BEFORE : place])
        known = _known(rises)
        if recent.size < _EARLIER_MOVES or known.size < _LEAST_ARRAYS:
            continue
        if np.median(known) > max(_MOVE_SPREADS * np.median(recent), _LEAST_RISE):
            yield place, rises


def _known(numbers: Array) -> Array:
    known: Array = numbers[~np.isnan(numbers)]
    return known


_MOMENTS: Final[tuple[Role, ...]] = ("first_moment", "second_moment")


def change_flags(
    changes: Sequence[tuple[int, Sequence[str], Sequence[str]]],
    steps: Sequence[int] = (),
    roles: Mapping[str, Role] | None = None,
) -> list[Flag]:
    """Return a flag for each step from which on the state has other arrays.

    `changes` has steps, the names of arrays that are new at each, and of those that are gone.
    Arrays that replace others are named by the parts of their names that the others do not have. If
    by their `roles` all that change are moments, the optimizer was exchanged. `steps` are all of
    the run.

    >>> change_flags([(40, ["opt/0/m", "opt/1/m"], ["opt/0/exp_avg", "opt/0/max"])])[0].sentence
    '2 arrays are new (m) and 2 are gone (exp_avg, max).'
    >>> change_flags([(40, ["model/head"], [])])[0].sentence
    '1 array is new (model/head).'
    >>> moments = {"m/w": "first_moment", "exp_avg/w": "first_moment"}
    >>> change_flags([(40, ["m/w"], ["exp_avg/w"])], [30, 40], moments)[0].sentence
    "The optimizer's state changed: exp_avg is gone, m is new."
    """
    before = dict(zip(steps[1:], steps, strict=False))
    flags = []
    for step, new, gone in changes:
        sentence = _changes_sentence(list(map(unescaped, new)), list(map(unescaped, gone)))
        if all((roles or {}).get(name) in _MOMENTS for name in (*new, *gone)):
            weights = [name for name, role in (roles or {}).items() if role == "weight"]
            parts = [
                f"{_are(_kinds(names, [*others, *weights]))} {word}"
                for names, others, word in ((gone, new, "gone"), (new, gone, "new"))
                if names
            ]
            sentence = f"The optimizer's state changed: {', '.join(parts)}."
        flags.append(Flag("warning", "changed", None, step, sentence, before.get(step)))
    return flags


def _changes_sentence(new: Sequence[str], gone: Sequence[str]) -> str:
    parts = [f"{_arrays(new)} new ({_listed(_apart(new, gone))})"] if new else []
    if gone:
        count = _arrays(gone) if not new else f"{len(gone):,} {'is' if len(gone) == 1 else 'are'}"
        parts.append(f"{count} gone ({_listed(_apart(gone, new))})")
    return f"{' and '.join(parts)}."


def _apart(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return the parts of names that others do not have, if each of the names has one."""
    parts = _own_parts(names, others)
    return list(dict.fromkeys(own[0] for own in parts)) if others and all(parts) else names


def _own_parts(names: Sequence[str], others: Sequence[str]) -> list[list[str]]:
    known = {part for name in others for part in unescaped(name).split("/")}
    return [
        [part for part in unescaped(name).split("/") if part not in known and not part.isdecimal()]
        for name in names
    ]


def _kinds(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return what moments are called, by the last parts of their names that others do not have."""
    parts = _own_parts(names, others)
    return list(dict.fromkeys(own[-1] for own in parts)) if all(parts) else names


def _arrays(names: Sequence[str]) -> str:
    return f"{len(names):,} array{' is' if len(names) == 1 else 's are'}"


def _are(names: Sequence[str]) -> str:
    """Return names as the subject of a sentence, with its verb."""
    shown = list(map(unescaped, names[:_NAMED]))
    if more := len(names) - len(shown):
        shown.append(f"{more:,} more")
    return f"{', '.join(shown[:-1])}{' and ' if shown[1:] else ''}{shown[-1]} {'are' if shown[1:] else 'is'}"


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
_ROBUST_SPREADS: Final = 6  # above the median, in robust standard deviations of the logarithm
_LEAST_SPREAD: Final = 0.3  # of the logarithm: what is very regular may also rise a little
_STEPS_BEFORE: Final = 4  # steps before, at least

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
    errors = [
        (checkpoint.step, checkpoint.figures.get("weight", UNKNOWN).error_in_spreads)
        for checkpoint in checkpoints
    ]
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

    `shifted` has the steps at which most weights move farther, and how many times as far: only
    those that move much farther are flagged there.
    """
    weights = [x for row, x in zip(rows, figures["movement"], strict=True) if row.role == "weight"]
    moving = [any(series[i] for series in weights) for i in range(len(steps))]
    findings: list[Finding] = []
    for index, row in enumerate(rows):
        own = {name: series[index] for name, series in figures.items()}
        findings += _not_finite(row, steps, own["not_finite"])
        dead = list(_dead(row, steps, own["zeros"]))
        findings += dead or [*_frozen(row, own, len(steps), moving)] or _stalled(row, own, weights)
        findings += _exploding(row, steps, own, shifted or {})
    return grouped(findings, rows, steps)


def in_order(flags: Sequence[Flag]) -> list[Flag]:
    """Return flags with the most severe first, then by step, then with what says most first."""

    def key(flag: Flag) -> tuple[int, float, int]:
        rank = _FIRST_KINDS.index(flag.kind) if flag.kind in _FIRST_KINDS else len(_FIRST_KINDS)
        return _ORDER[flag.severity], math.inf if flag.step is None else flag.step, rank

    return sorted(flags, key=key)


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
    for place in range(_STEPS_BEFORE, len(series) - _LEAST_STEPS + 1):
        before = _middle(series[:place])
        if all(x is None or x < _STALLED * before for x in series[place:]):
            if any(_middle(other[place:]) > _MOVING * _middle(other[:place]) for other in weights):
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
    return len(list(takewhile(lambda number: number == value, reversed(series))))


def _exploding(
    row: ArrayRow, steps: Sequence[int], own: Mapping[str, Series], shifted: Mapping[int, float]
) -> Iterator[Finding]:
    """Yield at most one finding, for the first step at which a figure is far above those before."""
    for name, factor in _FACTORS.get(row.role, {}).items():
        earlier: list[float] = []
        for place, value in enumerate(own[name]):
            if not value or not math.isfinite(value):
                continue
            if len(earlier) >= _STEPS_BEFORE and (name != "movement" or value > _LEAST_MOVEMENT):
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
    logarithms = [math.log(number) for number in earlier]
    middle = statistics.median(logarithms)
    spread = 1.4826 * statistics.median(abs(number - middle) for number in logarithms)
    return math.log(value) - middle > _ROBUST_SPREADS * max(spread, _LEAST_SPREAD)


def _number(value: float) -> str:
    """Return a number in two digits, or whole."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.2g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


_SENTENCES: Final = 2  # of flags in a verdict
_OF_FILES: Final = ("missing", "damaged", "coarse")  # flags that say nothing of how the run goes

#: Errors up to so many movements are usual for policies that keep a history of a run.
_USUAL_OF_MOVEMENT: Final = 1.0


def verdict(
    flags: Sequence[Flag], scalars: Mapping[str, Series], checkpoints: Sequence[Checkpoint] = ()
) -> Verdict:
    """Return what a run looks like, by its flags, the most severe ones first, and its numbers.

    Of `checkpoints`, a healthy one says what they lost.

    >>> verdict([], {"loss": [2.0, 1.0, 0.5]})
    Verdict(state='healthy', sentence='Healthy: loss falls from 2 to 0.5, and no array stands out.')
    """
    grave = [flag for flag in flags if flag.severity != "note"]
    if not grave:
        went = course(scalars)
        words = f"{went}, and no array stands out" if went else "no array stands out"
        return Verdict("healthy", f"Healthy: {words}.{_lost(checkpoints)}")
    of_run = [flag for flag in grave if flag.kind not in _OF_FILES and flag.step is not None]
    first = min(of_run, key=lambda flag: flag.step or 0, default=None)
    told = _told(grave, first)
    texts = [_sentence(flag, first) for flag in told]
    if rest := len(grave) - len(told):
        texts.append(f"{rest} more finding{'s' if rest > 1 else ''}.")
    if first is None:
        since, what = "", "this"
    elif first.since is None:
        since, what = f" from {first.when} on", first.when
    else:
        since, what = f" {first.when}", f"what happened {first.when}"
    if grave[0].severity == "error":
        return Verdict("broken", f"Broken{since}: {' '.join(texts)}")
    return Verdict("look", f"Look at {what}: {' '.join(texts)}")


def _told(grave: Sequence[Flag], first: Flag | None) -> list[Flag]:
    """Return at most two flags, of different arrays, for a verdict: the gravest, and the first."""
    told = grave[:1]
    for flag in (*([first] if first else []), *grave[1:]):
        known = {name for flag in told for name in flag.arrays}
        if (
            flag not in told
            and len(told) < _SENTENCES
            and not (flag.arrays and known.issuperset(flag.arrays))
        ):
            told = [*told, flag]
    return sorted(told, key=lambda flag: -1 if flag.step is None or flag.kind in _OF_FILES else flag.step)


def _sentence(flag: Flag, first: Flag | None) -> str:
    """Return what a flag says; with its steps, if the beginning of the verdict has others."""
    if not flag.when or (first is not None and flag.when == first.when):
        return flag.sentence
    return f"{flag.when[0].upper()}{flag.when[1:]}: {flag.sentence}"


def _lost(checkpoints: Sequence[Checkpoint]) -> str:
    """Return what restored weights lose in the middle of the saves, and moments more than usual."""
    figures = [checkpoint.figures.get("weight", UNKNOWN) for checkpoint in checkpoints]
    moved = [own.error_in_movements for own in figures if own.error_in_movements and own.error]
    spread = [own.error_in_spreads for own in figures if own.error_in_spreads]
    parts, word = [], ""
    if spread:
        parts.append(f"{100 * statistics.median(spread):.2g} % of their spread")
    if moved:
        middle = statistics.median(moved)
        word = ", as usual" if middle <= _USUAL_OF_MOVEMENT else ", more than usual"
        parts.append(f"{middle:.2g} of what they move between saves")
    told = f" Restored weights are off by {', or '.join(parts)}{word}." if parts else ""
    for role in _MOMENTS:  # a run that resumes from an older step feels what they lose
        errors = [checkpoint.figures.get(role, UNKNOWN).error_in_movements for checkpoint in checkpoints]
        middle = statistics.median([error for error in errors if error] or [0.0])
        if middle > _USUAL_OF_MOVEMENT:
            off = f"off by {middle:.2g} of what they move: resume from an exact state."
            told += f" Restored {role.replace('_', ' ')}s are {off}"
    return told
