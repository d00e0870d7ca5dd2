"""Nested states to a tree, a list of arrays and a list of scalars, and back (SPEC 5).

The tree (LCC-STA-01): a dict is an object in its own order, a list is ``["l", ...]``, a tuple is
``["t", ...]``, an array is its index, a scalar is ``null``. Arrays are numbered in document order,
and an array that the state holds twice has one index (LCC-STA-02). Scalars are in a list of their
own, in document order (LCC-STA-03).

The name of a leaf (LCC-STA-07) is its path: keys and decimal positions joined by ``/``. Inside a
key, ``~`` is written ``~0`` and ``/`` is written ``~1``. The name of a state that is one array is
the empty string. Names of containers, and patterns, stand for leaves too.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from ..constants import MAX_ARRAYS, MAX_NAME_CHARACTERS, MAX_NESTING
from ..errors import ArgumentError, DataError, FormatError, LimitError
from .scalars import Json, advice, is_unicode, parse_scalar, scalar_json, scalar_value

if TYPE_CHECKING:
    import numpy as np


Keys: TypeAlias = tuple[str, ...]  # the path from the root to a node

_MANY: Final = 64  # children that are worth a look whether all of them are arrays
_ACCEPTED_TYPES: Final = "a dict, list, tuple, NumPy array, int, float, bool, str, bytes or None"


@dataclass(frozen=True)
class Flat:
    """A state taken apart, as `flatten` returns it.

    `tree` is the structure, and `scalars` are the scalars in document order; both are JSON
    (LCC-STA-01, LCC-STA-04). `arrays` are the arrays in document order, one for each distinct
    object. `names` are their names, each the path of the first appearance.
    """

    tree: Json
    arrays: list[np.ndarray[Any, Any]]
    scalars: list[Json]
    names: list[str]


def flatten(state: Any) -> Flat:
    """Take a state apart.

    A dict subclass becomes a dict, and a NumPy scalar becomes an array without dimensions. Arrays
    are not copied. An ``ArgumentError`` names the place of what a checkpoint cannot hold: another
    type, a key that is not a string, a lone surrogate, an integer of too many digits,
    nesting that is too deep or endless.

    Examples
    --------
    >>> import numpy as np
    >>> weight = np.zeros(3)
    >>> flat = flatten({"w": weight, "tied": weight, "sizes": (1, 2.5)})
    >>> flat.tree
    {'w': 0, 'tied': 0, 'sizes': ['t', None, None]}
    >>> flat.names, flat.scalars
    (['w'], [1, {'f': '2.5'}])
    """
    flattener = _Flattener()
    tree = flattener.node(state)
    return Flat(tree, flattener.arrays, flattener.scalars, flattener.names)


def unflatten(tree: Json, arrays: Sequence[Any], scalars: Iterable[Json]) -> Any:
    """Put a state together; the inverse of `flatten`.

    `arrays` has the array of each index. An index that the tree holds twice becomes one object in
    two places.

    Examples
    --------
    >>> unflatten({"w": 0, "sizes": ["t", None, None]}, ["an array"], [1, {"f": "2.5"}])
    {'w': 'an array', 'sizes': (1, 2.5)}
    """
    return _build(tree, arrays, iter(scalars))


# Not a closure in `unflatten`: a recursive one would keep the arrays until garbage is collected.
def _build(node: Json, arrays: Sequence[Any], scalars: Iterator[Json]) -> Any:
    if node is None:
        return scalar_value(next(scalars))
    if isinstance(node, int):
        return arrays[node]
    if isinstance(node, dict):
        return {key: _build(child, arrays, scalars) for key, child in node.items()}
    items = [_build(child, arrays, scalars) for child in node[1:]]
    return tuple(items) if node[0] == "t" else items


def leaf_name(keys: Keys) -> str:
    """Return the name of the node that is reached from the root by these keys (LCC-STA-07).

    Examples
    --------
    >>> leaf_name(("model", "a/b", "0"))
    'model/a~1b/0'
    """
    return "/".join(map(_escaped, keys))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def unescaped(name: str) -> str:
    """Return a name with the ``/`` and ``~`` of its keys, which `leaf_name` escapes.

    Examples
    --------
    >>> unescaped("model~1layer~00/weight")
    'model/layer~0/weight'
    """
    return name.replace("~1", "/").replace("~0", "~")


def array_names(tree: Json) -> dict[str, int]:
    """Return the index of the array at each path, in document order; two places are two names.

    Examples
    --------
    >>> array_names({"a/b": 0, "c": ["l", 1, None, 0]})
    {'a~1b': 0, 'c/0': 1, 'c/2': 0}
    """
    names: dict[str, int] = {}
    _add_names(tree, "", "", names)
    return names


def _add_names(node: Json, name: str, prefix: str, names: dict[str, int]) -> None:
    """Add the arrays of a node. The names of its children begin with `prefix`."""
    if isinstance(node, int):
        names[name] = node
    elif node is not None:
        for key, child in children_of(node):
            below = prefix + _escaped(key)
            _add_names(child, below, below + "/", names)


def parse_tree(tree: Json, arrays: int, scalars: int, where: str) -> Json:
    """Check an untrusted tree, with a place for each array and each scalar, and return it.

    Raises ``FormatError`` (LCC-STA-01 to LCC-STA-03, LCC-STA-06) or ``LimitError`` (LCC-LIM-05,
    LCC-LIM-08).
    """
    first_uses = nulls = characters = 0

    def visit(node: Json, keys: Keys, length: int) -> None:
        nonlocal first_uses, nulls, characters
        characters += length
        if characters > MAX_NAME_CHARACTERS:
            raise LimitError("LCC-LIM-08", where, f"names of more than {MAX_NAME_CHARACTERS} characters")
        if node is None:
            nulls += 1
        elif type(node) is int:
            if not 0 <= node <= first_uses or node >= arrays:
                raise FormatError(
                    "LCC-STA-02", place(keys), f"out of order: {first_uses} of {arrays} arrays come before"
                )
            first_uses += node == first_uses
        elif type(node) is dict or (type(node) is list and node and node[0] in ("l", "t")):
            if len(keys) >= MAX_NESTING:
                raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING}")
            for key, child in children_of(node):
                if not is_unicode(key):
                    raise FormatError("LCC-STA-06", place(keys), "a key with a lone surrogate")
                visit(child, (*keys, key), length + len(key) + 1)
        else:
            raise FormatError("LCC-STA-01", place(keys), f"not a node of a tree: {reprlib.repr(node)}")

    def place(keys: Keys) -> str:
        return f"{where}[{leaf_name(keys)!r}]"

    visit(tree, (), 0)
    if first_uses != arrays:
        raise FormatError("LCC-STA-02", where, f"has a place for {first_uses} of {arrays} arrays")
    if nulls != scalars:
        raise FormatError("LCC-STA-03", where, f"has a place for {nulls} scalars, and there are {scalars}")
    return tree


class _Flattener:
    """What `flatten` collects from a state."""

    def __init__(self) -> None:
        import numpy as np  # here, as readers do without it

        from ..element_types import held_beside

        self._as_array, self._array_type, self._masked = np.asarray, np.ndarray, np.ma.MaskedArray
        self._held_beside = held_beside
        self._values = (np.ndarray, np.generic)
        self._not_numbers = (np.flexible, np.datetime64, np.timedelta64)
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.scalars: list[Json] = []
        self.names: list[str] = []
        self._seen: dict[int, int] = {}  # the index of each array, by its id
        self._kept: list[object] = []  # of others than `arrays`: an id is used again if they are gone
        self._characters = 0

    def node(self, value: Any, name: str = "", depth: int = 0, length: int = 0) -> Json:
        """Collect a node; its name has `depth` keys, and a `length` as LCC-LIM-08 counts it."""
        self._characters += length
        if self._characters > MAX_NAME_CHARACTERS:
            _refuse("", 0, f"has names of more than {MAX_NAME_CHARACTERS} characters together")
        if isinstance(value, self._values):
            return self._array(value, name, depth)
        if isinstance(value, dict):
            many = self._arrays_of(value, name, depth, length) if len(value) >= _MANY else None
            return self._children(value.items(), name, depth, length) if many is None else many
        # Only exact types: a subclass (namedtuple, torch.Size, IntEnum) would come back as another.
        if type(value) in (list, tuple):
            items = ((str(i), child) for i, child in enumerate(value))
            children = self._children(items, name, depth, length)
            return ["l" if type(value) is list else "t", *children.values()]
        self.scalars.append(self._scalar(value, name, depth))
        return None

    def _children(
        self, items: Iterable[tuple[Any, Any]], name: str, depth: int, length: int
    ) -> dict[str, Json]:
        """Collect the children of a node."""
        prefix, children = f"{name}/" if depth else "", {}
        for key, child in items:
            if type(key) is not str or not is_unicode(key):
                message = f"has the key {key!r}, which is not a str without lone surrogates"
                _refuse(name, depth, message)
            if depth >= MAX_NESTING:
                message = f"nests deeper than {MAX_NESTING} containers, or contains itself"
                _refuse("/".join(name.split("/")[:3]), depth, message)
            children[key] = self.node(child, prefix + _escaped(key), depth + 1, length + len(key) + 1)
        return children

    def _arrays_of(self, value: dict[Any, Any], name: str, depth: int, length: int) -> Json:
        """Collect a dict of many plain arrays, all at once; ``None`` if something in it is special.

        Python takes a microsecond for each array otherwise, and a training loop waits for it.
        """
        if set(map(type, value)) != {str} or set(map(type, value.values())) != {self._array_type}:
            return None
        start, text = len(self.arrays), "".join(value)
        characters = self._characters + len(text) + (length + 1) * len(value)
        indices = dict(zip(map(id, value.values()), range(start, start + len(value)), strict=True))
        if (
            not is_unicode(text)
            or depth >= MAX_NESTING
            or characters > MAX_NAME_CHARACTERS
            or start + len(value) > MAX_ARRAYS
            or len(indices) < len(value)  # an array that is there twice
            or not self._seen.keys().isdisjoint(indices)
            or any(dtype.hasobject for dtype in {array.dtype for array in value.values()})
        ):
            return None
        self._characters = characters
        self._seen.update(indices)
        self.arrays += value.values()
        keys = map(_escaped, value) if "~" in text or "/" in text else value
        self.names += [f"{name}/{key}" for key in keys] if depth else keys
        return dict(zip(value, range(start, start + len(value)), strict=True))

    def _array(self, value: Any, name: str, depth: int) -> int:
        array, index = value, len(self.arrays)
        if type(value) is not self._array_type:
            if isinstance(value, self._masked):
                _refuse(name, depth, "is a masked array: save its data and its mask")
            if held := self._held_beside(value):
                _refuse(name, depth, f"is {held}")
            array = self._as_array(value)
        if array.dtype.hasobject or isinstance(value, self._not_numbers):
            _refuse(name, depth, f"has dtype {array.dtype}: only numbers and booleans can be stored")
        # A NumPy scalar cannot change, but comes back as an array: two places must not share it.
        if isinstance(value, self._array_type):
            known = self._seen.setdefault(id(value), index)
            if known != index:
                return known
        if index == MAX_ARRAYS:
            _refuse(name, depth, f"is one array more than {MAX_ARRAYS}")
        self.arrays.append(array)
        if array is not value:
            self._kept.append(value)
        self.names.append(name)
        return index

    def _scalar(self, value: Any, name: str, depth: int) -> Json:
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            _refuse(name, depth, f"is a {kind}, not {_ACCEPTED_TYPES}{advice(value)}")
        entry = scalar_json(value) if isinstance(value, float | bytes) else value
        try:
            parse_scalar(entry, "")
        except DataError as error:
            _refuse(name, depth, f"is {error.message}")
        return entry


def _refuse(name: str, depth: int, message: str) -> NoReturn:
    place = f"state entry {name!r}" if depth else "the state"
    raise ArgumentError(f"{place} {message}")


def children_of(node: Json) -> Iterator[tuple[str, Json]]:
    """Yield the keys and the children of a container."""
    if isinstance(node, dict):
        return iter(node.items())
    return ((str(i), child) for i, child in enumerate(node[1:]))


Leaf: TypeAlias = tuple[str, int | None, Json]  # name, index of an array, entry of a scalar


def select(
    tree: Json, scalars: Sequence[Json], names: Iterable[str]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the arrays and scalars that names stand for.

    `names`: names of leaves, or of containers, which stand for every leaf below them; or patterns
    of names of leaves (:mod:`fnmatch`). The empty string is the whole state, unless the state has a
    key that is the empty string. Returns the index of each array, and the value of each scalar, by
    name and in document order. An ``ArgumentError`` lists the names that the state does not have,
    with the closest names that it has.

    Examples
    --------
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m", "lr"])
    ({'m/w': 0, 'm/b': 1}, {'lr': 0.1})
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m/*"])
    ({'m/w': 0, 'm/b': 1}, {})
    """
    leaves, places = _chosen(tree, scalars, names)
    chosen = [leaves[i] for i in sorted(set(places))]
    return (
        {name: index for name, index, _ in chosen if index is not None},
        {name: scalar_value(entry) for name, index, entry in chosen if index is None},
    )


