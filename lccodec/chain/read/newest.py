"""Which file of a step a reader opens: its checkpoint, or the exact file beside it.

The exact file is a keyframe whose frames hold the values as they are: the newest state bit for bit,
in one file beside the checkpoints. After a crash, it may be the only file of the newest step. A
restore takes it if it is sound and of the step asked for; otherwise the history's checkpoint, with
a warning that says why.

Some checkpoints hold no state of their own: adapters write links to a step of a chain, records of
distributed checkpoints, and parts of one process. By themselves they are sound files. Whoever wants
a state must not take what they hold for one; :mod:`lccodec.adapters.whole` brings together what
they name.

Source: SPEC 9 (LCC-EXA).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ...constants import EXACT_NAME
from ...container.bundle import is_bundle
from ...container.checkpoint import CheckpointReader, sound_root
from ...container.system import checked_place
from ...errors import (
    ArgumentError,
    ChainError,
    DataError,
    FormatError,
    LccodecError,
    LimitError,
    StorageError,
    UnsupportedError,
    is_loss,
    warn,
)
from ...policy.record import read_record
from ..caller import UNBOUNDED, Bounds
from ..store.directory import DirectoryStore, check_exact, link_problem, older_problem
from ..store.names import checkpoint_name, step_index
from ..store.opening import open_store
from ..store.store import Store
from .checkpoint import OpenCheckpoint, open_file, open_name, open_step
from .info import CheckpointInfo
from .links import Head
from .replay import DecodedArray, Decoding, decoded_bytes


class ExactFile(OpenCheckpoint):
    """An open exact file. Where its frames are damaged, the history's checkpoint takes its place.

    Parameters
    ----------
    reader
        The open file.
    spare
        Opens the history's checkpoint, and warns of the error that made it necessary. It raises
        that error if there is no such checkpoint.
    """

    def __init__(self, reader: CheckpointReader, spare: Callable[[LccodecError], OpenCheckpoint]) -> None:
        super().__init__(reader, None)
        self._spare = spare

    def decode_some(self, indices: Iterable[int]) -> dict[int, DecodedArray]:
        """Return arrays as decoded, by index: all from this file, or all from the history."""
        wanted = self._checked(indices)
        try:
            return dict(super()._replay(wanted))
        except (DataError, StorageError) as error:
            return dict(self._of_history(wanted, error))

    def decode_leaves(
        self, indices: Iterable[int], rows: Mapping[str, slice]
    ) -> tuple[dict[int, DecodedArray], dict[str, DecodedArray]]:
        """Return arrays and rows of others as decoded: all from here, or all from the history."""
        wanted = self._checked(indices)
        try:
            return dict(super()._replay(wanted)), dict(super().decode_rows(rows))
        except (DataError, StorageError) as error:
            return dict(self._of_history(wanted, error)), dict(self._rows_of_history(rows, error))

    def decode_rows(self, rows: Mapping[str, slice]) -> Iterator[tuple[str, DecodedArray]]:
        """Yield some rows of arrays as decoded; from the first damaged one on, of the history."""
        left = dict(rows)
        try:
            for name, part in super().decode_rows(rows):
                del left[name]
                yield name, part
        except (DataError, StorageError) as error:
            failure = error
        else:
            return
        yield from self._rows_of_history(left, failure)

    def _replay(self, indices: list[int]) -> Decoding:
        """Yield arrays; from the first one on that is damaged, those of the history."""
        left = dict.fromkeys(indices)
        try:
            for index, array in super()._replay(indices):
                del left[index]
                yield index, array
        except (DataError, StorageError) as error:
            failure = error
        else:
            return
        yield from self._of_history(list(left), failure)

    def heads(self) -> dict[str, Head]:
        """Return what is known of each array before it is decoded, by name."""
        try:
            return super().heads()
        except (DataError, StorageError) as error:
            with self._spare(error) as history:
                return history.heads()

    def _of_history(self, indices: list[int], error: LccodecError) -> Decoding:
        names = [self.links[-1].index_names[index] for index in indices]
        with self._spare(error) as history:
            places = history.links[-1].names
            if not places.keys() >= set(names):
                raise error
            known = {places[name]: index for name, index in zip(names, indices, strict=True)}
            for place, array in history.decode_each(known):
                yield known[place], array

    def _rows_of_history(
        self, rows: Mapping[str, slice], error: LccodecError
    ) -> Iterator[tuple[str, DecodedArray]]:
        if rows:
            with self._spare(error) as history:
                if not set(history.keys()) >= rows.keys():
                    raise error
                yield from history.decode_rows(rows)


def open_exact(store: Store, *, strict: bool = False) -> ExactFile:
    """Open the exact file of a store.

    With `strict`, the history does not take its place where it is damaged.

    Raises
    ------
    FormatError
        If a file of that name is not an exact file (LCC-EXA-01).
    DataError, StorageError
        If the file is damaged, missing, or cannot be read.
    """
    reader = store.open(EXACT_NAME)
    try:
        check_exact(reader)
    except BaseException:
        reader.close()
        raise

    def spare(error: LccodecError) -> OpenCheckpoint:
        name = checkpoint_name(reader.manifest.step or 0)
        if strict or not store.has(name):
            raise error
        warn(f"{store.path}: the exact file is damaged; returned the state of the history: {error}")
        return open_name(store, name)

    return ExactFile(reader, spare)


def check_state(exact: OpenCheckpoint, checkpoint: OpenCheckpoint) -> None:
    """Raise ``FormatError`` if the states of the two differ in more than values (LCC-EXA-03)."""
    for what in ("metadata", "scalars", "tree"):
        ours, theirs = (json.dumps(getattr(f.links[-1].manifest, what)) for f in (exact, checkpoint))
        if ours != theirs:
            raise FormatError("LCC-EXA-03", EXACT_NAME, f"the {what} are not those of the checkpoint")
    for mine, other in zip(exact.info().arrays, checkpoint.info().arrays, strict=True):
        if (mine.dtype, mine.shape) != (other.dtype, other.shape):
            message = "is not of the type and shape that it has in the checkpoint"
            raise FormatError("LCC-EXA-03", f"{EXACT_NAME}: array {mine.name!r}", message)


def check_values(reader: CheckpointReader, lossy: Iterable[str]) -> None:
    """Raise ``FormatError`` if an exact file has lossy arrays, given by name (LCC-EXA-03)."""
    for name in lossy:
        raise FormatError("LCC-EXA-03", f"{reader.name}: array {name!r}", "has representatives, not values")


def with_exact(info: CheckpointInfo, store: Store) -> CheckpointInfo:
    """Return what is known of a checkpoint; `exact` also for the exact file beside it."""
    if info.exact_root is None:
        return info
    try:
        with store.open(EXACT_NAME) as reader:
            found = reader.manifest.is_exact and reader.root.hex() == info.exact_root
    except (DataError, StorageError):
        found = False
    return replace(info, exact=info.exact or found)


def may_be_replaced(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file that was found damaged may be replaced by one of a root.

    Not if it is whole by now, or only cannot be read, now or by this version: it may be a newer
    one, and the only copy.
    """
    try:
        with store.open(name) as reader:
            if reader.root == root:
                return True
            reader.verify()
    except (UnsupportedError, LimitError):
        return not _is_other(store, name, root)
    except LccodecError as error:
        return is_loss(error)
    return False


