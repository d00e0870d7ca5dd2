"""Compressors of arrays as ways to checkpoint: lossless ones, and ones with an error bound.

Rules: the bound is relative to the movement, a multiple of the rms difference of each array, so
that all arrays of a role are scaled to rms 1 and coded as one. Second moments, which such a bound
would make negative by the thousand, are coded as logarithms (base 2) with a bound in octaves.
Differences for lossless coding are of the bit patterns (exclusive or, or integer difference), which
can be undone exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from schemes import State, Streams, join, named, roles, split

import lccodec

__all__ = ["Bounded", "Lossless", "blosc2", "frame", "pcodec", "sperr", "sz3", "zfp", "zipnn", "zstd"]

WIDTH = 256  # of the matrix that SPERR gets instead of a vector
LOWEST = 2.0**-126
OCTAVES = 1.0  # of error of a second moment for an error of 1 movement of the others

Array = np.ndarray
Pair = tuple[Callable[[Array], bytes], Callable[[bytes, int], Array]]  # encode, decode (with the size)


@dataclass
class Lossless:
    """A lossless compressor on differences of bit patterns.

    Parameters
    ----------
    pair
        Encodes and decodes uint32.
    exclusive
        Whether differences are exclusive or; integer differences otherwise.
    """

    pair: Pair
    exclusive: bool
    absolute = False

    def encode(self, state: State, reference: State) -> Streams:
        """Return the compressed differences of each role."""
        streams = {}
        for role in roles(state):
            now, before = (
                join([s[n] for n in named(state, role)]).view(np.uint32) for s in (state, reference)
            )
            streams[role] = self.pair[0](now ^ before if self.exclusive else now - before)
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return every bit."""
        decoded: State = {}
        for role, stream in streams.items():
            names = named(reference, role)
            before = join([reference[n] for n in names]).view(np.uint32)
            delta = self.pair[1](stream, before.size)
            now = before ^ delta if self.exclusive else before + delta
            decoded |= split(now.view(np.float32), reference, names)
        return decoded


def zstd(level: int) -> Lossless:
    """Return zstd on the exclusive or with its bytes shuffled, without which it finds little."""
    import zstandard

    def encode(delta: Array) -> bytes:
        planes = np.ascontiguousarray(delta.view(np.uint8).reshape(-1, 4).T)
        return zstandard.ZstdCompressor(level=level).compress(planes.data)

    def decode(data: bytes, size: int) -> Array:
        planes = np.frombuffer(zstandard.ZstdDecompressor().decompress(data), np.uint8).reshape(4, size)
        return np.ascontiguousarray(planes.T).view(np.uint32)[:, 0]

    return Lossless((encode, decode), exclusive=True)


def pcodec() -> Lossless:
    """Return pcodec on the integer difference."""
    from pcodec import ChunkConfig, standalone

    def encode(delta: Array) -> bytes:
        return standalone.simple_compress(delta.view(np.int32), ChunkConfig())

    return Lossless(
        (encode, lambda data, _: standalone.simple_decompress(data).view(np.uint32)), exclusive=False
    )


def blosc2() -> Lossless:
    """Return blosc2 with its shuffle and zstd -5 on the exclusive or."""
    import blosc2 as blosc

    options: dict[str, Any] = {"codec": blosc.Codec.ZSTD, "clevel": 5, "filters": [blosc.Filter.SHUFFLE]}

    def decode(data: bytes, _: int) -> Array:
        return np.frombuffer(blosc.decompress2(data, nthreads=1), np.uint32)

    return Lossless((lambda d: blosc.compress2(d, typesize=4, nthreads=1, **options), decode), exclusive=True)


def zipnn() -> Lossless:
    """Return ZipNN for float32 on the exclusive or, as its own delta mode has it."""
    from zipnn import ZipNN

    options: dict[str, Any] = {"input_format": "byte", "bytearray_dtype": "float32", "threads": 1}

    def encode(delta: Array) -> bytes:
        return bytes(ZipNN(**options).compress(bytearray(delta.tobytes())))  # it writes over its input

    def decode(data: bytes, _: int) -> Array:
        return np.frombuffer(bytes(ZipNN(**options).decompress(bytearray(data))), np.uint32)

    return Lossless((encode, decode), exclusive=True)


@dataclass
class Bounded:
    """An error-bounded compressor on differences.

    Parameters
    ----------
    pair
        Encodes and decodes float32, with the bound.
    error
        Bound, as a multiple of the rms difference of each array.
    """

    pair: Callable[[float], Pair]
    error: float
    absolute = False

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
            coded = self.pair(self.error * (OCTAVES if is_second else 1))[0](vector)
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
            deltas = split(self.pair(self.error)[1](stream[head:], size), reference, names)
            for name, scale in zip(names, scales, strict=True):
                value = _scaled(reference[name], is_second) + deltas[name] * scale
                decoded[name] = np.exp2(value).astype(np.float32) if is_second else value
        return decoded


def _scaled(array: Array, is_second: bool) -> Array:
    return np.log2(np.maximum(array, LOWEST)).astype(np.float32) if is_second else array


def _hdf5_filter(make: Callable[[], Any], shape: Callable[[int], tuple[int, ...]]) -> Pair:
    """Return a compressor that is an HDF5 filter; a file in memory holds the array as one chunk."""
    import h5py

    def file() -> Any:
        return h5py.File("array", mode="w", driver="core", backing_store=False)

    def encode(array: Array) -> bytes:
        whole = np.zeros(shape(array.size), np.float32)
        whole.reshape(-1)[: array.size] = array
        with file() as target:
            data = target.create_dataset("x", data=whole, chunks=whole.shape, **make())
            target.flush()
            mask, chunk = data.id.read_direct_chunk((0,) * whole.ndim)
            return struct.pack("<I", mask) + chunk

    def decode(coded: bytes, size: int) -> Array:
        (mask,) = struct.unpack_from("<I", coded)
        with file() as source:
            data = source.create_dataset("x", shape=shape(size), dtype="f4", chunks=shape(size), **make())
            data.id.write_direct_chunk((0,) * data.ndim, coded[4:], mask)
            return data[()].reshape(-1)[:size]

    return encode, decode


def frame(error: float) -> Pair:
    """Return lccodec's own uniform quantizer with an absolute error bound."""
    quantizer = lccodec.UniformDeadzone(max_error=error)
    return lambda array: lccodec.encode(array, quantizer), lambda data, _: lccodec.decode(data)


def sz3(error: float) -> Pair:
    """Return SZ3 with an absolute error bound."""
    import hdf5plugin

    return _hdf5_filter(lambda: hdf5plugin.SZ3(absolute=error), lambda size: (size,))


def zfp(error: float) -> Pair:
    """Return ZFP with an absolute error bound."""
    import hdf5plugin

    return _hdf5_filter(lambda: hdf5plugin.Zfp(accuracy=error), lambda size: (size,))


def sperr(error: float) -> Pair:
    """Return SPERR with an absolute error bound; it wants a matrix."""
    import hdf5plugin

    return _hdf5_filter(lambda: hdf5plugin.Sperr(absolute=error), lambda size: (-(-size // WIDTH), WIDTH))
