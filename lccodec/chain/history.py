"""The checkpoints of a directory, to be restored, averaged and inspected. Nothing is written.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any, Literal

from ..container.system import checked_path, storage_errors
from ..policy.roles import Role
from .adapter import Adapter, as_framework, check_adapter
from .arrivals import Arrivals
from .average import average
from .checkpoint import CheckpointFile, open_step
from .directory import chain_steps, checkpoint_path, exact_step
from .exact_file import ExactFile
from .info import CheckpointInfo
from .newest import open_newest, with_exact
from .progress import Progress, check_progress
from .restorers import Restorers
from .selection import select_shares


class History:
    """The checkpoints of one run in a directory: the half of `Chain` that reads.

    Parameters
    ----------
    directory, adapter
        As for `Chain`.
    restorers
        Who decodes; ``None`` for this process alone.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        adapter: Adapter | None = None,
        restorers: Restorers | None = None,
    ) -> None:
        self._restorers = restorers
        self.directory = checked_path(directory)
        self.adapter = check_adapter(adapter)
        self._bits: Literal["bits"] | None = None if adapter is None else "bits"
        with storage_errors("cannot read the directory", self.directory):
            if self.directory.exists() and not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))

    @property
    def steps(self) -> list[int]:
        """The steps that can be restored, in rising order."""
        return list(chain_steps(self.directory))

    @property
    def exact_step(self) -> int | None:
        """The step of the exact file, which holds the state bit for bit; ``None`` without one.

        The states of a lossless policy are all exact, and need no exact file.
        """
        return exact_step(self.directory)

    def restore(
        self,
        step: int | None = None,
        keys: Iterable[str] | str | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
        exact: bool = True,
        progress: Progress = False,
    ) -> Any:
        """Return a state.

        Parameters
        ----------
        step
            Step of the checkpoint; the latest by default.
        keys
            Name of an array, scalar or container (``"optimizer/0"``), or several names. Only these
            are read and decoded.
        dtype
            ``"float32"`` returns bfloat16 arrays as float32, ``"bits"`` as `BFLOAT16_BITS`. An
            adapter returns its framework's bfloat16.
        exact
            Whether to take the state from the exact file, if that is of the step. If the newest
            state is not returned bit for bit, an `LccodecWarning` says why.
        progress
            ``True`` shows a bar while arrays are decoded, if the package `tqdm` is installed and
            standard error is a terminal. A function is called as ``progress(done, total)`` after
            every array.

        Returns
        -------
        object
            The state as it was saved. Arrays have the decoded values, in C order and native byte
            order; with an adapter, they are arrays of its framework. With `keys`, a dict from the
            name of every leaf asked for to its value.

        Raises
        ------
        ChainError
            For an unknown step or a missing parent.
        DataError, StorageError
            If stored bytes break a rule of the format, or a file cannot be read.
        ArgumentError
            For unknown keys, `dtype` or `progress`, or a step that is not an integer.
        """
        with self._open(step, exact, progress, whole=keys is None) as file:
            state = file.state(keys, self._bits if dtype is None else dtype)
            return as_framework(self.adapter, state, file.metadata(), keys)

    def restore_iter(
        self,
        step: int | None = None,
        keys: Iterable[str] | str | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
        exact: bool = True,
        progress: Progress = False,
    ) -> Arrivals:
        """Return an iterator over the leaves of a state: pairs of a name and an array or scalar.

        Each leaf comes as soon as it has gone through the whole chain, in the order of the state; a
        scalar comes in its place there. With `keys`, the leaves come in the order of the keys. So
        a model can go to its device layer by layer while the rest is decoded, as the functions
        `load_into` of the adapters do.

        Parameters and errors are those of `restore`. All errors but those of decoding are raised at
        once. If an exact file turns out damaged on the way, the arrays that are left come from the
        history, and an `LccodecWarning` says so. The files are closed after the last leaf, and when
        the iterator is closed or dropped.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> chain = lccodec.Chain(tempfile.mkdtemp())
        >>> _ = chain.save(0, {"layers": [np.zeros(2), np.ones(3)], "epoch": 1})
        >>> for name, value in chain.restore_iter(keys=["epoch", "layers"]):
        ...     print(name, value)
        epoch 1
        layers/0 [0. 0.]
        layers/1 [1. 1. 1.]
        """
        file = self._open(step, exact, progress, whole=keys is None)
        return Arrivals(file, keys, self._bits if dtype is None else dtype, self.adapter)

    def _open(self, step: int | None, exact: bool, progress: Progress, *, whole: bool) -> CheckpointFile:
        """Open a step to restore it, all of it or a part."""
        check_progress(progress)
        file = (open_newest if exact else open_step)(self.directory, step)
        file.show(progress)
        if isinstance(file, ExactFile):
            return file
        if step is None and whole:
            self._resumes()
        if self._restorers is not None:
            self._restorers.share(file, checkpoint_path(self.directory, file.links[-1].manifest.step or 0))
        return file

    def _resumes(self) -> None:
        """Take note that a run goes on from the lossy newest state."""

    def average(  # which steps, and of them which part, by keyword
        self,
        steps: Iterable[int] | None = None,
        *,
        last: int | None = None,
        weights: Iterable[float] | None = None,
        decay: float | None = None,
        roles: Iterable[Role] | Role = ("weight",),
        keys: Iterable[str] | str | None = None,
        dtype: Literal["float32", "bits"] | None = None,
    ) -> Any:
        """Return the weighted mean of `steps`, or of the `last` steps.

        Arrays of other roles, integers and scalars are those of the newest step. Steps and weights
        are as in `lccodec.chain.selection.select_shares`, `roles` as in
        `lccodec.chain.average.average`; the errors of both are raised. The rest is as in `restore`.
        """
        shares = select_shares(self.directory, steps, last, weights, decay)
        dtype = self._bits if dtype is None else dtype
        found = average(self.directory, shares, roles, keys, dtype)
        return as_framework(self.adapter, found.state, found.metadata, keys)

    def info(self, step: int | None = None) -> CheckpointInfo:
        """Return information on a checkpoint, by default the latest; nothing is decoded."""
        with open_step(self.directory, step) as file:
            return with_exact(file.info(), self.directory)
