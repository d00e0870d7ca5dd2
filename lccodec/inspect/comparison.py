"""Two states beside each other: which arrays differ, by how much, and in which direction."""

from __future__ import annotations

from collections.abc import Callable

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
    """Compare two states, each given by its path and its step there."""
    (old, old_step), (new, new_step) = left, right
    with (
        open_path(old, step=old_step, exact=False) as before,
        open_path(new, step=new_step, exact=False) as after,
    ):
        difference = compare_states(Leaves(before), Leaves(after), progress)
        roles = {array.name: array.role for array in after.info().arrays}
    changed = sorted(difference.changed, key=lambda change: -(change.relative_rms or 0.0))
    return Comparison(
        left=_label(*left),
        right=_label(*right),
        rows=[_compared(change, roles.get(change.name, "other")) for change in changed],
        unchanged=difference.unchanged,
        appeared=difference.appeared,
        disappeared=difference.disappeared,
        replaced=difference.replaced,
        scalars=[Replacement(each.name, repr(each.old), repr(each.new)) for each in difference.scalars],
    )


def _label(path: Place, step: int | None) -> str:
    return str(path) if step is None else f"{path} step {step}"


def _compared(change: ArrayChange, role: Role) -> Compared:
    return Compared(change.name, role, change.relative_rms, change.max_abs, change.cosine, change.share)
