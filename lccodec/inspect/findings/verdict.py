"""Whether a run is healthy, in a sentence; what stands out of the numbers beside its arrays.

A verdict is a hint, as flags are: it says what a reader who has a minute should look at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ..report import ArrayRow, Flag, Series, Verdict

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
_LEAST_CONSTANT: Final = 3  # checkpoints before and after a setting was changed
_SENTENCES: Final = 3  # of flags in a verdict
_NAMED: Final = 3
_OF_FILES: Final = ("missing", "damaged", "coarse")  # flags that say nothing of how the run goes


def number_flags(scalars: Mapping[str, Series], steps: Sequence[int | None]) -> list[Flag]:
    """Return the flags of numbers that were saved beside the arrays, such as a loss."""
    return [flag for name, series in scalars.items() for flag in _number_flags(name, series, steps)]


def change_flags(changes: Sequence[tuple[int, Sequence[str], Sequence[str]]]) -> list[Flag]:
    """Return a flag for each step from which on the state has other arrays.

    Arrays that replace others are named by the parts of their names that the others do not have.

    Examples
    --------
    >>> change_flags([(40, ["opt/0/m", "opt/1/m"], ["opt/0/exp_avg", "opt/0/max"])])[0].sentence
    'From step 40 on 2 arrays are new (m) and 2 are gone (exp_avg, max).'
    >>> change_flags([(40, ["model/head"], [])])[0].sentence
    'From step 40 on 1 array is new (model/head).'
    """
    found = []
    for step, new, gone in changes:
        parts = [f"{_arrays(new)} new ({_listed(_apart(new, gone))})"] if new else []
        if gone:
            count = _arrays(gone) if not new else f"{len(gone):,} {'is' if len(gone) == 1 else 'are'}"
            parts.append(f"{count} gone ({_listed(_apart(gone, new))})")
        sentence = f"From step {step} on {' and '.join(parts)}."
        found.append(Flag("warning", "changed", None, step, sentence))
    return found


def verdict(
    flags: Sequence[Flag],
    rows: Sequence[ArrayRow],
    scalars: Mapping[str, Series],
    errors: Sequence[Series],
) -> Verdict:
    """Return what a run looks like.

    Parameters
    ----------
    flags
        All of the run, the most severe ones first.
    rows
        The arrays of the run.
    scalars
        Numbers beside the arrays.
    errors
        Errors of arrays in movements, a series for each of `rows`.

    Examples
    --------
    >>> verdict([], [], {"loss": [2.0, 1.0, 0.5]}, [])
    Verdict(state='healthy', sentence='Healthy: loss falls from 2 to 0.5, and no array stands out.')
    """
    grave = [flag for flag in flags if flag.severity != "note"]
    course = _course(scalars)
    if not grave:
        parts = [*([course] if course else []), "no array stands out", *_lost(rows, errors)]
        return Verdict(
            "healthy", f"Healthy: {', '.join(parts[:-1])}{', and ' if parts[1:] else ''}{parts[-1]}."
        )
    labels = {row.name: row.label for row in rows}
    alike: dict[tuple[str, int | None], list[Flag]] = {}
    for flag in grave:
        alike.setdefault((flag.kind, flag.step), []).append(flag)
    groups = list(alike.values())
    texts = [_sentence(group, labels) for group in groups[:_SENTENCES]]
    if rest := sum(map(len, groups[_SENTENCES:])):
        texts.append(f"{rest} more below.")
    first = min(
        (flag.step for flag in grave if flag.kind not in _OF_FILES and flag.step is not None), default=None
    )
    if grave[0].severity == "error":
        where = "" if first is None else f" from step {first} on"
        return Verdict("broken", f"Broken{where}: {' '.join(texts)}")
    where = "this" if first is None or not grave[1:] else f"step {first}"
    return Verdict("look", f"Look at {where}: {' '.join(texts)}")


def _sentence(alike: Sequence[Flag], labels: Mapping[str, str]) -> str:
    """Return what flags of a kind say of the same step; the first one stands for all."""
    first, *others = alike
    if first.array is None:
        return first.sentence
    more = f" and {len(others)} more" if others else ""
    return f"{labels.get(first.array, first.array)}{more}: {first.sentence}"


def _number_flags(name: str, series: Series, steps: Sequence[int | None]) -> Iterator[Flag]:
    points = [(step, x) for step, x in zip(steps, series, strict=True) if step is not None and x is not None]
    unknown = [step for step, x in points if not math.isfinite(x)]
    if unknown:
        stays = not math.isfinite(points[-1][1])
        sentence = (
            f"{name} is not finite {'from' if stays else 'at'} step {unknown[0]}{' on' if stays else ''}."
        )
        yield Flag("error" if stays else "warning", "not finite", None, unknown[0], sentence)
    points = [(step, x) for step, x in points if math.isfinite(x)]
    if (sign := _good(name)) != 0:
        yield from _jumps(name, points, sign)
    else:
        yield from _settings(name, points)


def _jumps(name: str, points: Sequence[tuple[int, float]], sign: int) -> Iterator[Flag]:
    """Yield at most one flag: the first change for the worse that is far above the noise.

    What should fall, such as a loss, is compared by ratios: late in a run, a small change may be a
    large one. One number that is better or worse than its neighbours is no jump.
    """
    numbers = [x for _, x in points]
    by_ratio = sign < 0 and min(numbers, default=0) > 0
    scale = [math.log(x) if by_ratio else -sign * x for x in numbers]
    for place in range(_EARLIER + 1, len(scale)):
        recent = scale[max(place - _RECENT, 0) : place]
        usual = statistics.median(abs(now - then) for then, now in pairwise(recent))
        least = math.log(_LEAST_FACTOR) if by_ratio else _LEAST_JUMP * abs(numbers[place - 1])
        worst = max(recent[-_NEIGHBOURS:])
        after = scale[place + 1 : place + 1 + _NEIGHBOURS]
        stays = bool(after) and max(after) > worst + max(_SPREADS * usual, least)
        spreads = _SPREADS if stays else _SPREADS_ALONE
        if scale[place] - worst > max(spreads * usual, least):
            before, now, last = numbers[place - 1], numbers[place], numbers[-1]
            word = "rises" if now > before else "falls"
            end = "" if place == len(scale) - 1 else f" At the end it is {last:.3g}."
            step = points[place][0]
            sentence = f"{name} {word} suddenly at step {step}, from {before:.3g} to {now:.3g}.{end}"
            yield Flag("warning", "jumping", None, step, sentence)
            return


def _settings(name: str, points: Sequence[tuple[int, float]]) -> Iterator[Flag]:
    """Yield a flag if a number that is constant, such as a rate, was changed once."""
    places = [i for i in range(1, len(points)) if points[i][1] != points[i - 1][1]]
    if len(places) != 1 or not _LEAST_CONSTANT <= places[0] <= len(points) - _LEAST_CONSTANT:
        return
    (_, before), (step, now) = points[places[0] - 1], points[places[0]]
    sentence = f"{name} changes once, at step {step}, from {before:.3g} to {now:.3g}."
    yield Flag("warning" if abs(now) > abs(before) else "note", "changed", None, step, sentence)


def _good(name: str) -> int:
    """Return -1 if a number should fall, 1 if it should rise, 0 if that is not known."""
    words = name.lower().replace("/", "_").replace("-", "_").replace(".", "_").replace(" ", "_").split("_")
    if any(word in _FALLING for word in words):
        return -1
    return 1 if any(word in _RISING for word in words) else 0


def _course(scalars: Mapping[str, Series]) -> str | None:
    """Return how the first number that should fall or rise went."""
    for name, series in scalars.items():
        known = [x for x in series if x is not None and math.isfinite(x)]
        if _good(name) and len(known) > 1:
            word = "falls" if known[-1] < known[0] else "rises"
            return f"{name} {word} from {known[0]:.3g} to {known[-1]:.3g}"
    return None


def _lost(rows: Sequence[ArrayRow], errors: Sequence[Series]) -> list[str]:
    """Return what restored weights lose, if any does."""
    known = [
        x
        for row, series in zip(rows, errors, strict=True)
        if row.role == "weight"
        for x in series
        if x is not None and x > 0
    ]
    if not known:
        return []
    return [
        f"a restored weight is off by about {statistics.median(known):.2g} of what it moves between saves"
    ]


def _apart(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return the parts of names that others do not have, if each of the names has one."""
    known = {part for name in others for part in name.split("/")}
    parts = [
        [part for part in name.split("/") if part not in known and not part.isdecimal()] for name in names
    ]
    return list(dict.fromkeys(own[0] for own in parts)) if others and all(parts) else names


def _arrays(names: Sequence[str]) -> str:
    return f"{len(names):,} array{' is' if len(names) == 1 else 's are'}"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
