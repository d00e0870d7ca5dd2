"""Blocks of the files of a group, read by bands of rows: each byte is read once.

A band holds the same rows of all columns. It is as high as fits into some MiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ...container.disk.source import FileSource
from ...container.parity.layout import Layout
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
