"""Policies: which quantizer for which array, by name, element type and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from .errors import ArgumentError
from .floats import ElementType
from .quantize import ExponentBuckets, Lossless, Quantizer, UniformDeadzone

__all__ = ["POLICIES", "Policy", "resolve_policy"]


@dataclass(frozen=True)
class Policy:
    """Chooses a quantizer for every array of a delta; keyframes are always lossless.

    Parameters
    ----------
    name
        What checkpoints record.
    quantizer
        For floating point arrays; all others are lossless.
    smallest
        Arrays of fewer elements are lossless: they cost little and often matter much.
    exact
        Patterns (:mod:`fnmatch`) of names of arrays to keep lossless.
    """

    name: str
    quantizer: Quantizer
    smallest: int = 0
    exact: tuple[str, ...] = ()

    def choose(self, name: str, kind: ElementType, size: int) -> Quantizer:
        """Return the quantizer for an array of `size` elements."""
        if not kind.is_float or size < self.smallest or any(fnmatchcase(name, p) for p in self.exact):
            return Lossless()
        return self.quantizer


#: Names of second moments: an error there can make the update m / (sqrt(v) + eps) explode.
_SECOND_MOMENTS: Final = ("*exp_avg_sq*", "*/nu/*", "nu/*", "*second_moment*", "*running_var*")

#: The presets. ``lc-2`` and ``lc-3`` are the paper's scheme with the buckets chosen per array;
#: ``balanced`` is provisional.
POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("lossless", Lossless()),
            Policy("lc-2", ExponentBuckets(bits=2)),
            Policy("lc-3", ExponentBuckets(bits=3)),
            Policy("balanced", UniformDeadzone(relative_step=1.0), smallest=256, exact=_SECOND_MOMENTS),
        )
    }
)


def resolve_policy(policy: str | Policy) -> Policy:
    """Return the preset of that name, or the policy itself.

    Raises
    ------
    ArgumentError
        For an unknown name.
    """
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise ArgumentError(f"unknown policy {policy!r}; there are {', '.join(POLICIES)}")
    return POLICIES[policy]
