"""A framework's state as a plain state of NumPy arrays, and a note of what that would lose.

A checkpoint holds dicts with string keys, lists, tuples, scalars and arrays of the element types of
SPEC 5.2. Frameworks have a little more: dicts with integer keys (the parameters of an optimizer),
types such as float8, values such as a `collections.Counter` (:mod:`lccodec.adapters.tree.values`).
These are stored in the nearest plain form under the same names, and a note in the metadata says
what they are: SPEC 5.3 lists its types; :mod:`lccodec.adapters.torch.wrappers` has two more. So the
arrays can be read without any framework, and one framework understands what another one wrote. No
module is imported because a file names it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ...chain.caller import TYPES
from ...chain.read.checkpoint import Arrivals
from ...constants import MAX_NESTING
from ...container.scalars import metadata_strings
from ...container.tree import leaf_name, unescaped
from ...element_types import Array, in_host_order
from ...errors import ArgumentError, FormatError
from .values import OF_INT, from_stored, to_stored

#: One-byte types that NumPy does not have, under the names that all frameworks use.
BYTE_TYPES: Final = frozenset(
    [
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "float4_e2m1fn_x2"),
        *("float6_e2m3fn", "float6_e3m2fn", "int1", "int2", "int4", "uint1", "uint2", "uint4"),
    ]
)

_INT_KEYS: Final = "int"
_MAX_KEY_DIGITS: Final = 20  # of an integer key: a sign and 64 bits; converting longer texts is slow

#: What to do about an array of a type that a framework lacks.
WITHOUT_ADAPTER: Final = "choose others by keys=, or load it without the adapter, as a NumPy array"

Keys: TypeAlias = tuple[str, ...]
Leaf: TypeAlias = Callable[[Any, Keys], tuple[Any, str | None]]
ArrayLeaf: TypeAlias = Callable[[Array, str | None, str], Any]
Constructors: TypeAlias = Mapping[str, Callable[[Any], Any]]


def to_plain(
    state: Any, metadata: Mapping[str, str] | None, inside: Callable[[Any], Any], leaf: Leaf
) -> tuple[Any, dict[str, str]]:
    """Return a framework's state as a plain state, and `metadata` with the note.

    `inside` returns a container of the framework as a dict, list or tuple, and any other value as
    it is. `leaf` returns a leaf, whose path is given too, as an array, a scalar or a tuple of
    these; and its type if the note must name it. An ``ArgumentError`` of theirs gets the place.
    """
    kept = metadata_strings(metadata)
    walk = _ToPlain(inside, leaf)
    plain = walk.node(state, ())
    return plain, with_types(kept, walk.types)


# The walks are classes: a nested function that calls itself would stay in memory, with all its
# data, until the next garbage collection.
class _ToPlain:
    def __init__(self, inside: Callable[[Any], Any], leaf: Leaf) -> None:
        self.types: dict[str, list[str]] = {}
        self._inside, self._leaf = inside, leaf

    def node(self, value: Any, keys: Keys) -> Any:
        kind = None
        try:
            value = self._inside(value)
            if stored := to_stored(value):
                kind, value = stored
            elif not isinstance(value, dict) and type(value) not in (list, tuple):
                value, kind = self._leaf(value, keys)
        except ArgumentError as error:
            raise _refused(keys, error) from None
        if isinstance(value, dict):
            if not keys and "" in value and kind is not None:
                # The root and the entry below its empty key have the same name, and the note has
                # one type for it.
                value = list(value.items())
            elif kind is None and value and all(type(key) is int for key in value):
                kind = _INT_KEYS
        if isinstance(value, dict):
            if len(plain := {str(key): child for key, child in value.items()}) != len(value):
                raise _refused(keys, "has keys that are the same as strings")
            value = {key: self.node(child, below(keys, key)) for key, child in plain.items()}
        elif type(value) in (list, tuple):
            value = type(value)(self.node(child, below(keys, str(i))) for i, child in enumerate(value))
        if kind is not None:
            self.types.setdefault(kind, []).append(leaf_name(keys))
        return value


def _refused(keys: Keys, message: object) -> ArgumentError:
    return ArgumentError(f"state entry {leaf_name(keys)!r} {message}" if keys else f"the state {message}")


def below(keys: Keys, key: str) -> Keys:
    """Return the path of a child: one key longer, unless a checkpoint allows no deeper nesting."""
    if len(keys) >= MAX_NESTING:
        raise _refused(keys[:3], f"nests deeper than {MAX_NESTING} containers, or contains itself")
    return (*keys, key)


def from_plain(
    state: Any,
    metadata: Mapping[str, str],
    name: str,
    leaf: ArrayLeaf,
    constructors: Constructors | None = None,
) -> Any:
    """Return a plain state, with bfloat16 as bits, as one of a framework: inverse of `to_plain`.

    `name` is that of the state in the saved one; empty if it is the whole. `leaf` converts an array
    to the framework's, given its type in the note and its name; it is called once for an array that
    is in several places. `constructors` make the other types from what is stored.
    """
    if type(name) is not str:
        raise ArgumentError(f"the name of an entry must be a string; got {name!r}")
    return _FromPlain(read_types(metadata), leaf, constructors or {}).node(
        state, tuple(map(unescaped, name.split("/"))) if name else ()
    )


def from_outline(
    arrivals: Arrivals, leaf: ArrayLeaf, constructors: Constructors | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the state of a framework that the leaves of a chain form, before any is decoded.

    Its arrays have no values. With keys, it is a dict of the leaves by name. Also what `leaf` has
    made, by the first name of its array. `leaf` and `constructors` are as in `from_plain`.
    """
    made: dict[str, Any] = {}

    def noted(array: Array, kind: str | None, name: str) -> Any:
        return made.setdefault(name, leaf(array, kind, name))

    state, metadata = arrivals.outline(), arrivals.metadata
    if arrivals.whole:
        return from_plain(state, metadata, "", noted, constructors), made
    leaves = {name: from_plain(child, metadata, name, noted, constructors) for name, child in state.items()}
    return leaves, made


