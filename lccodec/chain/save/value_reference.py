"""The reference of a saver that keeps the newest checkpoint decoded, in memory.

A delta is taken against the arrays as a restore returns them. Coding overwrites them with those of
the new checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from ...element_types import Array
from ...frame.encode import Effort
from ...policy.copies import mark_copies
from ...policy.followers import mark_followers
from ...policy.policy import Candidate
from ...policy.trained import mark_trained
from ...workers.crew import Crew
from ..read.checkpoint import OpenCheckpoint
from ..read.replay import DecodedArray, Decoding, replay
from ..store.store import Store
from .encode import decoded_copies, encode_plan
from .measurement import look_back
from .plan import SavePlan
from .reference import Latest
from .sampling import Sampling

#: Returns a 1-D array with undefined values, as `lccodec.workers.crew.Crew.empty`.
Empty: TypeAlias = Callable[[int, np.dtype[Any]], Array]

#: Arrays of fewer bytes are copied to where all workers see them.
_MIN_OWN_BYTES: Final = 1 << 20


class ValueReference:
    """A `Reference` of decoded arrays.

    Parameters
    ----------
    store
        Where the chain is kept.
    crew
        Who codes.
    """

    has_values = True

    def __init__(self, store: Store, crew: Crew) -> None:
        self._store, self._crew = store, crew

    def read(self, file: OpenCheckpoint) -> dict[str, DecodedArray]:
        """Return the arrays of a checkpoint by name, decoded to where all workers see them."""
        return read_values(self._crew.empty, file)

    def compare(self, arrays: Sequence[Candidate], is_keyframe: bool) -> None:  # noqa: ARG002
        """Find which arrays are trained, follow others, are equal to them, or their roundings."""
        mark_trained(arrays)
        mark_copies(arrays)
        mark_followers(arrays)

    def look_back(self, latest: Latest, arrays: Sequence[Candidate], sampling: Sampling) -> None:
        """Give weights a sample of what they were at the save before."""
        look_back(self._store, latest, arrays, sampling)

    def check(self, plan: SavePlan) -> None:
        """Do nothing: any plan can be coded."""

    def encode(
        self, plan: SavePlan, latest: Latest | None, effort: Effort
    ) -> Iterator[tuple[Iterable[bytes], dict[str, DecodedArray]]]:
        """Yield the chunks of each frame, and its decoded arrays by name.

        They take the memory of the arrays before.
        """
        return encode_plan(plan, {} if latest is None else latest.arrays, effort, self._crew)

    def copies(self, plan: SavePlan, arrays: Mapping[str, DecodedArray]) -> dict[str, DecodedArray]:
        """Return the copies of a plan as decoded, by name."""
        return decoded_copies(plan, arrays)

    def keep(
        self,
        step: int,  # noqa: ARG002
        root: bytes,  # noqa: ARG002
        arrays: Mapping[str, DecodedArray],
        names: Sequence[str],
    ) -> dict[str, DecodedArray]:
        """Return the arrays of a step that is committed, in the order of `names`."""
        return {name: arrays[name] for name in names}

    def planning(self) -> AbstractContextManager[None]:
        """Do nothing: nothing is written but checkpoints."""
        return nullcontext()

    def makes_room(self, error: Exception) -> bool:  # noqa: ARG002
        """Return False: there is nothing beside the chain."""
        return False

    def warn(self) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing: the saver has the arrays."""


def read_values(empty: Empty, file: OpenCheckpoint) -> dict[str, DecodedArray]:
    """Return the arrays of a checkpoint by name, decoded into memory that `empty` returns."""
    file.decode_by(partial(_decode_into, empty))
    return dict(zip(file.links[-1].index_names, file.decoded(), strict=True))


def _decode_into(empty: Empty, file: OpenCheckpoint, indices: list[int]) -> Decoding:
    """Decode large arrays to where they stay: with a copy there would be two references."""
    heads, names = file.heads(), file.links[-1].index_names
    found = ((index, heads[names[index]].header) for index in indices)
    into = {
        index: empty(header.components, header.kind.bits)
        for index, header in found
        if not header.run and header.nbytes >= _MIN_OWN_BYTES
    }
    return replay(file.links, indices, file.together, into)
