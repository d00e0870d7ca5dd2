"""What a policy makes of every array of a state: its role, why it has it, and what codes it in deltas.

Nothing here looks at values. A `Balanced` policy scales the steps of its quantizers at each delta;
what is said of it here is before that.
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

#: Elements from which on an array that nothing names is worth a word.
_LARGE: Final = 1 << 12

_RECORDED: Final = "told by a framework's structures when it was saved"


@dataclass(frozen=True)
class Choice:
    """What is chosen for one array.

    Parameters
    ----------
    role, why
        Its role, and in a few words why it has it.
    quantizer
        What codes it in deltas, as text.
    lossy
        Whether that may lose anything.
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
    """Return what the policy and the roles of a chain choose for arrays.

    Parameters
    ----------
    arrays
        Element type and number of elements of each array, by name.
    record
        Policy and roles; roles by index are those of the order of `arrays`.
    known
        Roles by name that a framework's structures tell.
    """
    names = list(arrays)
    recorded = {names[i]: Assignment(r, _RECORDED) for i, r in record.known.items() if i < len(names)}
    assigned = assign_roles(names, record.roles, {**recorded, **(known or {})})
    found: dict[str, Choice] = {}
    made: dict[object, Choice] = {}  # of thousands of arrays most are alike
    for name, (kind, size) in arrays.items():
        role, why = assigned[name].role, assigned[name].why
        quantizer = record.policy.choose(name, role, kind, size)
        if (role, why, quantizer) not in made:
            lossy = quantizer.lossy
            made[role, why, quantizer] = Choice(role, why, quantizer_text(quantizer), lossy)
        found[name] = made[role, why, quantizer]
    return found


def needed_record(record: Record, assigned: Mapping[str, Assignment], known: Collection[str]) -> Record:
    """Return what a checkpoint has to record: the policy, and the roles that names alone do not say.

    Parameters
    ----------
    record
        Policy and roles of the chain.
    assigned
        Role of each array, in the order of the state.
    known
        Names of the arrays whose roles a framework's structures say.
    """
    by_name = assign_roles(assigned) if record.roles else {}
    given = {
        name: role
        for name, role in record.roles.items()
        if name not in by_name or by_name[name].role != role  # names say most of a module's
    }
    return Record(record.policy, given, find_known(assigned, given) if known else {})


def find_known(assigned: Mapping[str, Assignment], given: Mapping[str, Role]) -> dict[int, Role]:
    """Return the roles that neither names nor the user say, by the index of the array."""
    without = assign_roles(assigned, given)
    return {
        index: assignment.role
        for index, (name, assignment) in enumerate(assigned.items())
        if assignment.role != without[name].role
    }


def unnamed_weights(
    arrays: Mapping[str, tuple[ElementType, int]], choices: Mapping[str, Choice], policy: Policy
) -> list[str]:
    """Return the large floating point arrays that are exact because nothing names them, by a lossy policy."""
    if not policy.roles.get("weight", Lossless()).lossy:
        return []
    return [
        name
        for name, (kind, size) in arrays.items()
        if kind.is_float and size >= _LARGE and choices[name].why == UNNAMED and not choices[name].lossy
    ]
