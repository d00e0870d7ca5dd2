"""The groups of a history: which saves are ends, and when what lies between them is settled.

An end is a delta to the end before, so that no step between is needed any more. Its steps are
chosen for what is to lie between, as in :mod:`lccodec.policy.hindsight`. Between two ends saves go
on as in any chain, each a delta to the one before, until the next end is there.

A group begins with the first save of a process. So what lies before it stays as it is.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ....errors import ArgumentError, reason_of, warn
from ....policy.hindsight import end_quantizers, gains
from ....policy.policy import Candidate, Policy
from ....policy.record import Record
from ....quantizers.base import Quantizer
from ...store.store import WritableStore
from ..measurement import movements
from ..reference import Tail
from ..sampling import Samples
from ..settings import check_lossy
from .settle import settle, unsettled

#: What settling may take, as a part of the time of the save that it follows.
_SHARE: Final = 0.5

#: The newest steps that are looked at for groups that an earlier process has left, in groups.
_LOOKED_AT: Final = 3

#: Groups that may wait until one is settled at once: the ends of each are in memory.
_MAX_WAITING: Final = 1


@dataclass(frozen=True, eq=False)
class Base:
    """What a save is coded against.

    Parameters
    ----------
    tail
        The checkpoint; ``None`` if there is none.
    before
        The latest checkpoint, which is another one if the save is an end.
    is_end
        Whether the save is an end.
    is_keyframe
        Whether it takes nothing from `tail`.
    since
        The end before, if there are steps between the two.
    is_renewed
        Whether it is a delta that stores its arrays as a keyframe does.
    """

    tail: Tail | None
    before: Tail | None
    is_end: bool
    is_keyframe: bool
    since: Tail | None = None
    is_renewed: bool = False


@dataclass
class _Open:
    """The group that saves add to: its first end, and what came after it."""

    low: Tail
    newest: int
    count: int = 0
    moved: dict[str, list[float]] = field(default_factory=dict)

    def goes_on(self, tail: Tail) -> bool:
        """Return whether a group ends with the latest checkpoint, which needs its end as it was."""
        own = self.low.links
        return tail.step == self.newest and tail.links[: len(own)] == own


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A group to be settled: the steps of its ends, and both as decoded if they are in memory."""

    low: int
    high: int
    ends: tuple[Tail, Tail] | None = None


