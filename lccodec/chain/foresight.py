"""The first keyframe of a chain when the next state is known: its steps follow the movement.

Without the next state, its steps are parts of the values' spread. In a fine-tuning little moves, so
such a step is many movements wide, and even a hundred deltas do not make up for it.

Source: ``spec/decisions/0011-lossy-keyframes.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..policy.policy import Candidate, Policy
from ..policy.record import Record
from ..policy.roles import Assignment
from ..quantizers.base import Quantizer
from ..quantizers.lossless import Lossless
from .adapter import Adapter, from_framework
from .plan import candidates, make_plan


def foresee(
    pair: tuple[Any, Any], adapter: Adapter | None, known: Mapping[str, Assignment] | None, record: Record
) -> dict[str, Quantizer]:
    """Return the quantizers of `first_keyframe` for two states, given as to `Chain.save`."""
    if record.policy.keyframes == "exact":
        return {}
    arrays = []
    for state in pair:
        flat, _, roles = from_framework(adapter, state, None, known)
        arrays.append(candidates(flat, {}, record.roles, roles))
    return first_keyframe(arrays[0], arrays[1], record.policy)


def first_keyframe(
    arrays: Sequence[Candidate], following: Sequence[Candidate], policy: Policy
) -> dict[str, Quantizer]:
    """Return the quantizers of a first keyframe for the arrays that the next state has too.

    An array that does not move is exact, and so is one whose steps would take as many bytes.

    Parameters
    ----------
    arrays, following
        The arrays of the first state and of the next one.

    Returns
    -------
    dict
        By name; without the arrays that the policy stores as it always does.
    """
    later = {c.name: c for c in following}
    found: dict[str, Quantizer] = {}
    for c in arrays:
        quantizer = policy.choose_keyframe(c.name, c.role, c.kind, c.bits.size // c.kind.components)
        other = later.get(c.name)
        if not quantizer.lossy or other is None or (other.kind, other.shape) != (c.kind, c.shape):
            continue
        foreseen = quantizer.foreseen(c.bits, other.bits, c.kind)
        if foreseen is not quantizer:
            found[c.name] = foreseen
    lossy = [c for c in arrays if c.name in found and found[c.name].lossy]
    if not lossy:
        return found
    exact = dict.fromkeys(found, Lossless())
    lossy_bytes, exact_bytes = (
        [estimate.stored_bytes for estimate in make_plan(lossy, policy, None, 1.0, choice).estimates()]
        for choice in (found, exact)
    )
    for c, steps, whole in zip(lossy, lossy_bytes, exact_bytes, strict=True):
        if whole <= steps:
            found[c.name] = Lossless()
    return found
