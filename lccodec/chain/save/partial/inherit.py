"""What a save of some arrays takes from its parent: arrays, scalars, roles, notes and figures.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....container.figures import FIGURES, QUANTILES
from ....container.manifest import Manifest
from ....container.tree import Flat
from ....element_types import Array, element_type
from ....errors import ArgumentError, LccodecError
from ....policy.policy import Candidate
from ....policy.record import read_record
from ....policy.roles import Assignment
from ...adapter import TYPES
from ..reference import Tail
from ..sampling import Samples
from .selection import Overlay, Selection, overlay

#: How often a keyframe may be put off, in keyframes: so many times the deltas of `keyframe_every`.
DEFERRED: Final = 8


@dataclass(frozen=True)
class Whole:
    """A state that is made of a selection and the parent's state.

    Parameters
    ----------
    flat, metadata, known
        The state, its metadata, and the roles that are known of its arrays.
    inherited
        The names of the arrays that are the parent's.
    """

    flat: Flat
    metadata: dict[str, str]
    known: Mapping[str, Assignment]
    inherited: frozenset[str] = frozenset()


def inherit(
    selection: Selection, metadata: dict[str, str], known: Mapping[str, Assignment], tail: Tail
) -> Whole:
    """Return the state of a selection over that of the parent.

    Raises
    ------
    ArgumentError
        If an entry is not in the parent, or an array has another type or shape there.
    """
    parent, names = tail.manifest, list(tail.arrays)
    found = overlay(selection, parent.tree, parent.scalars, tail.step)
    arrays = []
    for index, name in enumerate(names):
        before = tail.arrays[name]
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
                f" {before.shape} in step {tail.step}: save all arrays"
            )
        arrays.append(array)
    inherited = frozenset(name for index, name in enumerate(names) if index not in found.arrays)
    own_names = {selection.names[place]: names[index] for index, place in found.arrays.items()}
    roles = {own_names.get(name, name): assigned for name, assigned in known.items()}
    return Whole(
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


def mark_inherited(arrays: Sequence[Candidate], inherited: frozenset[str]) -> None:
    """Set which arrays of a state the save leaves out."""
    for c in arrays:
        c.inherited = c.name in inherited


def inherited_figures(arrays: Sequence[Candidate], parent: Manifest) -> dict[str, Array]:
    """Return the figures of the arrays that a save leaves out, by name; NaN for other arrays."""
    own = np.array([c.inherited for c in arrays], bool)
    if not own.any():
        return {}
    floats = np.array([c.kind.is_float and c.bits.size > 0 for c in arrays], bool)
    found: dict[str, Array] = {}
    for name in FIGURES:
        shape = (len(arrays), len(QUANTILES)) if name == "quantiles" else (len(arrays),)
        numbers = np.full(shape, np.nan)
        if parent.figures is not None:
            numbers[own] = parent.figures.read(name, len(arrays))[own]
        found[name] = numbers
    found["movement"][own & floats] = 0.0
    found["lag"][own] = np.nan  # there is no movement that values could lag behind
    return found


def inherited_samples(arrays: Sequence[Candidate], tail: Tail) -> Samples:
    """Return the samples of the originals of arrays that a save leaves out, as far as known."""
    return (tail.originals or Samples()).of({c.name for c in arrays if c.inherited})


def is_put_off(tail: Tail, every: int) -> bool:
    """Return whether a keyframe, due after `every` deltas, waits for a save of all arrays."""
    return tail.deltas < DEFERRED * every


def is_renewed(tail: Tail, every: int) -> bool:
    """Return whether a delta in place of a keyframe stores arrays without a reference."""
    return tail.deltas % every == 0
