"""Parity of the files of ranks: made by all of them, and by one that gathers the files."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np

import lccodec
from lccodec.chain.mend.protect import Redundancy
from lccodec.chain.mend.ranks import Written, files_of, protect_ranks, protect_together
from lccodec.chain.store.directory import DirectoryStore
from lccodec.parity import Block

__all__ = ["RANKS", "measure_ranks", "ranks_table"]

RANKS = 4
PIECE_BYTES = 1 << 23


def measure_ranks(size: int, files: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the seconds of both ways, the best of some rounds, and the memory of the first rank.

    Each rank has a file of `size` bytes, and `files` of them may be lost. Beside the time by the
    clock is that of the processor that the busiest rank has used. With a core for each rank, the
    clock would show that. Memory is how much the largest size of the first rank grows, in MiB.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for rank in range(RANKS):
            numbers = np.random.default_rng(rank).integers(0, 2**32, size // 4, np.uint32)
            with lccodec.Chain(directory / f"rank-{rank}", "lossless", newest="history") as chain:
                chain.save(0, {"w": numbers})
        # A fork of this process, with its threads, may hang. The server imports torch once for all.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["lccodec.adapters.rank_parity", __name__])
        found: dict[str, dict[str, float]] = {}
        for name, way in (("all ranks", _by_all), ("one gathers", _by_one)):
            answers: SimpleQueue[Any] = context.SimpleQueue()
            arguments = [(way, directory, files, rounds, rank, answers) for rank in range(RANKS)]
            processes = [context.Process(target=_run, args=each) for each in arguments]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            if any(process.exitcode for process in processes):
                raise RuntimeError("a rank has failed")
            found[name] = answers.get()
    return found


def ranks_table(size: int, rounds: int) -> str:
    """Return a table of both ways, for the loss of one rank and of two."""
    lines = [
        "| parity | made by | busiest rank, s | by the clock, s | memory, MiB |",
        "|---|---|---:|---:|---:|",
    ]
    for files in (1, 2):
        for way, found in measure_ranks(size, files, rounds).items():
            figures = f"{found['busiest']:.2f} | {found['seconds']:.2f} | {found['MiB']:.0f}"
            lines.append(f"| {files} | {way} | {figures} |")
    return "\n".join(lines)


def _run(
    way: Callable[..., None],
    directory: Path,
    files: int,
    rounds: int,
    rank: int,
    answers: SimpleQueue[Any],
) -> None:
    """What a rank does."""
    import torch
    import torch.distributed as dist

    from lccodec.adapters.rank_parity import TorchPeers

    torch.set_num_threads(1)
    place = f"file://{directory}/{way.__name__}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=RANKS)
    peers = TorchPeers(dist.group.WORLD)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, busiest = [], []
    for _ in range(rounds):
        if rank == 0:
            shutil.rmtree(directory / ".parity", ignore_errors=True)
        dist.barrier()
        start, used = time.perf_counter(), time.process_time()
        way(directory, peers, files)
        used = time.process_time() - used
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        busiest.append(max(peers.gather(used)))
    if rank == 0:
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        answers.put({"seconds": min(seconds), "busiest": min(busiest), "MiB": memory})
    dist.barrier()
    os._exit(0)


def _by_all(directory: Path, peers: Any, files: int) -> None:
    store, folder = DirectoryStore(directory), f"rank-{peers.rank}"
    names = tuple(files_of(store, folder))
    if protect_together(store, peers, Written(folder, names[0], names), Redundancy(files=files)):
        raise RuntimeError("the ranks are not protected")


def _by_one(directory: Path, peers: Any, files: int) -> None:
    """Send all files to the first rank, which protects them in a place of its own."""
    own = directory / f"rank-{peers.rank}"
    [name] = DirectoryStore(own).checkpoints().values()
    sizes = peers.gather((own / name).stat().st_size)
    with tempfile.TemporaryDirectory(dir=directory) as target, (own / name).open("rb") as source:
        outs = []
        if peers.rank == 0:
            for rank in range(RANKS):
                Path(target, f"rank-{rank}").mkdir()
                outs.append(Path(target, f"rank-{rank}", name).open("wb"))  # noqa: SIM115
        for start in range(0, max(sizes), PIECE_BYTES):
            piece = np.frombuffer(source.read(PIECE_BYTES), np.uint8)
            for out, part in zip(outs, _gathered(peers, piece, sizes, start), strict=False):
                out.write(part.data)
        for out in outs:
            out.close()
        if peers.rank == 0:
            protect_ranks(DirectoryStore(Path(target)), Redundancy(files=files))


def _gathered(peers: Any, piece: Block, sizes: Sequence[int], start: int) -> list[Block]:
    """Return the pieces of all ranks on the first one."""
    empty = piece[:0]
    counts = [max(0, min(PIECE_BYTES, size - start)) if peers.rank == 0 else 0 for size in sizes]
    return list(peers.exchange([piece, *[empty] * (RANKS - 1)], counts))
