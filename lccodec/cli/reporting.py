"""What the shell shows of a report: its main figures, its flags, and what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..inspect.report import Report, Run
from ..printable import printable
from .quality import figures_words, role_words
from .render import size_text
from .sparkline import sparkline

_MAX_FLAGS: Final = 12


def report_text(report: Report, written: Mapping[str, str]) -> str:
    """Return the main figures of a report; `written` says what was written, in words."""
    parts = [_run_text(run) for run in report.runs]
    if report.comparison is not None:
        found = report.comparison
        lines = [f"{found.left} beside {found.right}: {len(found.rows)} arrays differ"]
        for row in found.rows[:3]:
            relative = "-" if row.relative is None else f"{row.relative:.3g}"
            cosine = "-" if row.cosine is None else f"{row.cosine:.4f}"
            lines.append(f"  {row.name}: relative difference {relative}, cosine {cosine}")
        parts.append("\n".join(map(printable, lines)))
    lines = [*report.notes, *(f"{what}: {where}" for what, where in written.items())]
    return "\n\n".join([*parts, "\n".join(map(printable, lines))])


def _run_text(run: Run) -> str:
    stored = sum(each.bytes for each in run.checkpoints)
    nbytes = sum(each.nbytes for each in run.checkpoints)
    unsound = sum(not each.sound for each in run.checkpoints)
    keyframes = sum(each.kind == "keyframe" for each in run.checkpoints)
    sound = f"{unsound} of them damaged" if unsound else "all sound"
    lines = [
        f"{run.path}: {len(run.checkpoints)} checkpoints, {sound}, {keyframes} keyframes: "
        f"{size_text(nbytes, stored)}",
        f"bytes     {sparkline([each.bytes for each in run.checkpoints], logarithmic=True)}",
    ]
    if len(run.steps) > 1:
        lines.append(f"movement  {sparkline(_movement(run), logarithmic=True)}  weights, from step to step")
    measured = [each for each in run.checkpoints if each.figures][-1:]
    for role, figures in measured[0].figures.items() if measured else ():
        lines.append(f"measured  {role_words(role)}, step {measured[0].step}: {figures_words(figures)}")
    if run.loss is not None:
        for role, means in run.loss.roles.items():
            if means.error is not None:
                bias = "" if means.bias is None else f", bias {means.bias:+.3f}"
                error = f"error {means.error:.3g} of the movement{bias}"
                lines.append(f"lost      {role_words(role)}, mean of arrays: {error}")
    lines += [_flag_text(flag.severity, flag.array, flag.sentence) for flag in run.flags[:_MAX_FLAGS]]
    if len(run.flags) > _MAX_FLAGS:
        lines.append(f"and {len(run.flags) - _MAX_FLAGS} flags more")
    return "\n".join(map(printable, [*lines, *run.notes]))


def _flag_text(severity: str, array: str | None, sentence: str) -> str:
    return f"{severity}: " + (f"{array}: " if array is not None else "") + sentence


def _movement(run: Run) -> list[float | None]:
    """Return the mean movement of the weights at each step; of all arrays if there are none."""
    weights = [i for i, row in enumerate(run.arrays) if row.role == "weight"] or range(len(run.arrays))
    rows = [run.figures["movement"][i] for i in weights]
    found: list[float | None] = []
    for column in zip(*rows, strict=True):
        values = [value for value in column if value is not None]
        found.append(sum(values) / len(values) if values else None)
    return found
