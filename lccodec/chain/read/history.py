"""The checkpoints of a directory, to be restored, averaged and inspected. Nothing is written.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...container.disk.address import checked_place
from ...container.disk.system import storage_errors
from ...policy.roles import Role
from ..adapter import Adapter, as_framework, check_adapter
from ..bounds import Bounds
from ..fallback import advice, newest_whole, steps_until
from ..progress import Progress, check_progress, telling
from ..store.names import step_index
from ..store.opening import writable_store
from ..store.store import Store
from .arrivals import Arrivals
from .average import average, select_shares
from .checkpoint import OpenCheckpoint, checked_names, open_step
from .info import CheckpointInfo
from .newest import ExactFile, kept, open_newest, with_exact
from .rows import Keys

if TYPE_CHECKING:  # of those that have workers
    from .crew import Restorers

Found = TypeVar("Found")


class History:
    """The checkpoints of one run in a directory or a bucket: the half of `Chain` that reads.

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
        self.directory = checked_place(directory)
        self._store = writable_store(self.directory)
        self.adapter = check_adapter(adapter)
        self._bits: Literal["bits"] | None = None if adapter is None else "bits"
        with storage_errors("cannot read the directory", self.directory):
            if isinstance(self.directory, Path) and self.directory.exists() and not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))

    @property
    def _view(self) -> Store:
        """Where reads begin."""
        return self._store

    @property
    def steps(self) -> list[int]:
        """All steps, in ascending order."""
        return list(self._view.steps())

    @property
    def latest(self) -> int | None:
        """The newest step; ``None`` if the chain has no checkpoint yet."""
        return max(self._view.steps(), default=None)

    @property
    def exact_step(self) -> int | None:
        """The step of the exact file, which holds the state bit for bit; ``None`` without one.

        The states of a lossless policy are all exact, and need no exact file.
        """
        return self._view.exact_step()

    def restore(
        self,
        step: int | None = None,
        keys: Keys | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
        exact: bool = True,
        fallback: bool = False,
        progress: Progress = False,
        max_bytes: int | None = None,
        max_deltas: int | None = None,
    ) -> Any:
        """Return a state.

        Parameters
        ----------
        step
            Step of the checkpoint; the latest by default.
        keys
            One or several names of arrays, scalars or containers (``"optimizer/0"``), or patterns
            of names of leaves (``"*.bias"``, :mod:`fnmatch`). Only these are read and decoded. A
            mapping gives the rows of arrays: ``{"embedding": slice(0, 1000), "epoch": None}``. A
            slice follows Python's rules and has no step; ``None`` is all of a leaf. Of a large
            array no more is decoded than the rows need.
        dtype
            ``"float32"`` returns bfloat16 arrays as float32, ``"bits"`` as `BFLOAT16_BITS`. An
            adapter returns its framework's bfloat16.
        exact
            Whether to take the state from the exact file, if that is of the step. If the newest
            state is not returned bit for bit, an `LccodecWarning` says why.
        fallback
            Whether to restore an older step if the one asked for is damaged or unreadable: the
            newest step before it of which every array verifies. An `LccodecWarning` names the
            steps that were skipped, and why. With `keys`, the whole state is verified too.
        progress
            ``True`` shows a bar while arrays are decoded, if standard error is a terminal. It needs
            the package `tqdm`; without it, an `LccodecWarning` says so. A function is called as
            ``progress(done, total)`` after every array.
        max_bytes, max_deltas
            As for :func:`lccodec.open`. With `fallback`, a step that asks for more is skipped.

        Returns
        -------
        object
            The state as it was saved. Arrays have the decoded values, in C order and native byte
            order; with an adapter, they are arrays of its framework. With `keys`, a dict from the
            name of every leaf asked for to its value.

        Raises
        ------
        ChainError
            For an unknown step or a missing parent; with `fallback`, if no step can be restored.
        DataError, StorageError
            If stored bytes break a rule of the format, or a file cannot be read.
        ArgumentError
            For unknown keys, `dtype` or `progress`, or a step that is not an integer; for rows that
            are not a slice, have a step, or are of a scalar.
        """
        dtype = self._bits if dtype is None else dtype
        resumes = step is None and keys is None
        bounds = Bounds(max_bytes, max_deltas)

        if not (keys is None or isinstance(keys, Mapping)):
            keys = checked_names(keys)  # an iterator is read once

        def read(each: int | None, store: Store, strict: bool) -> Any:
            found = self._open(each, exact, progress, store, resumes=resumes, strict=strict)
            with kept(found, bounds) as file:
                if fallback and keys is not None:
                    file.verify()
                return as_framework(self.adapter, file.state(keys, dtype), file.metadata(), keys)

        def whole(each: int | None) -> Any:
            return self._whole(partial(read, each))

        def before() -> list[int]:
            return steps_until(self.steps, None if step is None else step_index(step))

        if fallback and (steps := before()):
            return newest_whole(self.directory, steps, whole)
        with advice(before, "restore(fallback=True) returns the newest step before it that is whole"):
            return whole(step)

    def restore_iter(
        self,
        step: int | None = None,
        keys: Keys | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
        exact: bool = True,
        progress: Progress = False,
        max_bytes: int | None = None,
        max_deltas: int | None = None,
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
        resumes = step is None and keys is None
        bounds = Bounds(max_bytes, max_deltas)

        def opened(store: Store, strict: bool) -> OpenCheckpoint:
            file = kept(self._open(step, exact, progress, store, resumes=resumes, strict=strict), bounds)
            if strict:  # what is read later must not fail
                try:
                    for link in file.links:
                        link.reader.verify()
                except BaseException:
                    file.close()
                    raise
            return file

        return Arrivals(self._whole(opened), keys, self._bits if dtype is None else dtype, self.adapter)

    def _whole(self, read: Callable[[Store, bool], Found]) -> Found:
        """Return what a function reads; it is told whether everything must be whole there."""
        return read(self._view, False)

    def _open(  # what, and from where
        self,
        step: int | None,
        exact: bool,
        progress: Progress,
        store: Store,
        *,
        resumes: bool,
        strict: bool = False,
    ) -> OpenCheckpoint:
        """Open a step to restore it; `resumes` says whether a run may go on from it."""
        check_progress(progress)
        file = open_newest(store, step, strict=strict) if exact else open_step(store, step)
        file.show(progress)
        if isinstance(file, ExactFile):
            return file
        if resumes:
            self._resumes()
        if self._restorers is not None and store is self._store and isinstance(self.directory, Path):
            self._restorers.share(file, self.directory / file.links[-1].place)
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
        progress: Progress = False,
        max_bytes: int | None = None,
        max_deltas: int | None = None,
    ) -> Any:
        """Return the weighted mean of `steps`, or of the `last` steps.

        Arrays of other roles, integers and scalars are those of the newest step. Steps and weights
        are as in `select_shares`, `roles` as in `average`, both of `lccodec.chain.read.averaging`.
        The errors of both are raised. The rest is as in `restore`; each step must keep `max_bytes`
        and `max_deltas`.
        """
        shares = select_shares(self._view, steps, last, weights, decay)
        dtype = self._bits if dtype is None else dtype
        with telling(check_progress(progress), "average") as tell:
            found = average(self._view, shares, roles, keys, dtype, tell, Bounds(max_bytes, max_deltas))
        return as_framework(self.adapter, found.state, found.metadata, keys)

    def info(self, step: int | None = None) -> CheckpointInfo:
        """Return information on a checkpoint, by default the latest; nothing is decoded."""
        with open_step(self._view, step) as file:
            return with_exact(file.info(), self._view)
