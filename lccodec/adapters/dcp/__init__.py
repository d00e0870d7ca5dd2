"""torch.distributed.checkpoint: storage for `dcp.save`, `dcp.async_save` and `dcp.load`.

>>> import tempfile, torch
>>> import torch.distributed.checkpoint as dcp
>>> from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
>>> run, model = tempfile.mkdtemp(), torch.nn.Linear(3, 2)
>>> writer = LCStorageWriter(f"{run}/latest", chain=f"{run}/chain", policy="lossless")
>>> for step in range(2):
...     _ = dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=f"{run}/{step}",
...                  storage_writer=writer, no_dist=True)
>>> state = {"model": torch.nn.Linear(3, 2).state_dict(), "step": None}
>>> dcp.load(state, checkpoint_id=f"{run}/1", storage_reader=LCStorageReader(run), no_dist=True)
>>> torch.equal(state["model"]["weight"], model.weight), state["step"]
(True, 1)

Every rank writes what the planner gives it into a chain of its own, ``CHAIN/rank-N``. When all have
finished, the coordinator writes the record, itself a checkpoint file: what DCP calls the metadata, and the
file of each rank with its root. There is a checkpoint once its record is there, and a file that is not the
one the record names is refused. So a save that is cut short leaves files that nothing refers to, and the
earlier checkpoints as they were.

No pickle is stored: a value that is no tensor (an epoch, ``betas``) becomes scalars of the record. Where a
planner hands over anything else, it takes ``allow_pickle=True`` on both sides. Needs the extra ``torch``.
"""

from ...errors import DependencyError

try:
    import torch.distributed.checkpoint  # noqa: F401 - all modules of the folder need it
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

from .reader import LCStorageReader
from .writer import LCStorageWriter

__all__ = ["LCStorageReader", "LCStorageWriter"]
