"""Originals in files: one exact state in each file, whose name or folder has its step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...chain.store.directory import DirectoryStore
from ...chain.store.opening import is_chain
from ...container.disk.address import Place
from ...container.tree import array_names, flatten
from ...errors import ArgumentError
from ...inspect.measures.originals import Originals
from .formats import load_file
from .named_arrays import plain_names
from .steps import files_below, number_files

__all__ = ["FileOriginals", "open_originals"]


class FileOriginals:
    """Exact states in files of any format that :mod:`lccodec.adapters.files.formats` reads.

    Names of arrays must be those in the chain, as they are if `lccodec save` has saved these files.
    A flat file, such as `lccodec restore` has written, has the names of a nested state.

    Parameters
    ----------
    paths
        The files by step.
    label
        Which they are, in words.
    """

    def __init__(self, paths: Mapping[int, Path], label: str) -> None:
        self.label = label
        self._paths = paths

    @property
    def steps(self) -> Collection[int]:
        """The steps of the files."""
        return self._paths.keys()

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the arrays of a file by name."""
        state, _ = load_file(self._paths[step])
        flat = flatten(state)
        tree = {"": flat.tree}  # below a key of its own: the state may be one array, or have the key ""
        found = {name[1:]: flat.arrays[index] for name, index in array_names(tree).items()}
        return {**plain_names(found), **found}


def open_originals(path: Place) -> Originals | Place:
    """Return originals as :func:`lccodec.inspect.examination.examine` takes them.

    These are the files of a directory, or one in each of its folders; a chain or a bundle is its
    own path.

    Raises
    ------
    ArgumentError
        If there are none, or their steps are not clear (`lccodec.adapters.files.steps`).
    """
    if isinstance(path, Path) and path.is_dir() and not DirectoryStore(path).checkpoints():
        numbering = number_files(files_below(path))
        if numbering is None:
            raise ArgumentError(
                f"{path} is not a chain, and its files have no numbers in their names: name each by its"
                " step, as in step100.npz"
            )
        return FileOriginals(numbering.steps, f"the files in {path}")
    if not is_chain(path):
        raise ArgumentError(f"originals must be a directory of files, a chain or a bundle; got {path}")
    return path
