"""What the shell shows of checkpoints that were removed or rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from ..chain.life.compact import Compaction
from ..chain.life.prune import Pruning
from ..chain.life.rewrite_step import Rewriting
from ..printable import printable


def pruning_text(found: Pruning, dry_run: bool) -> str:
    """Return what a prune removes, and what stays why."""
    steps = sorted({*found.removed, *found.kept, *found.needed})
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {len(found.removed)} of {len(steps)} checkpoints, {found.freed:,} bytes"]
    if found.removed:
        lines.append(f"  {_ranges(found.removed, steps)}")
    for why in dict.fromkeys(found.kept.values()):
        kept = [step for step, reason in found.kept.items() if reason == why]
        lines.append(f"kept ({printable(why)}): {_ranges(kept, steps)}")
    for child in dict.fromkeys(found.needed.values()):
        needed = [step for step, by in found.needed.items() if by == child]
        lines.append(f"needed by {child}: {_ranges(needed, steps)}")
    lines += map(_rewriting_text, found.rewritten)
    if found.rewritten:
        net = f"; {net_text(found.net)}" if dry_run else ""  # which is printed before anything is done
        lines.append(f"that takes {found.cost:,} more bytes{net}")
    if not found.removed:
        lines += _why_nothing_goes(found, steps)
    return "\n".join(lines)


def net_text(net: int) -> str:
    """Return what a prune with rewriting comes to.

    Examples
    --------
    >>> net_text(-1200)
    'the chain takes 1,200 fewer bytes than before'
    """
    return f"the chain takes {abs(net):,} {'more' if net > 0 else 'fewer'} bytes than before"


def _why_nothing_goes(found: Pruning, steps: Sequence[int]) -> list[str]:
    if not found.needed:
        return ["nothing to remove: every step is kept"]
    children = sorted(set(found.needed.values()))
    lines = [
        f"nothing to remove: all steps back to a keyframe are needed by {_ranges(children, steps)}",
        "they can be removed after more saves, when the kept steps begin with a keyframe",
    ]
    if not found.rewritten:
        lines.append("or now, with --rewrite; --rewrite --dry-run shows the cost")
    return lines


def compaction_text(found: Compaction) -> str:
    """Return what a compaction wrote anew, or would, and what it brings and loses."""
    lines = [*map(_rewriting_text, found.rewritten)]
    lines.append(f"{found.steps} checkpoints: {found.after:,} bytes, before {found.before:,}")
    lines += (
        f"additional loss, {role}: {error:.3g} of the values (rms)" for role, error in found.errors.items()
    )
    return "\n".join(lines)


def _rewriting_text(each: Rewriting) -> str:
    kind = "keyframe" if each.parent is None else f"delta to {each.parent}"
    return f"rewritten: {each.step}, {kind}, {each.after:,} bytes for {each.before:,}"


def _ranges(chosen: Sequence[int], steps: Sequence[int]) -> str:
    """Return some of the steps of a chain as ranges.

    Examples
    --------
    >>> _ranges([10, 20, 30, 50], [10, 20, 30, 40, 50])
    '10 to 30, 50'
    """
    places = {step: place for place, step in enumerate(steps)}
    runs: list[list[int]] = []
    for step in chosen:
        if runs and places[step] == places[runs[-1][-1]] + 1:
            runs[-1] = [runs[-1][0], step]
        else:
            runs.append([step])
    return ", ".join(" to ".join(map(str, run)) for run in runs)
