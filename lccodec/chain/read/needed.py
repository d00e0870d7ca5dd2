"""What arrays of a chain need: frames of links, and arrays beside them; and what can be done apart.

Only the headers of frames are read to find what is needed. A store that is far is told before what
will be read, and fetches it together.

A frame is cut into blocks behind one codebook, and the blocks do not depend on each other. So
whole blocks of a large array can be decoded apart, through all links, if all of them cut it in the
same way: processes can share the work. What is left is to check that all of it is right: the bytes
of each frame once, and the array sum of the newest frame, which is the sum of those of the ranges.

Source: SPEC 6, 9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from ...constants import METHOD_RAW, METHOD_SMOOTH
from ...container.disk.source import Source, read_ahead
from ...container.reader import CheckpointReader
from ...element_types import Array
from ...errors import DataError, LccodecError
from ...frame.content import array_sum
from ...frame.decode import check_array_sum, decode_range
from ...frame.header import FrameHeader
from ...parallel import PIECE
from ..store.store import Store
from .links import (
    HEADER_BYTES,
    MEMBER_BYTES,
    Link,
    array_place,
    member_names,
    part_arrays,
    reference_names,
    with_sources,
)


def decoded_together(links: Sequence[Link]) -> list[list[int]]:
    """Return, for each array of the last link, the indices of all that are decoded with it.

    These are the arrays that share a frame of any link with it, or are a copy of it, directly or
    through others. Decoding one of them decodes that frame for all. Arrays that are decoded
    together have the same list object.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.get(name, name)) != name:
            leader[name] = leader.get(above, above)  # halves the path for later calls
            name = above
        return name

    seen: set[tuple[int, tuple[int, ...]]] = set()  # deltas mostly have the runs of their parent
    for link in links:
        for run in link.runs:
            if (key := (id(link.index_names), tuple(run))) not in seen:
                seen.add(key)
                first = find(link.index_names[run[0]])
                for index in run:
                    leader[find(link.index_names[index])] = first
        for name, (source, _) in link.copies.items():
            leader[find(name)] = find(source)
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(links[-1].index_names):
        groups.setdefault(find(name), []).append(index)
    return [groups[find(name)] for name in links[-1].index_names]


def frames_of(links: Sequence[Link], name: str) -> list[tuple[Link, int]]:
    """Return the frames that an array of the last link needs, those of parents first."""
    frames, _, _ = needed(links, {len(links) - 1: [name]}, ())
    return [(link, number) for link in links for number, _ in frames.get(id(link), ())]


def needed(
    links: Sequence[Link], wanted: Mapping[int, Collection[str]], known: Collection[int]
) -> tuple[dict[int, list[tuple[int, bool]]], dict[int, list[str]], dict[int, list[str]]]:
    """Return the frames that arrays of some links need, the names of their references, and copies.

    All are by the `id` of the link. Each frame comes with whether its array sum is checked. If the
    arrays of one link are wanted, this is so if some array of the frame has no frame in a delta to
    this link: a wrong value shows in the sums of that frame otherwise. What is interpolated or
    copied shows in no sum.
    """
    frames: dict[int, list[tuple[int, bool]]] = {}
    references: dict[int, list[str]] = {}
    copied: dict[int, list[str]] = {}
    names: dict[int, dict[str, None]] = {id(link): {} for link in links}
    seen: dict[int, set[str]] = {}  # arrays that all children of a link have in frames
    for position in reversed(range(len(links))):
        link = links[position]
        if position in known:
            continue
        own = names.pop(id(link))
        own.update(dict.fromkeys(wanted.get(position, ())))
        own = with_sources(link, own)
        numbers, inherited, broken, copies = part_arrays(link, own)
        if broken:
            raise next(iter(broken.values()))
        newer = seen.pop(id(link), set()).difference(link.copies[name][0] for name in copies)
        found, needed = [], dict.fromkeys(inherited)
        for number in numbers:
            members = member_names(link, number)
            found.append((number, len(wanted) > 1 or not newer.issuperset(members)))
            newer.update(members)
            # A run is decoded whole, with all of its references.
            needed.update(dict.fromkeys(reference_names(link, number)))
        frames[id(link)], references[id(link)], copied[id(link)] = found[::-1], list(needed), copies
        for above in link.parents:
            names[id(above)].update((name, None) for name in needed if name in above.names)
            shown = newer if link.later is None else set[str]()
            seen[id(above)] = seen[id(above)] & shown if id(above) in seen else set(shown)
    return frames, references, copied


