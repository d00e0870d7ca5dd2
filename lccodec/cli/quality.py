"""What the shell shows of the figures of saves: error and lag, by role.

An unknown number is a dash: of a first save no movement is known, so neither are error in movements
and lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..chain.overview import KINDS, error_text, lag_text, percent_text
from ..chain.read.info import CheckpointInfo
from ..container.figures import UNKNOWN
from .table import Table

_UNITS: Final = (
    "Error (rms) in movements since the save before; lag in intervals between saves, 1 for the state "
    "of the\nsave before; of spread: error over the spread of the weights. -: not known."
)


def quality_document(info: CheckpointInfo) -> dict[str, Any]:
    """Return the figures of the roles of a checkpoint for JSON."""
    return {"figures": {role: figures.numbers() for role, figures in info.figures.items()}}


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
            error_text(weights.error_in_movements),
            lag_text(weights.lag),
            percent_text(weights.error_in_spreads),
            error_text(moments.error_in_movements),
            lag_text(moments.lag),
        )
    return f"{table.text()}\n\n{_UNITS}"
