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
in the checkpoint's folder, or into the chain, where the trainer's rotation of checkpoints deletes
nothing (`lccodec.adapters.huggingface`). Steps of the chain are those of the trainer. Everything
else in the folder stays. To resume, unpack the folder. Needs the extra ``transformers``.

With ``LCCallback(..., background=True)`` training goes on as soon as the tensors are read and
copied. Worker processes store them, and only then the trainer's files are removed. The callback
waits before the trainer's next save, and at the end of training.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Unpack

from ..container.disk.system import checked_path
from ..errors import DependencyError
from ..policy.policy import Policy
from .chains.options import ChainOptions, OtherOptions

try:
    from transformers import TrainerCallback
except ImportError:
    raise DependencyError("needs transformers: pip install 'lccodec[transformers]'") from None

from .chains.saver import LinkSaver
from .huggingface import PACKED, pack_with, unpack

__all__ = ["LCCallback", "unpacked"]


class LCCallback(TrainerCallback):
    """Packs each checkpoint after the trainer has saved it.

    Parameters
    ----------
    chain, policy, keyframe_every, workers, newest, background, keep, hindsight, only
        See `lccodec.adapters.chains.options.ChainOptions`, also for errors.
    """

    def __init__(
        self,
        chain: str | os.PathLike[str] | None = None,
        policy: str | Policy = "lossless",
        **options: Unpack[OtherOptions],
    ) -> None:
        chain_options = ChainOptions(chain, policy, **options)
        self._saver = LinkSaver(chain_options)

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
        # At the end the trainer loads the best weights from its own files.
        keep = args.load_best_model_at_end
        models = () if model is None else [model]
        pack_with(self._saver, folder, keep_weights=keep, models=models, step=state.global_step)

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


def unpacked(folder: str | os.PathLike[str]) -> str:
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
