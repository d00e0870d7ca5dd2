"""A directory of checkpoints: save, restore, look inside. Every checkpoint is one immutable file.

Source: SPEC 9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self

from .chain import KEYFRAME_EVERY, wants_keyframe
from .checkpoint import CheckpointFile, CheckpointInfo, checkpoint_path, directory_steps, open_file
from .commit import CheckpointWriter, remove_stale_temporaries
from .constants import MAX_STEP
from .errors import ArgumentError, ChainError, FormatError, StorageError
from .floats import ElementType, components
from .jobs import DecodedArray, encode_jobs, plan
from .manifest import INHERITED, Manifest, Parent
from .parallel import thread_count
from .policy import Candidate, Policy
from .presets import record_policy, resolve_policy
from .quantize import Lossless, Quantizer
from .roles import Role, check_roles, find_roles
from .scalars import Json
from .state import Flat, flatten

__all__ = ["Adapter", "Chain"]


class Adapter(Protocol):
    """A framework's states as NumPy's: what `lccodec.adapters.torch` and `lccodec.adapters.jax` are."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, and the metadata to keep with it: those given and the adapter's."""

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state, or the part of it that has this name, as the framework has it; bfloat16 is bits."""

    def roles(self, state: Any, /) -> Mapping[str, Role]:
        """Return the roles of arrays, by name, that the framework's structures tell."""


_ADAPTER: Final = ("to_numpy", "from_numpy", "roles")


@dataclass
class _Tail:
    """The latest checkpoint as decoded: what the next delta is taken against."""

    step: int
    root: bytes
    tree: Json
    arrays: dict[str, DecodedArray]
    deltas: int
    delta_bytes: int
    keyframe_bytes: int


