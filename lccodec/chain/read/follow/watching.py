"""What a follower needs of what it follows: a chain, or the chains of ranks together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..replay import DecodedArray


class Lag(NamedTuple):
    """How far a follower is behind: the steps after its own, and the bytes of their files."""

    steps: int
    nbytes: int


class Watching(Protocol):
    """What a follower needs of what it follows: the state that is held, and what comes after it."""

    @property
    def place(self) -> object:
        """What messages call it."""

    @property
    def step(self) -> int | None:
        """The held step; ``None`` if there is no state yet."""

    def next(self, wanted: Callable[[], bool]) -> Any:
        """Prepare the way to a new state; it has the `update` that leads there, or ``None``.

        ``None`` if there is no new state. `wanted` is asked from time to time whether to go on.
        """

    def commit(self, way: Any) -> None:
        """Go a way that was prepared. Doing it again does nothing."""

    def refused(self) -> Mapping[int, str]:
        """Return why newer steps cannot be read, by step."""

    def lag(self) -> Lag:
        """Return how far the held state is behind."""

    def state(self, dtype: str | None) -> Any:
        """Return a copy of the held state."""

    def names(self) -> list[str]:
        """Return the paths of the arrays of the held state, in the order of the state."""

    def array(self, path: str) -> DecodedArray | None:
        """Return an array of the held state; it must not be changed."""

    def close(self) -> None:
        """Release what is held."""
