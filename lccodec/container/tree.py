"""Nested states to a tree, a list of arrays and a list of scalars, and back (SPEC 5).

The tree (LCC-STA-01): a dict is an object in its own order, a list is ``["l", ...]``, a tuple is
``["t", ...]``, an array is its index, a scalar is ``null``. Arrays are numbered in document order,
and an array that the state holds twice has one index (LCC-STA-02). Scalars are in a list of their
own, in document order (LCC-STA-03).

The name of a leaf (LCC-STA-07) is its path: keys and decimal positions joined by ``/``. Inside a
key, ``~`` is written ``~0`` and ``/`` is written ``~1``. The name of a state that is one array is
the empty string.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from ..constants import MAX_ARRAYS, MAX_NAME_CHARACTERS, MAX_NESTING
from ..errors import ArgumentError, DataError, FormatError, LimitError
from .scalars import Json, advice, is_unicode, parse_scalar, scalar_json, scalar_value

Keys: TypeAlias = tuple[str, ...]  # the path from the root to a node
Leaf: TypeAlias = tuple[str, int | None, Json]  # name, index of an array, entry of a scalar

_NUMPY_VALUES: Final = (np.ndarray, np.generic)
_NOT_NUMBERS: Final = (np.flexible, np.datetime64, np.timedelta64)
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
    are not copied.

    Raises
    ------
    ArgumentError
        Names the place of anything that a checkpoint cannot hold: another type, a key that is not a
        string, a lone surrogate, an integer of too many digits, nesting that is too deep or
        endless.

    Examples
    --------
    >>> weight = np.zeros(3)
    >>> flat = flatten({"w": weight, "tied": weight, "sizes": (1, 2.5)})
    >>> flat.tree
    {'w': 0, 'tied': 0, 'sizes': ['t', None, None]}
    >>> flat.names, flat.scalars
    (['w'], [1, {'f': '2.5'}])
    """
    flattener = _Flattener()
    tree = flattener.node(state, ())
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


def array_names(tree: Json) -> dict[str, int]:
    """Return the index of the array at each path, in document order; two places are two names.

    Examples
    --------
    >>> array_names({"a/b": 0, "c": ["l", 1, None, 0]})
    {'a~1b': 0, 'c/0': 1, 'c/2': 0}
    """
    found: dict[str, int] = {}
    _add_names(tree, "", "", found)
    return found


def _add_names(node: Json, name: str, prefix: str, found: dict[str, int]) -> None:
    """Add the arrays of a node. The names of its children begin with `prefix`."""
    if isinstance(node, int):
        found[name] = node
    elif node is not None:
        for key, child in _children(node):
            below = prefix + _escaped(key)
            _add_names(child, below, below + "/", found)


