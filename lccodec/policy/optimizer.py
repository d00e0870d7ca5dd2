"""The optimizers in a state: which arrays are their moments, and which are their parameters.

An optimizer keeps arrays for each of its parameters, with the shape of the parameter. So a part of
a state that mirrors another part is an optimizer's, and what it mirrors are the parameters:

- by path: ``opt_state/0/mu/fc/kernel`` mirrors ``params/fc/kernel``, and
  ``optimizer.state.fc.weight.exp_avg`` mirrors ``model.fc.weight``;
- by number: ``optimizer/state/0/exp_avg`` mirrors some array of its shape. If there are as many
  arrays of that shape as numbers, they are the parameters. If the optimizer has parameters of which
  it keeps nothing, too, they are told by their order, where that leaves one way.

If more arrays are mirrored than the optimizer has parameters, some are copies. Then those count
that names say to be weights, if they are as many; if not, those of them below a model; if not,
none.

All that an optimizer keeps of a parameter must be one of the `FAMILIES`, which say what of it are
moments. If an optimizer keeps something else, nobody knows what errors do there: it has no moments,
and no array of the state is a weight. The exception are weights in float32 that it keeps
(``master_param``): it computes with them in place of the model's.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from .vocabulary import ENTRIES, FAMILIES, MODELS, WRAPPERS, Family, Role, Word, meaning

Path: TypeAlias = tuple[str, ...]
Shape: TypeAlias = tuple[int, ...]

_PREFIXED_ENTRY: Final = re.compile(rf"(.+)_({'|'.join(ENTRIES)})")


@dataclass
class Optimizers:
    """What is known of the optimizers in a state; arrays by their names."""

    present: bool = False  # whether there is an optimizer that keeps arrays
    known: bool = True  # whether all that optimizers keep of parameters is of the families
    inside: set[str] = field(default_factory=set)  # all of optimizers, also what mirrors nothing
    moments: dict[str, tuple[Role, str]] = field(default_factory=dict)  # also weights that one keeps
    centers: set[str] = field(default_factory=set)  # moments whose square is taken from another moment
    parameters: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)  # nothing says which of their shape are trained


def name_parts(name: str) -> list[str]:
    """Return the parts of an array's name."""
    return re.split("[/.]|~1", name)


def path_of(name: str) -> Path:
    """Return the parts of an array's name in lower case."""
    return tuple(name_parts(name.lower()))


def as_many(names: Collection[str], count: int, is_weight: Callable[[str], bool]) -> list[str]:
    """Return the names that are parameters, if `count` of them are; none if that cannot be said."""
    weights = [name for name in names if is_weight(name)]
    below = [name for name in weights if path_of(name)[0] in MODELS]
    return next((list(found) for found in (names, weights, below) if len(found) == count), [])


def numbered(
    own: Iterable[Shape | None],
    arrays: Mapping[str, Sequence[int]],
    exact: Iterable[Sequence[int]],
    is_weight: Callable[[str], bool],
) -> list[str]:
    """Return the names of the parameters that an optimizer has by number.

    `own` are their shapes, None where the optimizer does not show it. `arrays` may be parameters,
    and among those that names say to be exact may be some: `exact` has their shapes.
    """
    shapes = list(own)
    wanted = Counter(shape for shape in shapes if shape is not None)
    by_shape: dict[Shape, list[str]] = {}
    for name, shape in arrays.items():
        by_shape.setdefault(tuple(shape), []).append(name)
    spare = Counter(tuple(shape) for shape in exact)
    pools = [(by_shape.get(shape, []), count) for shape, count in wanted.items()]
    if any(len(by_shape.get(shape, ())) + spare[shape] < count for shape, count in wanted.items()):
        return []  # parameters are missing: other arrays of their shape could be taken for them
    left = [name for shape, names in by_shape.items() if shape not in wanted for name in names]
    pools.append((left, shapes.count(None)))
    return [name for names, count in pools for name in as_many(names, count, is_weight)]


