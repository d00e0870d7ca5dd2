"""The ranks of tests of parity: ``python parity_ranks.py PART DIRECTORY RANKS FILES ...``.

They are forks of a process that imports once what takes seconds, for one group of four arguments
after the other. The exit statuses are printed as a line, and `END` as the next one. Rank 1 has
nothing to save.
"""

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from lccodec.adapters.dcp import LCStorageWriter
from lccodec.chain.mend import ranks as stripes

#: What each rank has: the sizes are uneven, and rank 1 has nothing.
ELEMENTS = [3000, 0, 40_000, 7]

END = "--- end of a part"


def state_of(rank: int, step: int) -> dict[str, Any]:
    """What a rank saves."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    count = ELEMENTS[rank]
    return {f"fc{rank}.weight": torch.randn(count, 1, generator=generator)} if count else {}


def tell(writer: LCStorageWriter) -> None:
    """Wait for the parity, and print what it warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        writer.wait()
    for each in told:
        print(f"{each.category.__name__} {each.message}", flush=True)


def save(directory: str, files: int) -> None:
    """Save checkpoints that share a chain, then some of one path, the last of them in a thread."""
    rank = dist.get_rank()
    writer = LCStorageWriter(f"{directory}/x", f"{directory}/chain", "lc-3", newest="exact", parity=files)
    for step in range(3):
        dcp.save(state_of(rank, step), checkpoint_id=f"{directory}/{step}", storage_writer=writer)
    tell(writer)
    writer = LCStorageWriter(f"{directory}/one", parity=files, process_group=dist.new_group(backend="gloo"))
    for step in range(2):
        dcp.save(state_of(rank, step), storage_writer=writer)
    dcp.async_save(state_of(rank, 2), storage_writer=writer).result()
    tell(writer)
    dist.barrier()


def fail(directory: str, files: int) -> None:
    """A save of which one rank fails gets no parity; the next one does."""
    writer = LCStorageWriter(f"{directory}/one", parity=files)
    state = state_of(dist.get_rank(), 0)
    if dist.get_rank() == 2:
        state["bad"] = object()
    try:
        dcp.save(state, storage_writer=writer)
    except dcp.CheckpointException:
        print("failed", flush=True)
    tell(writer)
    dist.barrier()
    print(f"parity {sorted(Path(directory, 'one/.parity').glob('*'))}", flush=True)
    dist.barrier()
    dcp.save(state_of(dist.get_rank(), 1), storage_writer=writer)
    tell(writer)
    dist.barrier()


def kill(directory: str, files: int) -> None:
    """Rank 2 is killed while it makes the parity of the second save."""
    writer = LCStorageWriter(f"{directory}/one", parity=files)
    dcp.save(state_of(dist.get_rank(), 0), storage_writer=writer)
    tell(writer)
    if dist.get_rank() == 2:

        def killed(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        mock.patch.object(stripes.Striped, "_index", killed).start()
    dcp.save(state_of(dist.get_rank(), 1), storage_writer=writer)
    tell(writer)


def run(part: Callable[[str, int], None], directory: str, rank: int, ranks: int, files: int) -> None:
    """What a rank does."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=240),
    )
    part(directory, files)
    # Threads of gloo that still run while the interpreter shuts down now and then end the process.
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    fork = multiprocessing.get_context("fork")
    for start in range(1, len(sys.argv), 4):
        name, directory, count, files = sys.argv[start : start + 4]
        part = {each.__name__: each for each in (save, fail, kill)}[name]
        processes = [
            fork.Process(target=run, args=(part, directory, rank, int(count), int(files)))
            for rank in range(int(count))
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes], END, sep="\n", flush=True)


if __name__ == "__main__":
    main()
