"""A state in a file of its own, or in a chain with a small file, its link, in the place of the state.

Frameworks keep each checkpoint under a path of its own and delete old ones as they like. A state that is a
file can be deleted like any other. To store deltas, the states go into a chain elsewhere, and what lies under
the path is the link: a checkpoint without arrays, whose metadata name the chain's directory (relative to the
link), the step and its root. To delete a link harms no other; the chain keeps what it has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..chain.chain import Chain
from ..chain.checkpoint import CheckpointFile, checkpoint_path, open_file
from ..chain.single_file import save_file
from ..container.reader import open_checkpoint
from ..container.system import checked_path
from ..errors import ChainError, FormatError, StorageError
from ..policy.roles import Assignment

__all__ = ["open_linked", "open_named", "save_linked"]

#: The key of a link in the metadata; also what errors name as their rule.
_LINK: Final = "lccodec.link"


def save_linked(
    state: Any,
    path: str | os.PathLike[str],
    metadata: dict[str, str],
    chain: Chain | None,
    roles: Mapping[str, Assignment] | None = None,
) -> None:
    """Write a state to a file, lossless, or to the next step of a chain and a link to the file.

    A file of that name is replaced, once the state is on the disk. `roles` are those that the structures of
    a framework tell, by the names of the arrays in `state`.

    Raises
    ------
    ArgumentError
        If the state holds something that cannot be stored; names it.
    StorageError
        If the operating system refuses; what was there stays.
    """
    if chain is None:
        save_file(state, path, metadata)
        return
    step = max(chain.steps, default=-1) + 1
    chain.save(step, state, metadata, known=roles)
    with open_checkpoint(checkpoint_path(chain.directory, step)) as reader:
        root = reader.root.hex()
    directory = Path(os.path.relpath(chain.directory, Path(path).parent)).as_posix()
    save_file(None, path, {_LINK: json.dumps({"chain": directory, "step": step, "root": root})})


def open_linked(path: str | os.PathLike[str], threads: int = 1) -> CheckpointFile:
    """Open what `save_linked` wrote, the file itself or the one that its link names.

    Raises
    ------
    ChainError
        If the linked checkpoint is missing, or another than the link names.
    DataError
        If a file breaks a rule of the format, or the link is none.
    StorageError
        If the operating system cannot read it.
    """
    path = checked_path(path)
    file = open_file(path, threads=threads)
    text = file.metadata().get(_LINK)
    if text is None:
        return file
    file.close()
    try:
        link = json.loads(text)
        directory, step, root = path.parent / link["chain"], int(link["step"]), str(link["root"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(_LINK, str(path), "not a link to a checkpoint of a chain") from error
    return open_named(checkpoint_path(directory, step), root, path, threads)


def open_named(path: Path, root: str, by: str | os.PathLike[str], threads: int = 1) -> CheckpointFile:
    """Open a checkpoint if its root is the one that another file gives, which errors say it is named `by`.

    Raises
    ------
    ChainError
        If it is missing, or has another root.
    DataError, StorageError
        As `open_linked`.
    """
    try:
        file = open_file(path, threads=threads)
    except StorageError as error:
        if os.path.exists(path):  # noqa: PTH110 - of Path it raises where the name is too long
            raise
        raise ChainError(f"{by}: {path}, which holds a part of it, is missing") from error
    if file.links[-1].reader.root.hex() != root:
        file.close()
        raise ChainError(f"{by}: {path} is not the file that was saved with it, but of another run")
    return file
