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

`dcp.async_save` copies the state, and saves it in a thread or in a process. With `workers`, the
coding is done by worker processes, so that it does not hold up the training thread.

Every rank writes the items of its plan into its own chain, ``CHAIN/rank-N``. When all ranks have
finished, the coordinator writes the record, which is also a checkpoint file. It holds what DCP
calls the metadata, and the name and root hash of each rank's file. A checkpoint exists as soon as
its record exists; a file that does not match the record is refused. A save that is cut short leaves
files that nothing refers to, and earlier checkpoints stay as they were. With a lossy policy or
``chain=``, each rank's state also lies beside the record, whole and exact (a second name of the
exact file of its chain): the checkpoint loads bit for bit as long as its directory exists.

With ``parity=1``, ``lccodec repair`` and :func:`lccodec.adapters.ranks.repair_together` mend the
files of any rank that are lost.

No pickle is stored: a value that is not a tensor (an epoch, ``betas``, a random state of NumPy)
lies in the record, if a chain would store it. For anything else, both sides need
``allow_pickle=True``. `LCStorageReader.state` returns the whole state without a target. Needs the
extra ``torch``.
"""

from ...errors import DependencyError

try:
    import torch.distributed.checkpoint  # noqa: F401 - all modules of the folder need it
except ImportError:
    raise DependencyError("needs PyTorch: pip install 'lccodec[torch]'") from None

from .reader import LCStorageReader
from .writer import LCStorageWriter

__all__ = ["LCStorageReader", "LCStorageWriter"]
