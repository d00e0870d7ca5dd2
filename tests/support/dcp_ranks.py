"""The ranks of a test: ``python dcp_ranks.py DIRECTORY``.

Three ranks save, two load. They are forks of a process that imports once what takes seconds. The
exit statuses of each part are printed as a line.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import Shard as TensorShard
from torch.distributed._shard.sharded_tensor import init_from_local_shards
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter


def values(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "rows": torch.randn(10, 64, generator=generator),  # uneven over 3
        "columns": torch.randn(2, 7, 6, generator=generator).bfloat16(),
        "whole": torch.randn(33, generator=generator),
        "plain": torch.arange(5) + step,
        "legacy": torch.randn(6, 4, generator=generator).double(),
        "tiny": torch.randn(1, 3, generator=generator),  # two of three ranks have nothing of it
    }


def distributed(mesh: DeviceMesh, whole: dict[str, torch.Tensor], step: int | None) -> dict[str, Any]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows = 6 // ranks
    shard = TensorShard.from_tensor_and_offsets(
        whole["legacy"][rank * rows : (rank + 1) * rows].clone(), [rank * rows, 0], rank
    )
    return {
        "model": {
            "rows": distribute_tensor(whole["rows"], mesh, [Shard(0)]),
            "columns": distribute_tensor(whole["columns"], mesh, [Shard(2)]),
            "whole": distribute_tensor(whole["whole"], mesh, [Replicate()]),
            "tiny": distribute_tensor(whole["tiny"], mesh, [Shard(0)]),
            "plain": whole["plain"],
        },
        "legacy": init_from_local_shards([shard], 6, 4),
        "step": step,
        "betas": (0.9, 0.999) if step is not None else None,
    }


def save(directory: str, mesh: DeviceMesh) -> None:
    """Three checkpoints: one saved, one saved asynchronously, one during which rank 1 dies."""
    writer = LCStorageWriter(directory, chain=f"{directory}/chain", policy="lossless")
    dcp.save(distributed(mesh, values(0), 0), checkpoint_id=f"{directory}/0", storage_writer=writer)
    future = dcp.async_save(
        distributed(mesh, values(1), 1), checkpoint_id=f"{directory}/1", storage_writer=writer
    )
    future.result()

    class Dying(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if dist.get_rank() == 1:
                os._exit(9)
            return super().resolve_data(write_item)

    dist.barrier()
    state = distributed(mesh, values(2), 2)
    try:
        dcp.save(state, checkpoint_id=f"{directory}/2", storage_writer=writer, planner=Dying())
    except RuntimeError as error:  # gloo's: the connection is gone
        print("interrupted:", error, flush=True)
        os._exit(0)


def load(directory: str, mesh: DeviceMesh) -> None:
    """Load on two ranks what three saved, and go on."""
    for step in (0, 1):
        state = distributed(mesh, values(9), None)
        dcp.load(state, checkpoint_id=f"{directory}/{step}", storage_reader=LCStorageReader(directory))
        expected = values(step)
        for name, tensor in state["model"].items():
            found = tensor if name == "plain" else tensor.full_tensor()
            assert torch.equal(found, expected[name]), name
        for shard in state["legacy"].local_shards():
            start = shard.metadata.shard_offsets[0]
            assert torch.equal(shard.tensor, expected["legacy"][start : start + 3])
        assert (state["step"], state["betas"]) == (step, (0.9, 0.999))
    writer = LCStorageWriter(directory, chain=f"{directory}/chain", policy="lossless")
    planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
    for step in (3, 4):
        state = distributed(mesh, values(step), step)
        dcp.save(state, checkpoint_id=f"{directory}/{step}", storage_writer=writer, planner=planner)
    try:
        dcp.load(state, checkpoint_id=f"{directory}/2", storage_reader=LCStorageReader(directory))
    except dcp.CheckpointException as error:
        assert "holds no checkpoint" in str(error), error
    else:
        raise AssertionError("loaded what was never committed")


def run(part: Callable[[str, DeviceMesh], None], directory: str, rank: int, ranks: int) -> None:
    """What a rank does."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/{part.__name__}.rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=240),
    )
    part(directory, init_device_mesh("cpu", (ranks,)))
    dist.barrier()
    # All that is tested is done. Threads of gloo that still run while the interpreter shuts down
    # now and then end the process with std::terminate; without a shutdown they cannot.
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    fork = multiprocessing.get_context("fork")
    for part, ranks in ((save, 3), (load, 2)):
        processes = [fork.Process(target=run, args=(part, sys.argv[1], rank, ranks)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print(part.__name__, [process.exitcode for process in processes], flush=True)


if __name__ == "__main__":
    main()
