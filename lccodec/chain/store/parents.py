"""What each checkpoint of a store needs, and in which order checkpoints may be removed.

Parents are read from manifests that were verified, since what nobody needs is removed. A file is
read once: checkpoints do not change.

Children are removed before their parents, with a flush of the directory between them. So every
checkpoint that is there can be restored, after a kill or a loss of power at any moment. Steps
without descendants are removed together, then their parents, and so on: there are as many flushes
as there are deltas in a row.

Source: SPEC 9 (LCC-CHN-09).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...container.disk.system import storage_errors
from ...errors import DataError
from .store import Held, Store


@dataclass(frozen=True)
class _Known:
    """What was read of a file, and what tells that it is still the same file."""

    identity: tuple[int, ...]
    parent: int | None
    metadata: Mapping[str, str] | None  # None if it cannot be read


class Ancestry:
    """The parents and the metadata of checkpoints, each read once.

    Attributes
    ----------
    unreadable
        What is wrong with the files that are damaged, by step. Such a file is taken to need the
        step before it: when it was saved, its parent was the newest step, if it is a delta. A file
        that the system cannot read now raises `StorageError`.
    """

    def __init__(self, store: Store) -> None:
        self.unreadable: dict[int, str] = {}
        self._store = store
        self._known: dict[str, _Known] = {}

    def parent(self, step: int, steps: Mapping[int, str]) -> int | None:
        """Return the parent of a step, ``None`` for a keyframe. `steps` are those of the chain."""
        known = self._read(step, steps[step])
        if known.metadata is None:
            return max((other for other in steps if other < step), default=None)
        return known.parent

    def metadata(self, step: int, steps: Mapping[int, str]) -> Mapping[str, str]:
        """Return the metadata of a step; none if the file cannot be read."""
        return self._read(step, steps[step]).metadata or {}

    def needed(
        self, kept: Iterable[int], steps: Mapping[int, str], instead: Mapping[int, int | None] | None = None
    ) -> dict[int, int]:
        """Return the steps that `kept` need and that are not among them.

        With each comes the lowest of the kept steps that need it. `instead` has parents that some
        steps are to have in the place of their own.
        """
        wanted = sorted(set(kept))
        seen, found = set(wanted), dict[int, int]()
        for step in wanted:
            above = instead[step] if instead and step in instead else self.parent(step, steps)
            while above is not None and above in steps and above not in seen:
                seen.add(above)
                found[above] = step
                above = self.parent(above, steps)
        return dict(sorted(found.items()))

    def _read(self, step: int, name: str) -> _Known:
        identity = self._store.identity(name)
        known = self._known.get(name)
        if known is None or known.identity != identity:
            try:
                with self._store.open(name) as reader:
                    parent = reader.manifest.parent
                    known = _Known(
                        identity, None if parent is None else parent.step, reader.manifest.metadata
                    )
                    self.unreadable.pop(step, None)
            except DataError as error:
                known = _Known(identity, None, None)
                self.unreadable[step] = str(error)
            self._known[name] = known
        return known


def waves(store: Store, steps: Mapping[int, str]) -> list[list[int]]:
    """Return steps in groups: each group holds no parent of a step of its own or a later group.

    Parents are those that the files name; nothing is verified.
    """
    heights = dict.fromkeys(sorted(steps, reverse=True), 0)
    for step, height in heights.items():  # children have higher steps
        parent = store.parent_of(steps[step])
        if parent is not None and parent < step and parent in heights:
            heights[parent] = max(heights[parent], height + 1)
    groups: list[list[int]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
    for step, height in heights.items():
        groups[height].append(step)
    return groups


def remove_steps(store: Store, held: Held, steps: Mapping[int, str]) -> None:
    """Remove checkpoints that no other checkpoint needs. The caller holds the lock of the store.

    Raises
    ------
    StorageError
        If the operating system refuses. Every checkpoint that is still there can be restored.
    """
    with storage_errors("cannot remove files of", store.path):
        for group in waves(store, steps):
            held.remove(steps[step] for step in group)
