"""The ranks that make parity together, and how they talk: by two calls, which all of them make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ....errors import LccodecError, reason_of
from ....parity.code import Block


class Peers(Protocol):
    """The ranks. Calls return when all ranks have made them, in the same order.

    Attributes
    ----------
    rank, size
        The number of this one, and how many there are.
    """

    rank: int
    size: int

    def gather(self, value: Any, /) -> list[Any]:
        """Return the values of all ranks."""

    def exchange(self, pieces: Sequence[Block], sizes: Sequence[int], /) -> list[Block]:
        """Send a piece to each rank; return those of all ranks for this one, of these sizes."""


class Alone:
    """One rank, which talks to nobody."""

    rank, size = 0, 1

    def gather(self, value: Any, /) -> list[Any]:
        """Return the value."""
        return [value]

    def exchange(self, pieces: Sequence[Block], *_: object) -> list[Block]:
        """Return the piece."""
        return list(pieces)


class Trouble:
    """The first error of this rank. It goes on after one, because the others wait for it.

    Attributes
    ----------
    reason
        The error in words; ``None`` without one.
    """

    reason: str | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an error, and go on behind the block."""
        try:
            yield
        except (LccodecError, OSError, MemoryError) as error:
            self.reason = self.reason or reason_of(error)

    def told(self, peers: Peers) -> list[str]:
        """Return the errors of all ranks."""
        return [reason for reason in peers.gather(self.reason) if reason is not None]