class _FromPlain:
    def __init__(self, types: Mapping[str, str], leaf: ArrayLeaf, constructors: Constructors) -> None:
        self._made: dict[tuple[int, str | None], Any] = {}
        self._types, self._leaf, self._constructors = types, leaf, constructors

    def node(self, value: Any, keys: Keys) -> Any:
        kind = self._types.get(leaf_name(keys))
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise _refused(keys, "has keys that are not strings, so it is not from a checkpoint")
            inner = {key: self.node(child, (*keys, key)) for key, child in value.items()}
            # If the root has an empty key, both have the same name, and the note is about the entry
            # below.
            if kind is None or (not keys and "" in inner):
                return inner
            if kind == _INT_KEYS or kind.endswith(OF_INT):
                inner = {_integer(key, leaf_name(keys)): child for key, child in inner.items()}
            return inner if kind == _INT_KEYS else self._value(kind, inner, keys)
        if isinstance(value, list | tuple):
            items = type(value)(self.node(child, (*keys, str(i))) for i, child in enumerate(value))
            return items if kind is None else self._value(kind, items, keys)
        if not isinstance(value, np.ndarray):
            return value if kind is None else self._value(kind, value, keys)
        if (id(value), kind) not in self._made:
            self._made[id(value), kind] = self._leaf(in_host_order(value), kind, leaf_name(keys))
        return self._made[id(value), kind]

    def _value(self, kind: str, stored: Any, keys: Keys) -> Any:
        if kind not in self._constructors:
            return from_stored(kind, stored, leaf_name(keys))
        try:
            return self._constructors[kind](stored)
        except (ValueError, TypeError, AttributeError, KeyError, RuntimeError) as error:
            raise FormatError(TYPES, leaf_name(keys), f"is noted as {kind} but is not one") from error


def _integer(key: str, name: str) -> int:
    try:
        if len(key) <= _MAX_KEY_DIGITS and str(int(key)) == key:
            return int(key)
    except ValueError:
        pass
    raise FormatError(TYPES, name, f"the key {key!r} is noted as an integer")


def read_types(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the type of each name in the note in the metadata of a checkpoint."""
    if not isinstance(metadata, Mapping):
        raise ArgumentError(f"metadata must be a dict of strings; got a {type(metadata).__name__}")
    text = metadata.get(TYPES, "{}")
    return _parse(text if isinstance(text, str) else "")


def names_by_type(types: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of each type, from pairs of a name and its type; the note has this form."""
    names: dict[str, list[str]] = {}
    for name, kind in types:
        names.setdefault(kind, []).append(name)
    return names


def with_types(metadata: Mapping[str, str], types: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return metadata with a note of the names of each type, or without it if there are none."""
    kept = {key: text for key, text in metadata.items() if key != TYPES}
    return {**kept, TYPES: json.dumps(types, separators=(",", ":"))} if types else kept


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> Mapping[str, str]:
    """Return the type of each name in a note, which comes from a file and is not trusted."""
    try:
        note = json.loads(text)
        names = {name: kind for kind, group in note.items() for name in group}
        if all(type(group) is list for group in note.values()) and all(type(name) is str for name in names):
            return names
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise FormatError(TYPES, "metadata", "not a JSON object of lists of names")
