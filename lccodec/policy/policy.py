"""Policies: which quantizer for which array, by role, name, element type and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from ..arguments import as_integer
from ..element_types import Array, ElementType
from ..errors import ArgumentError
from ..frame.encode import Effort, check_effort
from ..quantizers.clusters import Clusters
from ..quantizers.exponent import ExponentBuckets
from ..quantizers.logarithmic import LogSteps
from ..quantizers.triggered import Triggered
from ..quantizers.uniform import Lossless, Quantizer, UniformDeadzone
from .roles import ROLES, Role

__all__ = ["QUANTIZERS", "Candidate", "Policy", "parse_quantizer", "quantizer_json", "quantizer_text"]

_Json: TypeAlias = Any

#: The quantizers that a policy's JSON may name.
QUANTIZERS: Final = MappingProxyType(
    {
        quantizer.__name__: quantizer
        for quantizer in (Clusters, ExponentBuckets, LogSteps, Lossless, Triggered, UniformDeadzone)
    }
)


@dataclass(frozen=True)
class Candidate:
    """An array of a delta, as a policy that weighs arrays against each other looks at it.

    Parameters
    ----------
    name, role, kind, shape
        What it is.
    bits, reference
        Components of the array and of the parent's, as decoded; ``None`` where it stands alone.
    """

    name: str
    role: Role
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
        Quantizers by pattern (:mod:`fnmatch`) of array names. The first that fits goes before roles and
        `smallest`.
    smallest
        Arrays of fewer elements are lossless: they cost little and often matter much.
    effort
        ``"high"`` for frames some percent smaller that take longer to make, as in :func:`lccodec.encode`.

    Raises
    ------
    ArgumentError
        For an unknown role or effort, what is no quantizer, or `Triggered` second moments.

    Examples
    --------
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
            if not isinstance(place, str) or not _is_quantizer(quantizer):
                raise ArgumentError(f"{where}: {place!r}: {quantizer!r} is no quantizer")
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
            return Lossless() if role == "second_moment" and isinstance(found, Triggered) else found
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
        if role == "second_moment" and isinstance(quantizer, Triggered):
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


def _settings(quantizer: Quantizer) -> dict[str, Any]:
    """Return the parameters of a quantizer that are not their defaults."""
    values = {f.name: (getattr(quantizer, f.name), f.default) for f in fields(quantizer)}  # type: ignore[arg-type]
    return {
        name: value for name, (value, default) in values.items() if default is MISSING or value != default
    }


def _is_quantizer(value: Any) -> bool:
    return type(value) in QUANTIZERS.values()


def quantizer_text(quantizer: Quantizer) -> str:
    """Return a quantizer as the call that makes it."""
    settings = ", ".join(
        f"{name}={quantizer_text(value) if _is_quantizer(value) else repr(value)}"
        for name, value in _settings(quantizer).items()
    )
    return f"{type(quantizer).__name__}({settings})"


def quantizer_json(quantizer: Quantizer) -> _Json:
    """Return a quantizer as a JSON object: its name, and what is not as by default.

    Raises
    ------
    ArgumentError
        For what is no quantizer.
    """
    if not _is_quantizer(quantizer):
        raise ArgumentError(f"{quantizer!r} is no quantizer; there are {', '.join(QUANTIZERS)}")
    settings = {
        name: quantizer_json(value) if _is_quantizer(value) else value
        for name, value in _settings(quantizer).items()
    }
    return {"quantizer": type(quantizer).__name__, **settings}


def parse_quantizer(value: _Json) -> Quantizer:
    """Return the quantizer that :func:`quantizer_json` made a JSON object of.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    if not isinstance(value, dict) or value.get("quantizer") not in list(QUANTIZERS):
        raise ArgumentError(f"unknown quantizer {value!r:.100}; there are {', '.join(QUANTIZERS)}")
    settings: dict[str, Any] = {
        name: parse_quantizer(setting) if isinstance(setting, dict) else setting
        for name, setting in value.items()
        if name != "quantizer"
    }
    try:
        return QUANTIZERS[value["quantizer"]](**settings)
    except TypeError as error:
        raise ArgumentError(f"quantizer {value!r:.100}: {error}") from error
