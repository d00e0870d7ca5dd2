"""Lossless compressors: zstd, pcodec, blosc2, ZipNN, OpenZL."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compressor import Compressor

__all__ = ["blosc2", "openzl", "pcodec", "zipnn", "zstd"]


def zstd(level: int) -> Compressor:
    """Return zstd on the bytes as they are."""
    import zstandard

    writer, reader = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return Compressor(lambda array: writer.compress(array.data), lambda data, _: reader.decompress(data))


def pcodec() -> Compressor:
    """Return pcodec with its defaults, which looks at the type of the array."""
    from pcodec import ChunkConfig, standalone

    config = ChunkConfig()
    return Compressor(
        lambda array: standalone.simple_compress(array, config),
        lambda data, _: standalone.simple_decompress(data),
    )


def blosc2(level: int) -> Compressor:
    """Return blosc2 with its shuffle and zstd."""
    import blosc2 as blosc

    options: dict[str, Any] = {"codec": blosc.Codec.ZSTD, "clevel": level, "nthreads": 1}
    options["filters"] = [blosc.Filter.SHUFFLE]
    return Compressor(
        lambda array: blosc.compress2(array, typesize=array.itemsize, **options),
        lambda data, _: blosc.decompress2(data, nthreads=1),
    )


def zipnn(kind: str) -> Compressor:
    """Return ZipNN for float32 or bfloat16."""
    from zipnn import ZipNN

    options: dict[str, Any] = {"input_format": "byte", "bytearray_dtype": kind, "threads": 1}

    def encode(array: np.ndarray) -> bytes:
        return bytes(ZipNN(**options).compress(bytearray(array.tobytes())))  # overwrites its input

    return Compressor(encode, lambda data, _: bytes(ZipNN(**options).decompress(bytearray(data))))


def openzl() -> Compressor:
    """Return OpenZL for float32: exponents, and each byte of the rest, have codes of their own."""
    from openzl import ext

    compressor = ext.Compressor()
    rest = ext.nodes.TransposeSplit()(compressor, ext.graphs.Entropy()(compressor))
    exponents = ext.graphs.Entropy()(compressor)
    compressor.select_starting_graph(ext.nodes.Float32Deconstruct()(compressor, rest, exponents))

    def encode(array: np.ndarray) -> bytes:
        context = ext.CCtx()
        context.ref_compressor(compressor)
        context.set_parameter(ext.CParam.FormatVersion, ext.MAX_FORMAT_VERSION)
        return bytes(context.compress([ext.Input(ext.Type.Numeric, array)]))

    return Compressor(encode, lambda data, _: ext.DCtx().decompress(data)[0].content)
