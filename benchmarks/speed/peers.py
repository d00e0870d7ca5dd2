"""The compressors that are timed beside lccodec, under the names of their rows.

Rules: a peer runs on one thread and is given the difference to the reference ready-made, so that
neither the subtraction nor the addition is in its time. One that is not installed is named, not
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..compressors import bounded, lossless
from ..compressors.compressor import Compressor, installed
from ..compressors.huffman import huffman, unhuffman

__all__ = ["Peers", "bounded_peers", "huffman_peers", "lossless_peers"]

Peers = dict[str, Compressor]


def lossless_peers(kind: str = "float32") -> tuple[Peers, list[str]]:
    """Return the lossless peers, and the names of those that are not installed.

    `kind` is float32, or bfloat16 for the bits of such numbers as uint16.
    """
    makers: dict[str, Callable[[], Compressor]] = {
        "zstd -1": partial(lossless.zstd, 1),
        "zstd -3": partial(lossless.zstd, 3),
        "pcodec": lossless.pcodec,
        "blosc2, shuffle + zstd -1": partial(lossless.blosc2, 1),
        "ZipNN": partial(lossless.zipnn, kind),
    }
    if kind == "float32":
        makers["OpenZL"] = lossless.openzl
    return installed(makers)


def bounded_peers(max_error: float, suffix: str) -> tuple[Peers, list[str]]:
    """Return the peers that keep an error bound, and the names of those that are not installed."""
    return installed(
        {
            f"SZ3, {suffix}": partial(bounded.sz3, max_error),
            f"ZFP, {suffix}": partial(bounded.zfpy, max_error),
        }
    )


def huffman_peers() -> Peers:
    """Return the Huffman coder of zlib."""
    return {"zlib Z_HUFFMAN_ONLY": Compressor(huffman, lambda data, _: unhuffman(data))}
