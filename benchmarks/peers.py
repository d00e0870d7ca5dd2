"""Compressors of arrays measured beside lccodec: lossless ones, and ones with an error bound.

Rules: a peer runs on one thread and is given the difference to the reference ready-made, so that
neither the subtraction nor the addition is in its time. One that is not installed is named, not
left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Peer", "bounded_peers", "huffman_peers", "lossless_peers"]


@dataclass(frozen=True)
class Peer:
    """A compressor of 1-D arrays.

    Parameters
    ----------
    name
        Of its row.
    encode
        Array to compressed object.
    decode
        Compressed object to a fresh array or buffer.
    size
        Bytes of a compressed object.
    """

    name: str
    encode: Callable[[np.ndarray], Any]
    decode: Callable[[Any], Any]
    size: Callable[[Any], int] = len


Makers = Mapping[str, Callable[[], Peer]]


def installed(makers: Makers) -> tuple[list[Peer], list[str]]:
    """Return the peers that can be imported, and the names of the others."""
    peers, absent = [], []
    for name, make in makers.items():
        try:
            peers.append(make())
        except ImportError:
            absent.append(name)
    return peers, absent


def lossless_peers() -> tuple[list[Peer], list[str]]:
    """Return the lossless peers, and the names of those that are not installed."""
    return installed(
        {
            "zstd -1": lambda: _zstd(1),
            "zstd -3": lambda: _zstd(3),
            "pcodec": _pcodec,
            "blosc2, shuffle + zstd -1": _blosc2,
        }
    )


def bounded_peers(max_error: float, suffix: str) -> tuple[list[Peer], list[str]]:
    """Return the peers that keep an error bound, and the names of those that are not installed."""
    return installed(
        {
            f"SZ3, {suffix}": lambda: _sz3(max_error, suffix),
            f"ZFP, {suffix}": lambda: _zfp(max_error, suffix),
        }
    )


def huffman_peers() -> list[Peer]:
    """Return the Huffman coder of zlib alone, without its search for matches."""

    def encode(symbols: np.ndarray) -> bytes:
        coder = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        return coder.compress(symbols) + coder.flush()

    return [Peer("zlib Z_HUFFMAN_ONLY", encode, lambda data: zlib.decompress(data, -15))]


def _zstd(level: int) -> Peer:
    import zstandard

    writer, reader = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return Peer(f"zstd -{level}", lambda array: writer.compress(array.data), reader.decompress)


def _pcodec() -> Peer:
    from pcodec import ChunkConfig, standalone

    config = ChunkConfig()
    return Peer(
        "pcodec", lambda array: standalone.simple_compress(array, config), standalone.simple_decompress
    )


def _blosc2() -> Peer:
    import blosc2

    options = {"codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE], "nthreads": 1}
    return Peer(
        "blosc2, shuffle + zstd -1",
        lambda array: blosc2.compress2(array, typesize=array.itemsize, **options),
        lambda data: blosc2.decompress2(data, nthreads=1),
    )


def _zfp(max_error: float, suffix: str) -> Peer:
    import zfpy

    return Peer(
        f"ZFP, {suffix}",
        lambda array: zfpy.compress_numpy(array, tolerance=max_error),
        zfpy.decompress_numpy,
    )


def _sz3(max_error: float, suffix: str) -> Peer:
    """SZ3 as an HDF5 filter; a file in memory with the array as one chunk adds a copy at most."""
    import h5py
    import hdf5plugin

    options = hdf5plugin.SZ3(absolute=max_error)

    def file() -> Any:
        return h5py.File("sz3", mode="w", driver="core", backing_store=False)

    def encode(array: np.ndarray) -> tuple[str, int, int, bytes]:
        with file() as target:
            data = target.create_dataset("x", data=array, chunks=array.shape, **options)
            target.flush()
            mask, chunk = data.id.read_direct_chunk((0,))
            return array.dtype.str, array.size, mask, chunk

    def decode(coded: tuple[str, int, int, bytes]) -> np.ndarray:
        dtype, size, mask, chunk = coded
        with file() as source:
            data = source.create_dataset("x", shape=(size,), dtype=dtype, chunks=(size,), **options)
            data.id.write_direct_chunk((0,), chunk, mask)
            out = np.empty(size, dtype)
            data.read_direct(out)
            return out

    return Peer(f"SZ3, {suffix}", encode, decode, lambda coded: len(coded[3]))
