"""The policies that have names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from .balanced import STEPS, TARGETS, Balanced
from .buckets import ExponentBuckets
from .errors import ArgumentError
from .moments import LogSteps
from .policy import Policy
from .quantize import Quantizer
from .roles import ROLES, Role, check_roles

__all__ = ["POLICIES", "Record", "read_record", "resolve_policy", "write_record"]

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


@dataclass(frozen=True)
class Record:
    """What a checkpoint says of how its frames were made; readers do not need it (LCC-MAN-03).

    Parameters
    ----------
    policy
        Of the chain.
    roles
        Roles that the user gave, by name or pattern.
    known
        Roles that neither these nor names tell, by the index of the array.
    """

    policy: Policy
    roles: Mapping[str, Role] = field(default_factory=dict)
    known: Mapping[int, Role] = field(default_factory=dict)


def write_record(record: Record) -> Any:
    """Return a record as JSON: what it says of the policy or, if there are roles too, an object of all."""
    policy = record.policy
    written = policy.name if POLICIES.get(policy.name) == policy else policy.to_json()
    indices: dict[str, list[int]] = {}
    for index, role in record.known.items():
        indices.setdefault(role, []).append(index)
    more = {name: value for name, value in (("roles", dict(record.roles)), ("known", indices)) if value}
    return {"policy": written, **more} if more else written


def read_record(value: Any) -> Record:
    """Return the record that :func:`write_record` wrote.

    Raises
    ------
    ArgumentError
        If it is none that this version knows.
    """
    if not isinstance(value, dict) or "policy" not in value:
        return Record(resolve_policy(value))
    roles, known = value.get("roles", {}), value.get("known", {})
    if not isinstance(known, dict) or not all(
        role in ROLES and type(indices) is list and all(type(index) is int for index in indices)
        for role, indices in known.items()
    ):
        raise ArgumentError(f"not a record of roles: {known!r:.100}")
    by_index = {index: role for role, indices in known.items() for index in indices}
    return Record(resolve_policy(value["policy"]), check_roles(roles), by_index)
