"""Orbax: checkpoint handlers that store trees in chains. Needs the extra ``orbax``.

`lccodec.adapters.orbax` is all that a user imports.
"""

from .handler import LCCheckpointHandler, LCHandler, LCRestore, LCSave

__all__ = ["LCCheckpointHandler", "LCHandler", "LCRestore", "LCSave"]
