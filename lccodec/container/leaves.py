"""The leaves of a state that names stand for, found in its tree (SPEC 5.3, LCC-STA-07)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from ..errors import ArgumentError
from .scalars import Json, scalar_value
from .tree import Keys, children_of, leaf_name

Leaf: TypeAlias = tuple[str, int | None, Json]  # name, index of an array, entry of a scalar


def select(
    tree: Json, scalars: Sequence[Json], names: Iterable[str]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the arrays and scalars that names stand for.

    Parameters
    ----------
    names
        Names of leaves, or of containers, which stand for every leaf below them; or patterns of
        names of leaves (:mod:`fnmatch`). The empty string is the whole state, unless the state has
        a key that is the empty string.

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
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m/*"])
    ({'m/w': 0, 'm/b': 1}, {})
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
    return leaves, [i for found in places.values() for i in found]


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
