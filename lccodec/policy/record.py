"""What a checkpoint records of how its frames were made: the policy, and the roles it needs.

Names of arrays say most roles. Only roles that names do not say are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError
from .policy import Policy
from .presets import POLICIES, resolve_policy
from .roles import ROLES, Role, check_roles

__all__ = ["Record", "read_record", "write_record"]


@dataclass(frozen=True)
class Record:
    """What a checkpoint says of how its frames were made; readers do not need it (LCC-MAN-03).

    Parameters
    ----------
    policy
        Policy of the chain.
    roles
        Roles that the user gave, by name or pattern.
    known
        Other roles that names do not say, by the index of the array.
    """

    policy: Policy
    roles: Mapping[str, Role] = field(default_factory=dict)
    known: Mapping[int, Role] = field(default_factory=dict)


def write_record(record: Record) -> Any:
    """Return a record as JSON.

    It is the policy alone or, if there are roles too, an object of all.
    """
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
        If this version does not know such a record.
    """
    if not isinstance(value, dict) or "policy" not in value:
        return Record(resolve_policy(value))
    roles, known = value.get("roles", {}), value.get("known", {})
    if not isinstance(known, dict) or not all(
        role in ROLES and type(indices) is list and all(type(index) is int for index in indices)
        for role, indices in known.items()
    ):
        raise ArgumentError(f"{known!r:.100} is not a record of roles")
    by_index = {index: role for role, indices in known.items() for index in indices}
    return Record(resolve_policy(value["policy"]), check_roles(roles), by_index)
