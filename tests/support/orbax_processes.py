"""One process of several: ``python orbax_processes.py DIRECTORY PORT PROCESS PROCESSES``."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def values(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {
        "rows": rng.standard_normal((8, 5), np.float32),
        "columns": rng.standard_normal((3, 8)).astype(jnp.bfloat16),
        "both": rng.standard_normal((4, 4), np.float32),
        "everywhere": rng.standard_normal(7, np.float32),
    }


def main() -> None:
    import orbax.checkpoint as ocp
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave

    directory, address, process, processes = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    jax.distributed.initialize(address, processes, process)
    mesh = Mesh(np.array(jax.devices()).reshape(processes, -1), ("x", "y"))
    specs = {"rows": P(("x", "y")), "columns": P(None, "x"), "both": P("x", "y"), "everywhere": P()}
    others = {"rows": P(), "columns": P("y"), "both": P("y", "x"), "everywhere": P()}
    others["columns"] = P(None, ("y", "x"))

    def put(step: int, specs: dict[str, Any]) -> dict[str, Any]:
        return {
            name: jax.make_array_from_callback(
                value.shape, NamedSharding(mesh, specs[name]), lambda i, v=value: v[i]
            )
            for name, value in values(step).items()
        }

    for chain in (None, directory / "chain"):
        manager = ocp.CheckpointManager(
            directory / ("deltas" if chain else "alone"),
            item_handlers=LCCheckpointHandler(chain),
            options=ocp.CheckpointManagerOptions(max_to_keep=2, create=True),
        )
        for step in range(3):
            manager.save(step, args=LCSave({"model": put(step, specs), "step": step, "host": np.arange(3)}))
        manager.wait_until_finished()
        assert manager.all_steps() == [1, 2]
        for target in (specs, others):
            state = manager.restore(
                1, args=LCRestore({"model": put(9, target), "step": 0, "host": np.zeros(3, int)})
            )
            assert state["step"] == 1
            for name, value in values(1).items():
                assert state["model"][name].sharding == NamedSharding(mesh, target[name]), name
                for shard in state["model"][name].addressable_shards:
                    assert np.array_equal(shard.data, value[shard.index]), name
        manager.close()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
