"""Where a frame changes its reference: who compares the two arrays need not look for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..element_types import Array


@dataclass(frozen=True, eq=False)
class Changed:
    """The components that differ from those of the reference.

    Parameters
    ----------
    places
        Where they are: int64, rising.
    bits
        The new components.
    """

    places: Array
    bits: Array


class Trace:
    """The components in which a decoded frame differs from its reference, as far as it tells them.

    They are known of byte planes with few codes that are not 0, which are decoded one by one.
    """

    def __init__(self) -> None:
        self._found: list[Changed] | None = []

    def add(self, start: int, changed: Changed) -> None:
        """Add what differs in a block that begins at `start`."""
        if self._found is not None:
            self._found.append(Changed(changed.places + start, changed.bits))

    def lose(self) -> None:
        """Note that any component may differ."""
        self._found = None

    def changed(self) -> Changed | None:
        """Return what differs; ``None`` if it is not known."""
        if not self._found:  # of an empty frame, too
            return None
        if len(self._found) == 1:
            return self._found[0]
        places, bits = zip(*((each.places, each.bits) for each in self._found), strict=True)
        return Changed(np.concatenate(places), np.concatenate(bits))
