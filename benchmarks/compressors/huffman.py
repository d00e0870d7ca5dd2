"""The Huffman coder of zlib alone, without its search for matches."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["huffman", "unhuffman"]


def huffman(symbols: np.ndarray) -> bytes:
    """Return uint8 symbols, Huffman coded and no more."""
    coder = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(np.ascontiguousarray(symbols)) + coder.flush()


def unhuffman(data: bytes) -> np.ndarray:
    """Return the symbols of :func:`huffman`."""
    return np.frombuffer(zlib.decompress(data, -15), np.uint8)
