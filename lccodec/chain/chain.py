"""A directory of checkpoints: save, restore, inspect. Every checkpoint is one immutable file.

Source: SPEC 9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from ..container.disk.system import StrPath
from ..container.scalars import with_metrics
from ..errors import ArgumentError, LccodecError
from ..policy.policy import Policy
from ..policy.record import EXACT_KEY, Kept, check_newest
from ..policy.roles import Assignment, Role
from .adapter import Adapter
from .life.keep import Keep, check_keep
from .life.lifetime import Lifetime
from .life.prune import prune, thin_out
from .life.rollback import rollback
from .mend.behind import ParityBehind
from .mend.coming_back import comes_back
from .mend.redundancy import parse_redundancy
from .mirror.behind import SECONDS_TO_CLOSE, Mirrors, checked_mirrors
from .mirror.bring import Care
from .progress import Progress, check_progress
from .save.partial import check_only
from .save.plan import Plan
from .save.settings import (
    KEYFRAME_EVERY,
    TIMEOUT_SECONDS,
    ReferenceKind,
    Settings,
    WhenBusy,
    WorkerOptions,
    check_every,
    check_reference,
    check_when_busy,
    without_settings,
)
from .save.writer import SaveRequest, Writer


class Chain(Lifetime):
    """Checkpoints of one run in a directory; a context manager.

    Several threads may use one `Chain`: saves wait for each other. Any number of processes may
    read the directory, and one at a time saves to it.

    Parameters
    ----------
    directory
        The directory. The first save creates it. If it holds a chain, saves continue that chain. A
        leading ``~`` is the home directory.
    policy
        A preset (a name of `lccodec.POLICIES`) or a `Policy`. By default, the policy that the chain
        was saved with, or ``"balanced"`` for a new chain.
    roles
        Roles of arrays by name or pattern, such as ``{"*/velocity": "first_moment"}``, for arrays
        whose role does not follow from the name or the adapter (:mod:`lccodec.policy.roles`). By
        default, the roles that the chain was saved with. The first save refuses names and patterns
        that match no array.
    keyframe_every
        Maximum number of deltas that a restore replays. After this many deltas, the next checkpoint
        is a keyframe.
    workers
        Number of worker processes that encode and decode; 0 for one fewer than there are cores. The
        files do not depend on it. By default this process does the work, and `save_async` uses one
        worker.
    adapter
        The adapter of the states' framework, such as ``lccodec.adapters.torch``. Without one,
        states hold NumPy arrays.
    newest
        ``"exact"`` also keeps the newest state bit for bit, in one file that each save replaces.
        ``"history"`` keeps only the checkpoints: a resumed run may start from a lossy state. By
        default, as the chain was saved before; for a new chain ``"exact"`` if states may lose
        something.
    exact_every
        Replace the exact file only at every n-th save, to write less. In between, it holds an
        earlier step.
    keep
        Which steps to keep after each save, as for `prune`. By default all.
    hindsight
        Save the history in groups of so many steps, such as 8: once a group is complete, the steps
        within it are coded again from both of its ends, and take next to nothing. It needs a policy
        that loses something, and ``newest="exact"``. By default every step stays as it was saved.
    max_concurrent_saves
        Maximum number of concurrent saves. Each holds a copy of its state.
    worker_timeout
        Seconds without progress before a worker counts as dead.
    parity
        Protect what is saved, by parity files that are written behind the saves: a share of the
        bytes, such as ``"5%"``, or a number of files that may be lost whole, as for `protect`. By
        default nothing.
    mirror
        A second place for all files, or a list of several: a directory or an address. Each file is
        copied behind the saves, and verified there (:mod:`lccodec.chain.mirror`). Files that are
        damaged or missing here are read from there. If there is no checkpoint here, all is, and
        the first save brings the newest step here.
    mirror_keep
        Which steps to keep in the mirrors, as for `prune`. By default all, whatever `keep` says.
    mirror_timeout
        Seconds that `close` waits for the mirrors.
    reference
        What a delta is taken against: the newest state in memory, or ``"hashes"`` of it, which need
        a policy that loses nothing (:mod:`lccodec.chain.save.hash_reference`).

    Raises
    ------
    ChainError
        If a mirror has another chain, or a newer one.
    ArgumentError
        For an unknown policy, role or `newest`, and for a path that cannot be a directory.
    StorageError
        If the directory is a file.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> state = {"weight": np.ones((2, 3), np.float32), "epoch": 1}
    >>> with lccodec.Chain(tempfile.mkdtemp(), policy="lc-3") as chain:
    ...     _ = chain.save(10, state)
    >>> chain.restore()["epoch"]
    1
    """

    def __init__(  # the settings of a chain, most of them by keyword
        self,
        directory: str | os.PathLike[str],
        policy: str | Policy | None = None,
        *,
        roles: Mapping[str, Role] | None = None,
        keyframe_every: int = KEYFRAME_EVERY,
        workers: int | None = None,
        adapter: Adapter | None = None,
        newest: Kept | None = None,
        exact_every: int = 1,
        keep: Keep | None = None,
        hindsight: int = 0,
        max_concurrent_saves: int = 1,
        worker_timeout: float = TIMEOUT_SECONDS,
        parity: str | int | None = None,
        mirror: StrPath | Sequence[StrPath] | None = None,
        mirror_keep: Keep | None = None,
        mirror_timeout: float = SECONDS_TO_CLOSE,
        reference: ReferenceKind = "values",
    ) -> None:
        options = WorkerOptions(workers, max_concurrent_saves, worker_timeout)
        super().__init__(directory, adapter, options)
        self._parity = ParityBehind(self._store, None if parity is None else parse_redundancy(parity))
        kept = check_keep(mirror_keep)
        care = Care(rollback, None if kept is None else partial(prune, keep=kept, wait=False))
        self._mirrors = Mirrors(self._store, checked_mirrors(mirror), care, mirror_timeout)
        after = partial(thin_out, self._store, check_keep(keep), self._ancestry, self._parity, self._mirrors)
        every = check_every(keyframe_every, exact_every, hindsight)
        self.keyframe_every, self.exact_every, self.hindsight = every.keyframe, every.exact, every.end
        asked = policy, roles, check_newest(newest), check_reference(reference, self.hindsight)
        settings = Settings(self._view, *asked)
        back = partial(comes_back, self._store, self._mirrors.opened)
        self._writer = Writer(self._store, adapter, settings, options, every, after, back)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self._close(settle=error is None)
        except LccodecError as failure:
            if error is None:
                raise
            error.add_note("; ".join([str(failure), *getattr(failure, "__notes__", ())]))

    def close(self) -> None:
        """Wait for saves in the background, and release the lock and the workers.

        With `hindsight`, groups that are complete are coded again. Restores still work. Raises the
        error of a failed save in the background, if it was not raised before.
        """
        self._close(settle=True)

    def _close(self, *, settle: bool) -> None:
        try:
            self._writer.close(settle)
            if settle and self.hindsight:  # groups were coded again
                self._parity()
        finally:
            self._parity.wait()
            self._mirrors.close()
            if self._restorers is not None:
                self._restorers.close()

    def _some(self, only: Iterable[str] | None) -> tuple[str, ...] | None:
        """Return the names and patterns of the arrays to save; ``None`` for all arrays."""
        hashes = "reference='hashes'" if self._writer.settings.reference == "hashes" else ""
        if only is not None and (other := "hindsight=" if self.hindsight else hashes):
            raise ArgumentError(f"only= cannot be used with {other}, which saves all arrays again")
        return check_only(only)

    def _begin(self) -> None:
        """Let a chain that is empty go on from its mirror."""
        if self._mirrors.before_save():
            self._writer.settings.moved(self._store)

    @property
    def policy(self) -> Policy:
        """The policy of saves: the one given, that of the last checkpoint, or ``balanced``."""
        return self._writer.settings.record.policy

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles of saves: those given, or those of the last checkpoint."""
        return self._writer.settings.record.roles

    @without_settings
    def save(
        self,
        step: int,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        roles: Mapping[str, Assignment | Role] | None = None,
        progress: Progress = False,
        following: Any = None,
        only: Iterable[str] | None = None,
        exact: bool = False,
    ) -> int:
        """Store a state atomically; return the size of the checkpoint's file in bytes.

        The values of arrays may change during the call: each stored value is the value at some
        moment of the call. Their memory must stay allocated, and dicts, lists and scalars must not
        change.

        The exact file, if there is one, is committed before the checkpoint. If one of the two
        cannot be written, the state is kept in the other, and an `LccodecWarning` says so. If the
        latest checkpoint cannot be the reference of a delta, for example because its file is
        damaged, a keyframe is written, with a warning too.

        Parameters
        ----------
        step
            A non-negative integer above every step of the chain.
        state
            A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None.
            With an adapter, a state of its framework.
        metadata
            Strings to store with the state. A number becomes its JSON text.
        metrics
            Numbers to add to the metadata, such as ``{"loss": 0.25}``, for charts and `Keep`.
        roles
            Roles of arrays for this save, by name or pattern. Those given to `Chain` go before
            them; they go before those that an adapter finds. A value is a role, or an
            `Assignment`, which has a reason too.
        progress
            ``True`` shows a bar while arrays are coded, if standard error is a terminal. It needs
            the package `tqdm`; without it, an `LccodecWarning` says so. A function is called as
            ``progress(done, total)`` with numbers of arrays, the last time with all that are coded.
            An error of it is a warning.
        following
            The state that will be saved next, if it is known. The error of a lossy first keyframe
            then follows how far the values move (:mod:`lccodec.chain.save.forecast`).
        only
            Names or patterns (:mod:`fnmatch`) of the arrays to save. All others stay as they are in
            the last checkpoint, and take no bytes. `state` may have all entries of that checkpoint,
            or some; its scalars are saved. An array that is left out must not have changed since.
        exact
            Keep this step bit for bit, whatever is saved after it: its checkpoint loses nothing,
            whatever the policy, and stays so when the chain is coded again. The metadata say so.

        Raises
        ------
        ArgumentError
            If the step exists or is out of order, or if the state or its metadata cannot be stored.
            With `only`, if a name fits no array; if there is no checkpoint yet; if an entry is not
            in the last one, or has another type or shape there; with `hindsight`, and with `exact`.
        ChainError
            If another process, or another `Chain` of this process, is saving to the directory; and,
            with `only`, if the last checkpoint cannot be restored.
        StorageError
            If the operating system refuses to write both files. Nothing is left behind, but an
            interrupt may leave the exact file, which is then a step of the chain.
        """
        check_progress(progress)
        metadata = _with_promise(with_metrics(metadata, metrics), exact, only)
        self._begin()
        return self._writer.save(
            step, SaveRequest(state, metadata, roles, self._some(only)), progress, following
        )

    @without_settings
    def save_async(
        self,
        step: int,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        roles: Mapping[str, Assignment | Role] | None = None,
        progress: Progress = False,
        when_busy: WhenBusy = "wait",
        only: Iterable[str] | None = None,
        exact: bool = False,
    ) -> Future[int | None]:
        """Store a state in the background: the call copies it, and worker processes save it.

        What is stored is the state at the call. Checkpoints appear in the order of the calls. The
        parameters are those of `save`; another thread calls a function for `progress`.

        Parameters
        ----------
        when_busy
            What to do while `max_concurrent_saves` run: ``"wait"`` for the oldest of them, or
            ``"skip"`` this one.

        Returns
        -------
        concurrent.futures.Future
            The size of the checkpoint's file in bytes; ``None`` if skipped.

        Raises
        ------
        ArgumentError, ChainError
            As `save`, at once; but with `only`, what does not fit the last checkpoint is an error
            of the future.
        LccodecError
            If an earlier save in the background failed; then this one is not started. Each failure
            is raised once, by the next call of `save_async`, `save`, `wait` or `close`.
        """
        check_when_busy(when_busy)
        check_progress(progress)
        metadata = _with_promise(with_metrics(metadata, metrics), exact, only)
        self._begin()
        given = SaveRequest(state, metadata, roles, self._some(only))
        return self._writer.save_async(step, given, progress, when_busy)

    @without_settings
    def plan(
        self,
        state: Any,
        *,
        roles: Mapping[str, Assignment | Role] | None = None,
        only: Iterable[str] | None = None,
    ) -> Plan:
        """Return what the next save would do with a state, as given to `save`. Nothing is written.

        For every array, the plan has its role and the reason for it, its quantizer in deltas, what
        the quantizer guarantees, and how this save would store it. `Plan.estimates` says in how
        many bytes, and with which error. The errors are those of `save`.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> chain = lccodec.Chain(tempfile.mkdtemp(), policy="lc-3")
        >>> [array] = chain.plan({"fc": {"weight": np.ones((9, 9))}})
        >>> print(array.name, array.role, f"({array.why})", array.quantizer)
        fc/weight weight (named 'weight') ExponentBuckets()
        """
        self._begin()
        return self._writer.plan(SaveRequest(state, None, roles, self._some(only)))


def _with_promise(
    metadata: Mapping[str, Any] | None, exact: bool, only: Iterable[str] | None
) -> Mapping[str, Any] | None:
    """Return the metadata of a save, which say whether its step is to stay exact."""
    if not isinstance(exact, bool):
        raise ArgumentError(f"exact must be True or False; got {exact!r}")
    if exact and only is not None:
        raise ArgumentError("exact=True saves all arrays: it cannot be used with only=")
    return {**(metadata or {}), EXACT_KEY: "true"} if exact else metadata
