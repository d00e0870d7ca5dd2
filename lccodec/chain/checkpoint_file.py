"""A checkpoint file as users open it: names, single arrays, the state, and what is stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from ..container.system import StrPath, checked_place
from ..errors import ArgumentError, ChainError, DataError, StorageError
from .mend.mirror import Found, checked_mirrors, read_whole, stand_in
from .read.checkpoint import OpenCheckpoint, kept, open_newest, open_path, open_step
from .read.info import CheckpointInfo
from .read.links import Bounds, check_own
from .read.rows import Keys
from .store.directory import writable_store
from .store.store import Store


class CheckpointFile:
    """An open checkpoint. It decodes only what is asked for.

    :func:`lccodec.open` returns it. It is a context manager. It keeps one file open; the files of
    the parents that a delta needs are opened when they are read.
    """

    def __init__(self, opened: OpenCheckpoint, again: Callable[[], OpenCheckpoint] | None = None) -> None:
        """Take an open checkpoint, and what opens it again with the files of a mirror."""
        self._opened, self._again = opened, again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._opened.close()

    def keys(self) -> list[str]:
        """Return the names of the arrays, in the order of the state.

        An array in two places has two names.
        """
        return self._opened.keys()

    def metadata(self) -> dict[str, str]:
        """Return the strings that were stored with the state."""
        return self._opened.metadata()

    def get(
        self, name: str, dtype: Literal["float32", "bits"] | None = None, *, rows: slice | None = None
    ) -> Any:
        """Return one array, or some of its rows, without reading others.

        Parameters
        ----------
        name
            One of `keys`.
        dtype
            ``"float32"`` returns a bfloat16 array as float32, ``"bits"`` as `BFLOAT16_BITS`.
        rows
            Which indices of the first axis, such as ``slice(0, 1000)``; by default all. It follows
            Python's rules for slices: negative numbers count from the end, and what lies beyond is
            left out. No more of a large array is decoded than the rows need.

        Raises
        ------
        ArgumentError
            If there is no array of that name, `dtype` is something else, the file is closed, `rows`
            is not a slice or has a step, or the array has no dimension.
        DataError, ChainError, StorageError
            If what is stored is damaged, has been replaced since it was opened, or cannot be read.
        """
        check_own(self.metadata(), self._opened.links[-1].reader.name)
        return self._read(lambda opened: opened.get(name, dtype, rows))

    def state(self, keys: Keys | None = None, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return the state; with `keys`, a dict of these leaves by name (see `Chain.restore`).

        Raises
        ------
        ArgumentError, DataError, ChainError, StorageError
            As `lccodec.load_file`.
        """
        check_own(self.metadata(), self._opened.links[-1].reader.name)
        return self._read(lambda opened: opened.state(keys, dtype))

    def verify(self) -> None:
        """Decode every array, and raise the error of the first that is damaged.

        Raises
        ------
        DataError, ChainError, StorageError
            As `get`.
        """
        self._read(OpenCheckpoint.verify)

    def info(self) -> CheckpointInfo:
        """Return what is stored, without decoding it.

        Raises
        ------
        ArgumentError
            If the file is closed.
        DataError
            If a frame's header breaks a rule.
        """
        return self._read(OpenCheckpoint.info)

    def _read(self, read: Callable[[OpenCheckpoint], Found]) -> Found:
        """Return what is read; from a mirror, once something here is damaged."""
        try:
            return read(self._opened)
        except (DataError, ChainError, StorageError):
            if self._again is None:
                raise
            again, self._again = self._again, None
            other = again()
            self._opened.close()
            self._opened = other
        return read(self._opened)


def open_checkpoint_file(
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    exact: bool = True,
    mirror: StrPath | Sequence[StrPath] | None = None,
    max_bytes: int | None = None,
    max_deltas: int | None = None,
) -> CheckpointFile:
    """Open a checkpoint file, or a step of a chain or a bundle, to read single arrays.

    The parents of a delta are looked for in the same directory, or in the bundle.

    Parameters
    ----------
    path
        A checkpoint file, the directory of a chain, or a bundle.
    step
        Of a chain or a bundle: the step, by default the latest.
    exact
        Of a chain or a bundle: whether to take the newest state from the exact file, if it has one.
    mirror
        Of a chain: its mirror, or several. What is damaged or missing is read from there, and an
        `LccodecWarning` says so.
    max_bytes, max_deltas
        Of files of strangers: the most bytes that all arrays of the state may have, decoded, and
        the most other checkpoints that it may need. By default there is no bound.

    Raises
    ------
    LimitError
        If the state asks for more than `max_bytes` or `max_deltas`; `rule` says which.
    ArgumentError
        If `path` cannot be a path, or a step is given for a file of one checkpoint.
    ChainError
        If there is no such step, or a parent is missing.
    DataError, StorageError
        If the file breaks a rule of the format, or the operating system cannot read it.
    """
    bounds = Bounds(max_bytes, max_deltas)
    if mirror is None:
        return CheckpointFile(open_path(path, step=step, exact=exact, bounds=bounds))
    place = checked_place(path)
    if isinstance(place, Path) and place.is_file():
        raise ArgumentError(f"mirror= needs a chain; {place} is a file")
    store, others = writable_store(place), [writable_store(each) for each in checked_mirrors(mirror)]

    def opened(store: Store, strict: bool) -> OpenCheckpoint:
        return kept(open_newest(store, step, strict=strict) if exact else open_step(store, step), bounds)

    def again() -> OpenCheckpoint:
        return opened(stand_in(store, others), False)

    return CheckpointFile(read_whole(store, opened, lambda: others), again)
