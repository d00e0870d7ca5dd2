"""Whether a run is healthy, in a few sentences.

A verdict is a hint, as flags are: it says what a reader who has a minute should look at.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from ...container.figures import UNKNOWN
from ...policy.roles import Role
from ..report import Checkpoint, Flag, Series, Verdict
from .numbers import course

_SENTENCES: Final = 2  # of flags in a verdict
_OF_FILES: Final = ("missing", "damaged", "coarse")  # flags that say nothing of how the run goes

#: Errors up to so many movements are usual for policies that keep a history of a run.
_USUAL_OF_MOVEMENT: Final = 1.0
_MOMENTS: Final[tuple[Role, ...]] = ("first_moment", "second_moment")


def verdict(
    flags: Sequence[Flag], scalars: Mapping[str, Series], checkpoints: Sequence[Checkpoint] = ()
) -> Verdict:
    """Return what a run looks like.

    Parameters
    ----------
    flags
        All of the run, the most severe ones first.
    scalars
        Numbers beside the arrays.
    checkpoints
        Those of the run. A healthy one says what these lost.

    Examples
    --------
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
    if grave[0].severity == "error":
        return Verdict("broken", f"Broken{_from(first)}: {' '.join(texts)}")
    return Verdict("look", f"Look at {_what(first)}: {' '.join(texts)}")


def _told(grave: Sequence[Flag], first: Flag | None) -> list[Flag]:
    """Return the flags that a verdict says, by step: the gravest and the first, or what follows.

    Of the same arrays it says only one.
    """
    told = grave[:1]
    for flag in (*([first] if first else []), *grave[1:]):
        known = {name for each in told for name in each.arrays}
        if (
            flag not in told
            and len(told) < _SENTENCES
            and not (flag.arrays and known.issuperset(flag.arrays))
        ):
            told = [*told, flag]
    return sorted(told, key=lambda flag: -1 if flag.step is None or flag.kind in _OF_FILES else flag.step)


def _from(first: Flag | None) -> str:
    if first is None:
        return ""
    return f" from {first.when} on" if first.since is None else f" {first.when}"


def _what(first: Flag | None) -> str:
    if first is None:
        return "this"
    return first.when if first.since is None else f"what happened {first.when}"


def _sentence(flag: Flag, first: Flag | None) -> str:
    """Return what a flag says; with its steps, if the beginning of the verdict has others."""
    if not flag.when or (first is not None and flag.when == first.when):
        return flag.sentence
    return f"{flag.when[0].upper()}{flag.when[1:]}: {flag.sentence}"


def _lost(checkpoints: Sequence[Checkpoint]) -> str:
    """Return what restored weights lose in the middle of the saves, if any does."""
    figures = [each.figures.get("weight", UNKNOWN) for each in checkpoints]
    moved = [each.error_in_movements for each in figures if each.error_in_movements and each.error]
    spread = [each.error_in_spreads for each in figures if each.error_in_spreads]
    parts, word = [], ""
    if spread:
        parts.append(f"{100 * statistics.median(spread):.2g} % of their spread")
    if moved:
        middle = statistics.median(moved)
        word = ", as usual" if middle <= _USUAL_OF_MOVEMENT else ", more than usual"
        parts.append(f"{middle:.2g} of what they move between saves")
    told = f" Restored weights are off by {', or '.join(parts)}{word}." if parts else ""
    return told + "".join(map(_moments_lost, _MOMENTS, [checkpoints] * len(_MOMENTS)))


def _moments_lost(role: Role, checkpoints: Sequence[Checkpoint]) -> str:
    """Return that moments lose more than usual: a run that resumes from an older step feels it."""
    errors = [each.figures.get(role, UNKNOWN).error_in_movements for each in checkpoints]
    middle = statistics.median([error for error in errors if error] or [0.0])
    if middle <= _USUAL_OF_MOVEMENT:
        return ""
    name = role.replace("_", " ")
    return f" Restored {name}s are off by {middle:.2g} of what they move: resume from an exact state."
