"""The exact state of a chain at a path of its own: a second name of the exact file.

A save replaces the exact file and never changes it (LCC-EXA-05). So a file that has another name
stays as it is, whatever becomes of the chain, and takes no bytes while it is the newest. A Reader
of one file does not need its name.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...constants import EXACT_NAME
from ...container.disk.folder import Folder
from ...container.disk.system import storage_errors
from ...container.disk.whole_file import duplicate
from ...container.tree import Flat
from ...container.writer import CheckpointWriter
from ...errors import ArgumentError
from ..read.exact import open_exact
from ..save.exact import chunks_of
from ..save.plan import candidates
from ..store.directory import DirectoryStore, in_chain
from .fork import has_exact


def name_exact(store: DirectoryStore, step: int, path: Path) -> bool:
    """Give the exact file of a chain a name at a path, if it is of that step; return whether it is.

    Where there are no hard links, as on another file system, the file is copied.

    Raises
    ------
    ArgumentError
        If the path is that of a file of a chain.
    StorageError
        If the operating system refuses. An existing file is unchanged.
    """
    if in_chain(path):
        raise ArgumentError(f"{path} is a checkpoint of a chain: choose another name or directory")
    if not has_exact(store, step):
        return False
    with storage_errors("cannot write", path), Folder(path.parent, store.system) as folder:
        duplicate(store.path / EXACT_NAME, folder, path.name, overwrite=True)
        folder.sync()
    return True


def name_again(store: DirectoryStore, step: int, path: Path, flat: Flat, metadata: Mapping[str, str]) -> bool:
    """Give a state that the newest step of a chain has a name at a path; return whether it has it.

    The arrays must be the same, bit for bit. Where scalars differ, as in what trainers note of
    their callbacks, the file is one of its own, with these.

    Errors are those of `name_exact`.
    """
    if not has_exact(store, step):
        return False
    with open_exact(store, strict=True) as file:
        link = file.links[-1]
        if link.index_names != flat.names:
            return False
        for array, c in zip(file.decoded(), candidates(flat, {}), strict=True):
            if (array.kind, array.shape) != (c.kind, c.shape) or not np.array_equal(array.bits, c.bits):
                return False
        manifest = replace(link.manifest, tree=flat.tree, scalars=flat.scalars, metadata=dict(metadata))
        if repr(manifest) == repr(link.manifest):
            return name_exact(store, step, path)
        with CheckpointWriter(path, overwrite=True) as writer:
            for index in range(len(manifest.frames)):
                writer.write_frame(chunks_of(link.reader, index))
            writer.commit(manifest)
    return True
