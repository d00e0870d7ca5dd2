"""Two states beside each other: which arrays differ, by how much, and in which direction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ..chain.read.checkpoint import OpenCheckpoint
from ..chain.read.newest import open_path
from ..container.disk.address import Place
from ..policy.roles import Role
from .difference import ArrayChange, Leaves, Replacement, compare_states
from .report import Compared, Comparison


def compare(
    left: tuple[Place, int | None],
    right: tuple[Place, int | None],
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """Compare two states, each given by its path and its step there.

    Both are exact, or both as their histories decode: what one of them lost is no difference.
    The labels say which.
    """
    with ExitStack() as opened:
        pair = [opened.enter_context(open_path(place, step=step)) for place, step in (left, right)]
        if any(map(_has_lost, pair)):
            pair = [
                opened.enter_context(open_path(place, step=step, exact=False))
                for place, step in (left, right)
            ]
        labels = [_label(*side, file) for side, file in zip((left, right), pair, strict=True)]
        before, after = pair
        difference = compare_states(Leaves(before), Leaves(after), progress)
        roles = {array.name: array.role for array in after.info().arrays}
    changed = sorted(difference.changed, key=lambda change: -(change.relative_rms or 0.0))
    return Comparison(
        left=labels[0],
        right=labels[1],
        rows=[_compared(change, roles.get(change.name, "other")) for change in changed],
        unchanged=difference.unchanged,
        appeared=difference.appeared,
        disappeared=difference.disappeared,
        replaced=difference.replaced,
        scalars=[Replacement(each.name, repr(each.old), repr(each.new)) for each in difference.scalars],
    )


def _has_lost(file: OpenCheckpoint) -> bool:
    """Return whether an open checkpoint is one of a lossy history: such names an exact file."""
    return file.links[-1].manifest.exact is not None


def _label(path: Place, step: int | None, file: OpenCheckpoint) -> str:
    place = str(path) if step is None else f"{path} step {step}"
    if file.links[-1].manifest.is_exact:
        return f"{place} (exact)"
    return f"{place} (as the history decodes)" if _has_lost(file) else place


def _compared(change: ArrayChange, role: Role) -> Compared:
    return Compared(change.name, role, change.relative_rms, change.max_abs, change.cosine, change.share)
