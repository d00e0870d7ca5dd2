"""The heads of arrays: where each lies, and as what, without decoding it.

The *head* of an array is the header of the newest frame that holds it, in this checkpoint or in one
of its parents. It has type, shape and method, so that only a few bytes of each frame are read. Type
and shape alone are the *form* of the array: what references must have, too.

Source: SPEC 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ...element_table import ElementType
from ...errors import ChainError, FormatError, LccodecError
from ...frame.header import FrameHeader, Shape
from .links import (
    Link,
    array_place,
    check_inherited,
    copied_type,
    fold_last,
    member_names,
    part_arrays,
    value_or_raise,
    with_sources,
)

#: The type and the shape of an array.
Form: TypeAlias = tuple[ElementType, Shape]


class Head(NamedTuple):
    """The header of the newest frame that holds an array, and the array's shape."""

    header: FrameHeader
    shape: Shape
    unchanged: bool = False  # whether the frame is in an older link
    interpolated: bool = False  # whether its values are those of two frames, interpolated
    copied: bool = False  # whether the frame is that of another array, which it is a copy of

    @property
    def form(self) -> Form:
        """The type and the shape of the array."""
        return self.header.kind, self.shape

    @property
    def nbytes(self) -> int:
        """The bytes of the array, decoded."""
        return self.header.kind.itemsize * math.prod(self.shape)


#: The heads of arrays by name; an error of an array whose head cannot be read.
Heads: TypeAlias = dict[str, Head | LccodecError]


def array_heads(links: Sequence[Link]) -> dict[str, Head]:
    """Return the heads of the last link's arrays by name, or raise the first of their problems.

    Only the headers that they need are read.
    """
    wanted: dict[int, dict[str, None]] = {id(link): {} for link in links}
    wanted[id(links[-1])] = dict.fromkeys(links[-1].index_names)
    own: dict[int, tuple[Heads, list[str], list[str]]] = {}
    for link in reversed(links):
        heads, inherited, _ = own[id(link)] = _own_heads(link, with_sources(link, wanted.pop(id(link))))
        for above in link.parents:
            wanted[id(above)].update((name, None) for name in inherited if name in above.names)

    def with_parents(link: Link, before: Sequence[Heads], _: bool) -> Heads:
        heads, inherited, copies = own[id(link)]
        heads |= _inherited(before, inherited)
        return heads | _copied(link, copies, heads)

    heads = fold_last(links, with_parents)
    return {name: value_or_raise(heads[name]) for name in links[-1].index_names}


def next_heads(link: Link, before: Sequence[Heads], _: bool = False) -> Heads:
    """Return the head of every array of a link, or its error; `before` has those of its parents."""
    heads, inherited, copies = _own_heads(link, link.index_names)
    heads |= _inherited(before, inherited)
    heads |= _copied(link, copies, heads)
    return heads


def form_of(link: Link, name: str) -> Form:
    """Return the type and the shape of an array of a link. Only headers that it needs are read.

    Raises
    ------
    DataError
        If a header breaks a rule, or a link lacks the array.
    """
    kind: ElementType | None = None
    while (number := link.frame_of(link.names[name])) is None:
        if name in link.copies:
            source, own = link.copies[name]
            kind = kind or own
            name = source
            continue
        check_inherited(link, name)
        if link.parent is None:  # for the type: `check_inherited` has refused it
            raise ChainError(f"{link.place}: no parent")
        link = link.parent
    header = link.header(number)
    members = link.members(number)
    return kind or header.kind, header.shapes[members.index(link.names[name])]


def check_references(link: Link, number: int, found: Sequence[Form]) -> None:
    """Raise ``FormatError`` if references are not of the form of their frame (LCC-CHN-03)."""
    header = link.header(number)
    if any(kind != header.kind for kind, _ in found) or tuple(shape for _, shape in found) != header.shapes:
        place = array_place(link, member_names(link, number)[0])
        raise FormatError("LCC-CHN-03", place, "not of the type and shape of the parent's array")


def interpolates(low: Form, high: Form) -> bool:
    """Return whether the reference of an array is made from those of both parents (LCC-INT-04)."""
    return low[0].is_float and low == high


def _copied(link: Link, names: Iterable[str], heads: Heads) -> Heads:
    """Return the heads of copies: those of their sources, with the type of a rounding."""
    found: Heads = {}
    for name in names:
        source, _ = link.copies[name]
        try:
            header, shape, _, interpolated, _ = value_or_raise(heads[source])
            kind = copied_type(link, name, header.kind)
            header = replace(header, kind=kind, shapes=(shape,), relative=False, run=False)
            found[name] = Head(header, shape, interpolated=interpolated, copied=True)
        except LccodecError as error:
            found[name] = error
    return found


def _inherited(before: Sequence[Heads], names: Iterable[str]) -> Heads:
    """Return the heads of arrays without frames; `before` has those of the parents."""
    found: Heads = {}
    for name in names:
        head = before[0][name]
        if isinstance(head, Head):
            head = head._replace(unchanged=True, copied=False)
            later = before[1].get(name) if len(before) == 2 else None
            if isinstance(later, Head) and not _is_same(head, later) and interpolates(head.form, later.form):
                head = head._replace(interpolated=True)
        found[name] = head
    return found


def _is_same(one: Head, other: Head) -> bool:
    """Return whether two links have an array from the same frame."""
    return one.header is other.header and not one.interpolated and not other.interpolated


def _own_heads(link: Link, names: Iterable[str]) -> tuple[Heads, list[str], list[str]]:
    """Return the heads of arrays with frames, and the names of those inherited, and of copies."""
    frames, inherited, broken, copies = part_arrays(link, names)
    heads: Heads = {**broken}
    for number in frames:  # not array by array: a run has thousands
        members = member_names(link, number)
        try:
            header = link.header(number)
            heads.update(zip(members, (Head(header, shape) for shape in header.shapes), strict=True))
        except LccodecError as error:
            heads.update(dict.fromkeys(members, error))
    return heads, inherited, copies
