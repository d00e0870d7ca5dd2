"""The claim of a process on a chain in a bucket: a lease, which all its `Chain` objects share.

As on a disk, one of them uses it at a time, and another process is refused while it is held.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ....errors import ChainError
from ....parallel import uninterrupted
from ..claim import Claim, Use, Uses
from .lease import Lease, LeasedError
from .patience import PatientBackend

WRITER_FOLDER: Final = ".writer"
#: Seconds until a holder that is alive has shown it, or has released what it held.
_SECONDS_TO_WAIT: Final = 25.0
_SECONDS_BETWEEN_ATTEMPTS: Final = 0.5
_SECONDS_FOR_OTHERS: Final = 5.0  # of this process


@dataclass(eq=False)
class _Shared:
    """The lease of this process on a chain, and the claims that share it."""

    lease: Lease
    claims: weakref.WeakSet[BucketClaim] = field(default_factory=weakref.WeakSet)


_shared: dict[str, _Shared] = {}
_changing = threading.RLock()


class BucketClaim(Claim):
    """A claim on a chain in a bucket.

    Parameters
    ----------
    backend
        The objects of the chain.
    place
        What messages call it.
    """

    def __init__(self, backend: PatientBackend, place: str) -> None:
        self._backend, self._place = backend, place
        self._taken: _Shared | None = None
        self.uses = Uses()

    def __del__(self) -> None:
        if getattr(self, "_taken", None) is not None:
            self._release()

    @property
    def is_held(self) -> bool:
        """Whether the lease is held, as far as this process knows."""
        return self._taken is not None and self._taken.lease.is_held

    def take(self, use: Use, *, make: bool = False) -> None:  # noqa: ARG002 - there are no directories
        """Take the claim, if it is not held already, and begin a use of it."""
        start = time.monotonic()
        while True:
            try:
                uninterrupted(partial(self._take, use))
                return
            except LeasedError as error:
                passed, holder = time.monotonic() - start, str(error)
            if passed > (_SECONDS_TO_WAIT if holder != _OTHERS else _SECONDS_FOR_OTHERS):
                raise ChainError(
                    f"{self._place}: {holder} is saving to this chain, which has one writer at a"
                    " time; wait until it ends, or save to another directory"
                )
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)

    def _take(self, use: Use) -> None:
        with _changing:
            shared = self._taken or _shared.get(self._place)
            if shared is None or _shared.get(self._place) is not shared:  # also after a fork
                shared = _shared[self._place] = _Shared(Lease(self._backend, WRITER_FOLDER))
                self._taken = None
            if any(other.uses for other in set(shared.claims) - {self}):
                raise LeasedError(_OTHERS)
            if not shared.lease.is_held:
                shared.lease.try_take()
            shared.claims.add(self)
            self._taken = shared
            self.uses.begin(use)

    def release(self) -> None:
        """Release the claim."""
        uninterrupted(self._release)

    def _release(self) -> None:
        with _changing:
            taken = self._taken
            if taken is None:
                return
            taken.claims.discard(self)
            if not taken.claims:
                if _shared.get(self._place) is taken:
                    del _shared[self._place]
                taken.lease.release()
            self._taken = None


_OTHERS: Final = "another Chain of this process"


@atexit.register
def _at_exit() -> None:
    """Release all leases. Saves in the background are done: their end comes first."""
    with _changing:
        for shared in list(_shared.values()):
            shared.lease.release()


def _after_fork() -> None:
    """Forget the leases in a child; they are the parent's."""
    global _changing  # noqa: PLW0603 - a thread of the parent may have held it
    _changing = threading.RLock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
