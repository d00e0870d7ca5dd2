"""The structure of a state whose arrays are tensors by name: a note in the metadata of a .safetensors file.

Such a file holds strings, and tensors in no order. Under the key `STATE` stands a JSON object. ``tree`` is
the tree of a checkpoint (LCC-STA-01). ``scalars`` has by name what no tensor can hold (None, str, bytes, an
integer of more than 64 bits), as a manifest writes it (LCC-STA-04). ``types`` is the note of
:mod:`lccodec.adapters.tree.plain`. An int, float or bool is a tensor without dimensions, for whoever reads
the file without us. A flat dict of arrays needs no note.

Other programs copy metadata to files with other tensors. A note that does not fit is passed over: the state
is flat then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...container.scalars import Json, parse_scalar, scalar_json, scalar_value
from ...container.tree import array_names, flatten, leaf_name, parse_tree, select, unflatten
from ...element_types import Array
from ...errors import ArgumentError, DataError, FormatError
from ..tree.plain import read_types, with_types
from .named_arrays import plain_names

__all__ = ["STATE", "choose", "rebuild", "with_structure"]

#: The key of the note in the metadata; also what errors in it name as their rule.
STATE: Final = "lccodec.state"

#: What the dtype of a scalar's tensor says it was.
_KINDS: Final = {"int64": int, "uint64": int, "float64": float, "bool": bool}


def with_structure(state: Any, scalars: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata with the note of a state; without one if all is in the names.

    Parameters
    ----------
    scalars
        By name, what is no tensor.
    """
    kept = {key: text for key, text in metadata.items() if key != STATE}
    tree = flatten(state).tree
    if isinstance(tree, dict) and all(type(node) is int for node in tree.values()):
        return kept
    entries = {n: scalar_json(v) if isinstance(v, float | bytes) else v for n, v in scalars.items()}
    note = {"tree": tree, "scalars": entries, "types": _grouped(read_types(metadata))}
    return {**kept, STATE: json.dumps(note, ensure_ascii=False, separators=(",", ":"))}


def _grouped(types: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, kind in types.items():
        names.setdefault(kind, []).append(name)
    return names


def rebuild(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the state of a file, and its metadata without the note.

    Raises
    ------
    FormatError
        If the note is none.
    LimitError
        If it is nested deeper than a checkpoint.
    """
    kept = {key: text for key, text in metadata.items() if key != STATE}
    if STATE not in metadata:
        return dict(tensors), kept
    try:
        note = json.loads(metadata[STATE])
        tree, scalars, types = note["tree"], dict(note["scalars"]), dict(note["types"])
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
    """Return how many arrays and scalars an untrusted tree has places for."""
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
    """Return the state, in a tuple as it may be None; None if the tensors are not those of the tree."""
    indices = {name: [index] for name, index in array_names({"": tree}).items()}
    _, places = select({"": tree}, [None] * nulls, [""])
    try:
        names = plain_names({name[1:]: indices.get(name) for name in [*places, *indices]})
    except ArgumentError:
        return None
    if names.keys() != tensors.keys() | scalars.keys() or tensors.keys() & scalars.keys():
        return None
    found: list[Any] = [None] * arrays
    entries = []
    for name, index in names.items():
        if index is None:
            entry = scalars[name] if name in scalars else _number(tensors[name])
            if entry is _NO_NUMBER:
                return None
            entries.append(entry)
        elif name not in tensors:
            return None
        elif found[index[0]] is None:  # an array in two places is one again
            found[index[0]] = tensors[name]
    return (unflatten(tree, found, entries),)


_NO_NUMBER: Final = object()


def _number(tensor: Array) -> Json:
    kind = _KINDS.get(tensor.dtype.name)
    if kind is None or tensor.shape != ():
        return _NO_NUMBER
    value = kind(tensor[()])
    return scalar_json(value) if kind is float else value


def choose(
    leaves: Mapping[str, Any], metadata: Mapping[str, str], keys: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return leaves that were restored by their names as a flat state, and the metadata for it.

    Parameters
    ----------
    keys
        What to take away in front of names, with the ``/`` or ``.`` that follows it. Of a leaf that is itself
        a key its last part is left.

    Raises
    ------
    ArgumentError
        If two leaves would have one name.
    """
    prefixes = sorted((key.rstrip("./") for key in keys), key=len, reverse=True)
    short: dict[str, str] = {}  # names without what is taken away
    for name in leaves:
        starts = (p for p in prefixes if name.startswith((f"{p}/", f"{p}.")))
        cut = next((len(p) + 1 for p in starts), name.rfind("/") + 1 if name in prefixes else 0)
        short[name] = name[cut:]
    names: dict[str, str] = {}
    for name, key in short.items():
        (plain,) = plain_names({key: None})
        if plain in names:
            raise ArgumentError(f"two entries of the state would both be named {plain!r}")
        names[plain] = name
    found = read_types(metadata)
    types = {leaf_name((plain,)): found[name] for plain, name in names.items() if name in found}
    return {plain: leaves[name] for plain, name in names.items()}, with_types(metadata, _grouped(types))
