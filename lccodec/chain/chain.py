"""A directory of checkpoints: save, restore, look inside. Every checkpoint is one immutable file.

Source: SPEC 9.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Self

from ..arguments import as_integer
from ..constants import MAX_STEP
from ..container.scalars import metadata_strings
from ..container.system import checked_path, storage_errors
from ..container.tree import Flat, flatten
from ..container.writer import CheckpointWriter, remove_stale_temporaries
from ..errors import (
    ArgumentError,
    LccodecWarning,
)
from ..parallel import thread_count
from ..policy.choices import ArrayPlan, choose, unnamed_weights
from ..policy.policy import Policy
from ..policy.presets import POLICIES, resolve_policy
from ..policy.record import Record
from ..policy.roles import Assignment, Role, check_known, check_matches, check_roles
from .adapter import Adapter, check_adapter
from .checkpoint import CheckpointFile, open_step
from .directory import checkpoint_path, directory_steps, step_index
from .draft import array_types, make_draft
from .info import CheckpointInfo
from .jobs import encode_jobs
from .replay import KEYFRAME_EVERY, wants_keyframe
from .tail import Link, Tail, find_tail, latest_record

__all__ = ["Chain"]

_LOG: Final = logging.getLogger("lccodec")
_SHOWN: Final = 5  # names in a message


class Chain:
    """Checkpoints of one run in a directory; a context manager.

    One `Chain` may be used by several threads: saves wait for each other. Other processes may save to the
    directory too; what a delta is taken against is compared with the files before.

    Parameters
    ----------
    directory
        Made by the first save. A chain that is in it goes on where it stopped.
    policy
        A preset (a name of `lccodec.POLICIES`) or a `Policy`. By default what the chain was saved with, and
        ``"balanced"`` for a new one.
    roles
        Roles of arrays, by name or pattern, where neither names nor the adapter tell
        (:mod:`lccodec.policy.roles`): ``{"*/velocity": "first_moment"}``. Checkpoints record them; by default
        they are those recorded. The first save refuses names and patterns that fit no array, here and in the
        policy.
    keyframe_every
        Most deltas that a restore may replay: after as many, a keyframe is written; sooner when the
        deltas together are larger than their keyframe.
    threads
        How many to encode and decode with, 0 for one each core; files are the same whatever the number.
        Under the interpreter's lock more than one seldom pays; processes do (`lccodec.adapters.dcp`).
    adapter
        Of the states' framework, as ``lccodec.adapters.torch``; by default they are NumPy's.

    Raises
    ------
    ArgumentError
        For an unknown policy or role, or what cannot be a directory.
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

    def __init__(
        self,
        directory: str | os.PathLike[str],
        policy: str | Policy | None = None,
        *,
        roles: Mapping[str, Role] | None = None,
        keyframe_every: int = KEYFRAME_EVERY,
        threads: int = 1,
        adapter: Adapter | None = None,
    ) -> None:
        every = as_integer(keyframe_every)
        if every is None or every < 0:
            raise ArgumentError(f"keyframe_every must be a non-negative integer, not {keyframe_every!r}")
        self.directory = checked_path(directory)
        self.keyframe_every = every
        self.threads = thread_count(threads)
        self.adapter = check_adapter(adapter)
        self._policy = None if policy is None else resolve_policy(policy)
        self._roles = None if roles is None else dict(check_roles(roles))
        self._record: Record | None = None  # what saves go by, known from the first on
        self._told = False  # of a target that cannot be met
        self._tail: Tail | None = None
        self._saving = threading.RLock()
        with storage_errors("cannot look at the directory", self.directory):
            if self.directory.exists() and not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the reference that is kept in memory; every checkpoint is on disk already."""
        with self._saving:
            self._tail = None

    @property
    def steps(self) -> list[int]:
        """The steps that have a checkpoint, rising."""
        return list(directory_steps(self.directory)) if os.path.lexists(self.directory) else []

    @property
    def policy(self) -> Policy:
        """The policy that saves go by: given, else as the chain was saved with, else ``balanced``."""
        return self._settings().policy

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles that were given, else those that the chain was saved with."""
        return self._settings().roles

    def _settings(self) -> Record:
        return self._record or self._settle(*latest_record(self.directory))

    def _settle(self, recorded: Record | None, problem: str | None) -> Record:
        """Return policy and roles: given, else recorded, else for a new chain."""
        policy = self._policy
        if policy is None and problem is not None:  # it may be a chain that must not lose anything
            _warn(f"the policy of {self.directory} is not known, it goes on lossless: {problem}")
            policy = POLICIES["lossless"]
        recorded = recorded or Record(POLICIES["balanced"])
        return Record(policy or recorded.policy, recorded.roles if self._roles is None else self._roles)

    def save(
        self,
        step: int,
        state: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        known: Mapping[str, Assignment] | None = None,
    ) -> int:
        """Store a state as a keyframe or a delta; it is there as a whole or not at all.

        The values of arrays may change meanwhile, as in a training thread: what is stored is then a mixture
        of moments. Their memory, the dicts and lists of the state, and its scalars have to hold still.

        Where no delta can be taken against the latest checkpoint, as when its file is damaged, a keyframe is
        written, and an `LccodecWarning` names what is wrong.

        Parameters
        ----------
        step
            Non-negative, above every step of the chain.
        state
            A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None; with an
            adapter, what that takes.
        metadata
            Strings to keep with it; a number becomes its JSON text.
        known
            Roles of arrays by whole name, for adapters that know them from a framework's structures.

        Returns
        -------
        int
            Bytes of the file.

        Raises
        ------
        ArgumentError
            If the step exists or is out of order, or the state or its metadata cannot be stored; nothing has
            been written then.
        StorageError
            If the operating system refuses to write, as when the disk is full; nothing is left behind.
        """
        with self._saving:
            return self._save(step, state, metadata_strings(metadata), check_known(known or {}))

    def _save(self, step: Any, state: Any, metadata: dict[str, str], known: Mapping[str, Assignment]) -> int:
        start = time.perf_counter()
        step, steps = self._check_step(step)
        if self.adapter is not None:
            plain, metadata = self.adapter.to_numpy(state, metadata)
            state, known = plain, {**self.adapter.roles(state), **known}
        flat = flatten(state)
        record = self._begin(flat, known)
        tail = find_tail(self._tail, self.directory, steps[-1], self.threads) if steps else None
        self._tail = tail
        if tail and wants_keyframe(
            len(tail.links) - 1, tail.delta_bytes, tail.links[0].size, self.keyframe_every
        ):
            tail = None
        draft = make_draft(step, flat, tail, record, known, metadata)
        if draft.shortfall and not self._told:
            self._told = True
            _warn(f"{self.directory}: {draft.shortfall}")
        with storage_errors("cannot make the directory", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        remove_stale_temporaries(self.directory)
        # Arrays of the tail are overwritten as they are coded, so a failure must not leave it in place.
        self._tail = None
        arrays = dict(tail.arrays) if tail else {}
        entries = []
        with CheckpointWriter(checkpoint_path(self.directory, step)) as writer:
            for job, pieces, decoded in encode_jobs(draft.jobs, record.policy.effort, self.threads):
                entries.append(writer.write_frame(pieces))
                arrays.update(zip((flat.names[index] for index in job.indices), decoded, strict=True))
            root = writer.commit(replace(draft.manifest, frames=tuple(entries)))
        links = (*(tail.links if tail else ()), Link(step, root, writer.size))
        self._tail = Tail(links, flat.tree, {name: arrays[name] for name in flat.names})
        self._log(tail, writer.size, sum(array.nbytes for array in flat.arrays), time.perf_counter() - start)
        return writer.size

    def _check_step(self, step: Any) -> tuple[int, list[int]]:
        """Return the step as an integer, and the steps before it."""
        step = step_index(step)
        if not 0 <= step <= MAX_STEP:
            raise ArgumentError(f"a step is an integer from 0 to {MAX_STEP}, not {step}")
        steps = self.steps
        if step in steps:
            raise ArgumentError(f"step {step} exists already in {self.directory}")
        if steps and step < steps[-1]:
            raise ArgumentError(f"step {step} is before the latest of {self.directory}, {steps[-1]}")
        return step, steps

    def _begin(self, flat: Flat, known: Mapping[str, Assignment]) -> Record:
        """Return what saves go by. The first of them finds errors in it, and tells what may be a surprise."""
        if self._record is not None:
            return self._record
        recorded, problem = latest_record(self.directory)
        record = self._settle(recorded, problem)
        if flat.names:  # later states may lack arrays; that is no reason to lose them
            check_matches("roles", self._roles or {}, flat.names)
            if self._policy is not None:
                check_matches(f"policy {self._policy.name!r}", self._policy.patterns, flat.names)
        types = array_types(flat)
        choices = choose(types, record, known)
        if self._policy is not None:
            self._policy.check({name: choice.role for name, choice in choices.items()})
        unnamed = unnamed_weights(types, choices, record.policy)
        if unnamed:
            shown = ", ".join(map(repr, unnamed[:_SHOWN])) + ", ..." * (len(unnamed) > _SHOWN)
            _LOG.warning(
                "%s: %d large arrays are kept exactly, as nothing says that they are weights: %s."
                " Chain(roles={name or pattern: role}) does.",
                *(self.directory, len(unnamed), shown),
            )
        if recorded and recorded.policy != record.policy:
            _warn(
                f"{self.directory} was saved with the policy {recorded.policy.name!r}, and goes on with"
                f" {record.policy.name!r}, as you ask"
            )
        self._record = record
        return record

    def _log(self, parent: Tail | None, size: int, nbytes: int, seconds: float) -> None:
        kind = f"delta to {parent.step}" if parent else "keyframe"
        step = self._tail.step if self._tail else None
        ratio = nbytes / size
        _LOG.info(
            "%s: step %s, %s, %d bytes, %.1fx, %.3f s", self.directory, step, kind, size, ratio, seconds
        )

    def plan(self, state: Any) -> list[ArrayPlan]:
        """Return what saves make of every array of a state, without looking at its values.

        Returns
        -------
        list of ArrayPlan
            Role and why, quantizer, lossy or exact, in the order of the state.

        Raises
        ------
        ArgumentError
            If the state cannot be stored.

        Examples
        --------
        >>> import tempfile, numpy as np, lccodec
        >>> state = {"fc": {"weight": np.ones((9, 9))}, "bn": {"running_var": np.ones(9)}}
        >>> for array in lccodec.Chain(tempfile.mkdtemp(), policy="lc-3").plan(state):
        ...     print(array.name, array.role, f"({array.why})", array.quantizer)
        fc/weight weight (named 'weight') ExponentBuckets()
        bn/running_var other ('running_var' is exact) Lossless()
        """
        known: Mapping[str, Assignment] = {}
        if self.adapter is not None:
            known = self.adapter.roles(state)
            state, _ = self.adapter.to_numpy(state, {})
        flat = flatten(state)
        types = array_types(flat)
        choices = choose(types, self._settings(), known)
        return [
            ArrayPlan(name, types[name][0].name, array.shape, array.nbytes, **vars(choices[name]))
            for name, array in zip(flat.names, flat.arrays, strict=True)
        ]

    def _open(self, step: int | None) -> CheckpointFile:
        return open_step(self.directory, step, threads=self.threads)

    def restore(
        self,
        step: int | None = None,
        keys: Iterable[str] | str | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
    ) -> Any:
        """Return a state.

        Parameters
        ----------
        step
            Of the checkpoint; the latest by default.
        keys
            Names of arrays, scalars or containers (``"optimizer/0"``), or one of them: only these are read
            and decoded.
        dtype
            ``"float32"`` returns bfloat16 arrays as float32, ``"bits"`` as `BFLOAT16_BITS`; an adapter has
            bfloat16 of its own.

        Returns
        -------
        object
            The state as it was saved (arrays as decoded, C order, native byte order; with an adapter, as
            the framework has them), or with `keys` a dict from the name of every leaf asked for to its
            value.

        Raises
        ------
        ChainError
            For an unknown step or a missing parent.
        DataError
            If stored bytes break a rule of the format.
        ArgumentError
            For unknown keys, a step that is not an integer, or another `dtype`.
        StorageError
            If the operating system cannot read a file.
        """
        with self._open(step) as file:
            if self.adapter is None:
                return file.state(keys, dtype)
            state, metadata = file.state(keys, dtype or "bits"), file.metadata()
        if keys is None:
            return self.adapter.from_numpy(state, metadata)
        return {name: self.adapter.from_numpy(value, metadata, name) for name, value in state.items()}

    def info(self, step: int | None = None) -> CheckpointInfo:
        """Return what is stored for a step (the latest by default), without decoding it."""
        with self._open(step) as file:
            return file.info()


def _warn(message: str) -> None:
    # The caller of `Chain.save` is four frames up.
    warnings.warn(message, LccodecWarning, stacklevel=5)
