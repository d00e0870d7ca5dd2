"""Updates as the checkpoint-coordinate patches of vLLM.

In a worker of vLLM::

    for update in lccodec.follow(run, keys="model"):
        load_update(model, model_config, update, follower, prefix="model")

vLLM writes sparse patches into the tensors that it computes with: of floating-point types without
NaN, which marks what stays. Whole tensors it loads anew, layer by layer, and a layer needs all of
its tensors for that. So an update is given as sparse patches if all of it can be; otherwise, as the
first update, it is the whole model, between the two calls that vLLM asks of whoever loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lccodec import Follower, Update
from lccodec.adapters import torch as adapter

SPARSE_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def load_update(
    model: torch.nn.Module,
    model_config: Any,
    update: Update,
    follower: Follower,
    prefix: str = "",
) -> bool:
    """Load an update into a model of vLLM; return whether the whole model was loaded anew."""
    from vllm.model_executor.model_loader import checkpoint_weight_patch as patching
    from vllm.model_executor.model_loader import reload

    patches = sparse_patches(update, patching.CheckpointWeightPatch, prefix)
    if patches is not None:
        if patches:
            patching.load_checkpoint_weight_patches(model, patches)
        return False
    whole = whole_patches(update, follower, patching.CheckpointWeightPatch, prefix)
    reload.initialize_layerwise_reload(model)
    patching.load_checkpoint_weight_patches(model, whole)
    reload.finalize_layerwise_reload(model, model_config)
    return True


def sparse_patches(update: Update, make: Callable[..., Any], prefix: str = "") -> list[Any] | None:
    """Return an update as sparse patches; ``None`` if a part of it cannot be one."""
    found = []
    for patch in update.patches("bits"):
        if (name := _name(patch.name, prefix)) is None:
            continue
        values = adapter.from_numpy(patch.values, update.metadata, patch.name)
        if patch.places is None or values.dtype not in SPARSE_TYPES or values.isnan().any():
            return None
        found.append(make(name, patch.shape, values.dtype, values, torch.from_numpy(patch.places)))
    return found


def whole_patches(
    update: Update, follower: Follower, make: Callable[..., Any], prefix: str = ""
) -> list[Any]:
    """Return all tensors of the state that an update leads to, each as a whole."""
    found = []
    for path in follower.names:
        if (name := _name(path, prefix)) is not None:
            tensor = adapter.from_numpy(follower.get(path, "bits"), update.metadata, path)
            found.append(make(name, tuple(tensor.shape), tensor.dtype, tensor.reshape(-1)))
    return found


def _name(path: str, prefix: str) -> str | None:
    """Return the name of the tensor at a place in the state; ``None`` if it is not of the model."""
    start = f"{prefix}/" if prefix else ""
    if not path.startswith(start):
        return None
    return path.removeprefix(start).replace("~1", "/").replace("~0", "~")
