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

They are called as ever. When a state has been saved, its weights and the states of its optimizers move into
``lccodec.lcc.h5`` in the folder, or into the chain (`lccodec.adapters.folder`); before it is loaded they are
put back, for as long as that takes. All else in the folder stays. Needs the extra ``accelerate``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import DependencyError
from ..policy import Policy
from .link import linked_chain

try:
    import accelerate
except ImportError:
    raise DependencyError("needs accelerate: pip install 'lccodec[accelerate]'") from None

from .folder import PACKED, pack, unpack

__all__ = ["register"]


def register(
    accelerator: accelerate.Accelerator,
    chain: str | os.PathLike[str] | None = None,
    policy: str | Policy = "lossless",
    *,
    keyframe_every: int = 32,
    threads: int = 1,
) -> None:
    """Pack what an accelerator saves from now on; call it after ``register_for_checkpointing`` of your own.

    Parameters
    ----------
    chain
        Directory for a chain of deltas; without it each checkpoint stands alone.
    policy, keyframe_every
        As for `Chain`, but exact unless a lossy policy is asked for.
    threads
        How many to encode and decode with, 0 for one each core.

    Raises
    ------
    ArgumentError
        For an unknown policy, or one without a chain.
    """
    packer = _Packer(accelerator, linked_chain(chain, policy, keyframe_every, threads), threads)
    accelerator.register_save_state_pre_hook(packer.before_save)
    accelerator.register_load_state_pre_hook(packer.before_load)
    accelerator.register_for_checkpointing(packer)


class _Packer:
    """Hooks before, and a registered object after: it is asked for its state when all files are written."""

    def __init__(self, accelerator: accelerate.Accelerator, make_chain: Any, threads: int) -> None:
        self._accelerator = accelerator
        self._make_chain = make_chain
        self._chain: Any = None
        self._threads = threads
        self._folder = Path()
        self._unpacked: list[Path] = []

    def before_save(self, models: Any, weights: Any, folder: str) -> None:  # noqa: ARG002 - as it is called
        self._folder = Path(folder)

    def state_dict(self) -> dict[str, Any]:
        if self._accelerator.is_main_process:
            self._chain = self._chain or self._make_chain()
            pack(self._folder, self._chain)
        return {}

    def before_load(self, models: Any, folder: str) -> None:  # noqa: ARG002 - as it is called
        if self._accelerator.is_main_process and Path(folder, PACKED).exists():
            self._unpacked = unpack(folder, self._threads)
        self._accelerator.wait_for_everyone()

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: ARG002
        self._accelerator.wait_for_everyone()
        for path in self._unpacked:
            path.unlink()
        self._unpacked = []
