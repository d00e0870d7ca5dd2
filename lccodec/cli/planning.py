"""What the shell shows of a plan: what each array of a state would be, before it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..chain.read.info import CheckpointInfo
from ..chain.save.planned import ArrayPlan, Estimate, Plan
from ..printable import printable
from .quality import figures_words, quality_document, role_words
from .render import quantizer_words, ratio, shape_text, size_text
from .table import Table


def plan_document(
    plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None
) -> dict[str, Any]:
    """Return a plan with its estimates, and what the last save lost, for JSON."""
    arrays = [
        {
            **asdict(array),
            "estimated_bytes": found.stored_bytes,
            "estimated_error": found.error,
            "sampled": found.sampled,
        }
        for array, found in zip(plan, estimates, strict=True)
    ]
    stored, nbytes = sum(each.stored_bytes for each in estimates), sum(array.nbytes for array in plan)
    totals = {
        "arrays": len(plan),
        "estimated_bytes": stored,
        "nbytes": nbytes,
        "ratio": ratio(nbytes, stored),
    }
    before = None if last is None else {"step": last.step, **quality_document(last)}
    return {
        "parent": plan.parent,
        "arrays": arrays,
        "totals": totals,
        "shortfall": plan.shortfall,
        "last": before,
    }


def plan_text(plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None) -> str:
    """Return a table of a plan, with estimated bytes and errors, and what the last save lost."""
    table = Table("name", "shape", "role", "because", "in deltas", "stored", "about bytes", "ratio", "error")
    for array, found in zip(plan, estimates, strict=True):
        times = ratio(array.nbytes, found.stored_bytes)
        table.row(
            array.name,
            shape_text(array),
            array.role,
            array.why,
            quantizer_words(array.quantizer),
            array.stored,
            f"{found.stored_bytes:,}",
            "-" if times is None else f"{times:.1f}x",
            _error_text(array, found),
        )
    stored, nbytes = sum(each.stored_bytes for each in estimates), sum(array.nbytes for array in plan)
    kind = "a keyframe" if plan.parent is None else f"a delta to step {plan.parent}"
    sampled = sum(each.sampled for each in estimates)
    how = f"; {sampled} large arrays estimated from a sample" if sampled else ""
    lines = [
        f"This would be {kind}: about {size_text(nbytes, stored)} in frames{how}.",
        "Errors are multiples of the movement since the last checkpoint; without one, of the values.",
        *([plan.shortfall] if plan.shortfall else []),
    ]
    if last is not None and last.figures:
        lines.append(f"The last save, of step {last.step}, lost:")
        lines += [f"  {role_words(role)}: {figures_words(each)}" for role, each in last.figures.items()]
    shown = [table.text()] if len(plan) else []
    return "\n\n".join([*shown, "\n".join(map(printable, lines))])


def _error_text(array: ArrayPlan, found: Estimate) -> str:
    error = "-" if found.error is None else "exact" if found.error == 0 else f"{found.error:.2g}"
    return f"{error}, {array.guarantee}" if array.guarantee not in ("", "exact") else error
