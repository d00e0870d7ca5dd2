"""What a walk through a run decodes of each checkpoint, on top of what its parents have left.

It is apart from :mod:`.survey`, which lists and describes without a decoder.

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ...errors import LccodecError
from .links import (
    Link,
    copied_type,
    member_names,
    part_arrays,
    reference_names,
    value_or_raise,
    without_traceback,
)
from .replay import Decoded, copied, decode_frame, interpolated, within_frame

#: Which arrays are decoded: all, none, or these.
Decode: TypeAlias = bool | Collection[str]


def next_decoded(link: Link, parents: Sequence[Decoded], overwrite: bool, decode: Decode = True) -> Decoded:
    """Decode the frames of a link, each once and with its sum, on top of its parents' arrays.

    An array that cannot be decoded does not stop this. Arrays that depend on it get its error.
    `overwrite` says that the arrays of the parent may be overwritten; those of two parents never
    are. What is not decoded is verified. If only some arrays are decoded, all that share a frame
    with one of them or are its copy, in this link or in another, must be among them.
    """
    wanted = link.names if decode is True else decode or ()
    names = [name for name in link.index_names if name in wanted]
    before = parents[0] if len(parents) == 1 else Decoded({}, set())
    if len(parents) == 2:
        low, high = parents
        before = interpolated(link.weight, low, high, names)
        overwrite = True
    frames, inherited, broken, copies = part_arrays(link, names)
    arrays = {name: before.arrays[name] for name in inherited}
    arrays.update((name, without_traceback(error)) for name, error in broken.items())
    owned = before.owned.intersection(inherited) if overwrite else set()
    if not overwrite:
        before.owned.difference_update(inherited)
    for number in frames:
        members = member_names(link, number)
        try:
            known = reference_names(link, number)
            references = {name: value_or_raise(before.arrays[name]) for name in known}
            reuse = overwrite and before.owned.issuperset(references)
            if overwrite:
                for name in members:  # no other frame needs these arrays of the parent
                    before.arrays.pop(name, None)
            arrays.update(decode_frame(link, number, True, references, reuse))
            owned.update(members)
        except LccodecError as error:
            arrays.update(dict.fromkeys(members, without_traceback(error)))
    for name in copies:
        source, rounded = link.copies[name]
        try:
            if rounded is None:  # they share memory, which then must not be overwritten
                arrays[name] = value_or_raise(arrays[source])
                owned.discard(source)
            else:
                arrays[name] = copied(link, name, arrays)
                owned.add(name)
        except LccodecError as error:
            arrays[name] = without_traceback(error)
    found = Decoded(arrays, owned)
    _verify(link, parents, [name for name in link.index_names if name not in wanted], found)
    return found


def _verify(link: Link, parents: Sequence[Decoded], names: Sequence[str], found: Decoded) -> None:
    """Add arrays of a link to what is `found`, after their hashes; an error if one is wrong."""
    failed: dict[str, LccodecError] = {}
    for above in parents:
        failed |= {name: error for name, error in above.arrays.items() if isinstance(error, LccodecError)}
    frames, inherited, broken, copies = part_arrays(link, names)
    errors = {**broken, **{name: failed[name] for name in inherited if name in failed}}
    found.verified.update((name, parents[0].verified[name]) for name in inherited if name not in failed)
    for number in frames:
        members = member_names(link, number)
        try:
            for name in reference_names(link, number):
                if name in failed:
                    raise failed[name]
            with within_frame(link, number):
                link.frame(number)  # its hash is checked
            header = link.header(number)
            found.verified.update((n, (header.kind, s)) for n, s in zip(members, header.shapes, strict=True))
        except LccodecError as error:
            errors.update(dict.fromkeys(members, error))
    for name in copies:
        source, _ = link.copies[name]
        try:
            if source in errors:
                raise errors[source]
            known, shape = found.verified[source]
            found.verified[name] = copied_type(link, name, known), shape
        except LccodecError as error:
            errors[name] = error
    found.arrays.update((name, without_traceback(error)) for name, error in errors.items())
