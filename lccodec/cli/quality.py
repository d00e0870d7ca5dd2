"""What the shell shows of the figures of saves: error and lag, by role.

An unknown number is a dash: of a first save no movement is known, so neither are error in movements
and lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..chain.read.info import CheckpointInfo
from ..container.figures import UNKNOWN, Figures
from ..policy.roles import Role
from .table import Table

#: What a table calls the kinds of checkpoints.
KINDS: Final = {"keyframe": "key", "delta": "delta", "interpolated": "interp"}

_UNITS: Final = (
    "Error (rms) in movements since the save before; lag in intervals between saves, 1 for the state "
    "of the\nsave before; of spread: error over the spread of the weights. -: not known."
)


def quality_document(info: CheckpointInfo) -> dict[str, Any]:
    """Return the figures of the roles of a checkpoint for JSON."""
    return {"figures": {role: figures.numbers() for role, figures in info.figures.items()}}


def quality_facts(info: CheckpointInfo) -> dict[str, str]:
    """Return a line for each role of a checkpoint that has figures, by label."""
    return {f"lost, {role_words(role)}": figures_words(found) for role, found in info.figures.items()}


def quality_text(infos: Sequence[CheckpointInfo]) -> str:
    """Return a table of what each save of a chain lost."""
    if not infos:
        return "no checkpoints"
    headers = "weights: error", "lag", "of spread", "first moments: error", "lag"
    table = Table("step", "kind", "bytes", *headers)
    for info in infos:
        found = info.figures
        weights, moments = found.get("weight", UNKNOWN), found.get("first_moment", UNKNOWN)
        table.row(
            info.step,
            KINDS[info.kind],
            f"{info.file_bytes:,}",
            _error(weights.error_in_movements),
            _lag(weights.lag),
            _percent(weights.error_in_spreads),
            _error(moments.error_in_movements),
            _lag(moments.lag),
        )
    return f"{table.text()}\n\n{_UNITS}"


def figures_words(figures: Figures) -> str:
    """Return what is known of error and lag, in words.

    Examples
    --------
    >>> figures_words(Figures(spread=0.5, movement=0.01, error=0.0075, lag=0.021))
    'error 0.75 movements, 1.5 % of the spread; lag 0.02 intervals'
    >>> figures_words(Figures(spread=0.5, error=0.0075))
    'error 1.5 % of the spread'
    """
    moved, spread = figures.error_in_movements, figures.error_in_spreads
    errors = [
        *([] if moved is None else [f"{_error(moved)} movements"]),
        *([] if spread is None else [f"{_percent(spread)} of the spread"]),
    ]
    parts = [f"error {', '.join(errors)}"] if errors else []
    if figures.lag is not None:
        parts.append(f"lag {_lag(figures.lag)} intervals")
    return "; ".join(parts) or "-"


def role_words(role: Role) -> str:
    """Return a role, of several arrays."""
    return "other arrays" if role == "other" else f"{role.replace('_', ' ')}s"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _lag(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 2) + 0.0:.2f}"  # no -0.00
