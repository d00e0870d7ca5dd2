"""An update: all that differs between the state that a follower had and the one that it has now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ....container.tree import array_names, flatten
from ....element_types import Array
from ....errors import ArgumentError
from .changes import Change, check_target, write_into


class Patch(NamedTuple):
    """What is new in one array.

    Parameters
    ----------
    name
        Its path in the state.
    dtype, shape
        Type and shape of the whole array.
    places
        Flat places of the new values in the array, in C order: int64, rising. ``None`` if `values`
        are those of the whole array.
    values
        The new values, 1-D.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    places: Array | None
    values: Array


@dataclass(eq=False)
class Update:
    """What is new since the last update of a follower. It is valid until the next is asked for.

    Parameters
    ----------
    step
        The step of the new state.
    base
        The step that the follower had before; ``None`` if it had nothing. It is above `step` where
        the chain was rolled back, and equal to it where the step was saved anew.
    names
        The arrays with new values, in the order of the state. An array in two places has two names.
    removed
        Arrays that the state before had, and this one has not.
    metadata
        The strings that were stored with the state.
    steps
        How many checkpoints were read for it: 1 for the next step.
    bytes_read
        Bytes of their files.
    root, base_root
        What identifies the checkpoints of both states, hexadecimal; see `CheckpointInfo.root`.
    """

    step: int
    base: int | None
    names: tuple[str, ...]
    removed: tuple[str, ...]
    metadata: dict[str, str]
    steps: int
    bytes_read: int
    root: str
    base_root: str | None
    _changes: Mapping[str, Change] | None
    _process: int = field(default_factory=os.getpid)

    def __repr__(self) -> str:
        return f"Update(step={self.step}, base={self.base}, {len(self.names)} arrays)"

    @property
    def nbytes(self) -> int:
        """Bytes of the new values: what `apply_to` copies."""
        return sum(change.nbytes for change in self._valid().values())

    def apply_to(self, arrays: Any) -> None:
        """Write the new values into the memory of arrays that hold the state before.

        It is the one short step during which nobody may read the arrays. All of them are checked
        before the first is written. It may be repeated, for example after an interrupt.

        Parameters
        ----------
        arrays
            NumPy arrays by name, or a nested state of them. It may have more than the update.

        Raises
        ------
        ArgumentError
            If an array is missing, of another type or shape, or cannot be written to, or if the
            follower has gone on. Nothing is written then.
        """
        changes, found = self._valid(), arrays_by_name(arrays)
        missing = [name for name in changes if name not in found]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ArgumentError(f"the arrays lack {missing[0]!r}{more}, which step {self.step} has anew")
        targets = [(check_target(name, each, found[name]), each) for name, each in changes.items()]
        for array, change in targets:
            write_into(array, change)

    def patches(self, dtype: Literal["float32", "bits"] | None = None) -> Iterator[Patch]:
        """Yield what is new array by array; `dtype` says how bfloat16 is returned.

        The values of a whole array are memory of the follower, and must not be changed.

        Raises
        ------
        ArgumentError
            If the follower has gone on to another step, or is closed.
        """
        for name, each in self._valid().items():
            change = each.kept()
            yield Patch(name, change.kind.name, change.shape, change.places, change.values(dtype))

    def _valid(self) -> Mapping[str, Change]:
        """Return what is new by name; raise ``ArgumentError`` if the follower has gone on."""
        if self._changes is None:
            raise ArgumentError(f"the update to step {self.step} is not the follower's last one any more")
        if self._process != os.getpid() and any(each.is_shared for each in self._changes.values()):
            told = "is in memory of the process that this one was forked from: ask for the next one"
            raise ArgumentError(f"the update to step {self.step} {told}")
        return self._changes

    def expire(self) -> None:
        """Release the new values: the follower goes on, and its memory gets other ones."""
        self._changes = None


def arrays_by_name(arrays: Any) -> Mapping[str, Any]:
    """Return arrays by their names in the state, each place with a name of its own."""
    flat = flatten(arrays)
    found: dict[str, Any] = {name: flat.arrays[index] for name, index in array_names(flat.tree).items()}
    if isinstance(arrays, Mapping):  # its keys may be names with escapes, as those of `found` are
        found.update((name, value) for name, value in arrays.items() if isinstance(value, np.ndarray))
    return found
