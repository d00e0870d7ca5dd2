"""What two states of a run tell: about how many bytes a chain takes, and a good first keyframe.

The first state is estimated as a keyframe and the second as a delta, as `Plan.estimates` does it;
all other states are taken to be like them.

The steps of a good first keyframe follow the movement. Without the next state, they are parts of
the values' spread. In a fine-tuning little moves, so such a step is many movements wide, and even a
hundred deltas do not make up for it.

Source: ``spec/decisions/0011-lossy-keyframes.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...policy.declared import obeying
from ...policy.policy import Candidate, Policy
from ...policy.presets import POLICIES, resolve_policy
from ...policy.record import Record
from ...policy.roles import Assignment, Role
from ...quantizers.base import Lossless, Quantizer
from ..caller import Adapter, from_framework
from ..read.replay import DecodedArray
from .plan import SavePlan, candidates, make_plan
from .settings import KEYFRAME_EVERY


def foresee(
    pair: tuple[Any, Any],
    adapter: Adapter | None,
    known: Mapping[str, Assignment | Role] | None,
    record: Record,
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
    """Return the quantizers of a first keyframe by name, where the next state has the array too.

    An array that does not move is exact, and so is one whose steps would take as many bytes.
    Arrays that the policy stores as it always does are left out.
    """
    policy = obeying(policy, arrays)
    later = {c.name: c for c in following}
    found: dict[str, Quantizer] = {}
    for c in arrays:
        quantizer = policy.choose_keyframe(c.name, c.role, c.kind, c.elements)
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


#: Of a checkpoint beside its frames: the HDF5 structure, and the manifest (SPEC 8).
_FILE_BYTES: Final = 800
_ARRAY_BYTES: Final = 60


@dataclass(frozen=True)
class Forecast:
    """About how many bytes a chain takes."""

    policy: str  # name of the policy
    keyframe: int  # bytes of a keyframe
    delta: int  # bytes of a delta
    exact: int  # bytes of the newest state bit for bit
    nbytes: int  # bytes of the arrays of a state

    def chain_bytes(self, states: int, exact: bool = True) -> int:
        """Return the bytes of so many checkpoints, and of the exact file of a lossy chain.

        `exact` says whether there is such a file.
        """
        keyframes = -(-states // (KEYFRAME_EVERY + 1))
        beside = self.exact if exact and self.policy != "lossless" else 0
        return keyframes * self.keyframe + (states - keyframes) * self.delta + beside


def forecast(
    states: Sequence[Any], policy: str | Policy, known: Mapping[str, Assignment | Role] | None = None
) -> Forecast:
    """Return about how many bytes a chain of states like these takes. Nothing is written.

    `states`: one state, or two that follow each other, as given to `Chain.save` without an adapter.
    `policy`: the name of a preset, or a policy. `known`: roles of arrays by full name.

    Examples
    --------
    >>> import numpy as np
    >>> states = [{"weight": np.full(100_000, x, np.float32)} for x in (1, 2)]
    >>> found = forecast(states, "lossless")
    >>> found.keyframe < 2000, found.chain_bytes(10) == found.keyframe + 9 * found.delta
    (True, True)
    """
    chosen, exact = resolve_policy(policy), POLICIES["lossless"]
    flats = [from_framework(None, state, None, known) for state in states[:2]]
    arrays = candidates(flats[0][0], {}, {}, flats[0][2])
    parents = {c.name: DecodedArray(c.kind, c.shape, c.bits) for c in arrays}
    first, delta = {}, None
    if len(flats) > 1:
        after = candidates(flats[1][0], parents, {}, flats[1][2])
        first = first_keyframe(arrays, after, chosen)
        delta = _nbytes(make_plan(after, chosen, 0))
    keyframe = _nbytes(make_plan(arrays, chosen, None, 1.0, first))
    return Forecast(
        chosen.name,
        keyframe,
        keyframe if delta is None else delta,
        keyframe if chosen == exact else _nbytes(make_plan(arrays, exact, None)),
        sum(c.bits.nbytes for c in arrays),
    )


def _nbytes(plan: SavePlan) -> int:
    frames = sum(estimate.stored_bytes for estimate in plan.estimates())
    return frames + _FILE_BYTES + _ARRAY_BYTES * len(plan.candidates)
