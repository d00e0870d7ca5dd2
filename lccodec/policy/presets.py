"""The presets: policies that have a name; and that of fields, whose bound a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from ..errors import ArgumentError
from ..quantizers.base import Quantizer
from ..quantizers.logarithmic import LogSteps
from ..quantizers.registry import NAMED
from ..quantizers.smooth import Smooth
from ..quantizers.uniform import UniformDeadzone
from .balanced import KEYFRAMES, STEPS, TARGETS, Balanced
from .policy import Policy
from .roles import Role

_SIGNED_ROLES: Final[tuple[Role, ...]] = ("weight", "first_moment")
_SECOND_MOMENTS: Final[dict[Role, Quantizer]] = {"second_moment": LogSteps(1.0)}
_SMALL_MOMENTS: Final[dict[Role, Quantizer]] = {
    "first_moment": UniformDeadzone(relative_step=2.9, absolute=True, dead_zone=0.39)
}
_SMALL: Final = STEPS | _SMALL_MOMENTS | {"weight": UniformDeadzone(share=0.3)}

#: The name of the policy, in files and in the shell.
FIELDS: Final = "fields"

#: A velocity `w` and a density `bias` have the names of weights. What an optimizer keeps is exact.
_FIELD_ROLES: Final[tuple[Role, ...]] = ("weight", "other")
_SMALLEST_FIELD: Final = 1 << 10  # elements: axes and tables of constants are smaller

#: The presets by name. ``lc-2`` and ``lc-3`` are the paper's scheme, with buckets chosen for each
#: array. Second moments, which must stay positive, have `LogSteps` there, and statistics are exact.
#: ``balanced`` and ``small`` differ in how much they lose; their keyframes are lossy too.
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("lossless"),
            Policy("lc-2", dict.fromkeys(_SIGNED_ROLES, NAMED["lc-2"]) | _SECOND_MOMENTS),
            Policy("lc-3", dict.fromkeys(_SIGNED_ROLES, NAMED["lc-3"]) | _SECOND_MOMENTS),
            Balanced("balanced"),
            Balanced(
                "small",
                _SMALL,
                keyframes=KEYFRAMES | _SMALL_MOMENTS,
                effort="high",
                movements=(2.0, 4.0),
            ),
        )
    }
)


def resolve_policy(policy: str | Policy | Mapping[str, Any]) -> Policy:
    """Return the preset of that name, the policy of a JSON object, or the policy itself.

    Raises
    ------
    ArgumentError
        For an unknown name, and for an object that is not a policy.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return (Balanced if not policy.keys().isdisjoint({"joint", *TARGETS}) else Policy).from_json(policy)
    if policy == FIELDS:
        raise ArgumentError("the policy 'fields' needs a bound, as in lccodec.fields(relative_error=1e-5)")
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ArgumentError(f"policy must be a Policy or one of {', '.join(POLICIES)}; got {policy!r}")
    return POLICIES[policy]


def fields(
    max_error: float | None = None,
    relative_error: float | None = None,
    *,
    conserve: Literal["sum"] | None = None,
    patterns: Mapping[str, Quantizer] = MappingProxyType({}),
    smallest: int = _SMALLEST_FIELD,
) -> Policy:
    """Return the policy that keeps smooth arrays within a bound, and all others exact.

    Whether an array is smooth is decided at each save, by a sample: its neighbours along some axis
    predict it. Arrays of float16, bfloat16, float32 and float64 may be. Those of complex numbers,
    of integers and of bool, arrays of whole numbers, arrays that are constant or too small, and
    what an optimizer keeps are exact. `Chain.plan` shows what becomes of each array. The bound
    holds in deltas and in keyframes, so that a keyframe takes no more than it has to.

    Parameters
    ----------
    max_error, relative_error, conserve
        As for `Smooth`. At least one of the bounds must be given.
    patterns
        As in `Policy`: quantizers of arrays by name, such as bounds of their own, or `Lossless`.
    smallest
        Arrays of fewer elements are exact, unless they have a pattern.

    Raises
    ------
    ArgumentError
        As `Smooth` and `Policy` do.

    Examples
    --------
    >>> import numpy as np, lccodec, tempfile
    >>> x = np.linspace(0, 6, 100)
    >>> wind = np.sin(x)[:, None] * np.cos(x)
    >>> state = {"wind": wind, "noise": np.random.default_rng(0).random(5000)}
    >>> chain = lccodec.Chain(tempfile.mkdtemp(), lccodec.fields(relative_error=1e-4))
    >>> [(array.name, array.lossy) for array in chain.plan(state)]
    [('wind', True), ('noise', False)]
    """
    quantizer = Smooth(max_error, relative_error, conserve=conserve, rough="exact")
    roles = dict.fromkeys(_FIELD_ROLES, quantizer)
    return Policy(FIELDS, roles, patterns, smallest, keyframes=roles)
