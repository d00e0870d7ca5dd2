"""Where targets put their inputs."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path


def new_directory() -> Path:
    """Return an empty directory, which goes with the process."""
    temporary = tempfile.TemporaryDirectory(prefix="lccodec-fuzz-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)
