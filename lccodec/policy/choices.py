"""The choice of a policy for every array of a state: role, reason for the role, and quantizer.

This module does not read the values of arrays. A `Balanced` policy scales the steps of its
quantizers at each delta; the choices here are before this scaling.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ..element_types import ElementType
from ..quantizers.lossless import Lossless
from ..quantizers.registry import quantizer_text
from .policy import Policy
from .record import Record
from .roles import UNNAMED, Assignment, Role, assign_roles

__all__ = ["Choice", "choose", "find_known", "needed_record", "unnamed_weights"]

#: An array of at least this many elements is reported if no name says its role.
_LARGE_ARRAY_ELEMENTS: Final = 1 << 12

_WHY_RECORDED: Final = "from a framework's structures when it was saved"


@dataclass(frozen=True)
class Choice:
    """The choice for one array.

    Parameters
    ----------
    role, why
        Role of the array, and the reason in a few words.
    quantizer
        The quantizer that codes the array in deltas, as text.
    lossy
        Whether decoded values may differ from the original ones.
    """

    role: Role
    why: str
    quantizer: str
    lossy: bool


def choose(
    arrays: Mapping[str, tuple[ElementType, int]],
    record: Record,
    known: Mapping[str, Assignment] | None = None,
) -> dict[str, Choice]:
    """Return the choice of a chain's policy and roles for each array.

    Parameters
    ----------
    arrays
        Element type and number of elements of each array, by name.
    record
        Policy and roles. Its roles by index follow the order of `arrays`.
    known
        Roles by name, from a framework's structures.
    """
    names = list(arrays)
    recorded = {names[i]: Assignment(r, _WHY_RECORDED) for i, r in record.known.items() if i < len(names)}
    assigned = assign_roles(names, record.roles, {**recorded, **(known or {})})
    found: dict[str, Choice] = {}
    made: dict[object, Choice] = {}  # thousands of arrays may share a choice
    for name, (kind, size) in arrays.items():
        role, why = assigned[name].role, assigned[name].why
        quantizer = record.policy.choose(name, role, kind, size)
        if (role, why, quantizer) not in made:
            lossy = quantizer.lossy
            made[role, why, quantizer] = Choice(role, why, quantizer_text(quantizer), lossy)
        found[name] = made[role, why, quantizer]
    return found


def needed_record(record: Record, assigned: Mapping[str, Assignment], known: Collection[str]) -> Record:
    """Return what a checkpoint must record: the policy, and roles that do not follow from names.

    Parameters
    ----------
    record
        Policy and roles of the chain.
    assigned
        Role of each array, in the order of the state.
    known
        Names of the arrays whose roles come from a framework's structures.
    """
    by_name = assign_roles(assigned) if record.roles else {}
    given = {
        name: role
        for name, role in record.roles.items()
        if name not in by_name or by_name[name].role != role  # most roles follow from names
    }
    return Record(record.policy, given, find_known(assigned, given) if known else {})


def find_known(assigned: Mapping[str, Assignment], given: Mapping[str, Role]) -> dict[int, Role]:
    """Return by array index the roles that do not follow from names or from the user's roles."""
    without = assign_roles(assigned, given)
    return {
        index: assignment.role
        for index, (name, assignment) in enumerate(assigned.items())
        if assignment.role != without[name].role
    }


def unnamed_weights(
    arrays: Mapping[str, tuple[ElementType, int]], choices: Mapping[str, Choice], policy: Policy
) -> list[str]:
    """Return the large float arrays that a lossy policy stores exactly for want of a role."""
    if not policy.roles.get("weight", Lossless()).lossy:
        return []
    return [
        name
        for name, (kind, size) in arrays.items()
        if kind.is_float
        and size >= _LARGE_ARRAY_ELEMENTS
        and choices[name].why == UNNAMED
        and not choices[name].lossy
    ]
