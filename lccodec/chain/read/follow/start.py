"""A follower that starts from arrays at hand, such as the model that an engine has loaded.

Nothing of their step is read but what tells that they are its arrays, bit for bit: the array sum at
the end of each frame (LCC-FRM-09). Arrays that share a frame with others are small; they are
decoded and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ....element_types import Array, components
from ....errors import ArgumentError, ChainError, ChecksumError
from ....frame.content import array_sum
from ....frame.decode import check_array_sum
from ...store.store import Store
from ..checkpoint import open_step
from ..links import Link
from ..needed import frames_of
from ..replay import DecodedArray, replay
from .held import Held, groups_of

_MAX_NAMES_SHOWN: Final = 5  # in one message


def held_from(
    store: Store,
    step: int,
    given: Mapping[str, Array],
    names: Callable[[Link], set[str]],
    root: str | None = None,
) -> Held:
    """Return a step as held, from arrays that are at hand.

    Parameters
    ----------
    given
        The arrays by name. Their memory is used, and gets later values.
    names
        Returns the arrays of the checkpoint that are followed.
    root
        The root of the checkpoint that the arrays are known to be of, hexadecimal. If the step has
        it still, they are not compared.

    Raises
    ------
    ArgumentError
        If one of the arrays is missing, or is another one than that of the step.
    ChainError, DataError, StorageError
        If there is no such step, or it cannot be read; or if it is interpolated, so that no sum
        tells what its arrays are.
    """
    held = Held()
    with open_step(store, step) as file:
        link, followed = file.links[-1], names(file.links[-1])
        if any(each.later is not None for each in file.links):
            raise ChainError(f"{store.path}: step {step} is interpolated, and cannot be started from")
        missing = [name for name in link.index_names if name in followed and name not in given]
        heads = file.heads()
        wrong, known = [], link.reader.root.hex() == root
        for group in groups_of(file.links, followed):
            ours = {name: given[name] for name in group if name in given and name in followed}
            found = {
                name: DecodedArray(heads[name].header.kind, heads[name].shape, components(array)[1])
                for name, array in ours.items()
                if (components(array)[0], array.shape) == (heads[name].header.kind, heads[name].shape)
            }
            if len(group) > 1 and ours:
                decoded = replay(file.links, [link.names[name] for name in group])
                stored = {link.index_names[index]: array for index, array in decoded}
                same = {name for name in found if np.array_equal(found[name].bits, stored[name].bits)}
                held.arrays.update(stored)
            else:
                same = {n for n, array in found.items() if known or _has_sum(file.links, n, array.bits)}
                held.arrays.update(found)
            wrong += [name for name in ours if name not in same]
        if missing or wrong:
            told = _told(missing, wrong)
            raise ArgumentError(f"{store.path}: these are not the arrays of step {step}: {told}")
        held.link = link
        link.parent = None
    return held


def _told(missing: Sequence[str], wrong: Sequence[str]) -> str:
    problems = [*(f"{name!r} is missing" for name in missing), *(f"{name!r} differs" for name in wrong)]
    more = len(problems) - _MAX_NAMES_SHOWN
    return ", ".join(problems[:_MAX_NAMES_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _has_sum(links: Sequence[Link], name: str, bits: Array) -> bool:
    """Return whether components have the sum of the newest frame of an array."""
    link, number = frames_of(links, name)[-1]
    try:
        check_array_sum(link.frame(number, verify=False), array_sum(bits))
    except ChecksumError:
        return False
    return True
