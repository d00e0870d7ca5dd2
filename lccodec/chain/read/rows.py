"""Some rows of an array: which they are, and decoding no more blocks than they need.

A row is what one index of the first axis selects, so some rows of an array are some of its
components end to end. They are followed from the newest link to the oldest: a frame needs the rows
as whole blocks, and of the parent's array the same components; a copy needs them of its source, and
an interpolated array of both parents. Then they are decoded from the oldest link to the newest.

Small arrays share frames, and are decoded whole.

Source: SPEC 6, 9.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ...constants import ElementType
from ...container.source import read_ahead
from ...element_types import Array, rounded_copy
from ...errors import ArgumentError, DataError, FormatError
from ...frame.decode import decode_range
from ...frame.header import FrameHeader, Shape, whole_blocks
from ...loops.representatives import interpolate
from .links import (
    Link,
    array_place,
    copied_type,
    form_of,
    made_from,
    origin_of,
    value_or_raise,
)
from .replay import DecodedArray, placed, replay

#: Names of leaves; or a mapping of names to rows, where ``None`` is all of a leaf.
Keys: TypeAlias = Iterable[str] | str | Mapping[str, slice | None]


@dataclass(frozen=True)
class Span:
    """Components of an array, from `start` up to, but without, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many they are."""
        return self.stop - self.start

    def joined(self, other: Span | None) -> Span:
        """Return the components from the first to the last of both."""
        if other is None:
            return self
        return Span(min(self.start, other.start), max(self.stop, other.stop))


def checked_rows(rows: object, name: str = "") -> slice:
    """Return rows if they are a slice without a step; `name` begins the error otherwise."""
    about = f"{name!r}: " if name else ""
    if not isinstance(rows, slice):
        more = f"; one row is slice({rows}, {rows + 1})" if type(rows) is int and rows >= 0 else ""
        raise ArgumentError(f"{about}rows must be a slice, such as slice(0, 1000); got {rows!r}{more}")
    for end in (rows.start, rows.stop):
        if not (end is None or hasattr(type(end), "__index__")):
            raise ArgumentError(f"{about}rows must begin and end at integers; got {rows!r}")
    if rows.step is not None and rows.step != 1:
        message = f"rows must be next to each other, without a step; got {rows!r}"
        raise ArgumentError(f"{about}{message}: read them all, and take the step of what is returned")
    return rows


def checked_keys(keys: Any) -> tuple[Any, dict[str, slice]]:
    """Return the names among keys, and the rows that are asked for of some of them.

    Keys are names, or a mapping of names to slices; ``None`` in the place of a slice is the whole
    leaf.
    """
    if not isinstance(keys, Mapping):
        return keys, {}
    rows = {name: checked_rows(value, str(name)) for name, value in keys.items() if value is not None}
    return list(keys), rows


def without_rows(keys: Any) -> Any:
    """Return keys unchanged; raise ``ArgumentError`` if rows are asked for."""
    if checked_keys(keys)[1]:
        raise ArgumentError("keys must be names here: only a restore and an open file return some rows")
    return keys


@dataclass(frozen=True)
class Chosen:
    """Some rows of an array: its type, which components they are, and their shape."""

    kind: ElementType
    span: Span
    shape: Shape
    whole: bool  # whether they are all rows


def chosen_rows(links: Sequence[Link], index: int, rows: slice, called: str) -> Chosen:
    """Return what some rows of an array of the last link are; slices follow Python's rules.

    Raises ``ArgumentError`` if the array, which the message calls `called`, has no dimension.
    """
    kind, shape = form_of(links[-1], links[-1].index_names[index])
    if not shape:
        raise ArgumentError(f"{called!r} has no rows: it is an array without dimensions; get it whole")
    first, last, _ = rows.indices(shape[0])
    last = max(first, last)
    row = math.prod(shape[1:]) * kind.components
    chosen = last - first, *shape[1:]
    return Chosen(kind, Span(first * row, last * row), chosen, chosen == shape)


def replay_rows(
    links: Sequence[Link], index: int, rows: slice, called: str, together: Sequence[list[int]] | None = None
) -> DecodedArray:
    """Decode some rows of an array of the last link, through all links; errors call it `called`.

    All rows, and those of an array that shares a frame with others, come from the whole array.
    """
    chosen = chosen_rows(links, index, rows, called)
    span = chosen.span
    if not span.size:
        return DecodedArray(chosen.kind, chosen.shape, np.empty(0, chosen.kind.bits))
    if not chosen.whole:
        bits = decode_span(links, links[-1].index_names[index], span)
        if bits is not None:
            return DecodedArray(chosen.kind, chosen.shape, bits)
    ((_, found),) = replay(links, [index], together)
    return DecodedArray(chosen.kind, chosen.shape, found.bits[span.start : span.stop])


@dataclass(frozen=True, eq=False)
class _Need:
    """What is needed of an array of a link: components, the arrays they are made of, its frame."""

    link: Link
    name: str
    span: Span
    sources: Sequence[tuple[Link, str]]
    frame: int | None = None
    header: FrameHeader | None = None


@dataclass(frozen=True, eq=False)
class _Part:
    """Components of an array of a link, decoded."""

    kind: ElementType
    shape: Shape
    span: Span
    bits: Array

    spare: bool = True  # whether nobody else needs the components, so that they may be overwritten

    def of(self, span: Span) -> Array:
        """Return some of the components."""
        return self.bits[span.start - self.span.start : span.stop - self.span.start]


def decode_span(links: Sequence[Link], name: str, span: Span) -> Array | None:
    """Decode some components of an array of the last link, and no more blocks than they need.

    ``None`` if the array must be decoded whole, because it shares a frame with others.
    """
    plan = _needed(links, name, span)
    if plan is None:
        return None
    if links[-1].reader.source.far:  # first the tables of frames, then their pieces
        framed = [(need, need.frame, need.header) for need in plan if need.frame is not None and need.header]
        read_ahead(need.link.reader.table_span(number) for need, number, _ in framed)
        read_ahead(
            span
            for need, number, header in framed
            for span in need.link.reader.part_spans(number, header, need.span.start, need.span.stop)
        )
    users = Counter((id(link), above) for need in plan for link, above in need.sources)
    parts: dict[tuple[int, str], _Part] = {}
    for need in reversed(plan):
        parts[id(need.link), need.name] = _decoded(need, parts, users)
    return parts[id(links[-1]), name].of(span)


def _needed(links: Sequence[Link], name: str, span: Span) -> list[_Need] | None:
    """Return what components of an array need: first themselves, then what they need in turn.

    ``None`` if a frame that they need holds several arrays.
    """
    wanted: dict[int, dict[str, Span]] = {id(link): {} for link in links}
    wanted[id(links[-1])][name] = span
    found: list[_Need] = []
    for link in reversed(links):
        own = wanted[id(link)]
        for copies in (True, False):  # copies come before their sources, which may be needed anyway
            for each in [each for each in own if (each in link.copies) == copies]:
                need = _need(link, each, own[each])
                if need is None:
                    return None
                found.append(need)
                for above, source in need.sources:
                    spans = wanted[id(above)]
                    spans[source] = need.span.joined(spans.get(source))
    return found


def _need(link: Link, name: str, span: Span) -> _Need | None:
    """Return what components of an array of a link need: whole blocks, and other arrays.

    ``None`` if the array shares a frame.
    """
    (number, source), header = origin_of(link, name), None
    if source is not None:
        return _Need(link, name, span, [(link, source)])
    if number is not None:
        if len(link.members[number]) > 1:
            return None
        header = link.header(number)
        if span.stop > header.components:
            message = f"{header.components} components, but {span.stop} are needed"
            raise FormatError("LCC-CHN-03", array_place(link, name), message)
        span = Span(*whole_blocks(header, span.start, span.stop))
    sources = [(parent, name) for parent in made_from(link, name, number)]
    return _Need(link, name, span, sources, number, header)


def _decoded(
    need: _Need, parts: Mapping[tuple[int, str], _Part], users: Mapping[tuple[int, str], int]
) -> _Part:
    """Decode what is needed of an array of a link, on top of what is decoded of others."""
    link, name, span, header = need.link, need.name, need.span, need.header
    before = None
    if need.sources:
        place = id(need.sources[0][0]), need.sources[0][1]
        before = replace(parts[place], spare=parts[place].spare and users[place] == 1)
    if name in link.copies and before is not None:
        kind = copied_type(link, name, before.kind)
        bits = np.empty(span.size, kind.bits)
        if kind is before.kind:
            bits[:] = before.of(span)
        else:
            rounded_copy(before.of(span), kind, bits)
        return _Part(kind, before.shape, span, bits)
    for above, _ in need.sources[1:]:
        before = _interpolated(before, parts[id(above), name], span, link.weight)
    if header is None or need.frame is None:
        return value_or_raise(before or FormatError("LCC-CHN-03", array_place(link, name), "not stored"))
    reference = None if before is None else before.of(span)
    out = reference if before is not None and before.spare else None
    part = slice(span.start, span.stop)
    try:
        pieces = link.reader.part(need.frame, header, span.start, span.stop)
        begin = None if pieces is None else (pieces.component, pieces.offset)
        frame = link.reader.frame(need.frame) if pieces is None else pieces
        bits = decode_range(frame, part, reference, out, check_crc=False, begin=begin)
    except DataError as error:
        raise placed(error, link, name) from None
    return _Part(header.kind, header.shapes[0], span, bits)


def _interpolated(low: _Part | None, high: _Part, span: Span, weight: float) -> _Part | None:
    """Return the reference of an array with two parents, in memory of its own (LCC-INT-04)."""
    if low is None or low.bits is high.bits:
        return low
    bits = np.empty(span.size, low.kind.bits)
    interpolate(low.of(span), high.of(span), weight, low.kind, bits)
    return _Part(low.kind, low.shape, span, bits)
