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

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Unpack

import numpy as np

from ...container.system import StrPath, checked_path
from ...container.tree import leaf_name
from ...errors import ArgumentError, DependencyError
from ...policy.policy import Policy
from ..chains import ChainOptions, LinkSaver, OtherOptions
from ..files.steps import number_files

try:
    import jax
    import orbax.checkpoint as ocp
except ImportError:
    raise DependencyError("needs Orbax: pip install 'lccodec[orbax]'") from None

from .pytree import abstract_tree, part_path, part_roles, read_tree, take_part

__all__ = ["LCCheckpointHandler", "LCHandler", "LCRestore", "LCSave"]

#: What Orbax writes behind the name of a directory until it is complete.
_TEMPORARY: Final = ".orbax-checkpoint-tmp"


class LCCheckpointHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Saves and restores a pytree; for `orbax.checkpoint.CheckpointManager` and the checkpointers.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.ChainOptions`, also for errors. Each process has its
        own chain in the directory.
    """

    def __init__(
        self, chain: StrPath | None = None, policy: str | Policy = "lossless", **options: Unpack[OtherOptions]
    ) -> None:
        self._options = ChainOptions(chain, policy, **options)
        self._saver: LinkSaver | None = None

    async def async_save(self, directory: Any, args: LCSave) -> list[ocp.future.Future]:
        """Copy the tree; return a future that waits until it is written."""
        write = self._begin(args.item, _step(directory))

        async def finish() -> None:
            await asyncio.to_thread(write, checked_path(directory))

        return [ocp.future.CommitFutureAwaitingContractedSignals(finish(), name="lccodec_save")]

    def save(self, directory: Any, args: LCSave) -> None:
        """Write the tree."""
        self._begin(args.item, _step(directory))(checked_path(directory))

    def close(self) -> None:
        """Wait for the saves in the background, and end the workers."""
        if self._saver is not None:
            self._saver.close()

    def _begin(self, tree: Any, step: int | None) -> Callable[[Path], None]:
        """Copy a tree; return the function that writes it, or its link, to a directory."""
        state = take_part(tree, copy=not self._options.background)
        roles, process = part_roles(tree, state), state["process"]
        if self._saver is None:
            self._saver = LinkSaver(self._options, part=f"process-{process}")
        if self._options.background:
            # The directory may not exist yet, and Orbax asks for the result: no failure is lost.
            begun = self._saver.begin(state, {}, roles, step, _names(state))
            return lambda directory: begun.link(part_path(directory, process))
        save = partial(self._saver.save, state, metadata={}, roles=roles, step=step, names=_names(state))
        return lambda directory: save(part_path(directory, process))

    def restore(self, directory: Any, args: LCRestore | None = None) -> Any:
        """Return the tree; an ``ArgumentError`` lists every misfit with the target."""
        return read_tree(checked_path(directory), args and args.item)

    def metadata(self, directory: Any) -> Any:
        """Return the tree with `jax.ShapeDtypeStruct` in the place of arrays."""
        return abstract_tree(checked_path(directory))


@ocp.args.register_with_handler(LCCheckpointHandler, for_save=True)
@dataclass
class LCSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument of a save: a pytree of arrays and plain values."""

    item: Any


@ocp.args.register_with_handler(LCCheckpointHandler, for_restore=True)
@dataclass
class LCRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument of a restore: a tree like the saved one, of `jax.ShapeDtypeStruct` or arrays.

    Shapes and dtypes must be the same; shardings may differ. Without a tree, the restore returns
    NumPy arrays in dicts and lists.
    """

    item: Any = None


class LCHandler:
    """Saves and loads a pytree in Orbax's v1 API; a `CheckpointableHandler`.

    Orbax makes the object itself, without arguments. A subclass gives the arguments of
    `LCCheckpointHandler` in `options`.
    """

    options: ClassVar[Mapping[str, Any]] = {}
    _handler: LCCheckpointHandler

    def __init__(self) -> None:
        # Orbax makes an object for each save. The chain, with its workers, is for all of them.
        if "_handler" not in vars(type(self)):
            type(self)._handler = LCCheckpointHandler(**self.options)

    async def save(self, directory: Any, checkpointable: Any) -> Awaitable[None]:
        """Copy the tree; return an awaitable that writes it."""
        write = self._handler._begin(checkpointable, _step(getattr(directory, "path", None)))

        async def finish() -> None:
            path = checked_path(await directory.await_creation())
            await asyncio.to_thread(write, path)

        return finish()

    async def load(self, directory: Any, abstract_checkpointable: Any = None) -> Awaitable[Any]:
        """Return an awaitable that reads the tree; errors as `LCCheckpointHandler.restore`."""

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
        """Return whether all leaves are abstract arrays or plain values."""
        leaves = jax.tree_util.tree_leaves(abstract_checkpointable)
        return all(isinstance(leaf, jax.ShapeDtypeStruct) or self.is_handleable(leaf) for leaf in leaves)


def _names(part: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the arrays of a part; ``None`` if it is the only one."""
    return [leaf_name(("arrays", key)) for key in part["arrays"]] if part["processes"] > 1 else None


def _step(directory: Any) -> int | None:
    """Return the step in the name of a directory of Orbax, or of the one above, if there is one."""
    if directory is None:
        return None
    parts = checked_path(directory).parts
    path = Path(*(part.partition(_TEMPORARY)[0] or part for part in parts))
    try:
        numbering = number_files([path / "state"])
    except ArgumentError:  # it is not clear which number is meant
        return None
    return None if numbering is None else next(iter(numbering.steps))
