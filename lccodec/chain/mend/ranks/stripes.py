"""The parity of one group of files of ranks, made in stripes by all ranks at a time.

Each rank reads its own file, piece by piece. Of the rows of a piece each rank gets a stripe from
all others, and computes the parity of the stripe. A parity file is written by one rank, to which
the others send their stripes of it. So a rank sends and receives as many bytes as its file and the
parity files have, whatever the number of ranks, and it holds a few pieces.

Source: SPEC 9 (LCC-PAR-03 to LCC-PAR-06).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Final

import numpy as np

from ....constants import PARITY_HEAD_SIZE
from ....container.disk.source import FileSource
from ....container.disk.whole_file import WholeFile
from ....container.parity import Index, Layout, blocks_offset, ends_of, file_length
from ....errors import ChainError
from ....parity.code import Block, encode
from ...store.directory import DirectoryStore
from ..blocks import block_hashes, read_band
from ..homes import home_of, homes_of
from ..parity_folder import ParityFolder
from ..protect import declared
from .peers import Peers, Trouble

_PIECE_BYTES: Final = 1 << 22  # of a column; a rank holds about four of them
_LOCK_SECONDS: Final = 30.0  # to wait for a process that removes files of a chain
_LOCK_PAUSE_SECONDS: Final = 0.02


class Striped:
    """The parity files of one group in the making, as one rank sees it.

    Parameters
    ----------
    store
        The directory of the folders of the ranks.
    folder
        Its parity.
    ranks
        The rank that reads each file of the group.
    """

    def __init__(
        self, store: DirectoryStore, folder: ParityFolder, peers: Peers, layout: Layout, ranks: list[int]
    ) -> None:
        self._store, self._folder, self._peers, self._layout = store, folder, peers, layout
        self._trouble = Trouble()
        self._column_of = {rank: column for column, rank in enumerate(ranks)}
        self._own = self._column_of.get(peers.rank)
        first = int(layout.group, 16)  # another for each group, so that all ranks write
        self._writers = [(first + i) % peers.size for i in range(layout.parity)]
        self._source: FileSource | None = None
        self._files = dict[int, WholeFile]()  # those that this rank writes, by parity columns
        self._hashes = list[bytes]()
        self._parity_hashes = {i: list[bytes]() for i, rank in enumerate(self._writers) if rank == peers.rank}

    def write(self) -> tuple[bool, list[str]]:
        """Write the parity files, and commit them if no rank has an error.

        Returns whether they are there, and the errors. If a file of the group was replaced or
        removed meanwhile, there are neither.
        """
        with ExitStack() as stack:
            with self._trouble.noted():
                if self._own is not None:
                    name = self._layout.members[self._own].name
                    self._source = stack.enter_context(closing(self._store.source(name)))
                for i in self._parity_hashes:
                    self._files[i] = stack.enter_context(self._folder.writer(self._layout.name(i)))
            for row, rows in _pieces(self._layout, self._peers.size):
                self._piece(row, rows)
            index = self._index()
            with self._trouble.noted():
                for i, file in self._files.items():
                    front, end = ends_of(index, i)
                    with file.working():
                        file.write_at(front, 0)
                        file.write_at(end, file_length(index) - blocks_offset(index))
            is_same = False
            with self._trouble.noted():
                is_same = self._hold(stack)
            found = self._peers.gather((is_same, self._trouble.reason))
            if not all(reason is None and is_same for is_same, reason in found):
                return False, [reason for _, reason in found if reason is not None]
            with self._trouble.noted():
                for file in self._files.values():
                    file.commit()
            told = self._trouble.told(self._peers)  # nobody lets go of its file before
            return not told, told

    def _piece(self, row: int, rows: int) -> None:
        """Do some rows."""
        block, peers = self._layout.block, self._peers
        cuts = [row + rows * i // peers.size for i in range(peers.size + 1)]
        band = self._band(row, rows)
        parts = [
            band[(low - row) * block :][: self._bytes(peers.rank, low, high)] for low, high in pairwise(cuts)
        ]
        low, high = cuts[peers.rank : peers.rank + 2]
        received = peers.exchange(parts, [self._bytes(rank, low, high) for rank in range(peers.size)])
        data = {j: _filled(received[rank], (high - low) * block) for rank, j in self._column_of.items()}
        parity = {i: np.empty((high - low) * block, np.uint8) for i in range(self._layout.parity)}
        encode(data, parity)
        parts = [
            np.concatenate([parity[i] for i, to in enumerate(self._writers) if to == rank] or [band[:0]])
            for rank in range(peers.size)
        ]
        heights = [b - a for a, b in pairwise(cuts)]
        received = peers.exchange(parts, [n * block * len(self._parity_hashes) for n in heights])
        for place, (i, hashes) in enumerate(self._parity_hashes.items()):
            offset = PARITY_HEAD_SIZE + self._layout.index_length + row * block
            for n, piece in zip(heights, received, strict=True):
                stripe = piece[place * n * block :][: n * block]
                hashes.extend(block_hashes(stripe, block, n))
                self._write_at(i, stripe, offset)
                offset += n * block

    def _band(self, row: int, rows: int) -> Block:
        """Return some rows of this rank's file, and take the hashes of their blocks."""
        layout = self._layout
        if self._own is None:
            return np.zeros(0, np.uint8)
        band, is_whole = np.zeros(rows * layout.block, np.uint8), False
        with self._trouble.noted():
            if self._source is not None:
                band, is_whole = read_band(layout, {self._own: self._source}, self._own, row, rows)
            if not is_whole:
                raise ChainError(f"{layout.members[self._own].name} cannot be read to its end")
        self._hashes += block_hashes(
            band, layout.block, self._bytes(self._peers.rank, row, row + rows) // layout.block
        )
        return band

    def _bytes(self, rank: int, low: int, high: int) -> int:
        """Return how many bytes the blocks of a rank's file have in some rows."""
        column = self._column_of.get(rank)
        if column is None:
            return 0
        return max(0, min(high, self._layout.rows_of(column)) - low) * self._layout.block

    def _write_at(self, column: int, stripe: Block, offset: int) -> None:
        with self._trouble.noted():
            if column in self._files:
                with self._files[column].working():
                    self._files[column].write_at(stripe.data, offset)

    def _index(self) -> Index:
        """Return the index, of the hashes of all ranks."""
        joined = {i: b"".join(each) for i, each in self._parity_hashes.items()}
        found = self._peers.gather((b"".join(self._hashes), joined))
        data = {column: found[rank][0] for rank, column in self._column_of.items()}
        parity = [found[rank][1][i] for i, rank in enumerate(self._writers)]
        return Index(self._layout, b"".join([*(data[j] for j in sorted(data)), *parity]))

    def _hold(self, stack: ExitStack) -> bool:
        """Hold the lock of this rank's chain; return whether its file is still the same.

        Whoever holds it removes files of the chain, and is done soon. We do not wait for ever, as
        the others wait for us.
        """
        if self._own is None:
            return True
        member = self._layout.members[self._own]
        homes_of(self._store, [member.name])  # or a link is refused
        home, _ = home_of(self._store, member.name)
        end = time.monotonic() + _LOCK_SECONDS
        while stack.enter_context(home.locked_if_free()) is None:
            if time.monotonic() > end:
                raise ChainError(f"another process holds {home.path}")
            time.sleep(_LOCK_PAUSE_SECONDS)
        return declared(self._store, member.name) == (member.root, member.length)


def _pieces(layout: Layout, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each piece, and its number of rows."""
    columns = math.ceil(layout.parity / ranks)  # that a rank writes at most
    height = max(1, _PIECE_BYTES // (layout.block * columns))
    for row in range(0, layout.rows, height):
        yield row, min(height, layout.rows - row)


def _filled(block: Block, size: int) -> Block:
    """Return a block with zeros behind it."""
    if len(block) == size:
        return block
    filled = np.zeros(size, np.uint8)
    filled[: len(block)] = block
    return filled
