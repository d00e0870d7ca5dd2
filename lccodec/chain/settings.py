"""What the saves of a chain go by: policy and roles, given by the user or recorded in the directory.

The first save checks them against the state and warns about what may be a surprise; the next do not.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..container.tree import Flat
from ..element_types import ElementType, element_type
from ..errors import ArgumentError, LccodecWarning
from ..policy.choices import choose, unnamed_weights
from ..policy.policy import Policy
from ..policy.presets import POLICIES, resolve_policy
from ..policy.record import Record
from ..policy.roles import Assignment, Role, check_matches, check_roles
from .tail import latest_record

__all__ = ["LOG", "Settings", "warn"]

LOG: Final = logging.getLogger("lccodec")
_MOST_NAMES: Final = 5  # in a message


class Settings:
    """Policy and roles of the saves of a chain.

    Parameters
    ----------
    directory
        The chain's.
    policy, roles
        As in `Chain`; ``None`` for what is recorded.

    Raises
    ------
    ArgumentError
        For an unknown policy or role.
    """

    def __init__(
        self, directory: Path, policy: str | Policy | None, roles: Mapping[str, Role] | None
    ) -> None:
        self._directory = directory
        self._policy = None if policy is None else resolve_policy(policy)
        self._roles = None if roles is None else dict(check_roles(roles))
        self._record: Record | None = None  # known from the first save on
        self._shortfall_told = False

    @property
    def record(self) -> Record:
        """Policy and roles: given, else recorded, else those of a new chain."""
        return self._record or self._settle(*latest_record(self._directory))

    def _settle(self, recorded: Record | None, problem: str | None) -> Record:
        policy = self._policy
        if policy is None and problem is not None:  # it may be a chain that must not lose anything
            warn(f"the policy of {self._directory} is not known, it goes on lossless: {problem}")
            policy = POLICIES["lossless"]
        recorded = recorded or Record(POLICIES["balanced"])
        return Record(policy or recorded.policy, recorded.roles if self._roles is None else self._roles)

    def begin(self, flat: Flat, known: Mapping[str, Assignment]) -> Record:
        """Return policy and roles for a save; the first one checks them against the state.

        Raises
        ------
        ArgumentError
            For names and patterns that fit no array, and for an array that cannot be stored.
        """
        if self._record is not None:
            return self._record
        recorded, problem = latest_record(self._directory)
        record = self._settle(recorded, problem)
        if flat.names:  # later states may lack arrays; that is no reason to lose them
            check_matches("roles", self._roles or {}, flat.names)
            if self._policy is not None:
                check_matches(f"policy {self._policy.name!r}", self._policy.patterns, flat.names)
        types = _array_types(flat)
        choices = choose(types, record, known)
        if self._policy is not None:
            self._policy.check({name: choice.role for name, choice in choices.items()})
        unnamed = unnamed_weights(types, choices, record.policy)
        if unnamed:
            shown = ", ".join(map(repr, unnamed[:_MOST_NAMES])) + ", ..." * (len(unnamed) > _MOST_NAMES)
            LOG.warning(
                "%s: %d large arrays are kept exactly, as nothing says that they are weights: %s."
                " Chain(roles={name or pattern: role}) does.",
                *(self._directory, len(unnamed), shown),
            )
        if recorded and recorded.policy != record.policy:
            warn(
                f"{self._directory} was saved with the policy {recorded.policy.name!r}, and goes on with"
                f" {record.policy.name!r}, as you ask"
            )
        self._record = record
        return record

    def report_shortfall(self, shortfall: str | None) -> None:
        """Warn once of a target of the policy that cannot be met."""
        if shortfall and not self._shortfall_told:
            self._shortfall_told = True
            warn(f"{self._directory}: {shortfall}")


def _array_types(flat: Flat) -> dict[str, tuple[ElementType, int]]:
    """Return the element type and the number of elements of each array of a state."""
    types = {}
    for name, array in zip(flat.names, flat.arrays, strict=True):
        try:
            types[name] = element_type(array.dtype), array.size
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None
    return types


def warn(message: str) -> None:
    """Warn about where `Chain.save` was called, which is four frames up."""
    warnings.warn(message, LccodecWarning, stacklevel=5)
