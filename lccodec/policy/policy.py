"""Policies: which quantizer for which array, by role, name, element type and size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from ..constants import ElementType
from ..element_types import Array
from ..errors import ArgumentError, check_choice, integer
from ..frame.encode import Effort, check_effort
from ..quantizers.base import Lossless, Quantizer, guarantee_of
from ..quantizers.registry import check_registered, parse_quantizer, quantizer_json, quantizer_text
from .roles import ROLES, Role


@dataclass(slots=True)  # as of `Candidate`
class Past:
    """A sample of an array as it was at the save before, before anything was lost."""

    distance: int  # between two sampled components; 1 if all are sampled
    bits: Array  # the sampled components

    def of(self, bits: Array) -> Array:
        """Return a copy of the same components of an array of the same size."""
        return bits[:: self.distance].copy()


@dataclass(frozen=True)
class Declaration:
    """What a file declares of one array."""

    why: str  # the declaration, in a few words
    exact: bool = False  # whether it is a coordinate, or belongs to one
    fills: tuple[float, ...] = ()  # finite values that stand for nothing
    minimum: float | None = None  # limits of its other values
    maximum: float | None = None


@dataclass(slots=True)  # there may be thousands: a frozen one takes three times as long to make
class Candidate:
    """An array of a state, with all that a policy needs to choose its quantizer."""

    name: str
    role: Role
    why: str  # it has this role, in a few words
    kind: ElementType
    shape: tuple[int, ...]
    bits: Array  # its components
    reference: Array | None  # the parent's as decoded; None if the parent has no such array
    past: Past | None = None  # if it is known
    source: str | None = None  # the array whose rounding it is, or whose equal; if it is known
    inherited: bool = False  # whether the save leaves it out: it is its reference, bit for bit
    changed: float | None = None  # most of it that differs from the reference; if hashes say so
    declared: Declaration | None = None  # what its file says of it
    step: float | None = None  # of a copy of a weight (`lccodec.policy.values`)

    @property
    def elements(self) -> int:
        """How many elements it has; a complex one is two components."""
        return self.bits.size // self.kind.components


@dataclass(frozen=True)
class Policy:
    """Chooses a quantizer for every array, in deltas and in keyframes.

    Integers and bool are lossless. So is an array whose role and name have no quantizer here.

    Parameters
    ----------
    name
        Name of the policy, for people.
    roles
        The quantizer of each role (:mod:`lccodec.policy.roles`).
    patterns
        Quantizers by pattern (:mod:`fnmatch`) of array names. The first pattern that fits overrides
        `roles` and `smallest`.
    smallest
        Arrays of fewer elements are lossless: they take few bytes and often matter much.
    keyframes
        ``"exact"``, or the quantizer of each role in keyframes, and in deltas for arrays that the
        parent does not have. Arrays with a pattern, and small ones, are exact there; but the bound
        of a pattern's `Smooth` holds there too. Where a quantizer of `roles` guarantees more than
        that of keyframes, it codes both.
    effort
        ``"high"`` makes frames some percent smaller, in more time, as in :func:`lccodec.encode`.

    Raises
    ------
    ArgumentError
        For an unknown role, quantizer or effort, for `Triggered` second moments, and for keyframes
        in which second moments could become 0 or negative.

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
    keyframes: Literal["exact"] | Mapping[Role, Quantizer] = field(default="exact", kw_only=True)
    effort: Effort = field(default="normal", kw_only=True)
    #: Quantizers of arrays by whole name, for one save: what their file declares of them.
    arrays: Mapping[str, Quantizer] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    width = 1.0  # factor of the steps of weights; another one only in `Balanced`

    def __post_init__(self) -> None:
        where = f"policy {self.name!r}"
        if not isinstance(self.roles, Mapping) or not isinstance(self.patterns, Mapping):
            raise ArgumentError(f"{where}: roles and patterns must be mappings to quantizers")
        if not isinstance(self.keyframes, Mapping) and self.keyframes != "exact":
            raise ArgumentError(
                f"{where}: keyframes must be 'exact' or a mapping to quantizers; got {self.keyframes!r:.100}"
            )
        keyframes = {} if self.keyframes == "exact" else self.keyframes
        for role in [*self.roles, *keyframes]:
            check_choice(f"{where}: a role", role, ROLES)
        for role, quantizer in keyframes.items():
            check_registered(quantizer, f"{where}: keyframes: {role!r}: ")
        second = keyframes.get("second_moment", Lossless())
        if second.lossy and not second.ordered:
            raise ArgumentError(
                f"{where}: keyframes: {second!r} could make second moments 0 or negative; use LogSteps"
            )
        for place, quantizer in [*self.roles.items(), *self.patterns.items()]:
            if not isinstance(place, str):
                raise ArgumentError(f"{where}: a name or pattern must be a string; got {place!r}")
            check_registered(quantizer, f"{where}: {place!r}: ")
        self._check_trigger("roles", "second_moment", self.roles.get("second_moment", Lossless()))
        object.__setattr__(self, "smallest", integer(f"{where}: smallest", self.smallest))
        check_effort(self.effort)
        object.__setattr__(self, "roles", {role: self.roles[role] for role in ROLES if role in self.roles})
        object.__setattr__(self, "patterns", dict(self.patterns))
        ordered = {role: keyframes[role] for role in ROLES if role in keyframes}
        object.__setattr__(self, "keyframes", ordered or "exact")

    def choose(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements; second moments never wait."""
        if not kind.is_float:
            return Lossless()
        found = self._of_pattern(name)
        if found is not None:
            return Lossless() if role == "second_moment" and found.trigger is not None else found
        if size < self.smallest:
            return Lossless()
        return self.roles.get(role, Lossless())

    def choose_keyframe(self, name: str, role: Role, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements without a reference."""
        found = self._of_pattern(name) if kind.is_float else None
        if found is not None and found.in_keyframes:
            return found
        if self.keyframes == "exact" or not kind.is_float or size < self.smallest:
            return Lossless()
        coder = Lossless() if found is not None else self.keyframes.get(role, Lossless())
        own = self.roles.get(role)
        if own is not None and not guarantee_of(own).follows_from(guarantee_of(coder)):
            return own  # what it guarantees in deltas holds here too
        return coder

    @property
    def lossy(self) -> bool:
        """Whether anything of some array may be lost in a delta."""
        return any(quantizer.lossy for quantizer in (*self.roles.values(), *self.patterns.values()))

    def may_lose(self, name: str, role: Role, kind: ElementType, size: int) -> bool:
        """Return whether anything of an array may be lost, in a delta or in a keyframe."""
        quantizer = self.choose(name, role, kind, size)
        return quantizer.lossy or self.choose_keyframe(name, role, kind, size).lossy

    def names(self, name: str) -> bool:
        """Return whether a pattern fits the name of an array."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def with_arrays(self, arrays: Mapping[str, Quantizer]) -> Self:
        """Return the policy with quantizers of arrays by whole name, which go before all others."""
        return replace(self, arrays={**self.arrays, **arrays})

    def _of_pattern(self, name: str) -> Quantizer | None:
        if name in self.arrays:
            return self.arrays[name]
        if not self.patterns:  # there may be thousands of names
            return None
        return next((q for pattern, q in self.patterns.items() if fnmatchcase(name, pattern)), None)

    def check(self, roles: Mapping[str, Role]) -> None:
        """Raise ``ArgumentError`` if a pattern lets a second moment of these wait for a trigger."""
        for name, role in roles.items():
            self._check_trigger(name, role, self._of_pattern(name))

    def _check_trigger(self, place: str, role: Role, quantizer: Quantizer | None) -> None:
        if role == "second_moment" and quantizer is not None and quantizer.trigger is not None:
            raise ArgumentError(
                f"policy {self.name!r}: {place!r}: second moments must not be Triggered: small ones could"
                " get large errors; use LogSteps, which decides for each element"
            )

    @property
    def shortfall(self) -> str | None:
        """Why the target cannot be met for the arrays of a delta; ``None`` if it is met."""
        return None

    def settle(self, candidates: Iterable[Candidate], width: float = 1.0, spared: int = 0) -> Policy:  # noqa: ARG002
        """Return the policy for the arrays of one delta, with steps multiplied by a width.

        `spared` are the bytes of other arrays, which take none. It is the policy itself, except in
        `Balanced`.
        """
        return self

    def widened(self, width: float | None) -> Policy:  # noqa: ARG002
        """Return the policy with other steps of weights, as a loss has judged them.

        It is the policy itself, except in `Balanced`.
        """
        return self

    @property
    def promise(self) -> tuple[Callable[[Any], Any], float] | None:
        """The loss that judges steps, and the intervals that a restore may cost; in `Balanced`."""
        return None

    def __str__(self) -> str:
        rows = list(self.patterns.items())
        if self.smallest:
            rows.append((f"below {self.smallest} values", Lossless()))
        rows += [*self.roles.items(), ("all else", Lossless())]
        if self.keyframes != "exact":
            rows += [(f"keyframes: {role}", quantizer) for role, quantizer in self.keyframes.items()]
        width = max(len(place) for place, _ in rows)
        head = self.name if self.effort == "normal" else f"{self.name}, effort={self.effort}"
        return "\n".join(
            [head, *(f"  {place:{width}}  {quantizer_text(quantizer)}" for place, quantizer in rows)]
        )

    def to_json(self) -> Any:
        """Return the policy as a JSON object."""
        return {
            "name": self.name,
            "roles": _quantizers_json(self.roles),
            "patterns": _quantizers_json(self.patterns),
            "smallest": self.smallest,
            **({} if self.keyframes == "exact" else {"keyframes": _quantizers_json(self.keyframes)}),
            **({} if self.effort == "normal" else {"effort": self.effort}),
        }

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the policy of an object that :meth:`to_json` made; refuse any other."""
        members = ("name", "roles", "patterns", "smallest")
        if not isinstance(value, dict) or not all(member in value for member in members):
            raise ArgumentError(
                f"a policy must be a JSON object with {', '.join(members)}; got {value!r:.100}"
            )
        name, roles, patterns, smallest = (value[member] for member in members)
        if not isinstance(name, str) or not isinstance(roles, dict) or not isinstance(patterns, dict):
            raise ArgumentError(
                f"policy {name!r:.100}: the name must be a string, roles and patterns must be objects"
            )
        try:
            more: dict[str, Any] = {
                member: _parse_quantizers(setting) if isinstance(setting, dict) else setting
                for member, setting in value.items()
                if member not in members
            }
            more.setdefault("keyframes", "exact")  # a member left out has the default of `Policy`
            return cls(name, _parse_quantizers(roles), _parse_quantizers(patterns), smallest, **more)
        except TypeError as error:
            raise ArgumentError(f"policy {name!r}: {error}") from error


def _quantizers_json(quantizers: Mapping[Any, Quantizer]) -> dict[str, Any]:
    return {place: quantizer_json(quantizer) for place, quantizer in quantizers.items()}


def _parse_quantizers(value: Mapping[str, Any]) -> dict[Any, Quantizer]:
    return {place: parse_quantizer(quantizer) for place, quantizer in value.items()}
