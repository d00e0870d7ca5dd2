"""Pytrees, one level at a time: the children of a node, as `jax.tree_util` knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax.tree_util import DictKey, GetAttrKey, tree_flatten_with_path

from ...container.tree import leaf_name
from ...errors import ArgumentError
from ..tree.plain import below


def _flatten(node: Any) -> tuple[list[tuple[Any, Any]] | None, Any]:
    """Return the keyed children of a node (None for a leaf), and its structure."""
    found, structure = tree_flatten_with_path(node, is_leaf=lambda child: child is not node)
    if node is None or any(not path for path, _ in found):
        return None, structure
    return [(path[0], child) for path, child in found], structure


def described(leaf: Any) -> str:
    """Return the type and shape of an array in words, without its byte order."""
    dtype = leaf.dtype.newbyteorder("=") if isinstance(leaf.dtype, np.dtype) else leaf.dtype
    return f"{dtype} {tuple(leaf.shape)}"


def _is_wrapper(children: list[tuple[Any, Any]]) -> bool:
    """Whether a node only wraps a value, as an NNX Variable: its value has the name of the node."""
    return len(children) == 1 and children[0][0] == GetAttrKey("value")


def _key(key: Any) -> Any:
    return key.key if isinstance(key, DictKey) else getattr(key, "name", getattr(key, "idx", None))


def inside(value: Any) -> Any:
    """Return a node as a dict, list or tuple of its children, a wrapper as its value."""
    if isinstance(value, dict) or type(value) in (list, tuple):
        return value
    children, _ = _flatten(value)
    if children is None:
        return value
    if _is_wrapper(children):
        return inside(children[0][1])
    if not all(isinstance(key, DictKey | GetAttrKey) for key, _ in children):
        return tuple(child for _, child in children)
    inner = {_key(key): child for key, child in children}
    if len(inner) != len(children):
        raise ArgumentError(f"is a {type(value).__qualname__} with several children of one name")
    return inner


def children_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the children of a dict, list or tuple with their keys in a checkpoint."""
    if isinstance(value, dict):
        return ((str(key), child) for key, child in value.items())
    return ((str(i), child) for i, child in enumerate(value))


def leaves(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their names in a checkpoint; None is a leaf."""
    tree = inside(tree)
    if not isinstance(tree, dict | list | tuple):
        yield leaf_name(keys), tree
        return
    for key, child in children_of(tree):
        yield from leaves(child, below(keys, key))


def rebuild(tree: Any, leaf: Callable[[str, Any], Any], keys: tuple[str, ...] = ()) -> Any:
    """Return a tree of the same structure; `leaf` makes each leaf of its name and the old one."""
    children, structure = _flatten(tree)
    if children is None:
        return leaf(leaf_name(keys), tree)
    if _is_wrapper(children):
        return structure.unflatten([rebuild(children[0][1], leaf, keys)])
    # Children without names are named by position, as in `inside`.
    named = all(isinstance(key, DictKey | GetAttrKey) for key, _ in children)
    return structure.unflatten(
        rebuild(child, leaf, (*keys, str(_key(key) if named else position)))
        for position, (key, child) in enumerate(children)
    )
