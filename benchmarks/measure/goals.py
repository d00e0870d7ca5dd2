"""Numbers that were set: bounds and goals, and how far a run is from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Goal", "missed", "summary", "table"]


@dataclass(frozen=True)
class Goal:
    """One number; less is better.

    Parameters
    ----------
    what
        That it is about.
    measured
        In this run, or ``None``.
    must
        Bound; to be reached or fallen below.
    goal
        What it is to be in the end, or ``None`` where that is `must`.
    unit
        ``"copies"`` (times of np.copyto of the same bytes), ``"x"``, ``"%"`` or ``"MiB"``.
    """

    what: str
    measured: float | None
    must: float
    goal: float | None = None
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether it was measured and its bound is kept."""
        return self.measured is not None and self.measured <= self.must

    @property
    def state(self) -> str:
        """``"met"``, ``"missed"`` or ``"not measured"``, and by which factors it is missed."""
        if self.measured is None:
            return "not measured"
        limits = (("bound", self.must), ("goal", self.goal))
        over = [
            f"{self.measured / limit:.2f} x the {name}"
            for name, limit in limits
            if limit is not None and self.measured > limit
        ]
        return ", ".join(["met" if self.is_met else "missed", *over])


def missed(found: Sequence[Goal]) -> list[Goal]:
    """Return the goals that were measured and whose bound is not kept."""
    return [goal for goal in found if goal.measured is not None and not goal.is_met]


def table(found: Sequence[Goal]) -> str:
    """Return all goals as a markdown table."""
    lines = ["| what | measured | must be | goal | |", "|---|---:|---:|---:|---|"]
    for g in found:
        cells = (_shown(value, g.unit) for value in (g.measured, g.must, g.goal))
        lines.append(f"| {g.what} | " + " | ".join(cells) + f" | {g.state} |")
    return "\n".join(lines)


def summary(found: Sequence[Goal]) -> str:
    """Return which of the bounds that were measured are kept, and which are not."""
    measured = [goal for goal in found if goal.measured is not None]
    over = missed(found)
    lines = [f"{len(measured) - len(over)} of {len(measured)} bounds are met."]
    if len(measured) < len(found):
        lines[0] += f" Not measured in this run: {len(found) - len(measured)} more."
    return "\n".join([*lines, *(["Not met:", "", *(f"- {goal.what}" for goal in over)] if over else [])])


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"1/{value:.3g}" if unit == "copies" else f"{value:.3g} {unit}"
