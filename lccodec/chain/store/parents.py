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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...container.disk.system import storage_errors
from ...container.manifest import INHERITED
from ...container.scalars import Json, numbers_of, scalar_value
from ...container.tree import leaves_of
from ...errors import DataError
from .store import Held, Store


@dataclass(frozen=True)
class _Known:
    """What was read of a file, and what tells that it is still the same file."""

    identity: tuple[int, ...]
    parents: tuple[int, ...]
    metadata: Mapping[str, str] | None  # None if it cannot be read
    tree: Json = None
    scalars: Sequence[Json] = ()


class Ancestry:
    """The parents of checkpoints, and the numbers beside their arrays, each read once.

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
        self._numbers: dict[str, tuple[_Known, Mapping[str, float]]] = {}

    def parents(self, step: int, steps: Mapping[int, str]) -> tuple[int, ...]:
        """Return the parents of a step, the earlier one first. `steps` are those of the chain."""
        known = self._read(step, steps[step])
        if known.metadata is None:
            return tuple(sorted(other for other in steps if other < step)[-1:])
        return known.parents

    def numbers(self, step: int, steps: Mapping[int, str]) -> Mapping[str, float]:
        """Return the numbers of a step by name: of its metadata, then of its state.

        There are none if the file cannot be read, and none of the state if its names cannot.
        """
        name, known = steps[step], self._read(step, steps[step])
        if self._numbers.get(name, (None,))[0] is not known:
            tree = self._tree(known, steps)
            leaves = [] if tree is None else leaves_of(tree, known.scalars)
            scalars = [(path, scalar_value(entry)) for path, index, entry in leaves if index is None]
            self._numbers[name] = known, numbers_of(known.metadata or {}, scalars)
        return self._numbers[name][1]

    def _tree(self, known: _Known, steps: Mapping[int, str]) -> Json:
        """Return the tree of a checkpoint that has scalars, its own or inherited, or ``None``."""
        above, count = known, len(known.scalars)
        while count and above.tree is INHERITED and above.parents and above.parents[0] in steps:
            above = self._read(above.parents[0], steps[above.parents[0]])
        return above.tree if count and above.tree is not INHERITED and len(above.scalars) == count else None

    def needed(
        self,
        kept: Iterable[int],
        steps: Mapping[int, str],
        instead: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    ) -> dict[int, int]:
        """Return the steps that `kept` need and that are not among them.

        With each comes the lowest of the kept steps that need it. `instead` has parents that some
        steps are to have in the place of their own.
        """
        wanted = sorted(set(kept))
        seen, found = set(wanted), dict[int, int]()
        for step in wanted:
            left = [step]
            while left:
                child = left.pop()
                parents = instead[child] if child in instead else self.parents(child, steps)
                for above in parents:
                    if above in steps and above not in seen:
                        seen.add(above)
                        found[above] = step
                        left.append(above)
        return dict(sorted(found.items()))

    def _read(self, step: int, name: str) -> _Known:
        identity = self._store.identity(name)
        known = self._known.get(name)
        if known is None or known.identity != identity:
            try:
                with self._store.open(name) as reader:
                    parents = tuple(parent.step for parent in reader.manifest.parents)
                    found = reader.manifest
                    known = _Known(identity, parents, found.metadata, found.tree, found.scalars)
                    self.unreadable.pop(step, None)
            except DataError as error:
                known = _Known(identity, (), None)
                self.unreadable[step] = str(error)
            self._known[name] = known
        return known


def waves(store: Store, steps: Mapping[int, str]) -> list[list[int]]:
    """Return steps in groups: each group holds no parent of a step of its own or a later group.

    Parents are those that the files name; nothing is verified.
    """
    parents = {step: store.parents_of(name) for step, name in steps.items()}
    heights = dict.fromkeys(steps, 0)

    def children_first(step: int) -> tuple[int, int]:  # the reverse of LCC-INT-02
        above = parents[step]
        return (0, above[1] - above[0]) if len(above) == 2 else (1, -step)

    for step in sorted(steps, key=children_first):
        for parent in parents[step]:
            if parent in heights and parent != step:
                heights[parent] = max(heights[parent], heights[step] + 1)
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
