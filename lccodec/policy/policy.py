"""Policies: which quantizer for which array, by role, name, element type and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Self, TypeAlias

from ..arguments import as_integer
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from ..frame.encode import Effort, check_effort
from ..quantizers.base import Quantizer
from ..quantizers.lossless import Lossless
from ..quantizers.registry import check_registered, parse_quantizer, quantizer_json, quantizer_text
from .roles import ROLES, Role

__all__ = ["Candidate", "Policy"]

_Json: TypeAlias = Any


@dataclass(slots=True)  # of thousands: a frozen one takes three times as long to make
class Candidate:
    """An array of a delta, as a policy that weighs arrays against each other looks at it.

    Parameters
    ----------
    name, role, why, kind, shape
        What it is, and why it has that role.
    bits, reference
        Components of the array and of the parent's, as decoded; ``None`` where it stands alone.
    """

    name: str
    role: Role
    why: str
    kind: ElementType
    shape: tuple[int, ...]
    bits: Array
    reference: Array | None


@dataclass(frozen=True)
class Policy:
    """Chooses a quantizer for every array of a delta; keyframes are always lossless.

    Integers, bool, and what nothing here names, are lossless.

    Parameters
    ----------
    name
        What people call it.
    roles
        The quantizer of each role (:mod:`lccodec.policy.roles`).
    patterns
        Quantizers by pattern (:mod:`fnmatch`) of array names. The first that fits goes before roles
        and `smallest`.
    smallest
        Arrays of fewer elements are lossless: they cost little and often matter much.
    effort
        ``"high"`` for frames some percent smaller that take longer to make, as in
        :func:`lccodec.encode`.

    Raises
    ------
    ArgumentError
        For an unknown role or effort, what is no quantizer, or `Triggered` second moments.

    Examples
    --------
    >>> from lccodec import ExponentBuckets, Lossless, UniformDeadzone
    >>> policy = Policy(
    ...     "mine",
    ...     {"weight": UniformDeadzone(relative_step=1.0), "first_moment": ExponentBuckets(bits=2)},
    ...     patterns={"*embedding*": Lossless()},
    ...     smallest=1000,
    ... )
    >>> print(policy)
    mine
      *embedding*        Lossless()
      below 1000 values  Lossless()
      weight             UniformDeadzone(relative_step=1.0)
      first_moment       ExponentBuckets(bits=2)
      all else           Lossless()
    >>> Policy.from_json(policy.to_json()) == policy
    True
    """

    name: str
    roles: Mapping[Role, Quantizer] = field(default_factory=dict)
    patterns: Mapping[str, Quantizer] = field(default_factory=dict)
    smallest: int = 0
    effort: Effort = field(default="normal", kw_only=True)

    def __post_init__(self) -> None:
        where = f"policy {self.name!r}"
        if not isinstance(self.roles, Mapping) or not isinstance(self.patterns, Mapping):
            raise ArgumentError(f"{where}: roles and patterns are mappings to quantizers")
        for role in self.roles:
            if role not in ROLES:
                raise ArgumentError(f"{where}: unknown role {role!r}; there are {', '.join(ROLES)}")
        for place, quantizer in [*self.roles.items(), *self.patterns.items()]:
            if not isinstance(place, str):
                raise ArgumentError(f"{where}: {place!r} is no name or pattern")
            check_registered(quantizer, f"{where}: {place!r}: ")
        self._check_trigger("roles", "second_moment", self.roles.get("second_moment", Lossless()))
        smallest = as_integer(self.smallest)
        if smallest is None or smallest < 0:
            raise ArgumentError(f"{where}: smallest is a number of elements, not {self.smallest!r}")
        object.__setattr__(self, "smallest", smallest)
        check_effort(self.effort)
        object.__setattr__(self, "roles", {role: self.roles[role] for role in ROLES if role in self.roles})
        object.__setattr__(self, "patterns", dict(self.patterns))

    def choose(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements; second moments never wait for a trigger."""
        if not kind.is_float:
            return Lossless()
        found = self._of_pattern(name)
        if found is not None:
            return Lossless() if role == "second_moment" and found.awake is not found else found
        if size < self.smallest:
            return Lossless()
        return self.roles.get(role, Lossless())

    def _of_pattern(self, name: str) -> Quantizer | None:
        return next((q for pattern, q in self.patterns.items() if fnmatchcase(name, pattern)), None)

    def check(self, roles: Mapping[str, Role]) -> None:
        """Check that the patterns go with the roles of arrays by name, before a run is saved with them.

        Raises
        ------
        ArgumentError
            If a pattern lets a second moment wait for a trigger.
        """
        for name, role in roles.items():
            self._check_trigger(name, role, self._of_pattern(name))

    def _check_trigger(self, place: str, role: Role, quantizer: Quantizer | None) -> None:
        if role == "second_moment" and quantizer is not None and quantizer.awake is not quantizer:
            raise ArgumentError(
                f"policy {self.name!r}: {place!r}: second moments are not to be Triggered: the small ones"
                " would be far off unseen; LogSteps waits by itself, element by element"
            )

    @property
    def shortfall(self) -> str | None:
        """What of a target cannot be met for the arrays of a delta, in a sentence; ``None`` if all can."""
        return None

    def settle(self, candidates: Iterable[Candidate]) -> Policy:  # noqa: ARG002
        """Return the policy that chooses for the arrays of one delta: this one, but in `Balanced`."""
        return self

    def __str__(self) -> str:
        rows = list(self.patterns.items())
        if self.smallest:
            rows.append((f"below {self.smallest} values", Lossless()))
        rows += [*self.roles.items(), ("all else", Lossless())]
        width = max(len(place) for place, _ in rows)
        head = self.name if self.effort == "normal" else f"{self.name}, effort={self.effort}"
        return "\n".join(
            [head, *(f"  {place:{width}}  {quantizer_text(quantizer)}" for place, quantizer in rows)]
        )

    def to_json(self) -> _Json:
        """Return the policy as a JSON object that says all."""
        return {
            "name": self.name,
            "roles": {role: quantizer_json(quantizer) for role, quantizer in self.roles.items()},
            "patterns": {pattern: quantizer_json(quantizer) for pattern, quantizer in self.patterns.items()},
            "smallest": self.smallest,
            **({} if self.effort == "normal" else {"effort": self.effort}),
        }

    @classmethod
    def from_json(cls, value: _Json) -> Self:
        """Return the policy that :meth:`to_json` made a JSON object of.

        Raises
        ------
        ArgumentError
            If it is none.
        """
        members = ("name", "roles", "patterns", "smallest")
        if not isinstance(value, dict) or not all(member in value for member in members):
            raise ArgumentError(f"a policy is an object of {', '.join(members)}, not {value!r:.100}")
        name, roles, patterns, smallest = (value[member] for member in members)
        if not isinstance(name, str) or not isinstance(roles, dict) or not isinstance(patterns, dict):
            raise ArgumentError(f"policy {name!r:.100}: the name is a string, roles and patterns are objects")
        try:
            return cls(
                name,
                {role: parse_quantizer(quantizer) for role, quantizer in roles.items()},
                {pattern: parse_quantizer(quantizer) for pattern, quantizer in patterns.items()},
                smallest,
                **{member: setting for member, setting in value.items() if member not in members},
            )
        except TypeError as error:
            raise ArgumentError(f"policy {name!r}: {error}") from error
