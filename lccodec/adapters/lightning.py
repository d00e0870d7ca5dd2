"""Lightning: a plugin that writes and reads the trainer's checkpoints.

>>> import tempfile, torch
>>> from lccodec.adapters.lightning import LCCheckpointIO
>>> run = tempfile.mkdtemp()
>>> plugin = LCCheckpointIO(chain=f"{run}/chain", policy="balanced")     # Trainer(plugins=[plugin])
>>> for epoch in range(2):
...     state = {"epoch": epoch, "state_dict": {"w": torch.ones(3)}}
...     plugin.save_checkpoint(state, f"{run}/{epoch}.ckpt")
>>> plugin.remove_checkpoint(f"{run}/0.ckpt")
>>> plugin.load_checkpoint(f"{run}/1.ckpt")
{'epoch': 1, 'state_dict': {'w': tensor([1., 1., 1.])}}

`Trainer.fit(ckpt_path=...)` resumes from such a file. A checkpoint may hold what a `state_dict`
holds: tensors and plain values (:mod:`lccodec.adapters.tree`) in dicts and lists, but no
objects. With `LCCheck` among the callbacks of the trainer, a checkpoint that holds more is refused
before the first step. Each checkpoint is a whole file (`lccodec.adapters.chains`), exact also where
the chain is lossy: it may be copied, uploaded and deleted as any other. With a chain it is a step
of the chain too, which is the trainer's ``global_step``; a trainer that goes back takes the chain
back. ``Module.load_from_checkpoint`` ignores plugins: use what `load_checkpoint` returns. Needs the
extra ``lightning``.

With ``background=True`` a save only copies the state, and worker processes do the rest. What a new
checkpoint replaces is deleted when the new one is on the disk. The trainer's teardown waits. Then
Lightning's `AsyncCheckpointIO` is not needed. It can wrap a plugin that saves at once: it copies
the state once more, and codes in a thread of the training process.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..container.folder import make_directory
from ..container.system import StrPath, checked_path, storage_errors
from ..errors import ArgumentError, DependencyError, as_integer
from ..policy.policy import Policy
from .chains import ChainOptions, LinkSaver, OtherOptions, open_linked

try:
    import torch
    from lightning import Callback, LightningModule, Trainer
    from lightning.fabric.plugins import CheckpointIO
except ImportError:
    raise DependencyError("needs Lightning: pip install 'lccodec[lightning]'") from None

from . import torch as adapter

__all__ = ["LCCheck", "LCCheckpointIO"]


class LCCheck(Callback):
    """Checks before the first step that the trainer's checkpoints can be stored.

    ``Trainer(plugins=[LCCheckpointIO()], callbacks=[LCCheck()])``. The check calls the hooks of
    saving (``state_dict``, ``on_save_checkpoint``) one extra time.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002 - Lightning passes it
        """Check what the trainer would save now.

        Raises
        ------
        ArgumentError
            For a value that cannot be stored. The message names its place.
        """
        adapter.check(trainer._checkpoint_connector.dump_checkpoint(weights_only=False))


class LCCheckpointIO(CheckpointIO):
    """Saves and loads the checkpoints of a trainer.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.ChainOptions`, also for errors.
    """

    def __init__(
        self, chain: StrPath | None = None, policy: str | Policy = "lossless", **options: Unpack[OtherOptions]
    ) -> None:
        chain_options = ChainOptions(chain, policy, **options)
        self._saver = LinkSaver(chain_options, adapter.OnDevice("cpu"))  # trainers may pickle their plugins

    def save_checkpoint(self, checkpoint: dict[str, Any], path: StrPath, storage_options: Any = None) -> None:
        """Write a checkpoint atomically; an existing file is replaced.

        Raises
        ------
        ArgumentError
            For a value that cannot be stored (the message names it), storage options, or an invalid
            path.
        StorageError
            If the operating system refuses.
        LccodecError
            If an earlier save in the background failed; then this one is not begun.
        """
        if storage_options is not None:
            raise ArgumentError("storage options are not supported: checkpoints are files")
        target = checked_path(path)
        with storage_errors("cannot create", target.parent):
            make_directory(target.parent)
        step = checkpoint.get("global_step") if isinstance(checkpoint, dict) else None
        self._saver.save(checkpoint, target, step=as_integer(step))

    def load_checkpoint(
        self,
        path: StrPath,
        map_location: Any = None,
        weights_only: bool | None = None,  # noqa: ARG002 - nothing else is ever loaded
    ) -> dict[str, Any]:
        """Return a checkpoint, with tensors on the CPU unless `map_location` is a device.

        Saves in the background are waited for.

        Raises
        ------
        ChainError
            If the checkpoint that a link names is missing.
        DataError, StorageError
            As `lccodec.load_file`.
        """
        self._saver.wait()
        device = map_location if isinstance(map_location, str | torch.device) else "cpu"
        with open_linked(checked_path(path)) as file:
            state: dict[str, Any] = file.restored(partial(adapter.from_numpy, device=device))
        self._saver.resumed(as_integer(state.get("global_step")) if isinstance(state, dict) else None)
        return state

    def remove_checkpoint(self, path: StrPath) -> None:
        """Delete a checkpoint. A chain keeps its step.

        While a save runs in the background, the file stays until that checkpoint is on the disk.
        """
        self._saver.after(partial(_delete, checked_path(path)))

    def teardown(self) -> None:
        """Wait for the saves in the background; raise the error of one that failed."""
        self._saver.close()


def _delete(path: Path) -> None:
    with storage_errors("cannot delete", path):
        path.unlink(missing_ok=True)
