"""Which steps a store has, and which others each of them needs: stated once, asked by all verbs.

A `Lineage` is made from one listing. Its parents are those that the first bytes of each file name,
and nothing is verified; or those of an `Ancestry`, whose manifests were verified, since what nobody
needs is removed. A file is read once, when it is asked for: checkpoints do not change.

Children are removed before their parents, with a flush of the directory between them. So every
checkpoint that is there can be restored, after a kill or a loss of power at any moment. Steps
without descendants are removed together, then their parents, and so on: there are as many flushes
as there are deltas in a row.

Source: SPEC 9 (LCC-CHN-09).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...container.manifest import INHERITED
from ...container.system import storage_errors
from ...container.tree import Json, leaves_of, numbers_of, scalar_value
from ...errors import DataError
from .store import LockedStore, Store, checkpoint_name

#: Returns the parents of a step, the earlier one first; of a keyframe none.
Parents = Callable[[int], Sequence[int]]


class Lineage:
    """The steps of a chain and what each needs. Immutable; parents are looked up when asked for.

    `parents` is asked once for each step, also for those that are named as parents and are not
    there.
    """

    def __init__(self, steps: Iterable[int], parents: Parents) -> None:
        self.steps = tuple(sorted(steps))
        self._parents = parents
        self._known: dict[int, tuple[int, ...]] = {}

    @classmethod
    def named(cls, store: Store, steps: Mapping[int, str] | Iterable[int] | None = None) -> Lineage:
        """Return the lineage as the files of a store name it; nothing is verified.

        `steps` are some of the store's checkpoints, or the names of the files of steps.
        """
        listed = store.checkpoints() if steps is None else steps
        names = listed if isinstance(listed, Mapping) else {}
        return cls(listed, lambda step: store.parents_of(names.get(step, checkpoint_name(step))))

    def parents(self, step: int) -> tuple[int, ...]:
        """Return the parents of a step, the earlier one first; of a keyframe none."""
        if step not in self._known:
            self._known[step] = tuple(self._parents(step))
        return self._known[step]

    def children(self, step: int) -> Iterator[int]:
        """Yield the steps that name a step as a parent, rising."""
        return (each for each in self.steps if step in self.parents(each))

    def interpolated(self) -> dict[int, tuple[int, int]]:
        """Return the steps that have two parents, with these."""
        found = ((step, self.parents(step)) for step in self.steps)
        return {step: (above[0], above[1]) for step, above in found if len(above) == 2}

    def reached(self, steps: Iterable[int], through: Callable[[int], bool] = lambda _: True) -> list[int]:
        """Return steps and all that they need, also what is not there, each once.

        What is needed by a step alone that `through` refuses is left out.
        """
        found = list(dict.fromkeys(steps))
        seen = set(found)
        for step in found:  # which grows
            for above in self.parents(step) if through(step) else ():
                if above not in seen:
                    seen.add(above)
                    found.append(above)
        return found

    def needed(self, steps: Iterable[int]) -> dict[int, int]:
        """Return the steps that some steps need, that are there, and that are not among them.

        With each comes the lowest of those steps that needs it other than by another one of them.
        """
        there, found = set(self.steps), dict[int, int]()
        seen = set(steps)
        for step in sorted(seen):
            left = [step]
            while left:
                for above in self.parents(left.pop()):
                    if above in there and above not in seen:
                        seen.add(above)
                        found[above] = step
                        left.append(above)
        return dict(sorted(found.items()))

    def parents_first(self, steps: Iterable[int], among: Collection[int] = ()) -> list[int]:
        """Return steps, each after those of its parents that are in the result.

        Parents that are `among` some come too. The order is that of `steps` where parents allow it.
        """
        steps = list(steps)
        wanted, found, seen = {*steps, *among}, dict[int, None](), set[int]()
        for first in steps:
            left = [first]
            while left:
                step = left[-1]
                seen.add(step)
                above = [each for each in self.parents(step) if each in wanted and each not in seen]
                if above:
                    left += above
                else:
                    found[left.pop()] = None
        return list(found)

    def depth_first(self) -> list[int]:
        """Return all steps, parents first, in an order in which few parents wait for children.

        The child with the most descendants comes last. What is interpolated follows its later
        parent, wide spans first, as they may be parents of the others.
        """
        spans = self.interpolated()
        sizes = dict.fromkeys(self.steps, 1)
        children: dict[int, list[int]] = {}
        for step in reversed(self.steps):  # parents of deltas have lower steps
            if len(above := self.parents(step)) == 1:
                sizes[above[0]] += sizes[step]
                children.setdefault(above[0], []).append(step)
        order: list[int] = []
        stack = [step for step in reversed(self.steps) if not self.parents(step)]
        while stack:
            order.append(stack.pop())
            stack += sorted(children.get(order[-1], ()), key=lambda each: (sizes[each], each), reverse=True)
        place = {step: index for index, step in enumerate(order)}
        between: dict[int, list[int]] = {}
        for step in sorted(spans, key=lambda each: spans[each][0] - spans[each][1]):
            place[step] = max(place[above] for above in spans[step])
            between.setdefault(place[step], []).append(step)
        return [each for index, step in enumerate(order) for each in (step, *between.get(index, ()))]

    def well_formed(self) -> Lineage:
        """Return the lineage without parents that are not there, or may be none (LCC-INT-02)."""
        spans, there = self.interpolated(), set(self.steps)

        def fits(step: int) -> bool:
            above = self.parents(step)
            if not there.issuperset(above):
                return False
            if len(above) < 2:
                return all(each < step and each not in spans for each in above)
            low, high = above
            held = [spans[each] for each in above if each in spans]
            return low < step < high and all(span[0] <= low and high <= span[1] for span in held)

        return Lineage(self.steps, lambda step: self.parents(step) if fits(step) else ())

    def inside(self) -> set[int]:
        """Return the steps between two parents. None may become a keyframe (LCC-INT-05)."""
        found = set[int]()
        for low, high in self.interpolated().values():
            found.update(self.steps[bisect_right(self.steps, low) : bisect_left(self.steps, high)])
        return found

    def deltas_after(self) -> dict[int, int]:
        """Return for each step how many deltas follow it in a row, at most."""
        found = dict.fromkeys(self.steps, 0)
        for step in reversed(self.steps):
            above = self.parents(step)
            if len(above) == 1 and above[0] in found:
                found[above[0]] = max(found[above[0]], found[step] + 1)
        return found

    def waves(self) -> list[list[int]]:
        """Return the steps in groups: none holds a parent of a step of its own or a later group."""
        heights = dict.fromkeys(self.steps, 0)

        def children_first(step: int) -> tuple[int, int]:  # the reverse of LCC-INT-02
            above = self.parents(step)
            return (0, above[1] - above[0]) if len(above) == 2 else (1, -step)

        for step in sorted(self.steps, key=children_first):
            for above in self.parents(step):
                if above in heights and above != step:
                    heights[above] = max(heights[above], heights[step] + 1)
        groups: list[list[int]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
        for step, height in heights.items():
            groups[height].append(step)
        return groups


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

    `unreadable` says what is wrong with files that are damaged, by step. Such a file is taken to
    need the step before it: when it was saved, its parent was the newest step, if it is a delta. A
    file that the system cannot read now raises `StorageError`.
    """

    def __init__(self, store: Store) -> None:
        self.unreadable: dict[int, str] = {}
        self._store = store
        self._known: dict[str, _Known] = {}
        self._numbers: dict[str, tuple[_Known, Mapping[str, float]]] = {}

    def lineage(
        self, steps: Mapping[int, str], overrides: Mapping[int, tuple[int, ...]] | None = None
    ) -> Lineage:
        """Return the lineage of the chain; `overrides` has parents that some steps are to have."""

        def parents(step: int) -> tuple[int, ...]:
            if overrides is not None and step in overrides:
                return overrides[step]
            if step not in steps:
                return ()
            known = self._read(step, steps[step])
            if known.metadata is None:
                return tuple(sorted(other for other in steps if other < step)[-1:])
            return known.parents

        return Lineage(steps, parents)

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


def remove_steps(store: Store, held: LockedStore, steps: Mapping[int, str]) -> None:
    """Remove checkpoints that no other checkpoint needs. The caller holds the lock of the store.

    After a ``StorageError``, every checkpoint that is still there can be restored.
    """
    with storage_errors("cannot remove files of", store.path):
        for group in Lineage.named(store, steps).waves():
            held.remove(steps[step] for step in group)
