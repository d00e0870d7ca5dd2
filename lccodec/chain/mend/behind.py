"""Parity behind the saves: a thread protects what was saved, and no save waits for it.

Saves that come faster than parity is made are protected together.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, suppress

from ...constants import EXACT_NAME, PARITY_FOLDER
from ...errors import LccodecError, reason_of, warn
from ..behind import Change, Rounds
from ..store.directory import DirectoryStore
from ..store.lineage import Lineage
from ..store.names import checkpoint_name, checkpoints_among
from ..store.store import Store
from .parity_folder import ParityFolder, above, directory_of
from .protect import Redundancy, protect


class ParityBehind:
    """Protects a chain after each change, and knows what its parity gives back.

    Several threads may call it.

    Parameters
    ----------
    redundancy
        How much parity there is. With ``None``, only that is made again which `went`.
    acts
        Whether parity may go, so that it has to be made again.
    """

    def __init__(self, store: Store, redundancy: Redundancy | None, *, acts: bool = True) -> None:
        self._store, self._redundancy = store, redundancy
        if redundancy is not None:
            directory_of(store)  # or it is refused
        self.acts = acts or redundancy is not None
        self._rounds = Rounds(self._protect)
        self._gone: Redundancy | None = None
        self._failures: list[str] = []

    def went(self, redundancy: Redundancy | None) -> None:
        """Take note that parity of a redundancy went with files that were removed, if any did."""
        self._gone = redundancy or self._gone

    def after(self, change: Change) -> None:  # noqa: ARG002 - whatever it is
        """Begin to protect what there is now, or let the thread that runs do so next."""
        if self._redundancy or self._gone:
            self._warn()
            self._rounds.ask()

    def gives_back(self, name: str) -> bool:
        """Return whether parity gives back a checkpoint and all that it needs.

        What is given back is verified, as far as a repair does before it writes.
        """
        with suppress(LccodecError):
            return isinstance(self._store, DirectoryStore) and _from_parity(self._store, name)
        return False

    def close(self) -> None:
        """Wait until all is protected that was asked for; an error is only a warning."""
        self._rounds.wait()
        self._warn()

    def _protect(self) -> None:
        """Protect what there is, in the thread."""
        gone, self._gone = self._gone, None
        if redundancy := self._redundancy or gone:
            try:
                protect(directory_of(self._store), redundancy)
            except (LccodecError, OSError, MemoryError) as error:
                self._failures.append(reason_of(error))

    def _warn(self) -> None:
        while self._failures:
            warn(f"{self._store.path}: saves are not protected: {self._failures.pop(0)}")


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
