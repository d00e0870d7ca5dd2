"""How a chain saves: how often it does what, with which workers. As for `Chain`, and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from ...arguments import as_integer, check_choice, integer, number
from ...errors import ArgumentError
from ...parallel import member_count
from ...policy.policy import Policy

#: Without progress for as long, a worker counts as dead. An fsync may take minutes.
TIMEOUT_SECONDS: Final = 300.0

#: What a call does while as many saves run as may: it waits, or saves nothing.
WhenBusy: TypeAlias = Literal["wait", "skip"]


def check_when_busy(when_busy: object) -> None:
    """Raise ``ArgumentError`` for an unknown `when_busy`."""
    check_choice("when_busy", when_busy, get_args(WhenBusy))


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
class Every:
    """How often something is done: after how many saves, or deltas; as for `Chain`.

    Parameters
    ----------
    keyframe, exact
        As `keyframe_every` and `exact_every`.
    end
        As `hindsight`.
    """

    keyframe: int
    exact: int = 1
    end: int = 0


def check_every(keyframe: object, exact: object, end: object) -> Every:
    """Return these parameters together; raise ``ArgumentError`` for one that is no such number."""
    return Every(integer("keyframe_every", keyframe), integer("exact_every", exact, 1), check_hindsight(end))


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
