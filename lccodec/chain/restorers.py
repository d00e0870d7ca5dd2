"""Who decodes the restores of a chain: a crew of this process and workers.

Source: SPEC 9.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ..workers.crew import Crew
from .checkpoint import CheckpointFile
from .replay import Decoding
from .sharing import Source, replay_shared

#: Arrays of fewer bytes in all are decoded by this process: to hand them out takes longer.
_MIN_SHARED_BYTES: Final = 1 << 23


class Restorers:
    """The crew of this process that decodes checkpoints, started when it is needed.

    Parameters
    ----------
    members
        How many processes decode, with this one.
    begin
        Starts the crew.
    """

    def __init__(self, members: int, begin: Callable[[], Crew]) -> None:
        self._members = members
        self._begin = begin
        self._crew: Crew | None = None
        self._process = os.getpid()

    def share(self, file: CheckpointFile, path: Path) -> None:
        """Let the crew decode the arrays of an open checkpoint, if that is worth it."""
        if self._members == 1:
            return
        heads = file.heads().values()
        if sum(math.prod(head.shape) * head.header.kind.itemsize for head in heads) >= _MIN_SHARED_BYTES:
            source = Source(str(path.absolute()), file.links[-1].reader.root)
            file.decode_by(partial(self._decode, source=source))

    def close(self) -> None:
        """End the workers."""
        if self._crew is not None and self._process == os.getpid():
            self._crew.close()
        self._crew = None

    def _decode(self, file: CheckpointFile, indices: list[int], *, source: Source) -> Decoding:
        crew = self._crew
        if crew is None or crew.broken or self._process != os.getpid():  # or a fork has copied it
            self._process = os.getpid()
            crew = self._crew = self._begin()
        return replay_shared(file, source, indices, crew)