def leaves_of(tree: Json, scalars: Sequence[Json], names: Iterable[str] | None = None) -> list[Leaf]:
    """Return leaves: the name of each, and the index of an array or the entry of a scalar.

    They are in the order of the state; with `names`, those that these stand for, in their order and
    each once. Errors are those of `select`.

    Examples
    --------
    >>> leaves_of({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["lr", "m"])
    [('lr', None, {'f': '0.1'}), ('m/w', 0, None), ('m/b', 1, None)]
    """
    leaves, places = _chosen(tree, scalars, names)
    return [leaves[i] for i in dict.fromkeys(places)]


def scalar_at(tree: Json, scalars: Sequence[Json], keys: Keys) -> Any:
    """Return the scalar at a path of dicts; None if there is none."""
    node = tree
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    if node is not None:
        return None
    ((_, _, entry),) = leaves_of(tree, scalars, [leaf_name(keys)])
    return scalar_value(entry)


def _chosen(
    tree: Json, scalars: Sequence[Json], names: Iterable[str] | None
) -> tuple[list[Leaf], Sequence[int]]:
    """Return all leaves, and the places of those that names stand for, in their order."""
    nodes, spans = _index(tree)
    left = iter(scalars)
    leaves = [(name, index, next(left) if index is None else None) for name, index in nodes]
    if names is None:
        return leaves, range(len(leaves))
    places = {name: spans[name] if name in spans else _fitting(leaves, name) for name in names}
    if unknown := [name for name in places if name not in spans and not places[name]]:
        raise ArgumentError(f"the state has no {', '.join(_suggest(name, spans) for name in unknown)}")
    return leaves, [i for indices in places.values() for i in indices]


def _fitting(leaves: Sequence[Leaf], pattern: str) -> list[int]:
    return [i for i, (name, _, _) in enumerate(leaves) if fnmatchcase(name, pattern)]


def _index(tree: Json) -> tuple[list[tuple[str, int | None]], dict[str, range]]:
    """Return the leaves with their names, in document order, and the leaves below each name."""
    leaves: list[tuple[str, int | None]] = []
    spans: dict[str, range] = {}

    def visit(node: Json, keys: Keys) -> None:
        start = len(leaves)
        if node is None or isinstance(node, int):
            leaves.append((leaf_name(keys), node))
        else:
            for key, child in children_of(node):
                visit(child, (*keys, key))
        # Only "" can be there already: it names an empty key below the root, otherwise the root.
        spans.setdefault(leaf_name(keys), range(start, len(leaves)))

    visit(tree, ())
    return leaves, spans


def _suggest(name: str, names: Mapping[str, object]) -> str:
    import difflib  # here, as few names are wrong

    close = difflib.get_close_matches(name, names, n=1)
    return f"{name!r} (is it {close[0]!r}?)" if close else repr(name)
