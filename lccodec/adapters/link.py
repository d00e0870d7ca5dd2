"""A state at a path of a framework: a whole file, also if a chain has it as a delta.

A framework keeps each checkpoint under its own path, deletes old ones when it likes, and copies or
uploads what is there. So a path holds a whole checkpoint file, which is exact and needs no other.
With a chain it is a second name of the chain's exact file. A later save replaces that file and
never changes it. So what has a name stays, whatever becomes of the chain, and whenever a run is
killed. It takes no bytes while it is the newest, and those of a raw state from then on.

Where only the history is kept (``newest="history"``), the path holds a link: a checkpoint without
arrays, whose metadata name the directory of the chain (relative to the link), the step and its root
hash. No prune removes the step of a link (:mod:`lccodec.chain.life.prune`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..chain.chain import Chain
from ..chain.life.prune import add_link, name_exact
from ..chain.read.checkpoint import (
    OpenCheckpoint,
    open_exact_of,
    open_file,
    open_step,
)
from ..chain.read.links import LINK_KEY
from ..chain.save.settings import LOG
from ..chain.save.single_file import save_file
from ..chain.store.directory import DirectoryStore
from ..chain.store.store import checkpoint_name
from ..constants import MAX_STEP
from ..container.system import checked_path
from ..errors import ChainError, FormatError, StorageError
from ..policy.roles import Assignment

#: The name of the checkpoint in a folder of Hugging Face's libraries that was packed.
PACKED: Final = "lccodec.lcc.h5"


def save_linked(
    state: Any,
    path: str | os.PathLike[str],
    metadata: dict[str, str],
    chain: Chain | None,
    roles: Mapping[str, Assignment] | None = None,
    step: int | None = None,
    only: Sequence[str] | None = None,
) -> None:
    """Write a state to a lossless file; with a chain, to a step of it, and then to the file.

    An existing file is replaced after the state is on the disk. `step` is the trainer's (see
    `chain_step`); `roles` and `only` are as for `Chain.save`. Errors are those of `Chain.save` and
    `write_link`.
    """
    if chain is None:
        save_file(state, path, metadata)
        return
    step = chain_step(step, chain.latest)
    chain.save(step, state, metadata, roles=roles, only=only)
    write_link(chain, step, checked_path(path))


def chain_step(wanted: int | None, latest: int | None) -> int:
    """Return the step of the chain for a state: the trainer's, if the chain can take it.

    A chain only grows. Another state gets the step after the latest, and a warning of the log says
    so.
    """
    following = 0 if latest is None else latest + 1
    if wanted is None:
        return following
    if following <= wanted <= MAX_STEP:
        return wanted
    LOG.warning(
        "the trainer's step %d is step %d of the chain, whose latest is %s", wanted, following, latest
    )
    return following


def write_link(chain: Chain, step: int, path: Path) -> int:
    """Give the newest step of a chain its name at a path; return the bytes of a whole file there.

    Of a chain that keeps only its history, it is a link of 0 bytes. A ``ChainError`` says that the
    exact state is not there any more, as its file could not be written.
    """
    store = DirectoryStore(Path(chain.directory))
    if chain.newest == "history":
        with store.open(store.name_of(step)) as reader:
            root = reader.root.hex()
        directory = Path(os.path.relpath(chain.directory, path.parent)).as_posix()
        add_link(store, step, path, {LINK_KEY: json.dumps({"chain": directory, "step": step, "root": root})})
        return 0
    if not name_exact(store, step, path):
        with open_step(store, step) as file:
            if any(array.lossy for array in file.info().arrays):
                raise ChainError(
                    f"{path}: step {step} of {store.path} is saved, but its exact state is not there"
                )
            save_file(file.state(dtype="bits"), path, file.metadata())
    return path.stat().st_size


def open_linked(path: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open a file of `save_linked`: the state itself, or the checkpoint that a link names.

    A ``ChainError`` says that the linked one is missing or has another root hash.
    """
    path = checked_path(path)
    file = open_file(path)
    text = file.metadata().get(LINK_KEY)
    if text is None:
        return file
    file.close()
    checkpoint, root = read_link(path, text)
    if not checkpoint.parent.is_dir():
        raise ChainError(
            f"{path} is a link to {os.path.normpath(checkpoint)}, which is missing: only the link was"
            " copied or moved, and the state is in that chain"
        )
    return open_named(checkpoint, root, path)


def read_link(path: Path, text: str) -> tuple[Path, str]:
    """Return the checkpoint that a link at `path` names, by its text, and the checkpoint's root."""
    try:
        link = json.loads(text)
        directory, step, root = path.parent / link["chain"], int(link["step"]), str(link["root"])
    except (ValueError, OverflowError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(LINK_KEY, str(path), "not a link to a checkpoint of a chain") from error
    return directory / checkpoint_name(step), root


def open_named(path: Path, root: str, by: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open a checkpoint whose root hash another file gives; errors call that file `by`.

    The exact file beside it goes before, if it is of that checkpoint. The root may be that of the
    exact file: when it was noted, only that file had the step.
    """
    if (exact := open_exact_of(path, root)) is not None:
        return exact
    try:
        file = open_file(path)
    except StorageError as error:
        if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
            raise
        raise ChainError(f"{by}: {path} holds a part of it and is missing") from error
    reader = file.links[-1].reader
    if root not in {known.hex() for known in (*reader.roots, reader.manifest.exact or b"")}:
        file.close()
        raise ChainError(f"{by}: {path} is not the file that was saved with it, but a file of another run")
    return file