def select(
    tree: Json, scalars: Sequence[Json], names: Iterable[str]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the arrays and scalars that names stand for.

    Parameters
    ----------
    names
        Names of leaves, or of containers, which stand for every leaf below them. The empty string
        is the whole state, unless the state has a key that is the empty string.

    Returns
    -------
    tuple
        The index of each array, and the value of each scalar, by name and in document order.

    Raises
    ------
    ArgumentError
        Lists the names that the state does not have, with the closest names that it has.

    Examples
    --------
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m", "lr"])
    ({'m/w': 0, 'm/b': 1}, {'lr': 0.1})
    """
    leaves, places = _chosen(tree, scalars, names)
    found = [leaves[i] for i in sorted(set(places))]
    return (
        {name: index for name, index, _ in found if index is not None},
        {name: scalar_value(entry) for name, index, entry in found if index is None},
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


def _chosen(
    tree: Json, scalars: Sequence[Json], names: Iterable[str] | None
) -> tuple[list[Leaf], Sequence[int]]:
    """Return all leaves, and the places of those that names stand for, in their order."""
    nodes, spans = _index(tree)
    left = iter(scalars)
    leaves = [(name, index, next(left) if index is None else None) for name, index in nodes]
    if names is None:
        return leaves, range(len(leaves))
    wanted = list(names)
    if unknown := [name for name in wanted if name not in spans]:
        raise ArgumentError(f"the state has no {', '.join(_suggest(name, spans) for name in unknown)}")
    return leaves, [i for name in wanted for i in spans[name]]


def parse_tree(tree: Json, arrays: int, scalars: int, where: str) -> Json:
    """Check an untrusted tree, with a place for each array and each scalar, and return it.

    Raises
    ------
    FormatError
        If a node has another form (LCC-STA-01), an index is out of order or an array has no place
        (LCC-STA-02), the number of scalars differs (LCC-STA-03), or a key has a lone surrogate
        (LCC-STA-06).
    LimitError
        If it is nested too deep (LCC-LIM-05), or its names are too long together (LCC-LIM-08).
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
            for key, child in _children(node):
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
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.scalars: list[Json] = []
        self.names: list[str] = []
        # The array is kept with its index: the id of an object that is gone can be used again.
        self._seen: dict[int, tuple[int, object]] = {}
        self._characters = 0

    def node(self, value: Any, keys: Keys, length: int = 0) -> Json:
        """Collect a node. `length` is the length of its name, as LCC-LIM-08 counts it."""
        self._characters += length
        if self._characters > MAX_NAME_CHARACTERS:
            _refuse((), f"has names of more than {MAX_NAME_CHARACTERS} characters together")
        if isinstance(value, _NUMPY_VALUES):
            return self._array(value, keys)
        if isinstance(value, dict):
            return {key: self._child(child, keys, key, length) for key, child in value.items()}
        # Only exact types: a subclass (namedtuple, torch.Size, IntEnum) would come back as another.
        if type(value) in (list, tuple):
            nodes = (self._child(child, keys, str(i), length) for i, child in enumerate(value))
            return ["l" if type(value) is list else "t", *nodes]
        self.scalars.append(self._scalar(value, keys))
        return None

    def _array(self, value: Any, keys: Keys) -> int:
        array = value
        if type(value) is not np.ndarray:
            if isinstance(value, np.ma.MaskedArray):
                _refuse(keys, "is a masked array: save its data and its mask")
            array = np.asarray(value)
        if array.dtype.hasobject or isinstance(value, _NOT_NUMBERS):
            _refuse(keys, f"has dtype {array.dtype}: only numbers and booleans can be stored")
        # A NumPy scalar cannot change, but comes back as an array: two places must not share it.
        if isinstance(value, np.ndarray) and id(value) in self._seen:
            return self._seen[id(value)][0]
        if len(self.arrays) == MAX_ARRAYS:
            _refuse(keys, f"is one array more than {MAX_ARRAYS}")
        self._seen[id(value)] = (len(self.arrays), value)
        self.arrays.append(array)
        self.names.append(leaf_name(keys))
        return len(self.arrays) - 1

    def _scalar(self, value: Any, keys: Keys) -> Json:
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            _refuse(keys, f"is a {kind}, not {_ACCEPTED_TYPES}{advice(value)}")
        entry = scalar_json(value) if isinstance(value, float | bytes) else value
        try:
            parse_scalar(entry, "")
        except DataError as error:
            _refuse(keys, f"is {error.message}")
        return entry

    def _child(self, value: Any, keys: Keys, key: Any, length: int) -> Json:
        if type(key) is not str or not is_unicode(key):
            _refuse(keys, f"has the key {key!r}, which is not a str without lone surrogates")
        if len(keys) >= MAX_NESTING:
            _refuse(keys[:3], f"nests deeper than {MAX_NESTING} containers, or contains itself")
        return self.node(value, (*keys, key), length + len(key) + 1)


def _refuse(keys: Keys, message: str) -> NoReturn:
    place = f"state entry {leaf_name(keys)!r}" if keys else "the state"
    raise ArgumentError(f"{place} {message}")


def _children(node: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(node, dict):
        return iter(node.items())
    return ((str(i), child) for i, child in enumerate(node[1:]))


def _index(tree: Json) -> tuple[list[tuple[str, int | None]], dict[str, range]]:
    """Return the leaves with their names, in document order, and the leaves below each name."""
    leaves: list[tuple[str, int | None]] = []
    spans: dict[str, range] = {}

    def visit(node: Json, keys: Keys) -> None:
        start = len(leaves)
        if node is None or isinstance(node, int):
            leaves.append((leaf_name(keys), node))
        else:
            for key, child in _children(node):
                visit(child, (*keys, key))
        # Only "" can be there already: it names an empty key below the root, otherwise the root.
        spans.setdefault(leaf_name(keys), range(start, len(leaves)))

    visit(tree, ())
    return leaves, spans


def _suggest(name: str, names: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"{name!r} (is it {close[0]!r}?)" if close else repr(name)
