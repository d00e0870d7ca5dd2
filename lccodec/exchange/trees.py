"""Nested containers as leaves by name, and back; also with integer keys and named tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..constants import MAX_NESTING
from ..errors import ArgumentError


def children(node: Any) -> list[tuple[str, Any]] | None:
    """Return the children of a container by key, field or position; None for a leaf."""
    if isinstance(node, Mapping):
        return [(str(key), child) for key, child in node.items()]
    if isinstance(node, list | tuple):
        names = getattr(node, "_fields", map(str, range(len(node))))
        return list(zip(names, node, strict=True))
    return None


def leaves(tree: Any, separator: str) -> dict[str, Any]:
    """Return the leaves of nested containers by name; None is not a leaf.

    Examples
    --------
    >>> leaves({"a": {0: 1, "b/c": 2}, "d": None}, "/")
    {'a/0': 1, 'a/b/c': 2}
    """
    flat: dict[str, Any] = {}
    for keys, leaf in _walk(tree, ()):
        if (name := separator.join(keys)) in flat:
            raise ArgumentError(f"two entries of the state have the name {name!r}")
        flat[name] = leaf
    return flat


def _walk(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = children(node)
    if inner is None:
        if node is not None:
            yield keys, node
        return
    if len(keys) >= MAX_NESTING:
        raise ArgumentError(f"the state nests deeper than {MAX_NESTING} containers, or contains itself")
    for key, child in inner:
        yield from _walk(child, (*keys, key))


def nested(flat: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Return leaves by name as nested dicts.

    Examples
    --------
    >>> nested({"a/b": 1, "a/c": 2}, "/")
    {'a': {'b': 1, 'c': 2}}
    """
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *path, last = name.split(separator)
        node: Any = tree
        for key in path:
            node = node.setdefault(key, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last in node:
            raise ArgumentError(f"{name!r} is the name of an array, and also the path of others")
        node[last] = leaf
    return tree


def replaced(tree: Any, separator: str, values: Mapping[str, Any]) -> Any:
    """Return containers with the structure of a tree and other leaves: the inverse of `leaves`.

    Examples
    --------
    >>> replaced({"a": [1, None]}, ".", {"a.0": 5})
    {'a': [5, None]}
    """

    def build(node: Any, keys: tuple[str, ...]) -> Any:
        inner = children(node)
        if inner is None:
            return None if node is None else values[separator.join(keys)]
        return rebuilt(node, [build(child, (*keys, key)) for key, child in inner])

    return build(tree, ())


def rebuilt(node: Any, inner: list[Any]) -> Any:
    """Return a container of the same kind with other children; for a mapping, a dict."""
    if isinstance(node, Mapping):
        return dict(zip(node, inner, strict=True))
    if hasattr(node, "_fields"):
        return type(node)(*inner)
    return tuple(inner) if isinstance(node, tuple) else inner
