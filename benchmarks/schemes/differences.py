"""Compressors of arrays as ways to checkpoint: lossless ones, and ones with an error bound.

Rules: the bound is relative to the movement, a multiple of the rms difference of each array, so
that all arrays of a role are scaled to rms 1 and coded as one. Second moments, which such a bound
would make negative by the thousand, are coded as logarithms (base 2) with a bound in octaves.
Differences for lossless coding are of the bit patterns (exclusive or, or integer difference), which
can be undone exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..compressors import lossless
from ..compressors.compressor import Compressor
from .streams import State, Streams, join, named, roles, split

__all__ = ["Bounded", "Lossless", "blosc2", "pcodec", "zipnn", "zstd"]

LOWEST = 2.0**-126
OCTAVES = 1.0  # of error of a second moment for an error of 1 movement of the others


@dataclass
class Lossless:
    """A lossless compressor on differences of bit patterns.

    Parameters
    ----------
    compressor
        Of uint32.
    exclusive
        Whether differences are exclusive or; integer differences otherwise.
    """

    compressor: Compressor
    exclusive: bool
    absolute = False
    codes_first = True
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return the compressed differences of each role."""
        streams = {}
        for role in roles(state):
            now, before = (
                join([s[n] for n in named(state, role)]).view(np.uint32) for s in (state, reference)
            )
            streams[role] = self.compressor.encode(now ^ before if self.exclusive else now - before)
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return every bit."""
        decoded: State = {}
        for role, stream in streams.items():
            names = named(reference, role)
            before = join([reference[n] for n in names]).view(np.uint32)
            delta = np.frombuffer(self.compressor.decode(stream, before.size), np.uint32)
            now = before ^ delta if self.exclusive else before + delta
            decoded |= split(now.view(np.float32), reference, names)
        return decoded


def zstd(level: int) -> Lossless:
    """Return zstd on the exclusive or with its bytes shuffled, without which it finds little."""
    whole = lossless.zstd(level)

    def encode(delta: np.ndarray) -> bytes:
        return whole.encode(np.ascontiguousarray(delta.view(np.uint8).reshape(-1, 4).T))

    def decode(data: bytes, size: int) -> np.ndarray:
        planes = np.frombuffer(whole.decode(data, size), np.uint8).reshape(4, size)
        return np.ascontiguousarray(planes.T).view(np.uint32)[:, 0]

    return Lossless(Compressor(encode, decode), exclusive=True)


def pcodec() -> Lossless:
    """Return pcodec on the integer difference."""
    whole = lossless.pcodec()
    signed = Compressor(lambda delta: whole.encode(delta.view(np.int32)), whole.decode)
    return Lossless(signed, exclusive=False)


def blosc2() -> Lossless:
    """Return blosc2 with its shuffle and zstd -5 on the exclusive or."""
    return Lossless(lossless.blosc2(5), exclusive=True)


def zipnn() -> Lossless:
    """Return ZipNN for float32 on the exclusive or, as its own delta mode has it."""
    return Lossless(lossless.zipnn(), exclusive=True)


@dataclass
class Bounded:
    """An error-bounded compressor on differences.

    Parameters
    ----------
    compressor
        Of float32, by its error bound.
    error
        Bound, as a multiple of the rms difference of each array.
    """

    compressor: Callable[[float], Compressor]
    error: float
    absolute = False
    codes_first = False
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return scales and the compressed differences of each role."""
        streams = {}
        for role in roles(state):
            names, is_second = named(state, role), role.endswith("_sq")
            deltas = [_scaled(state[n], is_second) - _scaled(reference[n], is_second) for n in names]
            scales = np.ones(len(names), np.float32)
            if not is_second:
                scales = np.array(
                    [np.sqrt(np.mean(np.square(d, dtype=np.float64))) for d in deltas], np.float32
                )
                scales[scales == 0] = 1
            vector = join([delta / scale for delta, scale in zip(deltas, scales, strict=True)])
            coded = self.compressor(self.error * (OCTAVES if is_second else 1)).encode(vector)
            streams[role] = (b"" if is_second else scales.tobytes()) + coded
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the reference plus the differences."""
        decoded: State = {}
        for role, stream in streams.items():
            names, is_second = named(reference, role), role.endswith("_sq")
            head = 0 if is_second else 4 * len(names)
            scales = (
                np.ones(len(names), np.float32) if is_second else np.frombuffer(stream[:head], np.float32)
            )
            size = sum(reference[n].size for n in names)
            vector = self.compressor(self.error).decode(stream[head:], size)
            deltas = split(vector, reference, names)
            for name, scale in zip(names, scales, strict=True):
                value = _scaled(reference[name], is_second) + deltas[name] * scale
                decoded[name] = np.exp2(value).astype(np.float32) if is_second else value
        return decoded


def _scaled(array: np.ndarray, is_second: bool) -> np.ndarray:
    return np.log2(np.maximum(array, LOWEST)).astype(np.float32) if is_second else array
