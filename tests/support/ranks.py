"""Chains of ranks, and ranks that are threads of one process."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lccodec import Chain
from lccodec.chain.mend.protect import Redundancy
from lccodec.chain.mend.ranks import Written, files_of, protect_together
from lccodec.chain.store.directory import DirectoryStore
from lccodec.parity import Block

SECONDS = 240  # until a rank that waits gives up: then a test fails, and does not hang

#: A program that repairs a chain, or the chains of ranks.
REPAIR = """
import sys
from pathlib import Path
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
repair(DirectoryStore(Path(sys.argv[1])))
"""


class Threads:
    """One of the ranks, which talk through a list that they have in common."""

    def __init__(self, rank: int, barrier: threading.Barrier, values: list[Any]) -> None:
        self.rank, self.size = rank, len(values)
        self._barrier, self._values = barrier, values
        self.sent = 0  # bytes to others

    def gather(self, value: Any, /) -> list[Any]:
        self._values[self.rank] = value
        self._barrier.wait()
        found = list(self._values)
        self._barrier.wait()
        return found

    def exchange(self, pieces: Sequence[Block], sizes: Sequence[int], /) -> list[Block]:
        self.sent += sum(len(piece) for i, piece in enumerate(pieces) if i != self.rank)
        found = self.gather([piece.copy() for piece in pieces])
        received = [each[self.rank] for each in found]
        assert [len(piece) for piece in received] == list(sizes)
        return received


def save_of_ranks(directory: Path, counts: Sequence[int], steps: range, **options: Any) -> None:
    """Save steps of as many elements as each rank has; a rank without any writes nothing."""
    for rank, count in enumerate(counts):
        if count:
            with Chain(directory / f"rank-{rank}", "lossless", **options) as chain:
                for step in steps:
                    random = np.random.default_rng([rank, step])
                    chain.save(step, {"w": random.standard_normal(count).astype(np.float32)})


def protect_in_threads(
    directory: Path,
    ranks: int,
    files: int,
    step: int | None = None,
    stores: Mapping[int, DirectoryStore] | None = None,
) -> tuple[list[dict[str, str]], list[Threads]]:
    """Let the ranks protect their files together; return what each was told, and the ranks."""
    barrier = threading.Barrier(ranks, timeout=SECONDS)
    values: list[Any] = [None] * ranks
    peers = [Threads(rank, barrier, values) for rank in range(ranks)]
    told: list[dict[str, str]] = [{"": "it has not ended"}] * ranks

    def work(rank: int) -> None:
        plain = DirectoryStore(directory)
        store = plain if stores is None else stores.get(rank, plain)
        names = tuple(files_of(plain, f"rank-{rank}"))
        own = [name for name in names if step is not None and name.endswith(f"{step:012d}.lcc.h5")]
        written = Written(f"rank-{rank}", own[0] if own else None, names)
        told[rank] = protect_together(store, peers[rank], written, Redundancy(files=files))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told, peers