def in_order(
    own: Sequence[Shape | None], arrays: Mapping[str, Sequence[int]], is_weight: Callable[[str], bool]
) -> list[str]:
    """Return the names of the parameters that an optimizer has by number, in order.

    `own` has their shapes by number, None for one of which the optimizer keeps nothing, because it
    is not trained: that may be any array. Nothing is returned if there are several ways.
    """
    weights = [name for name in arrays if is_weight(name)]
    for names in ([*arrays], weights, [name for name in weights if path_of(name)[0] in MODELS]):
        shapes = [tuple(arrays[name]) for name in names]
        first, last = _places(own, shapes), _places(own[::-1], shapes[::-1])
        if first is not None and last is not None and first == [len(names) - 1 - at for at in last[::-1]]:
            return [names[at] for at, shape in zip(first, own, strict=True) if shape is not None]
    return []


def _places(own: Sequence[Shape | None], shapes: Sequence[Shape]) -> list[int] | None:
    """Return the first places where shapes stand in this order, with others between them."""
    found, at = list[int](), 0
    for shape in own:
        while at < len(shapes) and shape not in (None, shapes[at]):
            at += 1
        if at == len(shapes):
            return None
        found.append(at)
        at += 1
    return found


def find_numbered(
    groups: Sequence[Sequence[Shape | None]],
    hidden: int,
    arrays: Mapping[str, Sequence[int]],
    exact: Iterable[Sequence[int]],
    is_weight: Callable[[str], bool],
) -> tuple[list[str], set[str]]:
    """Return the parameters that optimizers have by number, and arrays that may be others of them.

    First as `numbered` does: by how many arrays have a shape. What that leaves open follows from
    the order in a group of `groups` that has parameters without state, too, if there is one way
    (`in_order`). Of `hidden` parameters no optimizer shows the shape.
    """
    shown = [shape for group in groups for shape in group if shape is not None]
    found = numbered([*shown, *[None] * hidden], arrays, exact, is_weight)
    left = Counter(shown)
    left.subtract(tuple(arrays[name]) for name in found)
    if any(count > 0 for count in left.values()):
        whole = (group for group in groups if None in group)
        ordered = [name for group in whole for name in in_order(group, arrays, is_weight)]
        new = [name for name in dict.fromkeys(ordered) if name not in found]
        if len(ordered) == len(set(ordered)):  # no two groups have the same one
            found += new
            left.subtract(tuple(arrays[name]) for name in new)
    perhaps = {name for name, shape in arrays.items() if left[tuple(shape)] > 0 and name not in found}
    return found, perhaps


def find_optimizers(
    shapes: Mapping[str, Sequence[int]],
    is_weight: Callable[[str], bool],
    is_exact: Callable[[str], bool],
) -> Optimizers:
    """Return the optimizers in a state, by names and shapes of all its arrays.

    `is_weight` says whether a name is one of a weight, `is_exact` whether it is a name of what is
    always exact.
    """
    masters = {name for name in shapes if _is_master(name)}
    search = _Search({n: s for n, s in shapes.items() if n not in masters}, is_weight, is_exact)
    search.divide()
    if search.found.inside:
        search.mirror()
    search.found.inside |= masters
    return search.found


def _is_master(name: str) -> bool:
    """Return whether an array is a weight in float32 that an optimizer keeps, by its name."""
    words = [meaning(part) for part in name_parts(name)]
    start = _optimizer_start(words)
    return start is not None and any(word.master for word in words[start + 1 :])


