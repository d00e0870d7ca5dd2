"""The policies that have names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..errors import ArgumentError
from ..quantizers.exponent import ExponentBuckets
from ..quantizers.logarithmic import LogSteps
from ..quantizers.uniform import Lossless, Quantizer
from .balanced import STEPS, TARGETS, Balanced
from .policy import QUANTIZERS, Policy
from .roles import Role

__all__ = ["POLICIES", "resolve_policy", "resolve_quantizer"]

_SIGNED: Final[tuple[Role, ...]] = ("weight", "first_moment")
_POSITIVE: Final[dict[Role, Quantizer]] = {"second_moment": LogSteps(1.0)}

#: The presets. ``lc-2`` and ``lc-3`` are the paper's scheme with the buckets chosen per array, for all but
#: second moments, which have to stay positive, and statistics; ``balanced`` and ``small`` differ in how
#: much they lose.
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("lossless"),
            Policy("lc-2", dict.fromkeys(_SIGNED, ExponentBuckets(bits=2)) | _POSITIVE),
            Policy("lc-3", dict.fromkeys(_SIGNED, ExponentBuckets(bits=3)) | _POSITIVE),
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


def resolve_quantizer(quantizer: Quantizer | str) -> Quantizer:
    """Return what a preset codes weights with, by its name, or the quantizer itself.

    Raises
    ------
    ArgumentError
        For an unknown name, or a preset that chooses the steps of all arrays of a state together.
    """
    if not isinstance(quantizer, str):
        return quantizer
    policy = POLICIES.get(quantizer)
    if policy is None or isinstance(policy, Balanced):
        reason = "unknown quantizer" if policy is None else "it takes the arrays of a whole state to be"
        names = [name for name, preset in POLICIES.items() if not isinstance(preset, Balanced)]
        raise ArgumentError(
            f"{reason} {quantizer!r}; there are {', '.join(QUANTIZERS)}, and the names {', '.join(names)}"
        )
    return policy.roles.get("weight", Lossless())
