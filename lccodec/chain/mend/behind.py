"""Parity behind the saves: a thread protects what was saved, and no save waits for it.

Saves that come faster than parity is made are protected together. NumPy and SHA-256 release the
interpreter's lock while they work.
"""

from __future__ import annotations

from ...errors import LccodecError, reason_of, warn
from ...parallel import Line
from ..store.store import Store
from .parity_folder import directory_of
from .protect import protect
from .redundancy import Redundancy


class ParityBehind:
    """Protects a chain after each call; several threads may call it.

    Parameters
    ----------
    redundancy
        How much parity there is. With ``None``, only that is made again which was there before.
    """

    def __init__(self, store: Store, redundancy: Redundancy | None) -> None:
        self._store, self._redundancy = store, redundancy
        if redundancy is not None:
            directory_of(store)  # or it is refused
        self._line = Line()
        self._asked: Redundancy | None = None
        self._failures: list[str] = []

    def __call__(self, before: Redundancy | None = None) -> None:
        """Begin to protect what there is now, or let the thread that runs do so next.

        `before` is the redundancy of parity that was there, and went with files that were removed.
        """
        redundancy = self._redundancy or before
        if redundancy is None:
            return
        self._warn()
        self._asked = redundancy
        self._line.add(self._protect)

    def wait(self) -> None:
        """Wait until all is protected that was asked for; an error is only a warning."""
        self._line.wait()
        self._warn()

    def _protect(self) -> None:
        """Protect what there is, in the thread, unless that was done since it was asked for."""
        redundancy, self._asked = self._asked, None
        if redundancy is None:
            return
        try:
            protect(directory_of(self._store), redundancy)
        except (LccodecError, OSError, MemoryError) as error:
            self._failures.append(reason_of(error))

    def _warn(self) -> None:
        while self._failures:
            warn(f"{self._store.path}: saves are not protected: {self._failures.pop(0)}")
