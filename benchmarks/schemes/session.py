"""Ways to checkpoint behind one interface: a session takes the states of a run and gives them back.

Rules
-----
- A session's first state is kept exactly and not counted; everything after is counted to the byte:
  real streams out of real entropy coders, which are decoded again to get the restored state. For
  lccodec it is the size of the files, container and all; for the others the streams alone, without
  any container.
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

import lccodec

from .streams import State, Streams

__all__ = ["Codec", "CodecSession", "LccodecSession", "Scheme", "Session"]


class Codec(Protocol):
    """Codes states against a reference. A fresh one is made for every session: it may remember.

    Attributes
    ----------
    absolute
        Whether a state is decoded without the states before it.
    """

    absolute: bool

    def encode(self, state: State, reference: State) -> Streams:
        """Return the streams of the float32 arrays of `state` that it codes, one for each role."""

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the arrays that :meth:`encode` coded; `reference` holds all names and shapes."""


class Session(Protocol):
    """The checkpoints of one run.

    Attributes
    ----------
    save_seconds
        Of the last save.
    restore_seconds
        Of a restore of the last state, with all that has to be decoded before it.
    """

    save_seconds: float
    restore_seconds: float

    def start(self, state: State) -> None:
        """Keep the first state, exactly."""

    def save(self, state: State) -> dict[str, int]:
        """Keep a state; return the bytes of each role, or of the file under ``"file"``."""

    def restore(self) -> State:
        """Return the last state as it was kept."""

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
        Whether restored states are exact: then one difference is all there is to measure.
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
    streams: Streams = field(default_factory=dict)
    save_seconds: float = 0.0
    restore_seconds: float = 0.0

    def start(self, state: State) -> None:
        """Keep the first state, exactly."""
        self.reference = dict(state)

    def save(self, state: State) -> dict[str, int]:
        """Keep a state; return the bytes of each role."""
        begin = time.perf_counter()
        streams = self.codec.encode(state, self.reference)
        middle = time.perf_counter()
        coded = self.codec.decode(streams, self.reference)
        decoding = time.perf_counter() - middle
        # To know what was kept belongs to saving in a closed loop.
        self.save_seconds = middle - begin + (0.0 if self.codec.absolute else decoding)
        self.restore_seconds = decoding + (0.0 if self.codec.absolute else self.restore_seconds)
        sizes = {role: len(stream) for role, stream in streams.items()}
        for name, array in state.items():
            if name not in coded:
                role = name.split("/", 1)[0]
                sizes[role] = sizes.get(role, 0) + array.nbytes
        self.reference = {name: coded.get(name, array) for name, array in state.items()}
        return sizes

    def restore(self) -> State:
        """Return the last state as it was kept."""
        return dict(self.reference)

    def close(self) -> None:
        """Nothing lies on the disk."""


class LccodecSession:
    """A chain of lccodec in a temporary directory, restored by opening it anew.

    All deltas hang on the first state, as the others' do: a keyframe among them would make the last
    state exact or not as it falls. The first state is kept as the policy's keyframes are.

    Parameters
    ----------
    policy
        Of the chain.
    """

    def __init__(self, policy: Any) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="lccodec-training-"))
        self.chain = lccodec.Chain(self.directory, policy=policy, keyframe_every=10_000)
        self.policy = policy
        self.step = 0
        self.save_seconds = self.restore_seconds = 0.0

    def start(self, state: State) -> None:
        """Keep the first state."""
        self.chain.save(0, state)

    def save(self, state: State) -> dict[str, int]:
        """Keep a state; return the bytes of its file."""
        self.step += 1
        begin = time.perf_counter()
        size = self.chain.save(self.step, state)
        self.save_seconds = time.perf_counter() - begin
        return {"file": size}

    def restore(self) -> State:
        """Return the last state, from a chain opened anew."""
        begin = time.perf_counter()
        with lccodec.Chain(self.directory, policy=self.policy) as chain:
            state = chain.restore()
        self.restore_seconds = time.perf_counter() - begin
        return state

    def close(self) -> None:
        """Remove the chain."""
        self.chain.close()
        shutil.rmtree(self.directory)
