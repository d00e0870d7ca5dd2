"""Where a state has other arrays from some step on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...policy.roles import Role
from ..report import Flag, shown_name

_NAMED: Final = 3
_MOMENTS: Final = ("first_moment", "second_moment")


def change_flags(
    changes: Sequence[tuple[int, Sequence[str], Sequence[str]]],
    steps: Sequence[int] = (),
    roles: Mapping[str, Role] | None = None,
) -> list[Flag]:
    """Return a flag for each step from which on the state has other arrays.

    Arrays that replace others are named by the parts of their names that the others do not have.

    Parameters
    ----------
    changes
        Steps, the names of arrays that are new at each, and of those that are gone.
    steps
        All steps of the run.
    roles
        The roles of arrays, by name. If all that change are moments, the optimizer was exchanged.

    Examples
    --------
    >>> change_flags([(40, ["opt/0/m", "opt/1/m"], ["opt/0/exp_avg", "opt/0/max"])])[0].sentence
    '2 arrays are new (m) and 2 are gone (exp_avg, max).'
    >>> change_flags([(40, ["model/head"], [])])[0].sentence
    '1 array is new (model/head).'
    >>> moments = {"m/w": "first_moment", "exp_avg/w": "first_moment"}
    >>> change_flags([(40, ["m/w"], ["exp_avg/w"])], [30, 40], moments)[0].sentence
    "The optimizer's state changed: exp_avg is gone, m is new."
    """
    before = dict(zip(steps[1:], steps, strict=False))
    found = []
    for step, new, gone in changes:
        sentence = _sentence(list(map(shown_name, new)), list(map(shown_name, gone)))
        if all((roles or {}).get(name) in _MOMENTS for name in (*new, *gone)):
            weights = [name for name, role in (roles or {}).items() if role == "weight"]
            parts = [
                f"{_are(_kinds(names, [*others, *weights]))} {word}"
                for names, others, word in ((gone, new, "gone"), (new, gone, "new"))
                if names
            ]
            sentence = f"The optimizer's state changed: {', '.join(parts)}."
        found.append(Flag("warning", "changed", None, step, sentence, before.get(step)))
    return found


def _sentence(new: Sequence[str], gone: Sequence[str]) -> str:
    parts = [f"{_arrays(new)} new ({_listed(_apart(new, gone))})"] if new else []
    if gone:
        count = _arrays(gone) if not new else f"{len(gone):,} {'is' if len(gone) == 1 else 'are'}"
        parts.append(f"{count} gone ({_listed(_apart(gone, new))})")
    return f"{' and '.join(parts)}."


def _apart(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return the parts of names that others do not have, if each of the names has one."""
    known = {part for name in others for part in shown_name(name).split("/")}
    parts = [
        [part for part in shown_name(name).split("/") if part not in known and not part.isdecimal()]
        for name in names
    ]
    return list(dict.fromkeys(own[0] for own in parts)) if others and all(parts) else names


def _kinds(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return what moments are called, by the last parts of their names that others do not have."""
    known = {part for name in others for part in shown_name(name).split("/")}
    parts = [
        [part for part in shown_name(name).split("/") if part not in known and not part.isdecimal()]
        for name in names
    ]
    return list(dict.fromkeys(own[-1] for own in parts)) if all(parts) else names


def _arrays(names: Sequence[str]) -> str:
    return f"{len(names):,} array{' is' if len(names) == 1 else 's are'}"


def _are(names: Sequence[str]) -> str:
    """Return names as the subject of a sentence, with its verb."""
    shown = list(map(shown_name, names[:_NAMED]))
    if more := len(names) - len(shown):
        shown.append(f"{more:,} more")
    return f"{', '.join(shown[:-1])}{' and ' if shown[1:] else ''}{shown[-1]} {'are' if shown[1:] else 'is'}"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
