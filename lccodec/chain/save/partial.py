"""A save of some arrays: the others are the parent's, and take no bytes.

The parent has the structure: the state that is given has entries of it, in any order, and none that
the parent lacks. Its scalars are saved, too. What it does not have stays as it is in the parent.

The checkpoint is that of the whole state: its tree is the parent's, and each array that is left out
is the parent's as it decodes (LCC-MAN-10, number 0). By what the user says, such an array did not
change. So nothing is measured of it: its figures are the parent's, with a movement of 0, and the
sample of its original stays.

A keyframe would store the arrays that are left out again, at the bytes of the whole state. So one
that is due waits for a save of all arrays. Meanwhile, the arrays that are saved are stored without
a reference where a keyframe was due, so that no restore replays more deltas of an array. But the
files of a restore are limited, too: after `DEFERRED` times the deltas, a keyframe stores all. In
it, arrays that are left out are exactly what they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ...container.manifest import Manifest
from ...container.tree import TYPES, Flat, Json, Wanted, array_names, children_of, leaf_name
from ...element_types import element_type
from ...errors import ArgumentError, LccodecError
from ...policy.centered import means_of_squares
from ...policy.record import read_record
from ...policy.roles import Assignment, check_matches
from ...policy.vocabulary import ENTRIES, FAMILIES
from .plan import SavedState

if TYPE_CHECKING:  # loaded by the first save
    from .hindsight import DeltaBase
    from .reference import Latest

_LEFT_OUT: Final = "-"  # in the tree of a selection, in place of an array


def check_only(only: object) -> tuple[str, ...] | None:
    """Return the parameter `only` of a save; raise ``ArgumentError`` if it is no list of names."""
    if only is None:
        return None
    if not isinstance(only, str | bytes | Mapping) and isinstance(only, Iterable):
        names = tuple(only)
        if names and all(isinstance(name, str) for name in names):
            return names
    raise ArgumentError(f"only must be a list of names or patterns of arrays; got {only!r:.100}")


def wanted_by(only: Sequence[str]) -> Wanted:
    """Return what says of the name of an array whether one of these names and patterns fits it.

    All that an optimizer keeps of a parameter belongs to one step: a mean of squares of another one
    may be less than the square of the mean. So an array is wanted if one is that lies beside it.

    Examples
    --------
    >>> wanted = wanted_by(["*/exp_avg"])
    >>> wanted("state/0/exp_avg"), wanted("state/0/exp_avg_sq"), wanted("state/0/step")
    (True, True, False)
    """
    exact = frozenset(only)

    def fits(name: str) -> bool:
        return name in exact or any(fnmatchcase(name, each) for each in only)

    return lambda name: fits(name) or any(map(fits, _kept_beside(name)))


#: By each word for what optimizers keep, those for what they keep beside it. One letter may mean
#: anything.
_BESIDE: Final = {
    entry: {other for family in FAMILIES if entry in family.roles for other in family.roles} - {entry}
    for entry in ENTRIES
    if len(entry) > 1
}


def _kept_beside(name: str) -> list[str]:
    """Return the names that others would have that an optimizer keeps of the same parameter."""
    parts = re.split("([/.]|~1)", name)
    return [
        "".join([*parts[:place], other, *parts[place + 1 :]])
        for place, part in enumerate(parts)
        for other in _BESIDE.get(part, ())
    ]


def select(flat: Flat, only: Sequence[str]) -> Flat:
    """Return the arrays of a state that a name or pattern fits, and all scalars.

    Raises ``ArgumentError`` if a name or pattern fits no array of the state.

    Examples
    --------
    >>> import numpy as np
    >>> from lccodec.container.tree import flatten
    >>> found = select(flatten({"base": np.zeros(2), "lora": np.ones(2), "epoch": 3}), ["lora*"])
    >>> found.names, found.tree, found.scalars
    (['lora'], {'base': '-', 'lora': 0, 'epoch': None}, [3])
    """
    paths = array_names(flat.tree)
    check_matches("only", only, paths)
    wanted = wanted_by(only)
    chosen = sorted({i for name, i in paths.items() if wanted(name)})
    places = {index: place for place, index in enumerate(chosen)}
    tree = _replaced(flat.tree, places)
    return Flat(tree, [flat.arrays[i] for i in chosen], flat.scalars, [flat.names[i] for i in chosen])


def _replaced(node: Json, places: Mapping[int, int]) -> Json:
    if node is None:
        return None
    if isinstance(node, int):
        return places.get(node, _LEFT_OUT)
    if isinstance(node, dict):
        return {key: _replaced(child, places) for key, child in node.items()}
    return [node[0], *(_replaced(child, places) for child in node[1:])]


@dataclass
class Overlay:
    """Where the leaves of a selection lie in the state of the parent."""

    # Indices in the selection, by the index in the parent's state.
    arrays: dict[int, int] = field(default_factory=dict)
    scalars: list[Json] = field(default_factory=list)  # all scalars of the state, in its order
    leaves: set[str] = field(default_factory=set)  # the names of all leaves of the selection


def overlay(selection: Flat, tree: Json, scalars: Iterable[Json], step: int) -> Overlay:
    """Return where the leaves of a selection lie in the state of the parent, of a step.

    `tree` and `scalars` are the parent's, as `flatten` returns them. Raises ``ArgumentError`` if
    the selection has an entry that the parent lacks, or another kind of entry.

    Examples
    --------
    >>> import numpy as np
    >>> from lccodec.container.tree import flatten
    >>> found = select(flatten({"epoch": 3, "lora": np.ones(2)}), ["*"])
    >>> overlay(found, {"base": 0, "lora": 1, "epoch": None}, [2], 100).arrays
    {1: 0}
    """
    walk = _Walk(selection.scalars, iter(scalars), step)
    walk.visit(tree, _numbered(selection.tree, count()), ())
    return walk.found


class _Absent:
    """Stands for what the selection does not have."""


_ABSENT: Final = _Absent()


def _numbered(node: Json, numbers: Iterator[int]) -> Any:
    """Return a tree with each scalar as its number, in a tuple."""
    if node is None:
        return (next(numbers),)
    if isinstance(node, dict):
        return {key: _numbered(child, numbers) for key, child in node.items()}
    if isinstance(node, list):
        return [node[0], *(_numbered(child, numbers) for child in node[1:])]
    return node


class _Walk:
    """Visits the parent's tree and that of a selection side by side."""

    def __init__(self, own: Sequence[Json], parents: Iterator[Json], step: int) -> None:
        self.found = Overlay()
        self._own, self._parents, self._step = own, parents, step

    def visit(self, tree: Json, node: Any, keys: tuple[str, ...]) -> None:
        """Visit a node of the parent; `node` is what the selection has there."""
        if tree is None:
            stays = next(self._parents)
            if node is not _ABSENT:
                self._check(isinstance(node, tuple), node, "a scalar", keys)
                stays = self._own[node[0]]
                self.found.leaves.add(leaf_name(keys))
            self.found.scalars.append(stays)
        elif isinstance(tree, int):
            if node is _ABSENT or node == _LEFT_OUT:
                return
            self._check(type(node) is int, node, "an array", keys)
            if self.found.arrays.setdefault(tree, node) != node:
                raise ArgumentError(
                    f"only: entry {leaf_name(keys)!r} is the same array as another one in step {self._step},"
                    " and is not here: save all arrays"
                )
            self.found.leaves.add(leaf_name(keys))
        else:
            self._inside(tree, node, keys)

    def _inside(self, tree: Json, node: Any, keys: tuple[str, ...]) -> None:
        """Visit the children of a container of the parent."""
        own: dict[str, Any] = {}
        if isinstance(tree, dict):
            own = node if isinstance(node, dict) else own
            self._check(node is _ABSENT or isinstance(node, dict), node, "a dict", keys)
        elif node is not _ABSENT:
            same = isinstance(node, list) and node[0] == tree[0] and len(node) == len(tree)
            kind = "list" if tree[0] == "l" else "tuple"
            self._check(same, node, f"a {kind} of {len(tree) - 1}", keys)
            own = dict(children_of(node))
        children = dict(children_of(tree))
        for key in own:
            if key not in children:
                raise ArgumentError(
                    f"only: entry {leaf_name((*keys, key))!r} is not in step {self._step}, which a save of"
                    " some arrays adds to: save all arrays"
                )
        for key, child in children.items():
            self.visit(child, own.get(key, _ABSENT), (*keys, key))

    def _check(self, fits: bool, node: Any, what: str, keys: tuple[str, ...]) -> None:
        if not fits:
            if isinstance(node, list):
                here = f"a {'list' if node[0] == 'l' else 'tuple'} of {len(node) - 1}"
            elif isinstance(node, dict):
                here = "a dict"
            else:
                here = "a scalar" if isinstance(node, tuple) else "an array"
            name = f"entry {leaf_name(keys)!r}" if keys else "the state"
            raise ArgumentError(f"only: {name} is {here}, and {what} in step {self._step}: save all arrays")


