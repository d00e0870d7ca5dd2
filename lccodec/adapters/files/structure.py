"""A state as arrays by name, which is all that other formats hold, and a note of its structure.

The name of an array is its path in the state: keys and positions joined by ``/``. A ``/`` inside a
key stays ``/``; a checkpoint writes it as ``~1`` (LCC-STA-07). So a flat dict keeps its names
through a chain and back.

A .safetensors or HDF5 file has metadata, too. The note is a JSON object in it, under the key
`STATE`. ``tree`` is the tree of a checkpoint (LCC-STA-01). ``scalars`` holds by name the
scalars that no tensor can hold (None, str, bytes, an integer of more than 64 bits), written as in a
manifest (LCC-STA-04). ``types`` is the note of :mod:`lccodec.adapters.tree`. An int, float or
bool is a tensor without dimensions, so that other programs can read it. A flat dict of arrays needs
no note.

Other programs copy metadata to files with other tensors. A note that does not fit its file is
ignored; the state is then flat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import numpy as np

from ...container.tree import (
    Json,
    flatten,
    leaf_name,
    leaves_of,
    parse_scalar,
    parse_tree,
    scalar_json,
    scalar_value,
    unescaped,
    unflatten,
)
from ...element_types import Array, element_type
from ...errors import ArgumentError, DataError, FormatError
from ..tree import names_by_type, read_types, with_types

Value = TypeVar("Value")

#: The key of the note in the metadata. Errors in the note name it as their rule.
STATE: Final = "lccodec.state"

#: The type of a scalar, by the dtype of its tensor.
_SCALAR_KINDS: Final = {"int64": int, "uint64": int, "float64": float, "bool": bool}


def plain_names(leaves: Mapping[str, Value]) -> dict[str, Value]:
    """Return leaves of a checkpoint under the names that they have in other formats.

    If two would have the same name, as in ``{"a": {"b": x}, "a/b": y}``, that is an ArgumentError.

    >>> plain_names({"model/w~1b": 1})
    {'model/w/b': 1}
    """
    return _plain(leaves.items())


def _plain(leaves: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    plain: dict[str, Value] = {}
    for name, value in leaves:
        key = unescaped(name)
        if key in plain:
            raise ArgumentError(f"two entries of the state would both be named {key!r}")
        plain[key] = value
    return plain


def named_leaves(state: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the leaves of a state by name: arrays, and scalars that no array can hold.

    Numbers become arrays without dimensions. The others are None, str, bytes and integers of more
    than 64 bits. An ``ArgumentError`` names what collides or cannot be held.
    """
    flat = flatten(state)
    # The state gets a key of its own, so that an empty key inside it is not a special case.
    leaves = sorted(leaves_of({"": flat.tree}, flat.scalars), key=lambda leaf: leaf[1] is None)
    arrays, others = {}, {}
    for name, value in _plain(
        (name[1:], scalar_value(entry) if index is None else flat.arrays[index])
        for name, index, entry in leaves
    ).items():
        array = np.asarray(value) if isinstance(value, int | float) else value
        if not isinstance(array, np.ndarray) or (array is not value and array.dtype.hasobject):
            others[name] = value
            continue
        try:
            element_type(array.dtype)
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None
        arrays[name] = array
    return arrays, others


def with_structure(
    state: Any, scalars: Mapping[str, Any], metadata: Mapping[str, str], *, always: bool = False
) -> dict[str, str]:
    """Return metadata with the note of a state, or without it if the names say everything.

    `scalars` are those that are not tensors, by name. With `always` there is a note in any case.
    """
    kept = {key: text for key, text in metadata.items() if key != STATE}
    tree = flatten(state).tree
    if not always and isinstance(tree, dict) and all(type(node) is int for node in tree.values()):
        return kept
    entries = {n: scalar_json(v) if isinstance(v, float | bytes) else v for n, v in scalars.items()}
    note = {"tree": tree, "scalars": entries, "types": names_by_type(read_types(metadata).items())}
    return {**kept, STATE: json.dumps(note, ensure_ascii=False, separators=(",", ":"))}


