"""The record of a checkpoint: the policy and the roles its frames were made with.

It says what becomes of each array in deltas, without a look at values. A `Balanced` policy scales
the steps at each delta; the choices here are before this scaling. Most roles follow from the names
and shapes of all arrays. Only other roles are recorded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from ..constants import ElementType
from ..errors import ArgumentError
from ..quantizers.registry import quantizer_text
from .declared import obeyed, roles_of
from .policy import Candidate, Declaration, Policy
from .presets import POLICIES, resolve_policy
from .roles import FOLLOWER, MASTER, NO_MOMENT, ROLES, ROUNDED, Assignment, Role, assign_roles, check_roles

#: What is kept of the newest state: the exact file and the history's checkpoint, or that alone.
NewestMode: TypeAlias = Literal["exact", "history"]
KEPT: Final = ("exact", "history")

_BY_VALUES: Final = frozenset([FOLLOWER, MASTER, NO_MOMENT, ROUNDED])
_WHY_RECORDED: Final = "from a framework's structures when it was saved"


def check_newest(newest: NewestMode | None) -> NewestMode | None:
    """Return the parameter `newest` of a chain; raise ``ArgumentError`` if it is unknown."""
    if newest is not None and (not isinstance(newest, str) or newest not in KEPT):
        raise ArgumentError(f"newest must be 'exact', 'history' or None; got {newest!r}")
    return newest


#: In the metadata of a step that was asked for exactly: whatever codes it again loses nothing.
EXACT_KEY: Final = "lccodec.exact"


@dataclass(frozen=True)
class Record:
    """What a checkpoint says of how its frames were made; readers do not need it (LCC-MAN-03)."""

    policy: Policy
    roles: Mapping[str, Role] = field(default_factory=dict)  # from the user, by name or pattern
    known: Mapping[int, Role] = field(default_factory=dict)  # other roles, by index
    newest: NewestMode = "exact"

    def of_state(self, metadata: Mapping[str, str]) -> Record:
        """Return what codes a state: nothing is lost of one that its metadata call exact."""
        return replace(self, policy=POLICIES["lossless"]) if EXACT_KEY in metadata else self

    def known_of(self, names: Sequence[str]) -> dict[str, Assignment]:
        """Return the known roles by name; `names` are those of all arrays, by index."""
        return {names[i]: Assignment(r, _WHY_RECORDED) for i, r in self.known.items() if i < len(names)}


@dataclass(frozen=True)
class Choice:
    """The choice for one array: role and why, quantizer in deltas as text, and if it may lose."""

    role: Role
    why: str
    quantizer: str
    lossy: bool


def choose(
    arrays: Mapping[str, tuple[ElementType, tuple[int, ...]]],
    record: Record,
    known: Mapping[str, Assignment] | None = None,
    declared: Mapping[str, Declaration] = MappingProxyType({}),
) -> dict[str, Choice]:
    """Return the choice of a record for arrays, given by their types and shapes.

    The record's roles by index follow the order of `arrays`. `known` has roles by name, from a
    framework's structures, and `declared` what the file of the state says.
    """
    names = list(arrays)
    shapes = {name: shape for name, (_, shape) in arrays.items()}
    others = {**record.known_of(names), **roles_of(declared), **(known or {})}
    assigned = assign_roles(shapes, record.roles, others)
    found: dict[str, Choice] = {}
    made: dict[object, Choice] = {}  # thousands of arrays may share a choice
    for name, (kind, shape) in arrays.items():
        size = math.prod(shape)
        role, why = assigned[name].role, assigned[name].why
        quantizer = record.policy.choose(name, role, kind, size)
        lossy = record.policy.may_lose(name, role, kind, size)
        if name in declared:
            quantizer = obeyed(record.policy, declared[name], name, role, why, kind, size) or quantizer
            lossy = lossy and quantizer.lossy
        key = role, why, quantizer, lossy
        if key not in made:
            made[key] = Choice(role, why, quantizer_text(quantizer), lossy)
        found[name] = made[key]
    return found


def needed_record(record: Record, arrays: Iterable[Candidate], known: Collection[str]) -> Record:
    """Return the policy, and the roles that do not follow from names and shapes.

    `arrays` are all arrays of the state, in its order; `known` has the names of those whose roles
    come from a framework's structures. The roles of some may come from their values.
    """
    candidates = list(arrays)
    by_values = False
    for c in candidates:
        by_values |= c.why in _BY_VALUES or bool(c.declared)
    if not record.roles and not known and not by_values:  # all follow from names and shapes
        return replace(record, known={})
    shapes = {c.name: c.shape for c in candidates}
    by_name = assign_roles(shapes)
    given = {
        name: role
        for name, role in record.roles.items()
        if name not in by_name or by_name[name].role != role  # most roles follow from names
    }
    without = assign_roles(shapes, given)
    different = {i: c.role for i, c in enumerate(candidates) if c.role != without[c.name].role}
    return replace(record, roles=given, known=different if known or by_values else {})


def write_record(record: Record) -> Any:
    """Return a record as JSON: the policy alone or, if there is more, an object of all."""
    policy = record.policy
    written = policy.name if POLICIES.get(policy.name) == policy else policy.to_json()
    indices: dict[str, list[int]] = {}
    for index, role in record.known.items():
        indices.setdefault(role, []).append(index)
    newest = None if record.newest == "exact" else record.newest  # the default is not written
    members = {"policy": written}
    for name, value in (("roles", dict(record.roles)), ("known", indices), ("newest", newest)):
        if value:
            members[name] = value
    return members if len(members) > 1 else written


def read_record(value: Any) -> Record:
    """Return the record that :func:`write_record` wrote; refuse what this version does not know."""
    if not isinstance(value, dict) or "policy" not in value:
        return Record(resolve_policy(value))
    roles, known, newest = value.get("roles", {}), value.get("known", {}), value.get("newest", "exact")
    if newest not in KEPT:
        raise ArgumentError(f"{newest!r:.100} is not what is kept of the newest state")
    if not isinstance(known, dict) or not all(
        role in ROLES and type(indices) is list and all(type(index) is int for index in indices)
        for role, indices in known.items()
    ):
        raise ArgumentError(f"{known!r:.100} is not a record of roles")
    by_index = {index: role for role, indices in known.items() for index in indices}
    return Record(resolve_policy(value["policy"]), check_roles(roles), by_index, newest)