#: How often a keyframe may be put off, in keyframes: so many times the deltas of `keyframe_every`.
DEFERRED: Final = 8


def over_parent(state: SavedState, base: DeltaBase, every: int) -> tuple[SavedState, DeltaBase]:
    """Return the state that a save stores, and what it is coded against.

    They are those that are given, unless the state is a selection. Of that, all of the parent's
    state is stored, and a keyframe that is due, after `every` deltas, waits for a save of all
    arrays. Raises as `inherit`.
    """
    latest = base.latest
    if not state.is_selection or latest is None:
        return state, base
    if base.is_keyframe and latest.deltas < DEFERRED * every:
        renewed = latest.deltas % every == 0
        base = replace(base, is_keyframe=False, is_end=False, is_renewed=renewed)
    return inherit(state.flat, state.metadata, state.known, latest), base


def inherit(
    selection: Flat, metadata: dict[str, str], known: Mapping[str, Assignment], latest: Latest
) -> SavedState:
    """Return the state of a selection over that of the parent.

    Raises ``ArgumentError`` if an entry is not in the parent, or an array has another type or shape
    there.
    """
    parent, names = latest.manifest, list(latest.arrays)
    found = overlay(selection, parent.tree, parent.scalars, latest.step)
    arrays = []
    for index, name in enumerate(names):
        before = latest.arrays[name]
        place = found.arrays.get(index)
        if place is None:
            arrays.append(before.array("bits"))
            continue
        array = selection.arrays[place]
        try:
            kind = element_type(array.dtype)
        except ArgumentError as error:
            raise type(error)(f"array {name!r}: {error}") from None
        if (kind, array.shape) != (before.kind, before.shape):
            raise ArgumentError(
                f"only: array {name!r} is {kind.name} of shape {array.shape}, and {before.kind.name} of shape"
                f" {before.shape} in step {latest.step}: save all arrays"
            )
        arrays.append(array)
    inherited = frozenset(name for index, name in enumerate(names) if index not in found.arrays)
    for mean, squares in means_of_squares(names).items():
        if (mean in inherited) != (squares in inherited):
            raise ArgumentError(
                f"only: arrays {mean!r} and {squares!r} belong together, as one is taken from the other, and"
                " the state has one of them: give both, or save all arrays"
            )
    own_names = {selection.names[place]: names[index] for index, place in found.arrays.items()}
    roles = {own_names.get(name, name): assigned for name, assigned in known.items()}
    return SavedState(
        Flat(parent.tree, arrays, found.scalars, names),
        _metadata(metadata, parent.metadata, found),
        {**_known(parent, names), **roles},
        inherited,
    )


def _known(parent: Manifest, names: Sequence[str]) -> dict[str, Assignment]:
    """Return the roles that the parent knows, by name."""
    try:
        return read_record(parent.policy).known_of(names)
    except LccodecError:  # of a newer version
        return {}


def _metadata(own: dict[str, str], parents: Mapping[str, str], found: Overlay) -> dict[str, str]:
    """Return metadata with the note of types of the parent, but for the leaves of the selection."""
    theirs, ours = _types(parents.get(TYPES)), _types(own.get(TYPES))
    types: dict[str, list[str]] = {}
    for note, kept in ((theirs, False), (ours, True)):
        for kind, names in note.items():
            if some := [name for name in names if (name in found.leaves) is kept]:
                types.setdefault(kind, []).extend(some)
    more = {TYPES: json.dumps(types, separators=(",", ":"))} if types else {}
    return {**{key: text for key, text in own.items() if key != TYPES}, **more}


def _types(note: str | None) -> dict[str, list[str]]:
    """Return the names of each type in a note; of one that is malformed, nothing."""
    try:
        found = json.loads(note or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {kind: names for kind, names in found.items() if isinstance(names, list)}