def rebuild(
    tensors: Mapping[str, Array], metadata: Mapping[str, str], others: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, str]]:
    """Return the state of a file, and its metadata without the note.

    `others` are scalars by name that the note has not. A malformed note is a ``DataError``.
    """
    kept = {key: text for key, text in metadata.items() if key != STATE}
    if STATE not in metadata:
        return dict(tensors), kept
    try:
        note = json.loads(metadata[STATE])
        tree, types = note["tree"], dict(note["types"])
        scalars = {n: scalar_json(v) if isinstance(v, bytes) else v for n, v in (others or {}).items()}
        scalars.update(note["scalars"])
        for name, entry in scalars.items():
            parse_scalar(entry, name)
        arrays, nulls = _counts(tree)
        parse_tree(tree, arrays, nulls, "tree")
        with_note = with_types(kept, types)
        read_types(with_note)
    except DataError as error:
        raise type(error)(STATE, "metadata", str(error)) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(STATE, "metadata", "not the note of a state") from error
    state = _joined(tree, arrays, nulls, tensors, scalars)
    if state is not None:
        return state[0], with_note
    values = {name: scalar_value(entry) for name, entry in scalars.items()}
    return {**values, **tensors}, kept


def _counts(tree: Json) -> tuple[int, int]:
    """Return the numbers of arrays and scalars in an untrusted tree."""
    indices, nulls, nodes = set(), 0, [tree]
    while nodes:
        node = nodes.pop()
        if node is None:
            nulls += 1
        elif isinstance(node, dict):
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node[1:]
        else:
            indices.add(node)
    return len(indices), nulls


def _joined(
    tree: Json, arrays: int, nulls: int, tensors: Mapping[str, Array], scalars: Mapping[str, Json]
) -> tuple[Any] | None:
    """Return the state in a 1-tuple, as it may be None; None if the tensors do not fit the tree."""
    leaves = leaves_of({"": tree}, [None] * nulls)
    try:
        names = _plain((name[1:], index) for name, index, _ in leaves)
    except ArgumentError:
        return None
    if names.keys() != tensors.keys() | scalars.keys() or tensors.keys() & scalars.keys():
        return None
    places: list[Any] = [None] * arrays
    entries = []
    for name, index in names.items():
        if index is None:
            entry = scalars[name] if name in scalars else _number(tensors[name])
            if entry is _NO_NUMBER:
                return None
            entries.append(entry)
        elif name not in tensors:
            return None
        elif places[index] is None:  # an array in two places is one array again
            places[index] = tensors[name]
    return (unflatten(tree, places, entries),)


_NO_NUMBER: Final = object()


def _number(tensor: Array) -> Json:
    kind = _SCALAR_KINDS.get(tensor.dtype.name)
    if kind is None or tensor.shape != ():
        return _NO_NUMBER
    value = kind(tensor[()])
    return scalar_json(value) if kind is float else value


def choose(
    leaves: Mapping[str, Any], metadata: Mapping[str, str], keys: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return leaves by name as a flat state with shorter names, and its metadata.

    `keys` are prefixes to remove, with the ``/`` or ``.`` that follows; of a pattern, what is
    before the first wildcard. Of a leaf that is a key, the last part is kept.
    """
    starts = (re.split(r"[*?[]", key, maxsplit=1)[0].rstrip("./") for key in keys)
    prefixes = sorted(filter(None, starts), key=len, reverse=True)
    short: list[tuple[str, str]] = []  # names without prefixes, and with
    for name in leaves:
        fitting = (p for p in prefixes if name.startswith((f"{p}/", f"{p}.")))
        cut = next((len(p) + 1 for p in fitting), name.rfind("/") + 1 if name in prefixes else 0)
        short.append((name[cut:], name))
    names = _plain(short)
    kinds = read_types(metadata)
    types = {leaf_name((plain,)): kinds[name] for plain, name in names.items() if name in kinds}
    chosen = {plain: leaves[name] for plain, name in names.items()}
    return chosen, with_types(metadata, names_by_type(types.items()))