def is_unknown(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file is a sound one that this version cannot read, and not that of a root.

    A newer version may have written it anew. Its root tells whether it is damaged instead.
    """
    try:
        store.open(name).close()
    except (UnsupportedError, LimitError):
        return _is_other(store, name, root)
    except LccodecError:
        pass
    return False


def _is_other(store: Store, name: str, root: bytes) -> bool:
    """Return whether a file of any version is sound and not that of a root, or cannot be read."""
    try:
        with closing(store.source(name)) as source:
            return sound_root(source) not in (None, root)
    except LccodecError:
        return True


def is_newest_exact(reader: CheckpointReader, newest: int, named: bytes | None) -> bool:
    """Return whether a file is the exact file of the newest checkpoint, or of a newer step.

    `named` is the root that the checkpoint names.
    """
    step = reader.manifest.step or 0
    return reader.manifest.is_exact and (step > newest or (step == newest and reader.root == named))


def open_exact_of(checkpoint: Path, root: str) -> ExactFile | None:
    """Open the exact file of a checkpoint, given by its path and a root in hexadecimal.

    The root is that of the checkpoint or of the exact file itself.

    Returns
    -------
    ExactFile or None
        ``None`` if there is none, or it is damaged or of another checkpoint.
    """
    try:
        store = DirectoryStore(checkpoint.parent)
        file = open_exact(store)
        try:
            own = file.links[-1].reader.root
            if root == own.hex():
                return file
            with store.open(checkpoint.name) as reader:
                if root in {each.hex() for each in reader.roots} and reader.manifest.exact == own:
                    return file
        except BaseException:
            file.close()
            raise
        file.close()
    except (DataError, StorageError):  # or it was replaced meanwhile
        pass
    return None


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
