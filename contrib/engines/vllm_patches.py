"""Updates as the checkpoint-coordinate patches of vLLM.

In a worker of vLLM::

    from vllm.model_executor.model_loader.checkpoint_weight_patch import (
        CheckpointWeightPatch, load_checkpoint_weight_patches,
    )

    for update in follower:
        for patches in patches_of(update, follower, CheckpointWeightPatch, prefix="model"):
            load_checkpoint_weight_patches(model, patches)

vLLM takes sparse and whole tensors in calls of their own, and sparse ones only of floating-point
types without NaN: it marks what stays with NaN. So all others are given whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from lccodec import Follower, Update
from lccodec.adapters import torch as adapter

SPARSE_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def patches_of(
    update: Update, follower: Follower, make: Callable[..., Any], prefix: str = ""
) -> Iterator[list[Any]]:
    """Yield the lists of patches to load, one after the other."""
    start = f"{prefix}/" if prefix else ""
    sparse, whole = [], []
    for patch in update.patches("bits"):
        if not patch.name.startswith(start):
            continue
        name = patch.name.removeprefix(start).replace("~1", "/").replace("~0", "~")
        values = adapter.from_numpy(patch.values, update.metadata, patch.name)
        fits = values.dtype in SPARSE_TYPES and not values.isnan().any()
        if patch.places is not None and fits:
            places = torch.from_numpy(patch.places)
            sparse.append(make(name, patch.shape, values.dtype, values, places))
            continue
        if patch.places is not None:
            array = follower.get(patch.name, "bits")
            values = adapter.from_numpy(array, update.metadata, patch.name).reshape(-1)
        whole.append(make(name, patch.shape, values.dtype, values))
    yield from filter(None, (sparse, whole))
