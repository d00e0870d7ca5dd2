"""Ways to checkpoint behind one interface: a session takes the states of a run and gives them back.

Rules
-----
- Everything is counted to the byte, the first state too: real streams out of real entropy coders,
  which are decoded again to get the restored state. For lccodec it is the size of the files,
  container and all; for the others the streams alone, without any container.
- lccodec's chain is one as a user has it, keyframes where it writes them. The others' keyframes are
  as their descriptions have them: a first state as raw float32 where only differences are coded,
  coded where states are coded by themselves, and full snapshots on the way where there are any.
- A codec codes the float32 arrays of the roles it was described for. What it does not code (the
  moments, where a paper leaves them alone; integers) is stored as it is, and counted.
- The reference of a difference is always the state as it was decoded (closed loop), as in
  LC-Checkpoint.
- One that cannot be imported is listed as not installed, never left out.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import lccodec

from .streams import State, Streams

__all__ = ["CONTAINER", "Codec", "CodecSession", "LccodecSession", "Restore", "Scheme", "Session"]

CONTAINER = "container"  # what a file has beside the bytes of its roles
ATTEMPTS = 2  # to time a restore; the faster one counts


class Codec(Protocol):
    """Codes states against a reference. A fresh one is made for every session: it may remember.

    Attributes
    ----------
    absolute
        Whether a state is decoded without the states before it.
    codes_first
        Whether a first state is coded too, against zeros; else it is stored as raw float32.
    snapshot_every
        Checkpoints from one full snapshot to the next; 0 if the first state is the only one.
    """

    absolute: bool
    codes_first: bool
    snapshot_every: int

    def encode(self, state: State, reference: State) -> Streams:
        """Return the streams of the float32 arrays of `state` that it codes, one for each role."""

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the arrays that :meth:`encode` coded; `reference` holds all names and shapes."""


@dataclass(frozen=True)
class Restore:
    """What a restore took.

    Parameters
    ----------
    deltas
        How many it replayed; 0 at a keyframe.
    seconds
        Of opening the chain anew and restoring.
    """

    deltas: int
    seconds: float


class Session(Protocol):
    """The checkpoints of one run.

    Attributes
    ----------
    is_keyframe
        Whether the last state was kept without the states before it.
    save_seconds
        Of the last save.
    restore_seconds
        Of a restore of the last state, with all that has to be decoded before it.
    """

    is_keyframe: bool
    save_seconds: float
    restore_seconds: float

    def start(self, state: State) -> int:
        """Keep the first state; return its bytes."""

    def save(self, state: State) -> dict[str, int]:
        """Keep a state; return the bytes of each role, and under `CONTAINER` all others."""

    def restore(self) -> State:
        """Return the last state as it was kept."""

    def restores(self) -> list[Restore]:
        """Return what restores cost: at a keyframe, half as deep as the deepest, the deepest."""

    def resume(self) -> State:
        """Return the last state to a run that goes on from it, with the saves to come."""

    def close(self) -> None:
        """Remove what lies on the disk."""


@dataclass(frozen=True)
class Scheme:
    """A way to checkpoint.

    Parameters
    ----------
    name
        Of its row.
    open
        Returns a new session.
    lossless
        Whether restored states are exact: then there is nothing to resume.
    own
        Whether it is lccodec's.
    note
        What a reader has to know.
    """

    name: str
    open: Callable[[], Session]
    lossless: bool = False
    own: bool = False
    note: str = ""


