"""How a chain saves, as given to `Chain` or recorded before.

That is the policy, roles, what is kept of the newest state and of the reference, how often a save
does what, and with which workers. Parameters are checked when a chain is opened. The first save
checks policy and roles on its plan, before anything is written, and warns about possible surprises.
Later saves do not.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, get_args

from ...errors import (
    ArgumentError,
    DataError,
    StorageError,
    as_integer,
    check_choice,
    integer,
    is_waited_for,
    number,
    warn,
)
from ...parallel import aside, member_count
from ...policy.advice import LARGE_ARRAY_ELEMENTS
from ...policy.policy import Policy
from ...policy.presets import POLICIES, resolve_policy
from ...policy.record import NewestMode, Record, read_record
from ...policy.roles import EXACT_BY_DEFAULT, Role, check_matches, check_roles
from ...table import printable
from ..store.store import Store
from .plan import SavePlan

#: The values as decoded, or hashes of them.
ReferenceKind: TypeAlias = Literal["values", "hashes"]


def check_reference(reference: ReferenceKind, hindsight: int = 0) -> ReferenceKind:
    """Return the parameter unchanged; raise ``ArgumentError`` if it is unknown.

    Groups of a history code arrays again from values that hashes do not have.
    """
    check_choice("reference", reference, get_args(ReferenceKind))
    if reference == "hashes" and hindsight:
        raise ArgumentError("hindsight= cannot be used with reference='hashes', which loses nothing")
    return reference


#: Without progress for as long, a worker counts as dead. An fsync may take minutes.
TIMEOUT_SECONDS: Final = 300.0

#: What a call does while as many saves run as may: it waits, or saves nothing.
WhenBusy: TypeAlias = Literal["wait", "skip"]


class GivenSettings(NamedTuple):
    """What a chain was told to record; ``None`` for what it has recorded before."""

    policy: Policy | None
    roles: Mapping[str, Role] | None
    newest: NewestMode | None


@dataclass(frozen=True)
class WorkerOptions:
    """How a chain uses workers; as for `Chain`."""

    workers: int | None = None
    max_concurrent_saves: int = 1
    worker_timeout: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        integer("max_concurrent_saves", self.max_concurrent_saves, 1)
        number("worker_timeout", self.worker_timeout, "a number of seconds above 0", lambda n: n > 0)
        if self.workers is not None:
            member_count(self.workers)

    @property
    def members(self) -> int:
        """The number of workers; one if no number was given."""
        return 1 if self.workers is None else member_count(self.workers)


@dataclass(frozen=True)
class Cadence:
    """How often something is done: after how many saves, or deltas; as for `Chain`."""

    # `keyframe`, `exact`: as `keyframe_every` and `exact_every`.
    keyframe: int
    exact: int = 1
    end: int = 0  # as `hindsight`


def check_every(keyframe: object, exact: object, end: object) -> Cadence:
    """Return these parameters together; raise ``ArgumentError`` for one that is no such number."""
    return Cadence(
        integer("keyframe_every", keyframe), integer("exact_every", exact, 1), check_hindsight(end)
    )


def check_hindsight(hindsight: object) -> int:
    """Return the parameter `hindsight`; raise ``ArgumentError`` if it cannot be one."""
    size = as_integer(hindsight)
    if size is None or size < 0 or size == 1:
        raise ArgumentError(f"hindsight must be 0 or an integer of at least 2; got {hindsight!r}")
    return size


def check_lossy(policy: Policy) -> None:
    """Raise ``ArgumentError`` for a policy that gains nothing from groups."""
    if not policy.lossy:
        raise ArgumentError(f"hindsight= needs a policy that loses something; {policy.name!r} loses nothing")


LOG: Final = logging.getLogger("lccodec")


def _make_printable(record: logging.LogRecord) -> bool:
    """Escape what is not printable, so that no name in a message controls the terminal.

    Lines that are indented stay: those of `_tell_losses` are there to be pasted.
    """
    record.msg, record.args = printable(record.getMessage(), indented=True), ()
    return True


LOG.addFilter(_make_printable)


def log(level: int, text: str, *args: object) -> None:
    """Log a line; in a thread that others wait for, without a lock that they may have."""
    if is_waited_for():
        aside(partial(LOG.log, level, text, *args))
    else:
        LOG.log(level, text, *args)


#: Factors of the steps of the first deltas after a run went on from a lossy state. What lies in a
#: dead zone then has not waited there for long, so the next restore would throw most of it away.
_RESUMED_WIDTHS: Final = (0.35, 0.5, 0.7)

_MAX_NAMES_SHOWN: Final = 5  # in one message

_Chain = TypeVar("_Chain")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def without_settings(
    method: Callable[Concatenate[_Chain, _Parameters], _Result],
) -> Callable[Concatenate[_Chain, _Parameters], _Result]:
    """Make a method of a chain refuse a setting of the chain, and say where the setting belongs."""
    own = frozenset(inspect.signature(method).parameters)

    @wraps(method)
    def checked(self: _Chain, /, *args: Any, **named: Any) -> _Result:
        for name in named.keys() - own:
            if name in inspect.signature(type(self)).parameters:
                raise ArgumentError(
                    f"{method.__name__} does not accept {name}=: pass it to the chain, as in"
                    f" Chain(directory, {name}=...)"
                )
        return method(self, *args, **named)

    return checked


class Settings:
    """Settings of the saves of a chain, given as to `Chain`; ``None`` for recorded ones."""

    def __init__(
        self,
        store: Store,
        policy: str | Policy | None,
        roles: Mapping[str, Role] | None,
        newest: NewestMode | None,
        reference: ReferenceKind,
        every: Cadence,
    ) -> None:
        self._store = store
        self._policy = None if policy is None else resolve_policy(policy)
        self._roles = None if roles is None else dict(check_roles(roles))
        self._newest = newest
        self.reference, self.every = reference, every
        self._record: Record | None = None  # set by the first save
        self._before: Record | None = None  # the recorded one, as the first save finds it
        self._shortfall_reported = False
        self._saves, self._resumed = 0, False
        #: Factor of the steps of weights, once a loss has judged them.
        self.judged: float | None = None

    @property
    def width(self) -> float:
        """The factor of the steps of the next delta."""
        narrow = self._resumed and self._saves < len(_RESUMED_WIDTHS)
        return _RESUMED_WIDTHS[self._saves] if narrow else 1.0

    @property
    def given(self) -> GivenSettings:
        """What was given to `Chain`."""
        return GivenSettings(self._policy, self._roles, self._newest)

    def for_workers(self) -> dict[str, Any]:
        """Return what a worker is told with a save, as `Staging.snapshot` takes it."""
        return {"resumed": self._resumed, "judged": self.judged}

    def moved(self, store: Store) -> None:
        """Take what is recorded from another store from now on."""
        self._store = store

    def restored(self) -> None:
        """Note that a lossy newest state was restored: if nothing was saved yet, a run resumes."""
        self._resumed = self._resumed or not self._saves

    def forget_saves(self) -> None:
        """Note that the chain goes on from an earlier step: a restore is the beginning of a run."""
        self._saves, self._resumed = 0, False

    def saved(self, plan: SavePlan, step: int, size: int, seconds: float) -> None:
        """Count a save of so many bytes, and log one line about it."""
        self._saves += 1
        kind = "keyframe" if plan.parent is None else f"delta to {plan.parent}"
        nbytes = 0
        for c in plan.candidates:
            nbytes += c.bits.nbytes
        told = self._store.path, step, kind, size, nbytes / max(size, 1), seconds
        log(logging.INFO, "%s: step %s, %s, %d bytes, %.1fx, %.3f s", *told)

    @property
    def record(self) -> Record:
        """The given settings, else the recorded ones, else those of a new chain."""
        found = self._record or self._settle(*_latest_record(self._store))
        return found if self.judged is None else replace(found, policy=found.policy.widened(self.judged))

    def _settle(self, recorded: Record | None, problem: str | None) -> Record:
        self._before, policy = recorded, self._policy
        if policy is None and problem is not None:  # the chain may be one that must not lose anything
            warn(f"{self._store.path}: the recorded policy cannot be read; saves are lossless: {problem}")
            policy = POLICIES["lossless"]
        recorded = recorded or Record(POLICIES["balanced"])
        roles = recorded.roles if self._roles is None else self._roles
        if policy is None or policy == recorded.policy:
            # With the width that a loss has judged; functions are not recorded.
            policy = recorded.policy if policy is None else policy.widened(recorded.policy.width)
        return Record(policy, roles, newest=self._newest or recorded.newest)

    def examine(self, plan: SavePlan, record: Record, *, is_finished: bool) -> None:
        """Check the plan of a save: the first in full, later ones for a target that is missed.

        `is_finished`: whether the states are those of a finished run, which is coded again.
        """
        if self._record is None:
            self._check(plan, record, is_finished)
            if self._before is None or self._before.policy != record.policy:
                self._tell_losses(plan, record.policy)
            if self._before and self._before.policy != record.policy:
                warn(
                    f"{self._store.path} was saved with the policy {self._before.policy.name!r}, and now"
                    f" continues with {record.policy.name!r}"
                )
            self._record = record
        shortfall = plan.policy.shortfall
        if shortfall and not self._shortfall_reported:
            self._shortfall_reported = True
            warn(f"{self._store.path}: {shortfall}")

    def _tell_losses(self, plan: SavePlan, policy: Policy) -> None:
        """Say in one line how much of a state is lossy, unless all is exact by policy."""
        if not policy.lossy:
            return
        total = lossy = 0
        for index, c in enumerate(plan.candidates):
            total += c.bits.nbytes
            if plan.may_lose(index):
                lossy += c.bits.nbytes
        large = _large_exact_arrays(plan, policy)
        shown = ", ".join(map(repr, large[:_MAX_NAMES_SHOWN])) + ", ..." * (len(large) > _MAX_NAMES_SHOWN)
        why = f", among them large arrays not known to be weights or safe moments: {shown}" if large else ""
        advice = "".join(f"\n  {line}" for line in plan.advice())
        log(
            logging.WARNING,
            "%s: the policy %r is lossy for %d bytes of arrays and exact for %d%s. `lccodec plan` shows the"
            " role of each array; Chain(roles={name or pattern: role}) changes it.%s",
            *(self._store.path, policy.name, lossy, total - lossy, why, advice),
        )

    def _check(self, plan: SavePlan, record: Record, is_finished: bool) -> None:
        """Refuse names and patterns that fit no array, and a policy that does not fit the roles.

        And groups of what loses nothing, or is not kept until its group is complete.
        """
        if self.every.end and not is_finished:
            check_lossy(record.policy)
            if record.newest != "exact":
                raise ArgumentError("hindsight= needs newest='exact': what is between is known only later")
        roles = {c.name: c.role for c in plan.candidates}
        if roles:  # a state without arrays is not refused
            check_matches("roles", self._roles or {}, roles)
        if roles and self._policy is not None:
            check_matches(f"policy {self._policy.name!r}", self._policy.patterns, roles)
            self._policy.check(roles)


def _large_exact_arrays(plan: SavePlan, policy: Policy) -> list[str]:
    """Return the large float arrays that a lossy policy stores exactly, unless a name says so."""
    if "weight" not in policy.roles or not policy.roles["weight"].lossy:
        return []
    return [
        c.name
        for c, quantizer in zip(plan.candidates, plan.quantizers, strict=True)
        if c.role == "other" and c.why in EXACT_BY_DEFAULT and not quantizer.lossy
        if c.kind.is_float and c.elements >= LARGE_ARRAY_ELEMENTS
    ]


def _latest_record(store: Store) -> tuple[Record | None, str | None]:
    """Return the record of the newest readable checkpoint, or what is wrong with the newest.

    Returns the record and ``None``. If no checkpoint can be read, ``None`` and what is wrong. If
    there is no checkpoint, ``None`` twice.
    """
    problem = None
    for name in reversed(store.steps().values()):
        try:
            with store.open(name) as reader:
                return read_record(reader.manifest.policy), None
        except (DataError, StorageError) as error:
            problem = problem or str(error)
        except ArgumentError as error:
            return None, f"{name}: {error}"
    return None, problem
