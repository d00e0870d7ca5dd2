"""An engine of one's own: a thread prepares updates, the serving loop applies them in between.

The loop waits only while a few values are written. A thread that prepares takes turns with the
loop: the next update is prepared when the last one was applied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

import lccodec
from lccodec.adapters import torch as adapter

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Engine:
    """A module that is served while its weights follow a trainer.

    Parameters
    ----------
    model
        The module, on any device.
    run
        The chain of the trainer.
    prefix
        The entry of the trainer's state that has the weights.
    """

    def __init__(self, model: torch.nn.Module, run: str, prefix: str = "model", **options: Any) -> None:
        self.model, self.step = model, -1
        self._prefix, self._staged = prefix, None
        self._follower = lccodec.follow(run, keys=prefix, **options)
        self._applied = threading.Event()
        self._applied.set()
        self._thread = threading.Thread(target=self._prepare, daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        for update in self._follower:
            staged = adapter.stage(self.model, update, prefix=self._prefix)  # copies to the device
            self._applied.clear()
            self._staged = staged
            self._applied.wait()  # the follower goes on only then

    def between_batches(self) -> bool:
        """Apply an update if one is ready; return whether one was."""
        staged = self._staged
        if staged is None:
            return False
        staged.apply()
        self.step, self._staged = staged.step, None
        self._applied.set()
        return True

    def serve(self, requests: Iterable[Request], answer: Callable[[Request], Answer]) -> Iterable[Answer]:
        """Answer requests; weights change only between two of them."""
        for request in requests:
            self.between_batches()
            yield answer(request)

    def close(self) -> None:
        """End the thread."""
        self._follower.close()
        self._applied.set()
        self._thread.join()
