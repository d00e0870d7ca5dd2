"""Whether a checkpoint that is lost comes back, bit for bit, by a repair from parity or mirrors.

A save asks this before it writes the newest step anew, with other bytes, from the exact file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress

from ...constants import EXACT_NAME, PARITY_FOLDER
from ...errors import LccodecError
from ..mirror.stand_in import StandIn
from ..read.checkpoint import open_name
from ..store.directory import DirectoryStore
from ..store.lineage import Lineage
from ..store.names import checkpoint_name, checkpoints_among
from ..store.store import Store
from .parity_folder import ParityFolder, above


def comes_back(store: Store, mirrors: Callable[[], Sequence[Store]], name: str) -> bool:
    """Return whether parity alone, or mirrors alone, give back a checkpoint and all that it needs.

    What is given back is verified, as far as a repair does before it writes. Where that cannot be
    told, the answer is no: then the step must be kept in another way.

    Parameters
    ----------
    mirrors
        Returns the mirrors of the chain.
    name
        The checkpoint.
    """
    with suppress(LccodecError):
        if isinstance(store, DirectoryStore) and _from_parity(store, name):
            return True
    with suppress(LccodecError):
        if others := mirrors():
            fresh = [mirror.afresh() for mirror in others]
            with open_name(StandIn(store.afresh(), fresh, lambda *_: None), name) as file:
                file.verify()
            return True
    return False


def _from_parity(store: DirectoryStore, name: str) -> bool:
    places = [(store, "")]
    if (ranks := above(store)) is not None:
        places.append((ranks, f"{store.path.resolve().name}/"))
    places = [(place, before) for place, before in places if place.has(PARITY_FOLDER)]
    if not places:
        return False
    from .repair import damaged_among  # here, as a chain loads this module, and few have parity

    lost = {each for each in _needed(store, name) if damaged_among(store, [each])}
    for place, before in places:
        found = _given_back(place, {f"{before}{each}" for each in lost})
        lost -= {each.removeprefix(before) for each in found}
    return not lost


def _needed(store: Store, name: str) -> list[str]:
    """Return a checkpoint and all that it needs, as far as can be read. Nothing is verified."""
    if name == EXACT_NAME:
        return [name]
    return list(map(checkpoint_name, Lineage.named(store).reached(checkpoints_among([name]))))


def _given_back(store: DirectoryStore, lost: Collection[str]) -> set[str]:
    """Return the files among some lost ones that parity in a directory gives back."""
    from .damage import GroupDamage
    from .repair import damaged_among

    folder, found = ParityFolder(store), set[str]()
    for group in folder.groups()[0]:
        members = [member.name for member in group.index.layout.members]
        if set(members).isdisjoint(lost):
            continue
        problems = damaged_among(store, filter(store.has, members))
        with ExitStack() as stack:
            damage = GroupDamage(store, folder, group, problems, stack)
            if not damage.is_stale and not damage.hopeless:
                found |= {members[number] for number in damage.targets}
    return found & set(lost)
