"""The policies that have names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..errors import ArgumentError
from ..quantizers.base import Quantizer
from ..quantizers.logarithmic import LogSteps
from ..quantizers.registry import NAMED
from .balanced import STEPS, TARGETS, Balanced
from .policy import Policy
from .roles import Role

__all__ = ["POLICIES", "resolve_policy"]

_SIGNED: Final[tuple[Role, ...]] = ("weight", "first_moment")
_POSITIVE: Final[dict[Role, Quantizer]] = {"second_moment": LogSteps(1.0)}

#: The presets. ``lc-2`` and ``lc-3`` are the paper's scheme with the buckets chosen per array, for
#: all but second moments, which have to stay positive, and statistics; ``balanced`` and ``small``
#: differ in how much they lose.
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("lossless"),
            Policy("lc-2", dict.fromkeys(_SIGNED, NAMED["lc-2"]) | _POSITIVE),
            Policy("lc-3", dict.fromkeys(_SIGNED, NAMED["lc-3"]) | _POSITIVE),
            Balanced("balanced", error=0.8, joint=True),
            Balanced("small", STEPS | {"second_moment": LogSteps(3.0)}, error=1.2, joint=True, effort="high"),
        )
    }
)


def resolve_policy(policy: str | Policy | Mapping[str, Any]) -> Policy:
    """Return the preset of that name, the policy of a JSON object, or the policy itself.

    Raises
    ------
    ArgumentError
        For an unknown name, or what is no policy.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return (Balanced if not policy.keys().isdisjoint(TARGETS) else Policy).from_json(policy)
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ArgumentError(f"unknown policy {policy!r}; there are {', '.join(POLICIES)}")
    return POLICIES[policy]
