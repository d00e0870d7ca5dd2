"""What acts after a commit, behind the saves: no save fails because of it.

A new thing of that kind is a class that inherits `Behind`, and one line in `Chain`. What
takes long goes through `Rounds`, in a thread, so that no save waits for it: that is how threads
end, fork and put calls together. `keep` prunes before the save returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol

from ..parallel import Line

_MAX_WAITING: Final = 2  # rounds: one that runs, and one that sees what it does not


class Change(NamedTuple):
    """What has become of the steps of a chain. A step that was written anew is added and removed.

    Without anything, files are back as they were, or were coded again: one has to look.
    """

    added: Collection[int] = ()
    removed: Collection[int] = ()
    # The step that a rollback went to; or the undoing of one, which adds steps.
    rolled_back: int | None = None

    @property
    def is_save(self) -> bool:
        """Whether new steps follow on those that there were, and nothing else has changed."""
        return bool(self.added) and not self.removed and self.rolled_back is None


class Behind(Protocol):
    """Acts after commits, or knows what a lost checkpoint can be made of again."""

    #: Whether it acts after commits; otherwise it is only asked what it gives back.
    acts: bool

    def after(self, change: Change) -> None:
        """Begin to do what follows a change; what goes wrong is a warning, now or later."""

    def gives_back(self, name: str) -> bool:  # noqa: ARG002 - by default nothing comes back
        """Return whether a checkpoint that is lost comes back from here, bit for bit, by a repair.

        It is asked before a save writes the newest step anew, with other bytes. Where that cannot
        be told, the answer is no: then the step must be kept in another way.
        """
        return False

    def close(self) -> None:
        """Wait until all is done that was begun."""
        return  # by default nothing was


class AllBehind:
    """All that acts behind the saves of a chain, in its order; a `Behind` itself."""

    acts = True

    def __init__(self, parts: Sequence[Behind] = ()) -> None:
        self._parts = parts
        self._acting = [part for part in parts if part.acts]

    def after(self, change: Change) -> None:
        """Let each part begin to do what follows a change."""
        for part in self._acting:
            part.after(change)

    def gives_back(self, name: str) -> bool:
        """Return whether one part alone gives a checkpoint back."""
        return any(part.gives_back(name) for part in self._parts)

    def close(self) -> None:
        """Close all parts, in their order, also if one of them fails."""
        with ExitStack() as stack:
            for part in reversed(self._parts):
                stack.callback(part.close)


class Rounds:
    """Rounds of one action in a thread: what is asked for during a round is done by one more.

    `act` does all that there is to do, and must not raise an error. The program may end before a
    daemon has done it.
    """

    def __init__(self, act: Callable[[], object], *, daemon: bool = False) -> None:
        self._act = act
        self.line = Line(daemon=daemon)
        self._is_asked = False

    def ask(self) -> None:
        """Begin with a round, or let another one follow on that which runs; do not wait for it."""
        self._is_asked = True
        if len(self.line.waiting) < _MAX_WAITING:
            self.line.add(self._run)
        self.line.wake()

    def again(self) -> None:
        """Let another round follow on this one; the thread's call."""
        self._is_asked = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is done that was asked for; return whether it is, after some seconds."""
        return self.line.wait(timeout)

    def _run(self) -> None:
        while self._is_asked:
            self._is_asked = False
            self._act()
