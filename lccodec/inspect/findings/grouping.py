"""What is alike of several arrays at the same step is one flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from ..report import ArrayRow, Flag

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


def grouped(found: Sequence[Finding], rows: Sequence[ArrayRow], steps: Sequence[int]) -> list[Flag]:
    """Return a flag for all findings that say the same of arrays of a role at the same step."""
    alike: dict[tuple[str, str, str, int | None], list[Finding]] = {}
    for each in found:
        alike.setdefault((each.severity, each.many, each.row.role, each.place), []).append(each)
    return [_flag(group, rows, steps) for group in alike.values()]


def _flag(group: Sequence[Finding], rows: Sequence[ArrayRow], steps: Sequence[int]) -> Flag:
    first = group[0]
    if len(group) == 1:
        sentence = f"{first.row.label} {first.one}."
    else:
        total = sum(row.role == first.row.role for row in rows)
        which = f"All {total}" if len(group) == total else f"{len(group)}"
        words = first.many.format(_range([each.number for each in group if each.number is not None]))
        names = _listed([each.row.label for each in group])
        sentence = f"{which} {_NOUNS[first.row.role]} {words}: {names}."
    return Flag(
        first.severity,
        first.kind,
        first.row.name,
        None if first.place is None else steps[first.place],
        sentence,
        steps[first.place - 1] if first.place else None,
        [each.row.name for each in group],
    )


def _range(numbers: Sequence[float]) -> str:
    low, high = (f"{end(numbers, default=0):,.0f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _listed(names: Sequence[str]) -> str:
    between = "; " if any(", " in name for name in names) else ", "
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more
