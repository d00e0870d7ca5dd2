"""What the outcomes say: gaps and rework in intervals, a table and a plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, median

import numpy as np

from .restored import EXACT, MARKS, STALE, Outcome

__all__ = ["Row", "draw", "markdown", "rows", "summary"]

WINDOW = 150  # iterations
NOISY = 0.25  # intervals: a cost with a larger standard error says nothing
UNMEASURABLE = 2.0  # standard errors: an interval that costs less cannot be a unit


@dataclass(frozen=True)
class Row:
    """One policy at one point of a run.

    Parameters
    ----------
    outcome
        What was measured.
    gap, gap_error
        Of the loss, in intervals, with its standard error; NaN where an interval costs nothing that
        can be measured.
    rework, rework_error
        How far the state lies behind on the run's own smoothed curve of losses, in intervals; NaN
        where the curve is flat.
    untrained
        By how much the state itself is worse than the exact one, in the larger one of both units;
        NaN where it was not computed, and where neither says anything.
    """

    outcome: Outcome
    gap: float
    gap_error: float
    rework: float
    rework_error: float
    untrained: float

    @property
    def _lower(self) -> tuple[float, float]:
        both = (self.gap, self.gap_error), (self.rework, self.rework_error)
        return min((each for each in both if not math.isnan(each[0])), key=sum, default=(math.nan, math.nan))

    @property
    def cost(self) -> float:
        """The lower one of gap and rework, at the upper end of one standard error."""
        return sum(self._lower)

    @property
    def middle(self) -> float:
        """The same without its error."""
        return self._lower[0]

    @property
    def is_told(self) -> bool:
        """Whether the seeds say more than that the run is noisy."""
        return self._lower[1] <= NOISY


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """Return a row for each lossy outcome whose exact runs are there."""
    found = {(o.kind, o.every, o.point, o.policy): o for o in outcomes}
    made = []
    for (kind, every, point, policy), outcome in found.items():
        exact, stale = (found.get((kind, every, point, name)) for name in (EXACT, STALE))
        if policy not in (EXACT, STALE) and exact is not None and stale is not None:
            gaps = np.subtract(outcome.losses, exact.losses)
            units = np.subtract(stale.losses, exact.losses)
            gap, rework = _ratio(gaps, units), _rework(gaps, exact)
            unit = np.fmax(stale.untrained - exact.untrained, _fall(exact, exact.point))
            rise = float(outcome.untrained - exact.untrained)
            made.append(Row(outcome, *gap, *rework, rise / float(unit) if unit > 0 else math.nan))
    return made


def _ratio(gaps: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """Return the ratio of two means, and its standard error by leaving out one seed at a time."""
    count = len(gaps)
    if units.mean() < UNMEASURABLE * units.std(ddof=1) / math.sqrt(count):
        return math.nan, math.nan
    left = (gaps.sum() - gaps) / (units.sum() - units)
    error = math.sqrt((count - 1) / count * float(np.square(left - left.mean()).sum()))
    return float(gaps.mean() / units.mean()), error


def _rework(gaps: np.ndarray, exact: Outcome) -> tuple[float, float]:
    """Return a gap in intervals of the slope of the run's own losses, and its standard error."""
    unit = _fall(exact, exact.point + fmean(MARKS))
    return float(gaps.mean()) / unit, float(gaps.std(ddof=1)) / math.sqrt(len(gaps)) / unit


def _fall(exact: Outcome, here: float) -> float:
    """Return by how much the loss of a run falls in an interval around an iteration.

    That is the slope of a line through the losses of about `WINDOW` iterations on either side.
    Where the losses do not fall, nothing can be said: NaN.
    """
    iterations, losses = np.array(exact.curve, float).T
    near = np.abs(iterations - here) <= max(WINDOW, exact.every)
    x, y = iterations[near] - iterations[near].mean(), losses[near]
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (len(x) - 2) / float(x @ x))
    return math.nan if -slope < UNMEASURABLE * error else -slope * exact.every


def markdown(found: Sequence[Row], policies: Iterable[str]) -> str:
    """Return a table: a line for each kind, interval and point; three columns for each policy."""
    policies = list(policies)
    lines = [
        "| run | every | at | "
        + " | ".join(f"{p}: deltas | gap | rework | error, lag" for p in policies)
        + " |",
        "|---|" + "---:|" * (2 + 4 * len(policies)),
    ]
    by_place: dict[tuple[str, int, int], dict[str, Row]] = {}
    for row in found:
        place = row.outcome.kind, row.outcome.every, row.outcome.point
        by_place.setdefault(place, {})[row.outcome.policy] = row
    for (kind, every, point), there in by_place.items():
        cells = [_cells(there[p]) if p in there else "| | | " for p in policies]
        lines.append(f"| {kind} | {every} | {point} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(row: Row) -> str:
    o = row.outcome
    gap, rework = (
        "-" if math.isnan(value) else f"{value:.2f} ± {error:.2f}"
        for value, error in ((row.gap, row.gap_error), (row.rework, row.rework_error))
    )
    return f"{o.delta_ratio:.0f}x | {gap} | {rework} | {o.error:.2f}, {o.lag:.2f}"


def summary(found: Sequence[Row], policies: Iterable[str]) -> str:
    """Return a table of each policy: the worst cost, the median, the mean; ratios of all places."""
    lines = [
        "| policy | worst | of | median | mean | places | deltas, geometric mean | chains |",
        "|---|---:|---|---:|---:|---|---:|---:|",
    ]
    for policy in policies:
        everywhere = [row for row in found if row.outcome.policy == policy]
        here = [row for row in everywhere if row.is_told]
        if not here:
            continue
        worst = max(here, key=lambda row: row.cost)
        o = worst.outcome
        deltas, chains = (
            geometric_mean([getattr(r.outcome, n) for r in everywhere])
            for n in ("delta_ratio", "chain_ratio")
        )
        middles = [row.middle for row in here]
        lines.append(
            f"| {policy} | {worst.cost:.2f} | {o.kind} every {o.every} at {o.point} | {median(middles):.2f} "
            f"| {fmean(middles):.2f} | {len(here)} of {len(everywhere)} | {deltas:.0f}x | {chains:.0f}x |"
        )
    return "\n".join(lines)


def draw(found: Sequence[Row], bounds: Mapping[str, float], stem: Path) -> None:
    """Draw all runs in one picture: cost over the ratio of deltas, a panel for each policy.

    `bounds` are the costs that policies promise. Needs matplotlib.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = [row for row in found if row.is_told]
    policies = list(dict.fromkeys(row.outcome.policy for row in found))
    kinds = list(dict.fromkeys(row.outcome.kind for row in found))
    figure, panels = plt.subplots(
        1, len(policies), figsize=(5 * len(policies), 4.5), sharey=True, squeeze=False
    )
    colours = plt.get_cmap("tab20").colors
    for panel, policy in zip(panels[0], policies, strict=True):
        for number, kind in enumerate(kinds):
            here = [r for r in found if (r.outcome.policy, r.outcome.kind) == (policy, kind)]
            x, y = [r.outcome.delta_ratio for r in here], [r.cost for r in here]
            panel.scatter(x, y, s=18, color=colours[number % 20], label=kind)
        if policy in bounds:
            panel.axhline(bounds[policy], color="black", linewidth=0.8)
        panel.set(title=policy, xlabel="bytes of the state over those of a delta")
    panels[0][0].set_ylabel("cost in intervals, upper end of one standard error")
    panels[0][-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    for suffix in (".svg", ".png"):
        figure.savefig(stem.with_suffix(suffix), dpi=120)
    plt.close(figure)