def decoded_bytes(links: Sequence[Link], names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of all arrays that are decoded for some of the last link, by their names.

    A run is decoded whole, so there may be arrays that the last link does not have. Copies are left
    out. Of an array that has several frames, the largest counts.

    Raises
    ------
    DataError
        If a header breaks a rule, or a link lacks an array.
    """
    frames, _, _ = needed(links, {len(links) - 1: list(names)}, ())
    found: dict[str, int] = {}
    for link in links:
        for number, _ in frames[id(link)]:
            header = link.header(number)
            for name, shape in zip(member_names(link, number), header.shapes, strict=True):
                found[name] = max(found.get(name, 0), header.kind.itemsize * math.prod(shape))
    return found


@dataclass(frozen=True)
class Ranges:
    """An array of the last link whose ranges can be decoded apart.

    Parameters
    ----------
    name
        Name of the array.
    frames
        The frames that lead to it, with their links, the oldest first.
    header
        Header of the newest frame.
    block
        Components of a block. Ranges begin at multiples of it.
    """

    name: str
    frames: Sequence[tuple[Link, int]]
    header: FrameHeader
    block: int

    @classmethod
    def of(cls, links: Sequence[Link], name: str) -> Self | None:
        """Return the ranges of an array of the last link.

        Returns
        -------
        Ranges or None
            ``None`` if the array must be decoded whole: it is empty, it shares a frame with others,
            it may be interpolated or a copy, its frames have blocks of different sizes, or they do
            not fit each other, which is an error then.

        Raises
        ------
        DataError
            If a header breaks a rule, or a link lacks the array.
        """
        if any(link.later is not None or name in link.copies for link in links):
            return None
        frames = frames_of(links, name)
        headers = [link.header(number) for link, number in frames]
        newest = headers[-1]
        if not newest.components or any(
            (h.kind, h.shapes) != (newest.kind, newest.shapes) or h.run for h in headers
        ):
            return None
        if any(header.method == METHOD_SMOOTH for header in headers):  # its blocks are rows
            return None
        blocks = {1 << header.block_log2 for header in headers if header.method != METHOD_RAW}
        if len(blocks) > 1:
            return None
        return cls(name, frames, newest, blocks.pop() if blocks else PIECE)

    def cut(self, count: int) -> list[slice]:
        """Return at most `count` ranges of about the same size that make up the array."""
        blocks = -(-self.header.components // self.block)
        ends = [blocks * i // count * self.block for i in range(count + 1)]
        ends[-1] = self.header.components
        return [slice(low, high) for low, high in pairwise(ends) if low < high]

    def decode(self, part: slice, out: Array, verified: Container[int]) -> int:
        """Decode a range through all links; return its part of the array sum.

        Parameters
        ----------
        part
            One of what `cut` returns.
        out
            Where the components of the range go.
        verified
            Positions in `frames` of those whose digest and CRC-32 are checked here. Each frame must
            be checked by one of those who decode a range.

        Raises
        ------
        DataError
            If a stored byte breaks a rule. What is not verified here may break another rule than
            its digest first.
        """
        for position, (link, number) in enumerate(self.frames):
            check = position in verified
            try:
                decode_range(link.frame(number, verify=check), part, out, out, check_crc=check)
            except DataError as error:
                raise self._placed(error, link) from None
        return array_sum(out, part.start * out.itemsize // 8)

    def verify(self) -> None:
        """Raise the error of the first frame whose digest is wrong."""
        for link, number in self.frames:
            link.frame(number)

    def check(self, sums: Iterable[int]) -> None:
        """Raise ``ChecksumError`` if what `decode` has returned for all ranges is not as stored."""
        link, number = self.frames[-1]
        try:
            check_array_sum(link.frame(number, verify=False), sum(sums))
        except DataError as error:
            raise self._placed(error, link) from None

    def _placed(self, error: DataError, link: Link) -> DataError:
        """Return an error that names the file and the array."""
        return error if error.where.startswith(link.place) else error.inside(array_place(link, self.name))


def frames_ahead(
    links: Sequence[Link], indices: Iterable[int], size: int | None = None
) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of the frames that arrays may need, for `read_ahead`, array by array.

    With `size`, only so many bytes of each, from its first on.

    Whether a frame needs its parent's array stands in its header, which is part of the frame. So
    the frames of an array are taken from all links down to the keyframe.
    """
    told = set[tuple[int, int]]()
    for index in indices:
        left, seen, row = (
            [(links[-1], links[-1].index_names[index])],
            set[tuple[int, str]](),
            list[tuple[Link, int]](),
        )
        while left:
            link, name = left.pop()
            if name not in link.names or (id(link), name) in seen:
                continue
            seen.add((id(link), name))
            if (number := link.frame_of(link.names[name])) is not None:
                row.append((link, number))
            left += [(above, name) for above in link.parents]
            left += [(link, link.copies[name][0])] if name in link.copies else []
        for link, number in reversed(row):  # parents before their children
            if (id(link), number) not in told:
                told.add((id(link), number))
                yield link.reader.span(number, size)


def headers_of(reader: CheckpointReader) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of the headers of all frames of a file, for `read_ahead`."""
    for number, members in enumerate(reader.manifest.members):
        yield reader.span(number, HEADER_BYTES + MEMBER_BYTES * len(members))


def look_ahead(store: Store, names: Collection[str], *, whole: bool) -> None:
    """Let a store that is far fetch files: all of them, or what their headers and ends say."""
    store.ahead(names)
    wanted: list[tuple[Source, int, int]] = []
    for name in names:
        with suppress(LccodecError), store.open(name) as reader:  # who opens it next raises it
            wanted += [(reader.source, 0, reader.file_size)] if whole else headers_of(reader)
    read_ahead(wanted)
