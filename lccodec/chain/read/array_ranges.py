"""Ranges of a large array, each decoded through all links on its own: processes can share the work.

A frame is cut into blocks behind one codebook, and the blocks do not depend on each other. So
whole blocks of an array can be decoded apart, if all links cut it in the same way. What is left
is to check that all of it is right: the bytes of each frame once, and the array sum of the newest
frame, which is the sum of those of the ranges.

Source: SPEC 6, 9.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from ...constants import METHOD_RAW
from ...element_types import Array
from ...errors import DataError
from ...frame.checksum import array_sum
from ...frame.decode import check_array_sum, decode_range
from ...frame.header import FrameHeader
from ...parallel import PIECE
from .links import Link, array_place
from .replay import frames_of


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
            it may be interpolated, its frames have blocks of different sizes, or they do not fit
            each other, which is an error then.

        Raises
        ------
        DataError
            If a header breaks a rule, or a link lacks the array.
        """
        if any(link.later is not None for link in links):
            return None
        frames = frames_of(links, name)
        headers = [link.header(number) for link, number in frames]
        newest = headers[-1]
        if not newest.components or any(
            (h.kind, h.shapes) != (newest.kind, newest.shapes) or h.run for h in headers
        ):
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
