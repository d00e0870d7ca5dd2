"""Orbax: handlers for its `CheckpointManager` and for the checkpointables of its v1 API.

>>> import tempfile, jax, jax.numpy as jnp
>>> import orbax.checkpoint as ocp
>>> from lccodec.adapters.orbax import LCRestore, LCSave
>>> state = {"params": {"w": jnp.ones((3, 2))}, "key": jax.random.key(0), "epoch": 1}
>>> options = ocp.CheckpointManagerOptions(max_to_keep=2)
>>> with ocp.CheckpointManager(tempfile.mkdtemp(), options=options) as manager:
...     for step in range(3):
...         _ = manager.save(step, args=LCSave(state))
...     manager.wait_until_finished()
...     restored = manager.restore(manager.latest_step(), args=LCRestore(state))
...     manager.all_steps(), restored["params"]["w"].shape, restored["epoch"]
([1, 2], (3, 2), 1)

Each process writes its own file; Orbax makes the step visible when all have finished. A save copies
the tree, and encodes and writes it in the background. Each step stands alone, so Orbax can delete
any step. For deltas, give the manager ``item_handlers=LCCheckpointHandler(chain=...)``. Then the
states lie in the chain, where Orbax deletes nothing, and each step holds links to it
(`lccodec.adapters.link`).

With ``background=True``, worker processes encode and write, in place of a thread of this process,
and the copy of the tree lies in memory that they read. Orbax makes a step visible when the workers
have finished, and raises what failed.

In the v1 API, register the handler under the name of a checkpointable (Orbax uses the name
``state`` itself)::

    registry = ocp.handlers.local_registry().add(LCHandler, checkpointable_name="training")

Needs the extra ``orbax``.
"""

from ...errors import DependencyError

try:
    import jax  # noqa: F401 - all modules of the folder need both
    import orbax.checkpoint  # noqa: F401
except ImportError:
    raise DependencyError("needs Orbax: pip install 'lccodec[orbax]'") from None

from .handler import LCCheckpointHandler, LCHandler, LCRestore, LCSave

__all__ = ["LCCheckpointHandler", "LCHandler", "LCRestore", "LCSave"]
