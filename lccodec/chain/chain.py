"""A directory of checkpoints: save, restore, inspect. Every checkpoint is one immutable file.

If the step that a restore asks for is damaged, the newest whole one before it may be returned.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from ..container.system import Place, StrPath, checked_path, checked_place, storage_errors
from ..container.tree import Adapter, as_framework, check_adapter, with_metrics
from ..errors import (
    ArgumentError,
    ChainError,
    DataError,
    LccodecError,
    StorageError,
    check_choice,
    integer,
    is_loss,
    warn,
)
from ..policy.hindsight import gains
from ..policy.policy import Policy
from ..policy.presets import resolve_policy
from ..policy.record import EXACT_KEY, NewestMode, check_newest
from ..policy.roles import Assignment, Role
from ..table import Overview, Shown
from .behind import AllBehind, Change
from .life.prune import Keep, KeepBehind, Pruning, check_keep, pin, pin_exact, prune, unpin
from .life.rollback import RolledBack, delete_rolled_back, list_rolled_back, rollback, undo_rollback
from .mend.mirror import (
    SECONDS_TO_CLOSE,
    Found,
    Mirrors,
    MirrorState,
    MirrorUpkeep,
    checked_mirrors,
    read_whole,
)
from .mend.protect import ParityBehind, Protection, parse_redundancy, protect, unprotect
from .overview import OnProgress, Progress, chain_overview, check_progress, telling
from .read.average import average, select_shares
from .read.checkpoint import (
    Arrivals,
    ExactFile,
    OpenCheckpoint,
    checked_names,
    kept,
    open_newest,
    open_step,
    with_exact,
)
from .read.info import CheckpointInfo
from .read.links import Bounds
from .read.rows import Keys
from .save.partial import check_only
from .save.plan import KEYFRAME_EVERY, Plan
from .save.settings import (
    TIMEOUT_SECONDS,
    ReferenceKind,
    Settings,
    WhenBusy,
    WorkerOptions,
    check_every,
    check_hindsight,
    check_lossy,
    check_reference,
    without_settings,
)
from .save.writer import SaveRequest, Writer
from .store.directory import DirectoryStore, as_directory, writable_store
from .store.lineage import Ancestry
from .store.store import Store, WritableStore, step_index

if TYPE_CHECKING:
    from .life.compact import Compaction
    from .mend.repair import Repair, Salvage
    from .read.crew import Restorers


def steps_until(steps: Iterable[int], step: int | None) -> list[int]:
    """Return `step` and all before it, or all steps; none if `step` is not one of them."""
    there = list(steps)
    if step is None:
        return there
    return [each for each in there if each <= step] if step in there else []


@contextmanager
def advice(steps: Callable[[], list[int]], text: str) -> Iterator[None]:
    """Add a note to the error of a step that is damaged, if there is an older one to restore.

    `steps` returns those of `steps_until`.
    """
    try:
        yield
    except LccodecError as error:
        with suppress(LccodecError):
            if is_loss(error) and len(steps()) > 1:
                error.add_note(text)
        raise


def newest_whole(place: Place, steps: Iterable[int], read: Callable[[int], Found]) -> Found:
    """Return what `read` returns for the newest of the steps that it can read.

    `read` raises an error unless all of a step is sound. An `LccodecWarning` names the steps that
    were skipped, and why. Raises ``ChainError`` if no step can be read; it names each, and why.
    """
    skipped: dict[int, str] = {}
    for step in sorted(steps, reverse=True):
        try:
            found = read(step)
        except (DataError, ChainError, StorageError) as error:
            skipped[step] = str(error)  # not the error, which would keep what was decoded
        else:
            if skipped:
                todo = f"roll back to step {step} before the next save"
                warn(f"{place}: restored step {step}; skipped {_reasons(skipped)}; {todo}")
            return found
    raise ChainError(f"{place}: no step can be restored: {_reasons(skipped)}")


def _reasons(skipped: Mapping[int, str]) -> str:
    """Return why steps were skipped; those that share a reason, such as a parent, together."""
    steps: dict[str, list[str]] = {}
    for step, reason in skipped.items():
        steps.setdefault(reason, []).append(str(step))
    parts = [f"step{'s'[: len(names) > 1]} {', '.join(names)}: {reason}" for reason, names in steps.items()]
    return "; ".join(parts)


class Chain(Shown):
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
        copied behind the saves, and verified there (:mod:`lccodec.chain.mend.mirror`). Files that
        are damaged or missing here are read from there. If there is no checkpoint here, all is, and
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
        newest: NewestMode | None = None,
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
        self._options = options = WorkerOptions(workers, max_concurrent_saves, worker_timeout)
        self._restorers: Restorers | None = None  # who decodes, if not this process alone
        if workers is not None:
            from .save.background import restorers_of

            self._restorers = restorers_of(options)
        self.directory = checked_place(directory)
        self._store = writable_store(self.directory)
        self.adapter = check_adapter(adapter)
        self._bits: Literal["bits"] | None = None if adapter is None else "bits"
        with storage_errors("cannot read the directory", self.directory):
            if isinstance(self.directory, Path) and self.directory.exists() and not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))
        self._ancestry = Ancestry(self._store)
        redundancy = None if parity is None else parse_redundancy(parity)
        self._parity = ParityBehind(self._store, redundancy, acts=check_keep(keep) is not None)
        kept = check_keep(mirror_keep)
        upkeep = MirrorUpkeep(rollback, None if kept is None else partial(prune, keep=kept, wait=False))
        self._mirrors = Mirrors(self._store, checked_mirrors(mirror), upkeep, mirror_timeout)
        pruned = KeepBehind(self._store, keep, self._ancestry, self._parity, self._mirrors)
        self._behind = AllBehind([pruned, self._parity, self._mirrors])
        every = check_every(keyframe_every, exact_every, hindsight)
        self.keyframe_every, self.exact_every, self.hindsight = every.keyframe, every.exact, every.end
        asked = policy, roles, check_newest(newest), check_reference(reference, self.hindsight)
        settings = Settings(self._view, *asked, every)
        self._writer = Writer(self._store, adapter, settings, options, self._behind)

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
                self._behind.after(Change())
        finally:
            self._behind.close()
            if self._restorers is not None:
                self._restorers.close()

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

    @property
    def _view(self) -> Store:
        """Where reads begin."""
        return self._mirrors.instead or self._store

    @property
    def policy(self) -> Policy:
        """The policy of saves: the one given, that of the last checkpoint, or ``balanced``."""
        return self._writer.settings.record.policy

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles of saves: those given, or those of the last checkpoint."""
        return self._writer.settings.record.roles

    @property
    def workers(self) -> int | None:
        """The number of workers, as given."""
        return self._options.workers

    @property
    def newest(self) -> NewestMode:
        """``"exact"`` if saves also keep the newest state exactly, else ``"history"``."""
        return self._writer.settings.record.newest

    def _overview(self) -> Overview:
        policy = self._writer.settings.given.policy
        found = chain_overview(self._view, None if policy is None else policy.name, self.failure)
        if states := self.mirrors:
            found = replace(found, facts={**found.facts, "mirror": "; ".join(map(str, states))})
        return found

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
            then follows how far the values move (:mod:`lccodec.chain.save.plan`).
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
        given = self._request(state, metadata, metrics, roles, only, exact)
        return self._writer.save(step, given, progress, following)

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
        check_choice("when_busy", when_busy, get_args(WhenBusy))
        check_progress(progress)
        given = self._request(state, metadata, metrics, roles, only, exact)
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
        return self._writer.plan(self._request(state, None, None, roles, only, exact=False))

    def _request(  # what `save` is given
        self,
        state: Any,
        metadata: Mapping[str, Any] | None,
        metrics: Mapping[str, Any] | None,
        roles: Mapping[str, Assignment | Role] | None,
        only: Iterable[str] | None,
        exact: bool,
    ) -> SaveRequest:
        """Return what a save is given, checked; a chain that is empty goes on from its mirror."""
        if metrics is not None:
            metadata = with_metrics(metadata, metrics)
        if not isinstance(exact, bool):
            raise ArgumentError(f"exact must be True or False; got {exact!r}")
        if exact and only is not None:
            raise ArgumentError("exact=True saves all arrays: it cannot be used with only=")
        if exact:
            metadata = {**(metadata or {}), EXACT_KEY: "true"}
        names = None
        if only is not None:
            hashes = "reference='hashes'" if self._writer.settings.reference == "hashes" else ""
            if other := "hindsight=" if self.hindsight else hashes:
                raise ArgumentError(f"only= cannot be used with {other}, which saves all arrays again")
            names = check_only(only)
        if self._mirrors.instead is not None and self._mirrors.before_save():
            self._writer.settings.moved(self._store)
        return SaveRequest(state, metadata, roles, names)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no save runs in the background, for at most `timeout` seconds.

        Returns whether all saves are finished. Raises the error of a save that failed.
        """
        return self._writer.wait(timeout)

    @property
    def pending(self) -> list[int]:
        """The steps of the saves in the background that are not done, in their order."""
        return self._writer.pending

    @property
    def failure(self) -> BaseException | None:
        """The error of a save in the background that failed, until a call raises it."""
        return self._writer.failure

    def abort(self) -> None:
        """Abort all saves in the background that are not finished.

        Files that are already on disk stay: the exact file of such a save is a step of the chain.
        """
        self._writer.abort()

    def release_lock(self) -> None:
        """Release the lock on the directory, so that another process may save to it.

        Saves in the background are finished first. The next save of this `Chain` takes the lock
        again. Closing the chain releases the lock, too.
        """
        self._writer.release_lock()

    @property
    def mirrors(self) -> list[MirrorState]:
        """How far each mirror is behind, as far as is known: nothing is asked of it."""
        return self._mirrors.states()

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

        def before() -> list[int]:
            return steps_until(self.steps, None if step is None else step_index(step))

        if fallback and (steps := before()):
            return newest_whole(self.directory, steps, partial(self._whole, read))
        with advice(before, "restore(fallback=True) returns the newest step before it that is whole"):
            return self._whole(read, step)

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

        def opened(step: int | None, store: Store, strict: bool) -> OpenCheckpoint:
            file = kept(self._open(step, exact, progress, store, resumes=resumes, strict=strict), bounds)
            if strict:  # what is read later must not fail
                try:
                    for link in file.links:
                        link.reader.verify()
                except BaseException:
                    file.close()
                    raise
            return file

        file = self._whole(opened, step)
        return Arrivals(file, keys, self._bits if dtype is None else dtype, self.adapter)

    def _whole(self, read: Callable[[int | None, Store, bool], Found], step: int | None) -> Found:
        """Return what a function reads of a step; it is told whether all must be whole there."""
        if not self._mirrors.acts:
            return read(step, self._store, False)
        return read_whole(self._view, partial(read, step), self._mirrors.to_read)

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
        file.progress = progress
        if isinstance(file, ExactFile):
            return file
        if resumes:
            self._writer.settings.restored()
        if self._restorers is not None and store is self._store and isinstance(self.directory, Path):
            self._restorers.share(file, self.directory / file.links[-1].place)
        return file

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
        are as in `select_shares`, `roles` as in `average`, both of `lccodec.chain.read.average`.
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

    def rollback(self, step: int, *, delete: bool = False) -> RolledBack:
        """Take all later steps out of the chain, which then continues from `step`.

        They are set aside in ``.rolled-back`` in the directory, or removed with `delete`, together
        with an exact file of a later step; the next save writes a new one. Errors are those of
        `lccodec.chain.life.rollback.rollback`.
        """
        with self._mirrors.rolling_back(), self._writer.at_rest() as claim:
            gone = rollback(self._store, step, delete=delete, claim=claim)
            self._writer.settings.forget_saves()
            self._behind.after(Change(removed=gone.steps, rolled_back=step))
        return gone

    @property
    def rolled_back(self) -> list[RolledBack]:
        """What rollbacks have set aside, oldest first."""
        return list_rolled_back(self._store)

    def undo_rollback(self, name: str | None = None) -> RolledBack:
        """Put the steps that a rollback set aside back into the chain, by default the last ones.

        Errors are those of `lccodec.chain.life.rollback.undo_rollback`.
        """
        with self._writer.at_rest() as claim:
            self._writer.settings.forget_saves()
            found = undo_rollback(self._store, name, claim=claim)
        self._behind.after(Change(added=found.steps, rolled_back=found.step))
        return found

    def delete_rolled_back(self, name: str | None = None, *, pinned: bool = False) -> list[RolledBack]:
        """Delete the steps that a rollback set aside, by default those of all rollbacks.

        Pinned steps are refused, unless `pinned` is set. Errors are those of
        `lccodec.chain.life.rollback.delete_rolled_back`.
        """
        return delete_rolled_back(self._store, name, pinned=pinned)

    def fork(self, directory: str | os.PathLike[str], step: int) -> list[int]:
        """Start a new chain in a directory or a bucket from a step of this one; return its steps.

        Errors are those of `lccodec.chain.life.transfer.fork`.
        """
        from .life.transfer import fork

        with closing(writable_store(checked_place(directory))) as target:
            return fork(self._store, target, step)

    def prune(
        self, keep: Keep, *, rewrite: bool = False, dry_run: bool = False, progress: Progress = False
    ) -> Pruning:
        """Remove the checkpoints that `keep` does not keep and that no kept checkpoint needs.

        The newest step and pinned steps stay. With `rewrite`, kept checkpoints are rewritten with
        the same state, so that they need only kept ones. With `dry_run`, nothing is changed.
        `progress` is as for `restore`, counted in checkpoints. Errors are those of
        `lccodec.chain.life.prune.prune`.
        """
        check_progress(progress)
        options: dict[str, Any] = {"rewrite": rewrite, "dry_run": dry_run, "ancestry": self._ancestry}
        options["mirrored"] = self._mirrors.needed_steps()
        with (
            self._writer.at_rest() if rewrite and not dry_run else self._writer.turn,
            telling(progress, "prune", "checkpoints") as tell,
        ):
            found = prune(self._store, keep, tell=tell, **options)
        if rewrite and not dry_run:
            anew = [each.step for each in found.rewritten]
            self._behind.after(Change(added=anew, removed=[*found.removed, *anew]))
        return found

    def compact(
        self,
        policy: str | Policy | None = None,
        *,
        keyframe_every: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        hindsight: int = 0,
        dry_run: bool = False,
        progress: Progress = False,
    ) -> Compaction:
        """Rewrite a finished run, to take fewer bytes or so that restores replay fewer deltas.

        Without a policy every state stays as it is, bit for bit. With one, states are encoded
        again, and the result says what that loses. No process may save meanwhile. See
        `lccodec.chain.life.compact.compact`, also for errors.

        Parameters
        ----------
        policy
            The policy to encode the states with. It needs `directory`.
        keyframe_every
            Maximum number of deltas that a restore replays. By default as for saves.
        directory
            A new directory or address. By default the files of this chain are replaced, one by one.
        hindsight
            Encode the states again in groups of so many checkpoints, those within a group against
            both of its ends: several times smaller at the same quality. It needs `directory`, and
            takes the recorded policy by default. What a policy stores without loss stays so.
        dry_run
            Return what would change, and change nothing. Not with a policy or `hindsight`.
        progress
            As for `restore`, counted in checkpoints.

        Raises
        ------
        ArgumentError
            For a policy or `hindsight` without `directory` or with `dry_run`, or if the directory
            is not empty.
        """
        from .life.compact import compact
        from .life.transfer import duplicate_chain

        every = self.keyframe_every if keyframe_every is None else integer("keyframe_every", keyframe_every)
        check_progress(progress)
        target = None if directory is None else writable_store(checked_place(directory))
        with (
            nullcontext() if target is None else closing(target),
            self._writer.at_rest() as claim,
            telling(progress, "compact", "checkpoints") as tell,
        ):
            if policy is not None or hindsight:
                return self._code_anew(policy, every, target, dry_run, hindsight, tell)
            if target is not None and not dry_run:
                duplicate_chain(self._store, target)
                return compact(target, every, tell=tell)
            found = compact(self._store, every, dry_run=dry_run, claim=claim, tell=tell)
        if not dry_run:
            anew = [each.step for each in found.rewritten]
            self._behind.after(Change(added=anew, removed=anew))
        return found

    def _code_anew(
        self,
        policy: str | Policy | None,
        every: int,
        target: WritableStore | None,
        dry_run: bool,
        hindsight: int,
        tell: OnProgress,
    ) -> Compaction:
        from .life.compact import code_anew, compared

        called = "compact(hindsight=...)" if hindsight else "compact(policy=...)"
        if target is None or dry_run:
            raise ArgumentError(f"{called} needs directory= and does not support dry_run")
        if target.names():
            raise ArgumentError(f"{called} needs a new or empty directory; {target.path} is not empty")
        chosen = self._writer.settings.record.policy if policy is None else resolve_policy(policy)
        size = check_hindsight(hindsight)
        if size:
            check_lossy(chosen)
        other = type(self)(target.path, chosen, keyframe_every=every, newest="history", hindsight=size)

        with other:
            save = partial(other._writer.save, progress=False)
            found = code_anew(self._store, chosen, save, tell, settles=bool(size) and gains(chosen))
        return compared(self._store, target, found)

    def pin(self, step: int, *, exact: bool = False) -> None:
        """Pin a step: no prune of any process removes it, or the steps that it needs.

        With `exact`, it also stays bit for bit as it is now: the newest step is written anew from
        the exact file, as a keyframe. Errors are those of `lccodec.chain.life.prune.pin`, and of
        `pin_exact` there.
        """
        if not exact:
            pin(self._store, step)
            return
        with self._writer.at_rest() as claim:
            self._parity.close()  # it reads the file that is written anew
            pin_exact(self._store, step, claim)
        self._behind.after(Change(added=[step], removed=[step]))

    def unpin(self, step: int) -> bool:
        """Remove the pin of a step; return whether there was one."""
        return unpin(self._store, step)

    @property
    def pins(self) -> list[int]:
        """The pinned steps, in rising order."""
        return self._store.pins()

    def protect(self, redundancy: str | int) -> Protection:
        """Make parity files beside the chain, from which `repair` mends damaged and lost files.

        `redundancy` is a share of the bytes, such as ``"5%"``, or a number of files of each 64 that
        may be lost whole. Files that are protected already are left alone. Errors are those of
        `lccodec.chain.mend.protect.protect`; an `ArgumentError` for another redundancy.
        """
        return protect(as_directory(self._store, "parity"), parse_redundancy(redundancy))

    def unprotect(self) -> int:
        """Remove all parity files; return the bytes that this frees."""
        return unprotect(as_directory(self._store, "parity"))

    def repair(
        self, *, dry_run: bool = False, max_bytes: int | None = None, max_deltas: int | None = None
    ) -> Repair:
        """Mend the files that are damaged or missing, bit for bit: from parity, then from mirrors.

        If the newest checkpoint is lost still, it is written anew, as a keyframe of the exact file.
        A lost exact file is written anew from a checkpoint that has lost nothing.
        What cannot be mended stays as it is, and is named. With `dry_run`, nothing is changed. From
        a checkpoint that asks for more than `max_bytes` or `max_deltas` nothing is written anew.
        Errors are those of `lccodec.chain.mend.repair.repair`.
        """
        from .mend.repair import repair

        mirrors, bounds = self._mirrors.to_read(), Bounds(max_bytes, max_deltas)
        if dry_run:
            return repair(self._store, dry_run=True, mirrors=mirrors, bounds=bounds)
        with self._writer.at_rest() as claim:
            found = repair(self._store, claim=claim, mirrors=mirrors, bounds=bounds)
        self._behind.after(Change())
        return found

    def salvage(self, directory: str | os.PathLike[str]) -> Salvage:
        """Save what can still be read, each step and each array, to a new chain in `directory`.

        The new chain loses nothing of it. The result lists what is gone.
        """
        from .mend.repair import salvage

        target = DirectoryStore(checked_path(directory))
        if target.names():
            raise ArgumentError(f"salvage() needs a new or empty directory; {target.path} is not empty")
        with self._writer.at_rest(), type(self)(target.path, "lossless", newest="history") as other:
            return salvage(self._store, other.save)
