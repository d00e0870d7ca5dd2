"""Pieces of a group: as large as memory allows, and each rank writes some parity files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.mend.parity_folder import ParityFolder
from lccodec.chain.mend.ranks import _PIECE_BYTES, Striped, _filled, _pieces
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.parity import Layout, Member

from ....support.ranks import Threads


def layout_of(length: int, parity: int, block: int = 1 << 18) -> Layout:
    members = tuple(Member(f"rank-{i}/000000000000.lcc.h5", length, bytes([i] * 32)) for i in range(3))
    return Layout(block, -(-length // block), parity, parity, True, members)


@given(st.integers(1, 1 << 31), st.integers(1, 64), st.integers(1, 70))
def test_pieces_cover_all_rows_once_within_memory(length: int, parity: int, ranks: int) -> None:
    layout = layout_of(length, parity)
    pieces = list(_pieces(layout, ranks))
    assert [row for start, rows in pieces for row in range(start, start + rows)] == list(range(layout.rows))
    columns = -(-parity // ranks)
    most = max(rows for _, rows in pieces) * layout.block
    assert most * columns <= max(_PIECE_BYTES, layout.block * columns)


@pytest.mark.parametrize("parity", [1, 2, 5])
def test_parity_files_are_spread_over_the_ranks(tmp_path: Path, parity: int) -> None:
    store = DirectoryStore(tmp_path)
    written = dict[int, int]()
    for length in range(1, 200):
        for rank in range(3):
            peers: Threads = object.__new__(Threads)
            peers.rank, peers.size = rank, 3
            striped = Striped(store, ParityFolder(store), peers, layout_of(length, parity), [0, 1, 2])
            written[rank] = written.get(rank, 0) + len(striped._parity_hashes)
    assert sum(written.values()) == 199 * parity
    assert min(written.values()) > 0.7 * max(written.values())


def test_what_is_behind_a_short_column_is_zero() -> None:
    block = np.ones(512, np.uint8)
    assert _filled(block, 512) is block
    assert _filled(block, 1024).tolist() == [1] * 512 + [0] * 512
