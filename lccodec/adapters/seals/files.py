"""The files of a directory that a seal is about: regular ones, wherever links lead."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...chain.store.names import HASHES_FOLDER, checkpoints_among
from ...container.disk.folder import is_temporary
from ...container.disk.system import storage_errors

__all__ = ["FILE_SUFFIX", "SEAL_NAME", "Found", "found_in"]

#: The seal of a directory, in it.
SEAL_NAME: Final = "lccodec.sha256"
#: The seal of a file has its name and this suffix.
FILE_SUFFIX: Final = ".sha256"
_NOWHERE: Final = "is a link that leads nowhere"


@dataclass(frozen=True)
class Found:
    """A file of a directory.

    Parameters
    ----------
    name
        Its path in the directory, with ``/``.
    path
        Where its bytes lie: of a link, the file that it leads to.
    size
        Its bytes.
    refusal
        Why it cannot be sealed; empty if it can.
    """

    name: str
    path: Path
    size: int = 0
    refusal: str = ""


def found_in(directory: Path) -> Iterator[Found]:
    """Yield the files below a directory, but for its seal and what comes and goes with a chain.

    These are temporary files, and the folder of hashes and values beside checkpoints, which each
    save writes anew.
    A link in the directory to a file in it is that file. A link to a directory in it is left out:
    the files there are found anyway.

    Raises
    ------
    StorageError
        If the operating system refuses.
    """
    root = os.path.realpath(directory)
    folders = [""]
    with storage_errors("cannot list", directory):
        while folders:
            folder = folders.pop()
            with os.scandir(Path(directory, folder)) as listed:
                entries = list(listed)
            is_chain = bool(checkpoints_among(entry.name for entry in entries))
            for entry in entries:
                name = folder + entry.name
                if is_temporary(entry.name) or name == SEAL_NAME:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not (is_chain and entry.name == HASHES_FOLDER):
                        folders.append(f"{name}/")
                    continue
                found = _found(name, Path(entry.path), root)
                if found is not None:
                    yield found


def _found(name: str, path: Path, root: str) -> Found | None:
    """Return a file, or None for a link to a directory."""
    link, real = path.is_symlink(), Path(os.path.realpath(path))
    if link and not real.is_relative_to(root):
        return Found(name, path, refusal="is a link that leads out of the directory")
    try:
        status = real.stat(follow_symlinks=False)
    except OSError:
        if not link:
            raise
        return Found(name, path, refusal=_NOWHERE)
    if stat.S_ISLNK(status.st_mode):  # of a circle
        return Found(name, path, refusal=_NOWHERE)
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return Found(name, real, refusal="is not a regular file")
    return Found(name, real, status.st_size)
