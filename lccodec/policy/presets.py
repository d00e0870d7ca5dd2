"""The presets: policies that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..errors import ArgumentError
from ..quantizers.base import Quantizer
from ..quantizers.logarithmic import LogSteps
from ..quantizers.registry import NAMED
from ..quantizers.uniform import UniformDeadzone
from .balanced import KEYFRAMES, STEPS, TARGETS, Balanced
from .policy import Policy
from .roles import Role

_SIGNED_ROLES: Final[tuple[Role, ...]] = ("weight", "first_moment")
_SECOND_MOMENTS: Final[dict[Role, Quantizer]] = {"second_moment": LogSteps(1.0)}
_SMALL_MOMENTS: Final[dict[Role, Quantizer]] = {
    "first_moment": UniformDeadzone(relative_step=1.9, absolute=True),
    "second_moment": LogSteps(2.0),
}
_SMALL: Final = STEPS | _SMALL_MOMENTS | {"weight": UniformDeadzone(share=0.15)}

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
            Balanced("small", _SMALL, keyframes=KEYFRAMES | _SMALL_MOMENTS, effort="high"),
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
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ArgumentError(f"policy must be a Policy or one of {', '.join(POLICIES)}; got {policy!r}")
    return POLICIES[policy]
