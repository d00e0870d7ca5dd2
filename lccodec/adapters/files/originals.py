"""Originals in files: a directory with one exact state in each file, named by its step."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from ...chain.directory import directory_steps
from ...container.bundle import is_bundle
from ...container.system import storage_errors
from ...container.tree import array_names, flatten
from ...errors import ArgumentError
from ...inspect.originals import Originals
from .formats import READ, load_file
from .named_arrays import plain_names, steps_in_names

__all__ = ["FileOriginals", "open_originals"]

_SHARD: Final = re.compile(r".*-[0-9]+-of-[0-9]+\.safetensors")  # a part of a state, which an index names


class FileOriginals:
    """Exact states in files of any format that :mod:`lccodec.adapters.files.formats` reads.

    The step of a file is the last number in its name. Names of arrays must be those in the chain,
    as they are if `lccodec save` has saved these files. A flat file, such as `lccodec restore` has
    written, has the names of a nested state.
    """

    def __init__(self, directory: Path) -> None:
        with storage_errors("cannot list", directory):
            files = [path for path in sorted(directory.iterdir()) if path.name.endswith(READ)]
        files = [path for path in files if not _SHARD.fullmatch(path.name)]
        paths = steps_in_names(files)
        if not paths:
            kinds = ", ".join(READ)
            raise ArgumentError(f"{directory}: no chain, and not one file ({kinds}) for each step")
        self.label = f"the files in {directory}"
        self._paths = paths

    @property
    def steps(self) -> Collection[int]:
        """The steps in the names of the files."""
        return self._paths.keys()

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the arrays of a file by name."""
        state, _ = load_file(self._paths[step])
        flat = flatten(state)
        tree = {"": flat.tree}  # below a key of its own: the state may be one array, or have the key ""
        found = {name[1:]: flat.arrays[index] for name, index in array_names(tree).items()}
        return {**plain_names(found), **found}


def open_originals(path: Path) -> Originals | Path:
    """Return originals as :func:`lccodec.inspect.examination.examine` takes them.

    These are the files of a directory; a chain or a bundle is its own path.

    Raises
    ------
    ArgumentError
        If there are none, or two files have the same step.
    """
    if path.is_dir() and not directory_steps(path):
        return FileOriginals(path)
    if not path.is_dir() and not is_bundle(path):
        raise ArgumentError(f"{path}: originals are a directory of files, a chain or a bundle")
    return path
