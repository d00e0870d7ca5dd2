"""Where a frame changes its reference: who compares the two arrays need not look elsewhere."""

from __future__ import annotations

import numpy as np

from ..element_types import Array


class Trace:
    """The components in which a decoded frame may differ from its reference.

    They are known of byte planes with few codes that are not 0, which are decoded one by one.
    """

    def __init__(self) -> None:
        self._places: list[Array] | None = [np.zeros(0, np.int64)]

    def add(self, start: int, places: Array) -> None:
        """Add the places of a block that begins at `start`: int64, rising."""
        if self._places is not None:
            self._places.append(places + start)

    def lose(self) -> None:
        """Note that any component may differ."""
        self._places = None

    def places(self) -> Array | None:
        """Return all places, int64, rising; ``None`` if they are not known."""
        return None if self._places is None else np.concatenate(self._places)
