"""accelerate: hooks for `Accelerator.save_state` and `load_state`.

>>> import tempfile, torch
>>> from accelerate import Accelerator
>>> from lccodec.adapters.accelerate import register
>>> run, accelerator = tempfile.mkdtemp(), Accelerator(cpu=True)
>>> model = accelerator.prepare(torch.nn.Linear(3, 2))
>>> register(accelerator, chain=f"{run}/chain", policy="balanced")
>>> for step in range(2):
...     folder = accelerator.save_state(f"{run}/{step}")
>>> accelerator.load_state(f"{run}/1")

Call both as usual: `register` wraps the two methods. After a save, the weights and the states of
the optimizers move into ``lccodec.lcc.h5`` in the folder, whole and exact, and into the chain
(`lccodec.adapters.huggingface`). A load puts them back while it runs, before any hook of the script
looks for them. Everything else in the folder stays. Needs the extra ``accelerate``.

In the background, a save returns as soon as the tensors are read from the folder and copied. The
files are removed when worker processes have stored the tensors. The next save, a load and
``end_training`` wait for that, and raise the error if it failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from ..container.system import StrPath, checked_path
from ..errors import DependencyError
from ..policy.policy import Policy
from .chains import ChainOptions, LinkSaver, OtherOptions

try:
    import accelerate
except ImportError:
    raise DependencyError("needs accelerate: pip install 'lccodec[accelerate]'") from None

from .chains import PACKED
from .huggingface import pack_with, unpack

__all__ = ["register"]


def register(
    accelerator: accelerate.Accelerator,
    chain: StrPath | None = None,
    policy: str | Policy = "lossless",
    **options: Unpack[OtherOptions],
) -> None:
    """Pack what an accelerator saves from now on. It still loads folders that are not packed.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.ChainOptions`, also for errors.
    """
    _Packer(accelerator, ChainOptions(chain, policy, **options))


class _Packer:
    """Wraps three methods of an accelerator; its hooks learn the folder.

    No object is registered: that would shift the numbers of the caller's objects.
    """

    def __init__(self, accelerator: Any, options: ChainOptions) -> None:
        self._accelerator = accelerator
        self._saver = LinkSaver(options)
        self._folder = Path()
        self._models: Any = []
        self._unpacked: list[Path] = []
        self._save, self._load = accelerator.save_state, accelerator.load_state
        self._end = accelerator.end_training
        accelerator.register_save_state_pre_hook(self._before_save)
        hook = accelerator.register_load_state_pre_hook(self._before_load)
        accelerator._load_model_state_pre_hook.move_to_end(hook.id, last=False)  # others need the files
        accelerator.save_state = self._save_state
        accelerator.load_state = self._load_state
        accelerator.end_training = self._end_training

    def _before_save(self, models: Any, weights: Any, folder: str) -> None:  # noqa: ARG002 - accelerate passes it
        self._folder, self._models = checked_path(folder), models

    def _save_state(self, *args: Any, **options: Any) -> Any:
        self._saver.settle()  # as accelerate may delete the folder of the save that runs
        location = self._save(*args, **options)
        self._accelerator.wait_for_everyone()  # until all processes have written their files
        try:
            if self._accelerator.is_main_process:
                pack_with(self._saver, self._folder, models=self._models)
        finally:
            self._models = []
            self._accelerator.wait_for_everyone()
        return location

    def _before_load(self, models: Any, folder: str) -> None:  # noqa: ARG002 - accelerate passes it
        if self._accelerator.is_main_process and Path(folder, PACKED).exists():
            self._unpacked = unpack(folder)
        self._accelerator.wait_for_everyone()

    def _load_state(self, *args: Any, **options: Any) -> Any:
        self._saver.wait()
        try:
            return self._load(*args, **options)
        finally:
            self._accelerator.wait_for_everyone()
            for path in self._unpacked:
                path.unlink()
            self._unpacked = []

    def _end_training(self) -> None:
        try:
            self._end()
        finally:
            self._saver.close()
