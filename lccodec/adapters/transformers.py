"""transformers: a callback that packs the checkpoints of a `Trainer`.

>>> import tempfile, torch
>>> from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
>>> from lccodec.adapters.transformers import LCCallback, unpacked
>>> run, rows = tempfile.mkdtemp(), [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 8
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, n_positions=8, vocab_size=8))
>>> args = TrainingArguments(run, max_steps=4, save_steps=2, report_to="none", disable_tqdm=True,
...                          use_cpu=True, dataloader_pin_memory=False)
>>> callback = LCCallback(chain=f"{run}/chain", policy="balanced")
>>> trainer = Trainer(model, args, train_dataset=rows, callbacks=[callback])
>>> _ = trainer.train()  # doctest: +ELLIPSIS
{'train_runtime': ...
>>> _ = trainer.train(resume_from_checkpoint=unpacked(f"{run}/checkpoint-2"))  # doctest: +ELLIPSIS
{'train_runtime': ...

The trainer saves as usual. Then the weights and the optimizer's state move into ``lccodec.lcc.h5``
in the checkpoint's folder, whole and exact, and into the chain (`lccodec.adapters.huggingface`).
Steps of the chain are those of the trainer, and with ``save_total_limit`` it keeps no more of them
than the trainer keeps folders, unless you pass ``keep=`` or ``newest="history"``. Everything else
in the folder stays. To resume, unpack the folder. With ``load_best_model_at_end`` the trainer needs
its files: all of them stay until the end of training. Needs the extra ``transformers``.

With ``LCCallback(..., background=True)`` training goes on as soon as the tensors are read and
copied. Worker processes store them, and only then the trainer's files are removed. The callback
waits before the trainer's next save, and at the end of training.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from ..container.system import StrPath, checked_path
from ..errors import DependencyError
from ..policy.policy import Policy
from .chains import ChainOptions, LinkSaver, OtherOptions

try:
    from transformers import TrainerCallback
except ImportError:
    raise DependencyError("needs transformers: pip install 'lccodec[transformers]'") from None

from .chains import PACKED
from .huggingface import pack_with, unpack

__all__ = ["LCCallback", "unpacked"]


class LCCallback(TrainerCallback):
    """Packs each checkpoint after the trainer has saved it.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.ChainOptions`, also for errors.
    """

    def __init__(
        self, chain: StrPath | None = None, policy: str | Policy = "lossless", **options: Unpack[OtherOptions]
    ) -> None:
        self._saver = LinkSaver(ChainOptions(chain, policy, **options))
        self._needed: list[Callable[[], object]] = []  # removes files that the trainer loads at the end

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - the trainer passes it
        """Learn where the trainer goes on, and how many checkpoints it keeps."""
        self._saver.resumed(state.global_step or None)
        self._saver.follow(args.save_total_limit)

    def on_save(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002 - the trainer passes it
        model: Any = None,
        **_: Any,
    ) -> None:
        """Pack the checkpoint just saved; errors as `lccodec.adapters.huggingface.pack`."""
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        models = () if model is None else [model]
        # At the end the trainer loads the best weights from its own files. Without the optimizer's
        # beside them, it would resume as if there were none.
        needed = self._needed if args.load_best_model_at_end else None
        pack_with(self._saver, folder, models=models, step=state.global_step, needed=needed, hint=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - the trainer passes them
        """Before the trainer saves, wait for the save in the background: it may delete folders.

        Raises the failure of that save.
        """
        if control.should_save:
            self._saver.wait()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Do as `on_step_end`: some trainers save after each epoch."""
        self.on_step_end(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - the trainer passes them
        """Wait for the saves in the background; raise the failure of one."""
        self._saver.close()
        while self._needed:
            self._needed.pop()()


def unpacked(folder: StrPath) -> str:
    """Unpack a folder if it is packed, and return it for ``resume_from_checkpoint``.

    Raises
    ------
    ChainError
        If the checkpoint is missing from its chain.
    DataError, StorageError
        If the checkpoint is damaged or cannot be read.
    """
    if os.path.exists(checked_path(folder) / PACKED):  # noqa: PTH110 - Path.exists raises for a name that is too long
        unpack(folder)
    return os.fspath(folder)
