"""Blocks of the files of a group, read by bands of rows: each byte is read once.

A band holds the same rows of all columns. It is as high as fits into some MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ...container.disk.source import FileSource
from ...container.parity import Index, Layout, block_hash, blocks_offset
from ...errors import ChecksumError
from ...parity.code import Block

_BAND_BYTES: Final = 1 << 18  # of a column


def bands(layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield the first row of each band, and its number of rows."""
    height = max(1, _BAND_BYTES // layout.block)
    for row in range(0, layout.rows, height):
        yield row, min(height, layout.rows - row)


def read_band(
    layout: Layout, files: Mapping[int, FileSource], column: int, row: int, rows: int
) -> tuple[Block, bool]:
    """Return some blocks of a data column, one below the other, and whether all of it was there.

    `files` are those that can be read, by their numbers. What is not there counts as zeros.
    """
    band = np.zeros(rows * layout.block, np.uint8)
    is_whole = True
    for part in layout.parts(column, row, rows):
        source = files.get(part.member)
        size = 0 if source is None else max(0, min(part.size, source.size - part.offset))
        if source is not None and size:
            data = source.read(part.offset, size)
            band[part.start : part.start + size] = np.frombuffer(data, np.uint8)
        is_whole &= size == part.size
    return band, is_whole


def block_hashes(band: Block, block: int, count: int) -> list[bytes]:
    """Return the hashes of the first blocks of a band."""
    view = band.data
    return [block_hash(view[i * block : (i + 1) * block]) for i in range(count)]


def add_parity(index: Index, sources: Mapping[int, FileSource], row: int, bands: Mapping[int, Block]) -> None:
    """Add the blocks of parity files, from a row on, to a band of each parity column.

    Raises
    ------
    ChecksumError
        If one of them is damaged.
    """
    block = index.layout.block
    for column, band in bands.items():
        if (count := min(len(band) // block, index.layout.rows - row)) <= 0:
            continue
        data = sources[column].read(blocks_offset(index) + row * block, count * block)
        found = np.frombuffer(data, np.uint8)
        for i, value in enumerate(block_hashes(found, block, count)):
            if value != index.parity_hash(column, row + i):
                where = f"parity of {index.layout.members[0].name}"
                raise ChecksumError("LCC-PAR-04", where, "the bytes of a block do not match their hash")
        band[: len(found)] ^= found
