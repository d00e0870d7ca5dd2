"""A directory of checkpoints: save, restore, inspect. Every checkpoint is one immutable file.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from ..container.manifest import Manifest
from ..container.scalars import metadata_strings
from ..container.system import checked_path, storage_errors
from ..container.tree import Flat, flatten
from ..container.writer import CheckpointWriter, remove_stale_temporaries
from ..frame.encode import Effort
from ..parallel import thread_count
from ..policy.policy import Policy
from ..policy.record import Record, needed_record, write_record
from ..policy.roles import Assignment, Role, check_known
from .adapter import Adapter, as_framework, check_adapter
from .average import average
from .checkpoint import CheckpointFile, open_step
from .coding import encode_plan, plan_manifest
from .directory import checkpoint_path, directory_steps, next_step
from .exact_file import ExactFile
from .info import CheckpointInfo
from .keep import Keep
from .lifetime import Lifetime, check_every
from .newest import Kept, Newest, open_newest, with_exact
from .plan import Plan, candidates, make_plan
from .selection import select_shares
from .settings import KEYFRAME_EVERY, Settings
from .tail import Tail, TailFile, find_tail


class Chain(Lifetime):
    """Checkpoints of one run in a directory; a context manager.

    Several threads may use one `Chain`: saves wait for each other. Other processes may save to the
    directory too. Before each delta, the files of its reference are compared with what they were.

    Parameters
    ----------
    directory
        The directory. The first save makes it. If it holds a chain, saves continue that chain.
    policy
        A preset (a name of `lccodec.POLICIES`) or a `Policy`. By default, the policy that the chain
        was saved with, or ``"balanced"`` for a new chain.
    roles
        Roles of arrays, by name or pattern, as in ``{"*/velocity": "first_moment"}``, where they do
        not follow from names or from the adapter (:mod:`lccodec.policy.roles`). By default, those
        that the chain was saved with. The first save refuses names and patterns that fit no array.
    keyframe_every
        The most deltas that a restore may replay. After this many deltas, the next checkpoint is a
        keyframe.
    threads
        Number of threads to encode and decode with; 0 for one per core. The files do not depend on
        it. Because of the interpreter's lock, more than one thread seldom saves time.
    adapter
        The adapter of the states' framework, such as ``lccodec.adapters.torch``. Without one,
        states hold NumPy arrays.
    newest
        ``"exact"`` also keeps the newest state bit for bit, in one file that each save replaces.
        ``"history"`` keeps the checkpoints alone. By default, as in the directory so far.
    keep
        Which steps stay after each save, as for `prune`. By default all.

    Raises
    ------
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
    ...     restored = chain.restore()
    >>> restored["epoch"], restored["weight"].shape
    (1, (2, 3))
    """

    def __init__(  # the settings of a chain, most of them by keyword
        self,
        directory: str | os.PathLike[str],
        policy: str | Policy | None = None,
        *,
        roles: Mapping[str, Role] | None = None,
        keyframe_every: int = KEYFRAME_EVERY,
        threads: int = 1,
        adapter: Adapter | None = None,
        newest: Kept | None = None,
        keep: Keep | None = None,
    ) -> None:
        super().__init__(keep)
        every = check_every(keyframe_every)
        self.directory = checked_path(directory)
        self.keyframe_every = every
        self.threads = thread_count(threads)
        self.adapter = check_adapter(adapter)
        self._bits: Literal["bits"] | None = None if adapter is None else "bits"
        self._settings = Settings(self.directory, policy, roles)
        self._newest = Newest(self.directory, newest)
        self._tail: Tail | None = None
        self._saving = threading.RLock()
        with storage_errors("cannot read the directory", self.directory):
            if self.directory.exists() and not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the reference that is kept in memory; every checkpoint is already on disk."""
        with self._saving:
            self._tail = None

    @property
    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in rising order."""
        return list(directory_steps(self.directory)) if os.path.lexists(self.directory) else []

    @property
    def policy(self) -> Policy:
        """The policy of saves: given, else that of the last checkpoint, else ``balanced``."""
        return self._settings.record.policy

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles of saves: given, else those of the last checkpoint."""
        return self._settings.record.roles

    @property
    def newest(self) -> Kept:
        """What saves keep of the newest state: ``"exact"`` beside the history, or ``"history"``."""
        return self._newest.kept

    def save(
        self,
        step: int,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        known: Mapping[str, Assignment] | None = None,
    ) -> int:
        """Store a state as a keyframe or a delta: the whole state, or nothing.

        The values of arrays may change during the call: each stored value is the value at some
        moment of the call. Their memory must stay, and dicts, lists and scalars must not change.

        If the latest checkpoint cannot be the reference of a delta, for example because its file is
        damaged, a keyframe is written, and an `LccodecWarning` says what is wrong. So it does if
        the exact file cannot be written: the checkpoint is saved, and the exact file as before.

        Parameters
        ----------
        step
            A non-negative integer above every step of the chain.
        state
            A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None.
            With an adapter, a state of its framework.
        metadata
            Strings to store with the state. A number becomes its JSON text.
        known
            Roles of arrays by full name. Adapters give them from a framework's structures.

        Returns the size of the checkpoint's file in bytes.

        Raises
        ------
        ArgumentError
            If the step exists or is out of order, or if the state or its metadata cannot be stored.
        StorageError
            If the operating system refuses to write. In both cases no file is left behind.
        """
        with self._saving:
            size = self._save(step, state, metadata_strings(metadata), check_known(known or {}))
            self._thin_out()
            return size

    def _save(self, step: Any, state: Any, metadata: dict[str, str], known: Mapping[str, Assignment]) -> int:
        start = time.perf_counter()
        steps = self.steps
        step = next_step(step, steps, self.directory)
        flat, metadata, known = self._flatten(state, metadata, known)
        record = self._settings.record
        tail = self._find_reference(steps)
        plan, needed = self._plan(flat, record, known, tail)
        self._settings.examine(plan, record)
        parent = None if plan.parent is None or tail is None else (tail.links[-1].root, tail.tree)
        written = write_record(needed)
        manifest = plan_manifest(plan, flat, step=step, policy=written, metadata=metadata, parent=parent)
        # Coding overwrites the arrays of the tail. So the tail must not stay if coding fails.
        self._tail = None
        self._tail = self._write(plan, manifest, flat, tail, record.policy.effort)
        link = self._tail.links[-1]
        self._newest.save(plan, flat, manifest, link.root)
        self._settings.saved(plan, link, time.perf_counter() - start)
        return link.size

    def _flatten(
        self, state: Any, metadata: dict[str, str], known: Mapping[str, Assignment]
    ) -> tuple[Flat, dict[str, str], Mapping[str, Assignment]]:
        """Return a state with NumPy arrays, its metadata, and all known roles."""
        if self.adapter is not None:
            framework_state = state
            state, metadata = self.adapter.to_numpy(framework_state, metadata)
            known = {**self.adapter.roles(framework_state), **known}
        return flatten(state), metadata, known

    def _find_reference(self, steps: list[int]) -> Tail | None:
        """Return the latest checkpoint; ``None`` if there is none that can be restored."""
        self._tail = find_tail(self._tail, self.directory, steps[-1], self.threads) if steps else None
        return self._tail

    def _plan(
        self, flat: Flat, record: Record, known: Mapping[str, Assignment], tail: Tail | None
    ) -> tuple[Plan, Record]:
        """Return the plan of a checkpoint, and the policy and roles that it must record."""
        compared = candidates(flat, {} if tail is None else tail.arrays, record.roles, known)
        keyframe = tail is None or tail.deltas >= self.keyframe_every
        parent = None if keyframe or tail is None else tail.step
        plan = make_plan(compared, record.policy, parent, self._settings.width)
        return plan, needed_record(record, compared, known)

    def _write(self, plan: Plan, manifest: Manifest, flat: Flat, tail: Tail | None, effort: Effort) -> Tail:
        """Write a checkpoint; return it as the reference of the next one."""
        with storage_errors("cannot make the directory", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(self.directory)
        parents = {} if tail is None else tail.arrays
        arrays, entries, step = dict(parents), [], manifest.step or 0
        with CheckpointWriter(checkpoint_path(self.directory, step)) as writer:
            for pieces, decoded in encode_plan(plan, parents, effort, self.threads):
                entries.append(writer.write_frame(pieces))
                arrays.update(decoded)
            root = writer.commit(replace(manifest, frames=tuple(entries)))
        before = () if plan.parent is None or tail is None else tail.links
        links = (*before, TailFile(step, root, writer.size))
        return Tail(links, flat.tree, {name: arrays[name] for name in flat.names})

    def plan(self, state: Any) -> Plan:
        """Return what the next save would do with a state. Nothing is written.

        Returns
        -------
        Plan
            For every array, in the order of the state: its role and the reason for it, its
            quantizer in deltas, what the quantizer guarantees, and how this save would store it.
            The errors are those of `save`.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> state = {"fc": {"weight": np.ones((9, 9))}, "bn": {"running_var": np.ones(9)}}
        >>> for array in lccodec.Chain(tempfile.mkdtemp(), policy="lc-3").plan(state):
        ...     print(array.name, array.role, f"({array.why})", array.quantizer)
        fc/weight weight (named 'weight') ExponentBuckets()
        bn/running_var other ('running_var' is exact) Lossless()
        """
        with self._saving:
            flat, _, known = self._flatten(state, {}, {})
            return self._plan(flat, self._settings.record, known, self._find_reference(self.steps))[0]

    def _open(self, step: int | None) -> CheckpointFile:
        return open_step(self.directory, step, threads=self.threads)

    def restore(
        self,
        step: int | None = None,
        keys: Iterable[str] | str | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
        exact: bool = True,
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
            Whether to take the newest state from the exact file, if there is one. If it is damaged
            or not of that step, an `LccodecWarning` says so, and the history's state is returned.

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
            For unknown keys or `dtype`, or a step that is not an integer.
        """
        asked = self._newest.asked == "exact"
        newest = open_newest(self.directory, step, threads=self.threads, expected=asked) if exact else None
        with newest or self._open(step) as file:
            if step is None and keys is None and not isinstance(file, ExactFile):
                self._settings.restored()
            state = file.state(keys, self._bits if dtype is None else dtype)
            return as_framework(self.adapter, state, file.metadata(), keys)

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
        found = average(self.directory, shares, roles, keys, dtype, self.threads)
        return as_framework(self.adapter, found.state, found.metadata, keys)

    def info(self, step: int | None = None) -> CheckpointInfo:
        """Return information on a checkpoint, by default the latest; nothing is decoded."""
        with self._open(step) as file:
            return with_exact(file.info(), self.directory)