class Groups:
    """Says what each save is coded against, and settles groups.

    Parameters
    ----------
    store
        Where the chain is kept.
    size
        The number of saves from one end to the next; 0 for a chain without groups.
    keyframe_every
        The most deltas that a restore may replay.
    """

    def __init__(self, store: WritableStore, size: int, keyframe_every: int) -> None:
        self._store, self._size, self._every = store, size, keyframe_every
        self._open: _Open | None = None
        self._waiting: deque[_Waiting] = deque()
        self._settling: Iterator[None] | None = None
        self._looked = False
        self._gains = True

    def check(self, record: Record) -> None:
        """Raise ``ArgumentError`` if a chain of these settings cannot be saved in groups."""
        if self._size:
            check_lossy(record.policy)
            if record.newest != "exact":
                raise ArgumentError("hindsight= needs newest='exact': what is between is known only later")

    def forget(self) -> None:
        """Begin a new group with the next save, and release memory: files may change meanwhile."""
        self._open, self._settling, self._looked = None, None, False
        self._waiting = deque(replace(group, ends=None) for group in self._waiting)

    def settle_rest(self) -> None:
        """Settle all groups that an end of this process may leave."""
        if self._size:
            self._look()
            self._settle(math.inf, lambda: None)

    def base(self, tail: Tail | None, policy: Policy) -> Base:
        """Return what the next save is coded against; `tail` is the checkpoint before it.

        A policy that may lose nothing between two ends has no groups: an end would take more bytes
        than a delta to the step before.
        """
        if self._size and not self._looked:
            self._looked = True
            self._look()
        self._gains = gains(policy)
        group = self._open
        if tail is None or not self._gains or (group and not group.goes_on(tail)):
            group = self._open = None
        if tail is None:
            return Base(None, None, is_end=True, is_keyframe=True)
        since = group.low if group and group.count else None
        if group is None or group.count + 1 < self._size:
            too_deep = tail.deltas >= self._every
            return Base(tail, tail, is_end=too_deep, is_keyframe=too_deep, since=since)
        # Depths count to the last step before the end that follows on this one.
        if group.low.deltas + self._size > self._every:
            return Base(tail, tail, is_end=True, is_keyframe=True, since=since)
        return Base(group.low, tail, is_end=True, is_keyframe=False, since=since)

    def fate(self, base: Base) -> str | None:
        """Return what becomes of the next save in a group, in words; ``None`` without groups."""
        if not self._size:
            return None
        if not self._gains:
            return "It stays as it is saved: a bound leaves nothing to lose between two ends."
        group = self._open
        if group is None or (base.is_end and base.since is None):
            return "It begins a group."
        if base.is_end:
            between = "1 step" if group.count == 1 else f"{group.count} steps"
            return (
                f"It ends a group: {between} between step {group.low.step} and this one are coded again from"
                " both, in the background."
            )
        place = f"number {group.count + 1} of {self._size - 1} between two ends, after step {group.low.step}"
        return f"It is {place}. It is coded again from both when the later end is there."

    def take(self, base: Base) -> Tail | None:
        """Return what a save is coded against: its arrays may be overwritten."""
        if base.is_end:
            self._open = None
        return base.tail if base.tail is None or base.tail is base.before else _copied(base.tail)

    def quantizers(self, base: Base, policy: Policy, arrays: Sequence[Candidate]) -> dict[str, Quantizer]:
        """Return the quantizers of a save that are not up to the policy, by name."""
        if self._open is None or base.is_keyframe or not base.is_end:
            return {}
        return end_quantizers(policy, arrays, self._open.moved)

    def saved(self, base: Base, tail: Tail, arrays: Sequence[Candidate]) -> None:
        """Note a save: what it was coded against, and what it has become."""
        if not self._size or not self._gains:
            return
        group = self._open
        if group is None or base.is_end:
            low = _copied(tail)
            if base.since is not None:
                self._waiting.append(_Waiting(base.since.step, tail.step, (base.since, low)))
            self._open = _Open(low, tail.step)
            return
        group.newest, group.count = tail.step, group.count + 1
        for name, movement in _moved(arrays, tail, base.before).items():
            group.moved.setdefault(name, []).append(movement)

    def settle(self, seconds: float, between: Callable[[], None]) -> None:
        """Settle what waits, for a part of the time that a save took.

        `between` is called again and again: the worker lives.
        """
        self._settle(_SHARE * seconds, between)

    def _look(self) -> None:
        """Find the groups that an earlier process has left."""
        waiting = [(group.low, group.high) for group in self._waiting]
        found = unsettled(self._store, _LOOKED_AT * self._size)
        self._waiting.extend(_Waiting(*group) for group in found if group not in waiting)

    def _settle(self, seconds: float, between: Callable[[], None]) -> None:
        end = time.perf_counter() + seconds
        while self._waiting and (time.perf_counter() < end or len(self._waiting) > _MAX_WAITING):
            between()
            try:
                if self._settling is None:
                    group = self._waiting[0]
                    self._settling = settle(self._store, group.low, group.high, group.ends)
                if next(self._settling, ...) is ...:
                    self._settling = None
                    self._waiting.popleft()
            except Exception as error:  # whatever it is: the save is done
                self._settling = None
                self._waiting.popleft()
                message = f"a part of the history stays larger than it could be: {reason_of(error)}"
                warn(f"{self._store.path}: {message}")


def _copied(tail: Tail) -> Tail:
    """Return a tail with arrays of its own: those of the latest are overwritten by deltas."""
    arrays = {name: replace(array, bits=array.bits.copy(), start=0) for name, array in tail.arrays.items()}
    return replace(tail, arrays=arrays)


def _moved(arrays: Sequence[Candidate], tail: Tail, before: Tail | None) -> dict[str, float]:
    known = None if before is None else before.originals
    return movements(arrays, tail.originals or Samples(), known or Samples())
