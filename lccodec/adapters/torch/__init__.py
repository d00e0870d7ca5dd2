"""PyTorch: states of modules, optimizers and schedulers; tensors go in and come out.

>>> import tempfile, torch, lccodec
>>> import lccodec.adapters.torch as adapter
>>> model = torch.nn.Linear(3, 2)
>>> optimizer = torch.optim.AdamW(model.named_parameters())
>>> model(torch.ones(1, 3)).sum().backward()
>>> optimizer.step()
>>> with lccodec.Chain(tempfile.mkdtemp(), policy="lossless", adapter=adapter) as chain:
...     _ = chain.save(1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
>>> resumed = torch.nn.Linear(3, 2)
>>> target = {"model": resumed, "optimizer": torch.optim.AdamW(resumed.named_parameters())}
>>> _ = adapter.load_into(target, chain.restore())  # all of it, or an error that lists every misfit
>>> torch.equal(resumed.weight, model.weight)
True
>>> _ = adapter.load_into(target, chain.restore_iter())  # the same, layer by layer

Nothing is pickled. `Chain.save` reads the memory of a CPU tensor in place, and copies tensors on
other devices to the CPU. Tensors that share all their memory, such as tied weights, are stored once
and restored as one tensor. A tensor comes back contiguous and without its gradient.

Users import this folder, not its modules. Needs the extra ``torch``.
"""

from ...errors import DependencyError

try:
    import torch  # noqa: F401 - all modules of the folder need it
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

from ..matching import LoadReport
from .states import OnDevice, check, from_numpy, load, load_file, roles, roles_of, save, save_file, to_numpy
from .target import apply_update, load_into, stage

__all__ = [
    "LoadReport",
    "OnDevice",
    "apply_update",
    "check",
    "from_numpy",
    "load",
    "load_file",
    "load_into",
    "roles",
    "roles_of",
    "save",
    "save_file",
    "stage",
    "to_numpy",
]
