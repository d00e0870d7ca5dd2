"""Who may write to a bucket: a lease that its holder renews, as a bucket has no locks.

A lease is a folder of small objects with rising numbers; the highest number says who holds it. To
take it, to renew it and to take it over is one and the same: put the next number if it is absent,
and look whether it is the highest. So two who try meet at the same number, and one of them fails. A
folder that is empty begins with a number that is made of the time, so that one who has slept never
finds a higher number free.

The holder puts a number every few seconds. Whoever finds the same number for longer than a lease
lasts takes it over, by the own clock: no two clocks are compared. That is quicker if the holder was
a process of this machine and is gone, or if the number is ten minutes old.

A holder that was stopped, or cut off from the store, may so lose its lease and go on without
knowing. It finds out at its next number. Until then commits decide: they are conditional, and the
later of two at the same place fails (:mod:`.keys`).

All `Chain` objects of a process share one lease. As on a disk, one of them uses it at a time.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ....errors import StorageError
from ..claim import HOLDS, OTHERS, Claim, HeldError, Hold
from .backend import ExistsError, MissingError, PatientBackend
from .keys import Object

WRITER_FOLDER: Final = ".writer"
#: Seconds until a holder that is alive has shown it, or has released what it held.
_SECONDS_TO_WAIT: Final = 25.0
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.5
_SECONDS_FOR_OTHERS: Final = 5.0  # of this process

_MAX_BYTES: Final = 1 << 12
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Terms:
    """The times of a lease, in seconds.

    It is left alone so long without a sign of life, which its holder gives every so often. A number
    as old as `abandoned` is that of a holder that is gone; two clocks differ by less.
    """

    lasts: float = 20.0
    renewed: float = 5.0
    abandoned: float = 600.0


TERMS: Final = Terms()


class LeasedError(HeldError):
    """Somebody else holds the lease; the text says who."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder, _SECONDS_TO_WAIT, _SECONDS_BETWEEN_ATTEMPTS)


class Lease:
    """A lease of this process, not yet taken; its numbers are in a folder."""

    def __init__(self, backend: PatientBackend, folder: str, terms: Terms = TERMS) -> None:
        self._backend, self._folder, self._terms = backend, folder, terms
        self._own = secrets.token_hex(8)
        self._number: int | None = None
        self._changing = threading.Lock()
        self._stop = threading.Event()
        self._process = os.getpid()
        self._watched: tuple[int, float] | None = None  # a number of others, and since when

    @property
    def is_held(self) -> bool:
        """Whether this process holds it, as far as it knows."""
        return self._number is not None and self._process == os.getpid()

    def try_take(self) -> None:
        """Take it; raise `LeasedError` if somebody else holds it, or may hold it."""
        highest = self._highest()
        if highest is not None and not self._is_over(highest):
            raise LeasedError(self._holder(highest))
        number = time.time_ns() // 1_000_000 if highest is None else _number(highest) + 1
        if not self._put(number):
            raise LeasedError(self._holder(self._highest()))
        self._process, self._stop = os.getpid(), threading.Event()
        threading.Thread(target=self._renew, args=(self._stop,), daemon=True).start()

    def _put(self, number: int) -> bool:
        """Put a number, and return whether it is ours and the highest. Older ones are removed."""
        content = {"id": self._own, "machine": _machine(), "pid": os.getpid(), "host": platform.node()}
        key = f"{self._folder}/{number}"
        try:
            self._backend.put_if_absent(key, json.dumps(content).encode())
        except ExistsError:
            if self._content(key).get("id") != self._own:
                return False
        found = self._numbers()
        if not found or max(found) != number:
            self._backend.delete([key])
            return False
        self._number = number
        self._backend.delete(f"{self._folder}/{each}" for each in found if each < number)
        return True

    def _renew(self, stop: threading.Event) -> None:
        """Give signs of life until it is released or lost."""
        while not stop.wait(self._terms.renewed):
            with self._changing, suppress(StorageError):  # if nobody can be reached, try later
                if stop.is_set() or self._number is None:
                    return
                if not self._put(self._number + 1):
                    self._number = None
                    return

    def release(self) -> None:
        """Release it. Releasing it again does nothing."""
        self._stop.set()
        if self._process != os.getpid():
            return
        with self._changing:
            number, self._number = self._number, None
            if number is not None:
                with suppress(StorageError):
                    self._backend.delete([f"{self._folder}/{number}"])

    def _is_over(self, highest: Object) -> bool:
        """Return whether the holder of a number is gone."""
        content, number = self._content(highest.key), _number(highest)
        machine, pid = content.get("machine"), content.get("pid")
        if machine is not None and machine == _machine() and isinstance(pid, int) and not _is_alive(pid):
            return True
        if time.time() - highest.modified > self._terms.abandoned:
            return True
        if self._watched is None or self._watched[0] != number:
            self._watched = number, time.monotonic()
        return time.monotonic() - self._watched[1] > self._terms.lasts

    def _holder(self, highest: Object | None) -> str:
        content = {} if highest is None else self._content(highest.key)
        text = f"process {content.get('pid')} on {content.get('host')}"
        return text if content and text.isprintable() and len(text) < 200 else "another process"

    def _content(self, key: str) -> dict[str, Any]:
        try:
            found = json.loads(self._backend.read_small([key], _MAX_BYTES)[0])
        except (MissingError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _highest(self) -> Object | None:
        found = self._numbers()
        return found[max(found)] if found else None

    def _numbers(self) -> dict[int, Object]:
        objects = self._backend.objects(self._folder)
        below = len(self._folder) + 1
        return {_number(each): each for each in objects if _NUMBER.fullmatch(each.key[below:])}


def _number(found: Object) -> int:
    return int(found.key.rpartition("/")[2])


def _machine() -> str | None:
    """Return what the processes that can see each other have in common; ``None`` if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path
    except OSError:
        return None


def _is_alive(pid: int) -> bool:
    """Return whether there is a process, and not only its exit code."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


class _LeaseHold(Hold):
    """The lease of this process on a chain."""

    def __init__(self, place: str, lease: Lease) -> None:
        super().__init__(place)
        self.lease = lease

    @property
    def is_held(self) -> bool:  # type: ignore[override]  # it may be lost
        """Whether the lease is held, as far as this process knows."""
        return self.lease.is_held

    def give_up(self) -> None:
        """Release the lease."""
        self.lease.release()


class BucketClaim(Claim):
    """A claim on a chain in a bucket, which messages call by its place."""

    def __init__(self, backend: PatientBackend, place: str) -> None:
        super().__init__(place)
        self._backend = backend

    @property
    def _key(self) -> str:
        return self._place

    def _hold(self) -> Hold:
        """Return the lease, which remembers what it has seen of others; raise `LeasedError`."""
        hold = HOLDS.get(self._place)
        if not isinstance(hold, _LeaseHold):
            hold = HOLDS[self._place] = _LeaseHold(self._place, Lease(self._backend, WRITER_FOLDER))
        if not hold.lease.is_held:
            hold.lease.try_take()
        return hold

    def _used(self) -> HeldError:
        return HeldError(OTHERS, _SECONDS_FOR_OTHERS, _SECONDS_BETWEEN_ATTEMPTS)
