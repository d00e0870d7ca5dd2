"""Settings of the saves of a chain: policy and roles, given by the user or recorded before.

The first save checks them against the state, and warns about possible surprises. Later saves do
not.
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
from .plan import Plan
from .tail import TailFile, latest_record

__all__ = ["LOG", "Settings", "log_save", "warn"]

LOG: Final = logging.getLogger("lccodec")
_MAX_NAMES_SHOWN: Final = 5  # in one message


class Settings:
    """Policy and roles of the saves of a chain.

    Parameters
    ----------
    directory
        Directory of the chain.
    policy, roles
        As in `Chain`; ``None`` for the recorded ones.

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
        self._record: Record | None = None  # set by the first save
        self._shortfall_reported = False

    @property
    def record(self) -> Record:
        """Policy and roles: the given ones, else the recorded ones, else those of a new chain."""
        return self._record or self._settle(*latest_record(self._directory))

    def _settle(self, recorded: Record | None, problem: str | None) -> Record:
        policy = self._policy
        if policy is None and problem is not None:  # the chain may be one that must not lose anything
            warn(f"the policy of {self._directory} is not known, it goes on lossless: {problem}")
            policy = POLICIES["lossless"]
        recorded = recorded or Record(POLICIES["balanced"])
        return Record(policy or recorded.policy, recorded.roles if self._roles is None else self._roles)

    def begin(self, flat: Flat, known: Mapping[str, Assignment]) -> Record:
        """Return policy and roles for a save; the first save checks them against the state.

        Raises
        ------
        ArgumentError
            If a name or pattern fits no array, or an array cannot be stored.
        """
        if self._record is not None:
            return self._record
        recorded, problem = latest_record(self._directory)
        record = self._settle(recorded, problem)
        types = _array_types(flat)
        if flat.names:  # a state without arrays is not refused
            check_matches("roles", self._roles or {}, flat.names)
            if self._policy is not None:
                check_matches(f"policy {self._policy.name!r}", self._policy.patterns, flat.names)
        choices = choose(types, record, known)
        if self._policy is not None:
            self._policy.check({name: choice.role for name, choice in choices.items()})
        unnamed = unnamed_weights(types, choices, record.policy)
        if unnamed:
            more = ", ..." if len(unnamed) > _MAX_NAMES_SHOWN else ""
            shown = ", ".join(map(repr, unnamed[:_MAX_NAMES_SHOWN])) + more
            LOG.warning(
                "%s: %d large arrays are stored exactly, because their names do not say that they are"
                " weights: %s. Give their roles as Chain(roles={name or pattern: role}).",
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
        """Warn once if a target of the policy cannot be met."""
        if shortfall and not self._shortfall_reported:
            self._shortfall_reported = True
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


def log_save(directory: Path, plan: Plan, link: TailFile, seconds: float) -> None:
    """Log one line about a save."""
    kind = "keyframe" if plan.parent is None else f"delta to {plan.parent}"
    ratio = sum(c.bits.nbytes for c in plan.candidates) / max(link.size, 1)
    LOG.info(
        "%s: step %s, %s, %d bytes, %.1fx, %.3f s",
        *(directory, link.step, kind, link.size, ratio, seconds),
    )


def warn(message: str) -> None:
    """Warn at the line that called `Chain.save`, four frames up."""
    warnings.warn(message, LccodecWarning, stacklevel=5)
