"""Orbax: handlers for its `CheckpointManager`, and for the checkpointables of its v1 API.

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

Each process writes a file of its own; Orbax makes the step visible when all have finished. What is saved is
copied when it is handed over, and encoded and written in the background. A step stands alone, so that Orbax
can delete others as it likes. For deltas, give the handler a chain::

    handler = LCCheckpointHandler(chain=..., policy="balanced")
    manager = ocp.CheckpointManager(directory, item_handlers=handler)

Then the states lie there, where Orbax deletes nothing, and each step has links (`lccodec.adapters.link`).

In the v1 API, register the handler under the name of a checkpointable (``state`` is taken by Orbax's own)::

    registry = ocp.handlers.local_registry().add(LCHandler, checkpointable_name="training")

Needs the extra ``orbax``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...chain.chain import Chain
from ...chain.replay import KEYFRAME_EVERY
from ...container.system import checked_path
from ...errors import DependencyError
from ...policy.policy import Policy
from ...policy.roles import Assignment

try:
    import jax
    import orbax.checkpoint as ocp
except ImportError:
    raise DependencyError("needs Orbax: pip install 'lccodec[orbax]'") from None

from ..link import save_linked
from ..options import ChainOptions
from .parts import part_path
from .pytree import abstract_tree, part_roles, read_tree, take_part

__all__ = ["LCCheckpointHandler", "LCHandler", "LCRestore", "LCSave"]


class LCCheckpointHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Saves and restores a pytree; for `orbax.checkpoint.CheckpointManager` and the checkpointers.

    Parameters
    ----------
    chain, policy, keyframe_every, threads
        See `lccodec.adapters.options.ChainOptions`, also for errors. Each process has a chain of its own in
        the directory.
    """

    def __init__(
        self,
        chain: str | os.PathLike[str] | None = None,
        policy: str | Policy = "lossless",
        *,
        keyframe_every: int = KEYFRAME_EVERY,
        threads: int = 1,
    ) -> None:
        self._options = ChainOptions(chain, policy, keyframe_every, threads)
        self._chain: Chain | None = None

    async def async_save(self, directory: Any, args: LCSave) -> list[ocp.future.Future]:
        """Copy the tree, and return what waits until it is written."""
        state = take_part(args.item)
        roles = part_roles(args.item, state)

        async def write() -> None:
            await asyncio.to_thread(self._write, state, roles, checked_path(directory))

        return [ocp.future.CommitFutureAwaitingContractedSignals(write(), name="lccodec_save")]

    def save(self, directory: Any, args: LCSave) -> None:
        """Write the tree."""
        state = take_part(args.item)
        self._write(state, part_roles(args.item, state), checked_path(directory))

    def _write(self, state: dict[str, Any], roles: Mapping[str, Assignment], directory: Path) -> None:
        process = state["process"]
        if self._chain is None:
            self._chain = self._options.open_part(f"process-{process}")
        save_linked(state, part_path(directory, process), {}, self._chain, roles)

    def restore(self, directory: Any, args: LCRestore | None = None) -> Any:
        """Return the tree.

        Raises
        ------
        ArgumentError
            If the checkpoint does not fit the target; lists all that does not.
        ChainError
            If a file is missing or of another checkpoint.
        DataError
            If stored bytes break a rule.
        """
        return read_tree(checked_path(directory), args and args.item, self._options.threads)

    def metadata(self, directory: Any) -> Any:
        """Return the tree with `jax.ShapeDtypeStruct` in the place of arrays."""
        return abstract_tree(checked_path(directory))


@ocp.args.register_with_handler(LCCheckpointHandler, for_save=True)
@dataclass
class LCSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """What to save: a pytree of arrays and plain values."""

    item: Any


@ocp.args.register_with_handler(LCCheckpointHandler, for_restore=True)
@dataclass
class LCRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """How to restore: a tree like the one that was saved, of `jax.ShapeDtypeStruct` or of arrays.

    Shapes and dtypes must be the same; shardings may differ. Without it, NumPy arrays in dicts and lists.
    """

    item: Any = None


class LCHandler:
    """Saves and loads a pytree in Orbax's v1 API; a `CheckpointableHandler`.

    Orbax takes a class and makes it itself: what `LCCheckpointHandler` would be told stands in `options` of a
    subclass.
    """

    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        self._handler = LCCheckpointHandler(**self.options)

    async def save(self, directory: Any, checkpointable: Any) -> Awaitable[None]:
        """Copy the tree, and return what writes it."""
        state = take_part(checkpointable)
        roles = part_roles(checkpointable, state)

        async def write() -> None:
            path = checked_path(await directory.await_creation())
            await asyncio.to_thread(self._handler._write, state, roles, path)

        return write()

    async def load(self, directory: Any, abstract_checkpointable: Any = None) -> Awaitable[Any]:
        """Return what reads the tree; errors as `LCCheckpointHandler.restore`."""

        async def read() -> Any:
            return read_tree(checked_path(directory), abstract_checkpointable)

        return read()

    async def metadata(self, directory: Any) -> Any:
        """Return the tree with `jax.ShapeDtypeStruct` in the place of arrays."""
        return abstract_tree(checked_path(directory))

    def is_handleable(self, checkpointable: Any) -> bool:
        """Return whether all leaves are arrays or plain values."""
        kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, str, bytes)
        return all(isinstance(leaf, kinds) for leaf in jax.tree_util.tree_leaves(checkpointable))

    def is_abstract_handleable(self, abstract_checkpointable: Any) -> bool:
        """Return whether all leaves say what to make of an array, or are plain values."""
        leaves = jax.tree_util.tree_leaves(abstract_checkpointable)
        return all(isinstance(leaf, jax.ShapeDtypeStruct) or self.is_handleable(leaf) for leaf in leaves)
