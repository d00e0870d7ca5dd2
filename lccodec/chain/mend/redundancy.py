"""How much parity a chain has, and the layout of a group that follows from it.

Source: SPEC 9 (LCC-PAR-03).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...arguments import as_integer
from ...constants import (
    MAX_DATA_COLUMNS,
    MAX_MANIFEST_BYTES,
    MAX_PARITY_BLOCK,
    MAX_PARITY_COLUMNS,
    MIN_PARITY_BLOCK,
    PARITY_HEAD_SIZE,
)
from ...container.parity import Layout, Member
from ...errors import ArgumentError

_TEN_THOUSAND: Final = 10_000
_MIN_SHARE: Final = 100  # 1 %, in ten-thousandths: a parity column for a hundred data columns
_COLUMNS: Final = 64  # of data, for a share, or as near as it gets
_TOLERANCE: Final = 1.018  # bytes of parity over those asked for
_SLACK: Final = 1.05  # bytes of parity over those of the best blocks, if blocks stay as they are
_MAX_COLUMNS_FOR_SHARE: Final = 16  # of parity: each has two copies of the index


@dataclass(frozen=True)
class Redundancy:
    """How much parity a group has: for some whole files, or a share of the bytes.

    Parameters
    ----------
    files
        How many files of a group may be lost whole, from 1 to 64; or 0.
    share
        The share of the bytes in ten-thousandths, from 100 (1 %) to 10,000; or 0.

    Examples
    --------
    >>> parse_redundancy("5%"), parse_redundancy(2)
    (Redundancy(files=0, share=500), Redundancy(files=2, share=0))
    """

    files: int = 0
    share: int = 0

    def layout(self, members: Sequence[Member], block: int | None = None) -> Layout:
        """Return the layout of a group of files.

        Small blocks lose least to a damaged sector, but need many hashes; large ones are not full.
        The smallest are taken that are within the tolerance, or else those of the fewest bytes. The
        blocks of a group that goes on, of `block` bytes, stay as long as they are not much worse.
        """
        logs = range(MIN_PARITY_BLOCK.bit_length() - 1, MAX_PARITY_BLOCK.bit_length())
        layouts = [self._layout(tuple(members), 1 << log) for log in logs]
        found = [each for each in layouts if _is_possible(each)]
        if self.files:
            asked: float = self.files * max(member.length for member in members)
        else:
            asked = self.share / _TEN_THOUSAND * sum(member.length for member in members)
        good = [each for each in found if _size(each) <= _TOLERANCE * asked]
        best = good[0] if good else min(found, key=_size)
        same = [each for each in found if each.block == block and _size(each) <= _SLACK * _size(best)]
        return same[0] if same and (same[0] in good or not good) else best

    def _layout(self, members: tuple[Member, ...], block: int) -> Layout:
        if self.files:
            rows = math.ceil(max(member.length for member in members) / block)
            return Layout(block, rows, self.files, self.files, True, members)
        share = self.share / _TEN_THOUSAND
        blocks = math.ceil(sum(member.length for member in members) / block)
        parity = max(1, min(int(_COLUMNS * share), _MAX_COLUMNS_FOR_SHARE, round(blocks * share)))
        rows = max(math.ceil(blocks * share / parity), math.ceil(blocks / MAX_DATA_COLUMNS))
        return Layout(block, min(rows, blocks), parity, self.share, False, members)

    def __str__(self) -> str:
        return f"{self.files} files" if self.files else f"{self.share / 100:g}%"


def _size(layout: Layout) -> int:
    """Return the bytes of all parity files of a layout."""
    return layout.parity * (layout.rows * layout.block + 2 * (PARITY_HEAD_SIZE + layout.index_length))


def _is_possible(layout: Layout) -> bool:
    """Return whether an index is not too long; with the largest blocks, let the limit say so."""
    return layout.index_length <= MAX_MANIFEST_BYTES or layout.block == MAX_PARITY_BLOCK


def parse_redundancy(redundancy: object) -> Redundancy:
    """Return a redundancy that is given as a number of files, or as a percentage such as ``"5%"``.

    Raises
    ------
    ArgumentError
        For anything else; for less than 1 % or more than 100 %, or 0 files or more than 64.
    """
    if isinstance(redundancy, Redundancy):
        return redundancy
    if isinstance(redundancy, str) and redundancy.endswith("%"):
        try:
            share = round(float(redundancy[:-1]) * 100)
        except (ValueError, OverflowError):
            share = 0
        if _MIN_SHARE <= share <= _TEN_THOUSAND:
            return Redundancy(share=share)
    elif (files := as_integer(redundancy)) is not None and 1 <= files <= MAX_PARITY_COLUMNS:
        return Redundancy(files=files)
    raise ArgumentError(
        f"a redundancy is a number of files from 1 to {MAX_PARITY_COLUMNS}, or 1% to 100%; got {redundancy!r}"
    )


def redundancy_of(layout: Layout) -> Redundancy:
    """Return the redundancy that a group was made for."""
    aligned, asked = layout.aligned, layout.redundancy
    try:
        return parse_redundancy(asked if aligned else f"{asked / 100}%")
    except ArgumentError:  # another writer's
        return Redundancy(files=layout.parity)
