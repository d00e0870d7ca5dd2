"""About how many bytes a chain takes with a policy, told by two of its states.

The first is estimated as a keyframe and the second as a delta, as `Plan.estimates` does it; all
other states are taken to be like them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..policy.presets import POLICIES
from ..policy.roles import Assignment
from .adapter import from_framework
from .decoded import DecodedArray
from .foresight import first_keyframe
from .plan import Plan, candidates, make_plan
from .settings import KEYFRAME_EVERY

#: Of a checkpoint beside its frames: the HDF5 structure, and the manifest (SPEC 8).
_FILE_BYTES: Final = 800
_ARRAY_BYTES: Final = 60


@dataclass(frozen=True)
class Forecast:
    """About how many bytes a chain takes.

    Parameters
    ----------
    policy
        Name of the policy.
    keyframe, delta
        Bytes of a keyframe, and of a delta.
    exact
        Bytes of the newest state bit for bit.
    nbytes
        Bytes of the arrays of a state.
    """

    policy: str
    keyframe: int
    delta: int
    exact: int
    nbytes: int

    def chain_bytes(self, states: int, exact: bool = True) -> int:
        """Return the bytes of so many checkpoints, and of the exact file of a lossy chain.

        `exact` says whether there is such a file.
        """
        keyframes = -(-states // (KEYFRAME_EVERY + 1))
        beside = self.exact if exact and self.policy != "lossless" else 0
        return keyframes * self.keyframe + (states - keyframes) * self.delta + beside


def forecast(states: Sequence[Any], policy: str, known: Mapping[str, Assignment] | None = None) -> Forecast:
    """Return about how many bytes a chain of states like these takes. Nothing is written.

    Parameters
    ----------
    states
        One state, or two that follow each other, as given to `Chain.save` without an adapter.
    policy
        The name of a preset.
    known
        Roles of arrays by full name.

    Examples
    --------
    >>> import numpy as np
    >>> states = [{"weight": np.full(100_000, x, np.float32)} for x in (1, 2)]
    >>> found = forecast(states, "lossless")
    >>> found.keyframe < 2000, found.chain_bytes(10) == found.keyframe + 9 * found.delta
    (True, True)
    """
    chosen, exact = POLICIES[policy], POLICIES["lossless"]
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
        policy,
        keyframe,
        keyframe if delta is None else delta,
        keyframe if chosen == exact else _nbytes(make_plan(arrays, exact, None)),
        sum(c.bits.nbytes for c in arrays),
    )


def _nbytes(plan: Plan) -> int:
    frames = sum(estimate.stored_bytes for estimate in plan.estimates())
    return frames + _FILE_BYTES + _ARRAY_BYTES * len(plan.candidates)
