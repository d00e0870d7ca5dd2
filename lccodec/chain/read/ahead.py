"""What will be read of a chain's files, told before: a store that is far fetches it at once.

Whether a frame needs its parent's array stands in its header, which is part of the frame. So the
frames of an array are taken from all links down to the keyframe. In a chain of deltas, these are
the frames that a restore reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...container.disk.source import Source, read_ahead
from ...container.reader import CheckpointReader
from .links import HEADER_BYTES, MEMBER_BYTES, Link


def frames_ahead(links: Sequence[Link], indices: Iterable[int]) -> None:
    """Fetch the frames of arrays of the last link, with those that they are taken against."""
    if links[-1].reader.source.far:
        read_ahead(_frames(links, indices))


def _frames(links: Sequence[Link], indices: Iterable[int]) -> Iterator[tuple[Source, int, int]]:
    """Yield the ranges of frames, those of the first array first."""
    names = links[-1].index_names
    told: set[tuple[int, int]] = set()
    for index in indices:
        for link, number in _row(links, names[index]):
            if (id(link), number) not in told:
                told.add((id(link), number))
                yield link.reader.span(number)


def _row(links: Sequence[Link], name: str) -> list[tuple[Link, int]]:
    """Return the frames that an array may need, parents before their children."""
    found: list[tuple[Link, int]] = []
    left, seen = [links[-1]], {id(links[-1])}
    while left:
        link = left.pop()
        if name not in link.names:
            continue
        number = link.frame_of(link.names[name])
        if number is not None:
            found.append((link, number))
        for above in link.parents:
            if id(above) not in seen:
                seen.add(id(above))
                left.append(above)
    return found[::-1]


def headers_ahead(links: Collection[Link]) -> None:
    """Fetch the headers of all frames of links."""
    read_ahead(span for link in links if link.reader.source.far for span in headers_of(link.reader))


def headers_of(reader: CheckpointReader) -> list[tuple[Source, int, int]]:
    """Return the ranges of the headers of all frames of a file."""
    return [
        reader.span(number, HEADER_BYTES + MEMBER_BYTES * len(members))
        for number, members in enumerate(reader.manifest.members)
    ]
