"""Which file of a step a reader opens: its checkpoint, or the exact file beside it.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

import os
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.bundle import is_bundle
from ...container.disk.address import checked_place
from ...errors import ArgumentError, ChainError, DataError, FormatError, LccodecError, StorageError, warn
from ...policy.record import read_record
from ..bounds import UNBOUNDED, Bounds
from ..store.exact_file import link_problem, older_problem
from ..store.names import step_index
from ..store.opening import open_store
from ..store.store import Store
from .checkpoint import OpenCheckpoint, open_file, open_step
from .exact import ExactFile, open_exact
from .needed import decoded_bytes


def open_newest(store: Store, step: int | None = None, *, strict: bool = False) -> OpenCheckpoint:
    """Open a step of a chain, the latest by default: the exact file if it is of that step.

    An `LccodecWarning` says why an exact file is not used, or what is wrong beside it. With
    `strict`, an exact file that is damaged or missing raises an error instead.

    Raises
    ------
    ArgumentError, ChainError, DataError, StorageError
        As `open_step`.
    """
    listed = store.snapshot()
    file, problem = find_exact(listed, step, strict=strict)
    if file is not None:
        if problem is not None:
            warn(f"{store.path}: {problem}")
        return file
    try:
        checkpoint = open_step(listed, step)
    except (ChainError, StorageError):
        if listed is store:
            raise
        checkpoint = open_step(store, step)  # it was pruned after it was listed
    if problem is not None:
        warn(f"{store.path}: {problem}; returned the newest state of the history")
    elif not listed.has(EXACT_NAME) and _is_missed(checkpoint, listed):
        if strict:
            checkpoint.close()
            raise ChainError(f"{store.path}: the exact file is missing")
        warn(
            f"{store.path}: the exact file is missing (a rollback sets it aside); returned the newest lossy"
            " state of the history"
        )
    return checkpoint


def _is_missed(file: OpenCheckpoint, store: Store) -> bool:
    """Return whether the newest checkpoint lost something, and its exact state was to be kept."""
    manifest = file.links[-1].manifest
    if manifest.policy == "lossless":  # as of most chains that have no exact file
        return False
    if manifest.step != max(store.checkpoints(), default=None):
        return False
    try:
        return read_record(manifest.policy).newest == "exact" and file.info().lossy
    except LccodecError:
        return False


def kept(file: OpenCheckpoint, bounds: Bounds) -> OpenCheckpoint:
    """Return a file that keeps bounds, by its manifests and headers; nothing is decoded.

    Raises
    ------
    LimitError
        If it does not, after it was closed. The rule is the name of the bound.
    DataError
        If a header breaks a rule, also after the file was closed.
    """
    try:
        where = file.links[-1].reader.name
        bounds.check_deltas(len(file.links) - 1, where)
        if bounds.max_bytes is not None:
            sizes = {name: head.nbytes for name, head in file.heads().items()}
            found = decoded_bytes(file.links, sizes)  # of runs, also what the state does not have
            for name, size in found.items():
                sizes[name] = max(sizes.get(name, 0), size)
            bounds.check_bytes(sum(sizes.values()), where)
    except BaseException:
        file.close()
        raise
    return file


def open_path(
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    exact: bool = True,
    bounds: Bounds = UNBOUNDED,
) -> OpenCheckpoint:
    """Open a step of a chain or a bundle, or a checkpoint file; see :func:`lccodec.open`."""
    return kept(_open_path(path, step, exact), bounds)


def _open_path(path: str | os.PathLike[str], step: int | None, exact: bool) -> OpenCheckpoint:
    checked = checked_place(path)
    if isinstance(checked, Path) and not os.path.isdir(checked):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        if step is None:
            try:
                return open_file(checked)
            except FormatError:
                if not is_bundle(checked):
                    raise
        elif not is_bundle(checked):
            raise ArgumentError(f"a step needs a chain or a bundle; {checked} is a file")
    store = open_store(checked)
    try:
        file = (open_newest if exact else open_step)(store, step)
    except BaseException:
        store.close()
        raise
    file.owns(store)
    return file


def find_exact(
    store: Store, step: int | None, *, strict: bool = False
) -> tuple[ExactFile | None, str | None]:
    """Return the exact file if it is to be used for a step, and what is to be warned of.

    The step is the latest by default. With `strict`, the error of a damaged file is raised.
    """
    wanted = None if step is None else step_index(step)
    # Listed first: a save that comes in between has replaced the exact file by a newer one.
    newest = max(store.checkpoints(), default=None)
    if not store.has(EXACT_NAME):
        return None, None
    try:
        file = open_exact(store, strict=strict)
    except (DataError, StorageError) as error:
        if strict and wanted in (None, newest):
            raise
        return None, f"the exact file cannot be used: {error}" if wanted in (None, newest) else None
    found = file.links[-1].manifest.step or 0
    problem = None
    if newest is not None and found < newest and wanted in (None, newest):
        problem = older_problem(found, newest)
    elif wanted in (None, found):
        usable, problem = link_problem(file.links[-1].reader, store)
        if usable:
            return file, problem
    file.close()
    return None, problem