class _Search:
    """All arrays of a state, among which optimizers are looked for."""

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        is_weight: Callable[[str], bool],
        is_exact: Callable[[str], bool],
    ) -> None:
        self.found = Optimizers()
        self._is_weight, self._is_exact = is_weight, is_exact
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._paths: dict[str, Path] = {}
        self._starts: dict[str, int] = {}  # of arrays inside an optimizer: where it starts in the path
        self._pairs: dict[str, int] = {}  # of moments that no optimizer is named for: the entry's place
        self._leaves: dict[Path, str] = {}
        self._children: defaultdict[Path, set[str]] = defaultdict(set)
        self._ends: defaultdict[tuple[Path, Shape], list[str]] = defaultdict(list)

    def divide(self) -> None:
        """Find all arrays that may be an optimizer's."""
        for name in self._shapes:
            words = [meaning(part) for part in name_parts(name)]
            path = self._paths[name] = tuple(word.text for word in words)
            if (start := _optimizer_start(words)) is not None:
                self._starts[name] = start
            elif any(word.entry for word in words) or _PREFIXED_ENTRY.fullmatch(path[-1]):
                self._pairs[name] = 0
        if not self._starts and not self._pairs:
            return
        for name, path in self._paths.items():
            self._leaves[path] = name
            for depth, part in enumerate(path):
                self._children[path[:depth]].add(part)
        for name in list(self._pairs):
            path = self._paths[name]
            depths = [d for d in range(len(path)) if self._family_of(path, d, inside=False)]
            if not depths or self._is_exact(name):
                del self._pairs[name]
            else:
                self._pairs[name] = depths[0]
        self.found.inside = {*self._starts, *self._pairs}
        self.found.present = any(math.prod(self._shapes[name]) > 1 for name in self._starts)

    def mirror(self) -> None:
        """Find the parameters that the arrays of optimizers mirror, and the moments."""
        arrays = self._collect()
        pools: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)  # entries, by candidates
        numbers: defaultdict[Path, set[Shape]] = defaultdict(set)  # shapes of entries, by place
        entries: dict[str, Iterable[int]] = {}  # where in a path its entry may be
        shapes = set(arrays.values())
        for name in self.found.inside:
            path, shape = self._paths[name], self._shapes[name]
            if name in self._starts and path[-2].isdecimal() and path[-3:-2] == ("state",):
                if math.prod(shape) > 1:
                    numbers[path[:-1]].add(shape)
                    entries[name] = [len(path) - 1]
                continue
            find = self._mirrored if name in self._starts else self._beside
            depth, candidates = find(path, shape, self._starts.get(name, self._pairs.get(name, 0)))
            if candidates:
                pools[tuple(candidates)][path[depth]] += 1
                tree = name in self._starts and depth < len(path) - 1
                entries[name] = range(self._starts[name], depth + 1) if tree else [depth]
        for name, depths in entries.items():
            roles = (self._family_of(self._paths[name], d, inside=name in self._starts) for d in depths)
            family, entry = next(filter(None, roles), (None, ""))
            self.found.known &= family is not None
            role = family.roles[entry] if family is not None else "other"
            if role != "other" and self._shapes[name] in shapes:
                self.found.moments[name] = (role, entry)
                if family is not None and family.is_center(entry):
                    self.found.centers.add(name)
            self.found.present = True
        if not self.found.known:
            return
        for candidates, found in pools.items():
            self.found.parameters.update(as_many(candidates, min(found.values()), self._is_weight))
        exact = [s for n, s in self._shapes.items() if n not in self.found.inside and n not in arrays]
        groups: defaultdict[Path, dict[int, Shape]] = defaultdict(dict)
        for place, found_shapes in numbers.items():
            if len(found_shapes) == 1:
                groups[place[:-1]][int(place[-1])] = next(iter(found_shapes))
        hidden = len(numbers) - sum(map(len, groups.values()))
        own = [  # more numbers than arrays fit nowhere
            [own.get(number) for number in range(max(own) + 1)] if max(own) < len(arrays) else [*own.values()]
            for own in groups.values()
        ]
        if numbers:
            found_names, perhaps = find_numbered(own, hidden, arrays, exact, self._is_weight)
            self.found.parameters.update(found_names)
            self.found.perhaps = perhaps - self.found.parameters

    def _collect(self) -> dict[str, Shape]:
        """Collect the ends of the paths of all arrays that may be parameters."""
        inside = self.found.inside
        arrays = {n: s for n, s in self._shapes.items() if n not in inside and not self._is_exact(n)}
        for name, shape in arrays.items():
            path = _unwrapped(self._paths[name])
            for start in range(len(path)):
                self._ends[path[start:], shape].append(name)
                if start < len(path) - 1:  # ``dense/kernel`` is ``dense_kernel`` for Keras's optimizers
                    self._ends[("_".join(path[start:]),), shape].append(name)
        return arrays

    def _mirrored(self, path: Path, shape: Shape, start: int) -> tuple[int, Sequence[str]]:
        """Return where an array of an optimizer has its entry, and what may be its parameter."""
        last = len(path) - 1
        tree = [(at - 1, path[at:]) for at in range(start + 2, last + 1)]
        named = [(last, path[at:-1]) for at in range(start + 1, last)]
        prefixed = _PREFIXED_ENTRY.fullmatch(path[-1])
        flat = [(last, (prefixed[1],))] if prefixed else []
        for depth, end in [*tree, *named, *flat]:
            found = self._ends.get((_unwrapped(end), shape), [])
            if len(end) == 1 or all(part.isdecimal() for part in end):  # that alone says little
                found = [name for name in found if self._is_parameter(name, end)]
            if found:
                return depth, found
        return last, ()

    def _beside(self, path: Path, shape: Shape, depth: int) -> tuple[int, Sequence[str]]:
        """Return the same for an array that only its own name calls a moment."""
        place, end = path[:depth], path[depth + 1 :]
        if not meaning(path[depth]).entry and (prefixed := _PREFIXED_ENTRY.fullmatch(path[depth])):
            end = (prefixed[1],)
        if not end:  # ``weight``, ``m`` and ``v`` side by side
            names = (self._leaves.get((*place, part), "") for part in self._children[place])
            beside = (n for n in names if n not in self.found.inside and not self._is_exact(n))
            return depth, sorted(n for n in beside if self._shapes.get(n) == shape and self._is_weight(n))
        for start in range(len(end)):
            found = self._ends.get((_unwrapped(end[start:]), shape), ())
            found = [name for name in found if self._is_parameter(name, end[start:])]
            if found or end[start] not in MODELS:
                return depth, found
        return depth, ()

    def _is_parameter(self, name: str, end: Path) -> bool:
        """Return whether an array is called a weight, or is this path below a model."""
        rest = _unwrapped(self._paths[name])
        rest = rest[: len(rest) - len(_unwrapped(end))]
        return self._is_weight(name) or (bool(rest) and rest[-1] in MODELS)

    def _family_of(self, path: Path, depth: int, *, inside: bool) -> tuple[Family, str] | None:
        """Return family and entry of an array, if all that is kept beside it is a family."""
        place, rest, own = path[:depth], path[depth + 1 :], path[depth]
        prefix = ""
        if not meaning(own).entry:
            if rest or not (prefixed := _PREFIXED_ENTRY.fullmatch(own)):
                return None
            prefix, own = prefixed[1] + "_", prefixed[2]
        shape = self._shapes[self._leaves[path]]
        entries, alike = set(), True
        for part in ENTRIES if prefix or not inside else self._children[place]:
            name = self._leaves.get((*place, prefix + part, *rest))
            if name is None:
                # Here an entry, or anything kept of one parameter, has another structure.
                if inside and prefix + part in self._children[place] and (part in ENTRIES or not rest):
                    return None
            elif part in ENTRIES or math.prod(self._shapes[name]) > 1:
                entries.add(part)
                alike &= self._shapes[name] == shape
        counted = (*place, "count") in self._leaves
        fitting = (f for f in FAMILIES if f.fits(entries, named=inside, counted=counted))
        family = next((f for f in fitting if alike or set(f.roles.values()) == {"other"}), None)
        return None if family is None else (family, own)


def _optimizer_start(words: list[Word]) -> int | None:
    """Return the depth at which an optimizer starts in a path, if one does."""
    for depth, word in enumerate(words[:-1]):
        # A torch optimizer's state alone is {"state": {0: {...}, 1: ...}, "param_groups": ...}.
        if word.optimizer or (word.text.isdecimal() and depth and words[depth - 1].text == "state"):
            return depth
    return None


def _unwrapped(path: Path) -> Path:
    return tuple(part for part in path if part not in WRAPPERS) if not WRAPPERS.isdisjoint(path) else path
