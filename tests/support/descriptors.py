"""The files that this process has open, as the system lists them.

Tests look for those they know by name: pytest, other tests and their threads have files too.
"""

import os
from pathlib import Path

SEGMENTS = "memfd:lccodec"  # of memory that processes share


def open_files(part: str | Path) -> list[str]:
    """Return the path of each open descriptor whose path has this part."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(entry))  # noqa: PTH115 - no path: a pipe, or memory
        except OSError:  # it listed the descriptors, and is closed now
            continue
    return sorted(path for path in found if str(part) in path)
