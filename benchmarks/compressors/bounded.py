"""Compressors with an absolute error bound: SZ3, ZFP, SPERR, lccodec's own frame.

They take vectors of float32; SZ3, ZFP and SPERR also fields, whose shape and type are given.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

import lccodec

from .compressor import Compressor

__all__ = ["frame", "sperr", "sz3", "zfp", "zfpy"]

WIDTH = 256  # of the matrix that SPERR gets instead of a vector


def frame(max_error: float) -> Compressor:
    """Return lccodec's own uniform quantizer."""
    quantizer = lccodec.UniformDeadzone(max_error=max_error)
    return Compressor(lambda array: lccodec.encode(array, quantizer), lambda data, _: lccodec.decode(data))


def zfpy(max_error: float) -> Compressor:
    """Return ZFP by its own package."""
    import zfpy as package

    return Compressor(
        lambda array: package.compress_numpy(array, tolerance=max_error),
        lambda data, _: package.decompress_numpy(data),
    )


def sz3(max_error: float, like: np.ndarray | None = None) -> Compressor:
    """Return SZ3, an HDF5 filter; `like` has the shape and the type of the fields."""
    import hdf5plugin

    return _hdf5_filter(hdf5plugin.SZ3(absolute=max_error), like=like)


def zfp(max_error: float, like: np.ndarray | None = None) -> Compressor:
    """Return ZFP, an HDF5 filter; `like` has the shape and the type of the fields."""
    import hdf5plugin

    return _hdf5_filter(hdf5plugin.Zfp(accuracy=max_error), like=like)


def sperr(max_error: float, like: np.ndarray | None = None) -> Compressor:
    """Return SPERR, an HDF5 filter; `like` has the shape and the type of the fields.

    It takes two or three axes. A vector becomes a matrix, and so does a field of four axes, of
    which the first two are joined, and the last two.
    """
    import hdf5plugin

    options = hdf5plugin.Sperr(absolute=max_error)
    if like is None:
        return _hdf5_filter(options, width=WIDTH)
    if like.ndim != 4:
        return _hdf5_filter(options, like=like)
    joined = like.reshape(like.shape[0] * like.shape[1], -1)
    matrix = _hdf5_filter(options, like=joined)
    return Compressor(
        lambda array: matrix.encode(array.reshape(joined.shape)),
        lambda data, size: matrix.decode(data, size).reshape(like.shape),
    )


def _hdf5_filter(
    options: Mapping[str, Any], width: int | None = None, like: np.ndarray | None = None
) -> Compressor:
    """Return a compressor that is an HDF5 filter; its file lies in memory, with one chunk.

    Parameters
    ----------
    options
        Of the data set: the filter.
    width
        Of the matrix that the vector is made, filled with zeros.
    like
        Has the shape and the type of the fields; vectors of float32 without it.
    """
    import h5py

    dtype = np.dtype(np.float32 if like is None else like.dtype)

    def shape(size: int) -> tuple[int, ...]:
        if like is not None:
            return like.shape
        return (size,) if width is None else (-(-size // width), width)

    def file() -> Any:
        return h5py.File("array", mode="w", driver="core", backing_store=False)

    def encode(array: np.ndarray) -> bytes:
        whole = array
        if width is not None:
            whole = np.zeros(shape(array.size), np.float32)
            whole.reshape(-1)[: array.size] = array
        with file() as target:
            data = target.create_dataset("x", data=whole, chunks=whole.shape, **options)
            target.flush()
            mask, chunk = data.id.read_direct_chunk((0,) * whole.ndim)
            return struct.pack("<I", mask) + chunk

    def decode(coded: bytes, size: int) -> np.ndarray:
        (mask,) = struct.unpack_from("<I", coded)
        with file() as source:
            data = source.create_dataset("x", shape=shape(size), dtype=dtype, chunks=shape(size), **options)
            data.id.write_direct_chunk((0,) * data.ndim, coded[4:], mask)
            out = np.empty(data.shape, dtype)
            data.read_direct(out)
            return out if like is not None else out.reshape(-1)[:size]

    return Compressor(encode, decode)