class Chain:
    """Checkpoints of one run in a directory; a context manager.

    Parameters
    ----------
    directory
        Made if it is not there. A chain that is in it goes on where it stopped.
    policy
        A preset (a name of `lccodec.POLICIES`) or a `Policy`.
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
        For an unknown policy.
    StorageError
        If the directory cannot be made or read.

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
        policy: str | Policy = "balanced",
        *,
        keyframe_every: int = KEYFRAME_EVERY,
        threads: int = 1,
        adapter: Adapter | None = None,
    ) -> None:
        if not isinstance(keyframe_every, int) or keyframe_every < 0:
            raise ArgumentError(f"keyframe_every must be a non-negative integer, not {keyframe_every!r}")
        if adapter is not None and not all(hasattr(adapter, name) for name in _ADAPTER):
            raise ArgumentError(f"adapter is to be one as lccodec.adapters.torch, not {adapter!r}")
        self.directory = Path(directory)
        self.policy = resolve_policy(policy)
        self.keyframe_every = keyframe_every
        self.threads = thread_count(threads)
        self.adapter = adapter
        self._tail: _Tail | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                error.errno, f"cannot make the directory: {error.strerror}", str(directory)
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the reference that is kept in memory; every checkpoint is on disk already."""
        self._tail = None

    @property
    def steps(self) -> list[int]:
        """The steps that have a checkpoint, rising."""
        return list(directory_steps(self.directory))

    def save(
        self,
        step: int,
        state: Any,
        metadata: dict[str, str] | None = None,
        roles: Mapping[str, Role] | None = None,
    ) -> int:
        """Store a state as a keyframe or a delta; it is there as a whole or not at all.

        Parameters
        ----------
        step
            Non-negative, above every step of the chain.
        state
            A nested dict, list or tuple of arrays and of int, float, bool, str, bytes and None; with an
            adapter, what that takes.
        metadata
            Strings to keep with it.
        roles
            Roles of arrays, by name or pattern, where their names do not tell (:mod:`lccodec.roles`):
            ``{"*/velocity": "first_moment"}``.

        Returns
        -------
        int
            Bytes of the file.

        Raises
        ------
        ArgumentError
            If the step exists or is out of order, a role is unknown, or the state cannot be stored.
        StorageError
            If the operating system refuses to write, as when the disk is full; nothing is left behind.
        """
        steps = self._check_step(step)
        known = None
        if self.adapter is not None:
            plain, metadata = self.adapter.to_numpy(state, metadata)
            state, known = plain, self.adapter.roles(state)
        flat = flatten(state)
        check_roles(roles or {})
        exact = Lossless()

        def choose(name: str, kind: ElementType, size: int, relative: bool) -> Quantizer:
            return policy.choose(name, found[name], kind, size) if relative else exact

        remove_stale_temporaries(self.directory)
        tail = self._current_tail(steps[-1]) if steps else None
        keyframe = tail is None or wants_keyframe(
            tail.deltas, tail.delta_bytes, tail.keyframe_bytes, self.keyframe_every
        )
        arrays = dict(tail.arrays) if tail else {}
        found = {} if keyframe else find_roles(flat.names, roles, known)  # which keyframes do not go by
        policy = self.policy if keyframe else self.policy.settle(_candidates(flat, found, arrays))
        # Arrays of the tail are overwritten as they are coded, so a failure must not leave it in place.
        self._tail = None
        jobs = plan(flat.arrays, flat.names, arrays, choose, keyframe)
        numbers = [0] * len(flat.arrays)
        entries = []
        with CheckpointWriter(checkpoint_path(self.directory, step)) as writer:
            for job, pieces, decoded in encode_jobs(jobs, self.policy.effort, self.threads):
                entries.append(writer.write_frame(pieces))
                for index, array in zip(job.indices, decoded, strict=True):
                    numbers[index] = len(entries)
                    arrays[flat.names[index]] = array
            inherited = not keyframe and tail is not None and _same_tree(tail.tree, flat.tree)
            manifest = Manifest(
                step=step,
                parent=None if keyframe or tail is None else Parent(tail.step, tail.root),
                policy=record_policy(self.policy),
                metadata=dict(metadata or {}),
                tree=INHERITED if inherited else flat.tree,
                scalars=flat.scalars,
                arrays=tuple(numbers),
                frames=tuple(entries),
            )
            root = writer.commit(manifest)
        arrays = {name: arrays[name] for name in flat.names}
        size = checkpoint_path(self.directory, step).stat().st_size
        if keyframe or tail is None:
            self._tail = _Tail(step, root, flat.tree, arrays, 0, 0, size)
        else:
            self._tail = _Tail(
                step, root, flat.tree, arrays, tail.deltas + 1, tail.delta_bytes + size, tail.keyframe_bytes
            )
        return size

    def _check_step(self, step: int) -> list[int]:
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= MAX_STEP:
            raise ArgumentError(f"a step is an integer from 0 to {MAX_STEP}, not {step!r}")
        steps = self.steps
        if step in steps:
            raise ArgumentError(f"step {step} exists already in {self.directory}")
        if steps and step < steps[-1]:
            raise ArgumentError(f"step {step} is before the latest of {self.directory}, {steps[-1]}")
        return steps

    def _current_tail(self, step: int) -> _Tail:
        """Return the tail of the chain, decoded from disk unless it is in memory."""
        if self._tail is not None and self._tail.step == step:
            return self._tail
        with self._open(step) as file:
            sizes = [link.reader.file_size for link in file.links]
            last = file.links[-1]
            arrays = dict(zip(last.index_names, file.decoded(), strict=True))
            return _Tail(
                step, last.reader.root, last.manifest.tree, arrays, len(sizes) - 1, sum(sizes[1:]), sizes[0]
            )

    def _open(self, step: int | None) -> CheckpointFile:
        steps = self.steps
        if step is None:
            if not steps:
                raise ChainError(f"{self.directory} holds no checkpoint")
            step = steps[-1]
        if step not in steps:
            raise ChainError(f"{self.directory} has no step {step!r}{_nearest(steps, step)}")
        path = checkpoint_path(self.directory, step)
        file = open_file(path, threads=self.threads)
        try:
            file.check_name()
        except FormatError:
            file.close()
            raise
        return file

    def restore(
        self,
        step: int | None = None,
        keys: Iterable[str] | None = None,
        *,
        dtype: Literal["float32", "bits"] | None = None,
    ) -> Any:
        """Return a state.

        Parameters
        ----------
        step
            Of the checkpoint; the latest by default.
        keys
            Names of arrays, scalars or containers (``"optimizer/0"``): only these are read and decoded.
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
            For unknown keys.
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


def _candidates(
    flat: Flat, roles: Mapping[str, Role], parents: Mapping[str, DecodedArray]
) -> Iterator[Candidate]:
    """Yield the arrays of a delta with their references."""
    for name, array in zip(flat.names, flat.arrays, strict=True):
        try:
            kind, bits = components(array)
        except ArgumentError:
            continue  # which `plan` tells with its name
        parent = parents.get(name)
        fits = parent is not None and parent.kind == kind and parent.shape == array.shape
        yield Candidate(
            name, roles[name], kind, array.shape, bits, parent.bits if fits and parent is not None else None
        )


def _same_tree(left: Json, right: Json) -> bool:
    """Whether two trees are the same, the order of their keys included (which `==` ignores)."""
    return bool(left == right) and _same_order(left, right)


def _same_order(left: Json, right: Json) -> bool:
    """Whether the keys of two equal trees are in the same order; leaves, which are many, are left out."""
    if isinstance(left, dict):
        inner = [key for key, child in left.items() if isinstance(child, dict | list)]
        return list(left) == list(right) and all(_same_order(left[key], right[key]) for key in inner)
    return not isinstance(left, list) or all(map(_same_order, left, right))


def _nearest(steps: list[int], step: Any) -> str:
    if not steps:
        return "; it is empty"
    if not isinstance(step, int):
        return ""
    return f"; the nearest is {min(steps, key=lambda s: abs(s - step))}"