@dataclass
class CodecSession:
    """A closed loop around a codec.

    Parameters
    ----------
    codec
        Fresh.
    """

    codec: Codec
    reference: State = field(default_factory=dict)
    saved: int = 0
    is_keyframe: bool = False
    save_seconds: float = 0.0
    restore_seconds: float = 0.0

    def start(self, state: State) -> int:
        """Keep the first state, coded or raw; return its bytes."""
        self.saved = 1
        self.is_keyframe = True
        if not self.codec.codes_first:
            return sum(self._keep_raw(state).values())
        zeros = {name: np.zeros_like(array) for name, array in state.items()}
        return sum(self._code(state, zeros).values())

    def save(self, state: State) -> dict[str, int]:
        """Keep a state; return the bytes of each role."""
        every = self.codec.snapshot_every
        self.is_keyframe = bool(every) and self.saved % every == 0
        self.saved += 1
        return self._keep_raw(state) if self.is_keyframe else self._code(state, self.reference)

    def _keep_raw(self, state: State) -> dict[str, int]:
        begin = time.perf_counter()
        self.reference = {name: array.copy() for name, array in state.items()}
        self.save_seconds, self.restore_seconds = time.perf_counter() - begin, 0.0
        return _raw_sizes(state)

    def _code(self, state: State, reference: State) -> dict[str, int]:
        begin = time.perf_counter()
        streams = self.codec.encode(state, reference)
        middle = time.perf_counter()
        coded = self.codec.decode(streams, reference)
        decoding = time.perf_counter() - middle
        # To know what was kept belongs to saving in a closed loop.
        self.save_seconds = middle - begin + (0.0 if self.codec.absolute else decoding)
        self.restore_seconds = decoding + (0.0 if self.codec.absolute else self.restore_seconds)
        sizes = {role: len(stream) for role, stream in streams.items()}
        for role, size in _raw_sizes({n: a for n, a in state.items() if n not in coded}).items():
            sizes[role] = sizes.get(role, 0) + size
        self.reference = {name: coded.get(name, array) for name, array in state.items()}
        return sizes

    def restore(self) -> State:
        """Return the last state as it was kept."""
        return dict(self.reference)

    def restores(self) -> list[Restore]:
        """Return nothing: there are no files whose restore could be timed."""
        return []

    def resume(self) -> State:
        """Return the last state as it was kept."""
        return self.restore()

    def close(self) -> None:
        """Nothing lies on the disk."""


def _raw_sizes(state: State) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, array in state.items():
        role = name.split("/", 1)[0]
        sizes[role] = sizes.get(role, 0) + array.nbytes
    return sizes


class LccodecSession:
    """A chain of lccodec in a temporary directory, as a user has it, restored by opening it anew.

    Parameters
    ----------
    policy
        Of the chain.
    """

    def __init__(self, policy: Any) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="lccodec-training-"))
        self.chain = lccodec.Chain(self.directory, policy=policy, newest="history")
        self.policy = policy
        self.step = 0
        self.is_keyframe = False
        self.save_seconds = self.restore_seconds = 0.0

    def start(self, state: State) -> int:
        """Save the first state; return the bytes of its file."""
        self.is_keyframe = True
        return self.chain.save(0, state)

    def save(self, state: State) -> dict[str, int]:
        """Save a state; return the bytes of each role's frames, and the others of its file."""
        self.step += 1
        begin = time.perf_counter()
        size = self.chain.save(self.step, state)
        self.save_seconds = time.perf_counter() - begin
        info = self.chain.info(self.step)
        self.is_keyframe = info.parent is None
        sizes: dict[str, int] = {}
        for array in info.arrays:
            role = array.name.split("~1", 1)[0]  # the slash in a name of a flat state
            sizes[role] = sizes.get(role, 0) + array.stored_bytes
        return {**sizes, CONTAINER: size - sum(sizes.values())}

    def restore(self) -> State:
        """Return the last state, from a chain opened anew."""
        state, self.restore_seconds = self._timed(None)
        return state

    def resume(self) -> State:
        """Return the last state; the saves to come are those of a new process."""
        self.chain = lccodec.Chain(self.directory, policy=self.policy)
        return self.chain.restore()

    def restores(self) -> list[Restore]:
        """Return what restores cost: at a keyframe, half as deep as the deepest, the deepest."""
        deepest, step = max((self.chain.info(step).deltas, step) for step in self.chain.steps)
        keyframe = step - deepest  # steps are numbered without gaps
        wanted = sorted({0, deepest // 2, deepest})
        return [Restore(d, min(self._timed(keyframe + d)[1] for _ in range(ATTEMPTS))) for d in wanted]

    def _timed(self, step: int | None) -> tuple[State, float]:
        begin = time.perf_counter()
        with lccodec.Chain(self.directory, policy=self.policy) as chain:
            state = chain.restore(step)
        return state, time.perf_counter() - begin

    def close(self) -> None:
        """Remove the chain."""
        self.chain.close()
        shutil.rmtree(self.directory)
