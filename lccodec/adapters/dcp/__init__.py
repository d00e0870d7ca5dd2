"""torch.distributed.checkpoint: a storage writer and reader, a chain for every rank.

`lccodec.adapters.dcp` is all that a user imports. Needs the extra ``torch``.
"""

from .storage import LCStorageReader, LCStorageWriter

__all__ = ["LCStorageReader", "LCStorageWriter"]
