"""Bands of blocks: all rows once, and zeros where nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec.chain.mend.parity_folder import bands, read_band
from lccodec.container.parity import Layout, Member
from lccodec.container.source import FileSource


def layout_of(sizes: list[int], rows: int, aligned: bool, block: int = 512) -> Layout:
    members = [Member(f"{i:012d}.lcc.h5", size, bytes(32)) for i, size in enumerate(sizes)]
    return Layout(block, rows, 1, 1, aligned, tuple(members))


def test_bands_hold_every_row_once() -> None:
    layout = layout_of([1 << 20], 2048, True)
    rows = [row for start, count in bands(layout) for row in range(start, start + count)]
    assert rows == list(range(2048))
    assert len(list(bands(layout))) == 4


@pytest.mark.parametrize("aligned", [True, False])
def test_bytes_are_where_the_layout_says(tmp_path: Path, aligned: bool) -> None:
    sizes = [700, 1500, 200]
    rng = np.random.default_rng(0)
    contents = [rng.bytes(size) for size in sizes]
    for i, data in enumerate(contents):
        (tmp_path / str(i)).write_bytes(data)
    layout = layout_of(sizes, 3, aligned)
    sources = {i: FileSource(tmp_path / str(i)) for i in range(3)}
    columns = contents if aligned else [b"".join(contents)[:1536], b"".join(contents)[1536:]]
    for number, column in enumerate(columns):
        band, is_whole = read_band(layout, sources, number, 0, 3)
        assert (band.tobytes(), is_whole) == (column.ljust(1536, b"\0"), True)
        band, _ = read_band(layout, sources, number, 1, 1)
        assert band.tobytes() == column.ljust(1536, b"\0")[512:1024]
    sources.pop(1).close()
    band, is_whole = read_band(layout, sources, 1, 0, 2)
    assert not is_whole
    assert not band.any() or not aligned
    for source in sources.values():
        source.close()


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x" * 600)
    source = FileSource(tmp_path / "0")
    band, is_whole = read_band(layout_of([1000], 2, True), {0: source}, 0, 0, 2)
    assert (band.tobytes(), is_whole) == (b"x" * 600 + bytes(424), False)
    source.close()
