"""Shards of arrays and leaves of trees as other processes stored them: how they go together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...constants import MAX_NESTING
from ...errors import FormatError


def make_up(shape: Sequence[int], shards: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Return whether shards (offsets, sizes) make up an array of this shape.

    Shards of other offsets, inside the array, that add up to it: so no memory is allocated without
    stored bytes for it.
    """
    starts, volume = [], 0
    for offsets, sizes in shards:
        if not len(offsets) == len(sizes) == len(shape):
            return False
        bounds = zip(offsets, sizes, shape, strict=True)
        if not all(start >= 0 and size >= 0 and start + size <= end for start, size, end in bounds):
            return False
        starts.append(tuple(offsets))
        volume += math.prod(sizes)
    return len(set(starts)) == len(starts) and volume == math.prod(shape)


class _Node(dict[Any, Any]):
    """A container that is being made; no leaf is one."""


def nested(leaves: Iterable[tuple[Sequence[str | int], Any]], rule: str, where: str) -> dict[Any, Any]:
    """Return leaves by their paths, in a dict of dicts and lists.

    Raises
    ------
    FormatError
        If a path is not one of strings and integers, or leads to another leaf or below it.
    """
    root = _Node()
    for path, leaf in leaves:
        if not 0 < len(path) <= MAX_NESTING or {*map(type, path)} - {str, int}:
            raise FormatError(rule, where, f"the path {path!r:.100} is not one")
        node, words = root, repr("/".join(map(str, path)))
        for key in path[:-1]:
            node = node.setdefault(key, _Node())
            if not isinstance(node, _Node):
                raise FormatError(rule, where, f"{words} lies below another value")
        if path[-1] in node:
            raise FormatError(rule, where, f"two values lie at {words}")
        node[path[-1]] = leaf
    return {key: _made(value) for key, value in root.items()}


def _made(value: Any) -> Any:
    return listed({key: _made(child) for key, child in value.items()}) if isinstance(value, _Node) else value


def listed(made: dict[Any, Any]) -> Any:
    """Return a dict as a list if its keys are the indices of one, and it is not empty."""
    return [made[i] for i in range(len(made))] if made and made.keys() == set(range(len(made))) else made
