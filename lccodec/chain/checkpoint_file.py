"""A checkpoint file as users open it: names, single arrays, the state, and what is stored."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal, Self

from .read.checkpoint import OpenCheckpoint
from .read.exact import open_path
from .read.info import CheckpointInfo


class CheckpointFile:
    """An open checkpoint. It decodes only what is asked for.

    :func:`lccodec.open` returns it. It is a context manager. It keeps one file open; the files of
    the parents that a delta needs are opened when they are read.
    """

    def __init__(self, opened: OpenCheckpoint) -> None:
        self._opened = opened

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

    def get(self, name: str, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return one array without reading others.

        Parameters
        ----------
        name
            One of `keys`.
        dtype
            ``"float32"`` returns a bfloat16 array as float32, ``"bits"`` as `BFLOAT16_BITS`.

        Raises
        ------
        ArgumentError
            If there is no array of that name, `dtype` is something else, or the file is closed.
        DataError, ChainError, StorageError
            If what is stored is damaged, has been replaced since it was opened, or cannot be read.
        """
        return self._opened.get(name, dtype)

    def state(
        self, keys: Iterable[str] | str | None = None, dtype: Literal["float32", "bits"] | None = None
    ) -> Any:
        """Return the state; with `keys`, a dict of these leaves by name (see `Chain.restore`)."""
        return self._opened.state(keys, dtype)

    def verify(self) -> None:
        """Decode every array, and raise the error of the first that is damaged.

        Raises
        ------
        DataError, ChainError, StorageError
            As `get`.
        """
        self._opened.verify()

    def info(self) -> CheckpointInfo:
        """Return what is stored, without decoding it.

        Raises
        ------
        ArgumentError
            If the file is closed.
        DataError
            If a frame's header breaks a rule.
        """
        return self._opened.info()


def open_checkpoint_file(
    path: str | os.PathLike[str], *, step: int | None = None, exact: bool = True
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

    Raises
    ------
    ArgumentError
        If `path` cannot be a path, or a step is given for a file of one checkpoint.
    ChainError
        If there is no such step, or a parent is missing.
    DataError, StorageError
        If the file breaks a rule of the format, or the operating system cannot read it.
    """
    return CheckpointFile(open_path(path, step=step, exact=exact))
