"""What the shell shows of checkpoints that were removed or rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..chain.life.compact import Compaction
from ..chain.life.prune import Pruning
from ..chain.life.rewrite_step import Rewriting
from ..printable import printable
from ..table import ranges_text


def pruning_text(found: Pruning, dry_run: bool) -> str:
    """Return what a prune removes, and what stays why."""
    steps = sorted({*found.removed, *found.kept, *found.needed})
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {len(found.removed)} of {len(steps)} checkpoints, {found.freed:,} bytes"]
    if found.removed:
        lines.append(f"  {ranges_text(found.removed, steps)}")
    for why in dict.fromkeys(found.kept.values()):
        kept = [step for step, reason in found.kept.items() if reason == why]
        lines.append(f"kept ({printable(why)}): {ranges_text(kept, steps)}")
    for child in dict.fromkeys(found.needed.values()):
        needed = [step for step, by in found.needed.items() if by == child]
        lines.append(f"needed by {child}: {ranges_text(needed, steps)}")
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
        f"nothing to remove: all steps back to a keyframe are needed by {ranges_text(children, steps)}",
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
    told = Counter(str(guarantee) for guarantee in found.guarantees.values())
    lines += (f"against what was saved first, {n} arrays: {words}" for words, n in told.items() if words)
    return "\n".join(lines)


def _rewriting_text(each: Rewriting) -> str:
    kind = "keyframe" if each.parent is None else f"delta to {each.parent}"
    return f"rewritten: {each.step}, {kind}, {each.after:,} bytes for {each.before:,}"
