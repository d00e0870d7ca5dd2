"""Weight versions: what slime, miles and SGLang's ``pull_weights`` read.

A version is a directory ``weight_v000001`` of Hugging Face's layout. A *full* version is an
ordinary model. A *delta* has in its index, under ``metadata``, its ``version`` and the
``base_version`` before it, both in six digits, and how its tensors are made: ``delta_encoding``,
``compression_format`` (``zstd``) and ``checksum_format``. Each of its tensors is the compressed
difference of a tensor of the model to that of the base, in bytes:

- ``xor``: the bytes of both, combined by exclusive or.
- ``overwrite``: the number of bytes that differ, their places, and their new values; number and
  places as little-endian uint32.

The metadata of its ``.safetensors`` files have a digest of each tensor as it is afterwards.

Sources, read in their code: slime at 624b824 (``update_weight_from_disk_delta.py``,
``disk_delta.py``, and its patch of SGLang), miles at 31f1ca9, SGLang at 01d5bfe
(``weight_sync/local_checkpoint.py``).
"""

from __future__ import annotations

import errno
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from ...element_types import Array
from ...errors import (
    ArgumentError,
    ChecksumError,
    DependencyError,
    FormatError,
    StorageError,
    UnsupportedError,
)
from ..files.disk import parsed, read_bounded
from ..files.shards import MAX_INDEX_BYTES, SHARD_NAME
from .layout import INDEX_NAME

__all__ = ["CHECKSUMS", "ENCODINGS", "Checksum", "Encoding", "VersionIndex"]

Encoding: TypeAlias = Literal["xor", "overwrite"]
Checksum: TypeAlias = Literal["adler32", "xxh3-128", "blake3"]
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)
CHECKSUMS: Final[tuple[Checksum, ...]] = get_args(Checksum)
COMPRESSION: Final = "zstd"

RULE: Final = "weight-versions"
_LEVEL: Final = 1  # of zstd, as slime has it
_NAME: Final = re.compile(r"weight_v([0-9]{6,15})")
_MAX_BYTES: Final = 1 << 32  # that places of four bytes can name
_PIECE_BYTES: Final = 1 << 22
_ADLER_PRIME: Final = 65521  # RFC 1950


def version_name(version: int) -> str:
    """Return the name of the directory of a version."""
    return f"weight_v{version:06d}"


def versions_in(names: Iterable[str]) -> list[int]:
    """Return the versions among names, rising."""
    found = (match for name in names if (match := _NAME.fullmatch(name)))
    return sorted(int(match[1]) for match in found if version_name(int(match[1])) == match[0])


@dataclass(frozen=True)
class VersionIndex:
    """The index of a delta: what it is, and which file has which tensors."""

    version: int
    base_version: int
    encoding: Encoding
    checksum: Checksum
    weights: Mapping[str, str]
    metadata: Mapping[str, str]

    def to_json(self) -> bytes:
        """Return the index as it is stored."""
        metadata = {
            "version": f"{self.version:06d}",
            "base_version": f"{self.base_version:06d}",
            "delta_encoding": self.encoding,
            "compression_format": COMPRESSION,
            "checksum_format": self.checksum,
            **self.metadata,
        }
        return json.dumps({"metadata": metadata, "weight_map": dict(self.weights)}, indent=1).encode()


def read_index_of(directory: Path) -> VersionIndex | None:
    """Return the index of a version; ``None`` if it is a full one.

    Raises
    ------
    FormatError, LimitError, UnsupportedError
        If the index is damaged or too large, or names an encoding, compression or digest that is
        not known.
    StorageError
        If it is no regular file, or the operating system cannot read it.
    """
    path = directory / INDEX_NAME
    try:
        document: Any = parsed(read_bounded(path, MAX_INDEX_BYTES, RULE), RULE, str(path))
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or "delta_encoding" not in metadata:
        return None
    known = {"delta_encoding": ENCODINGS, "compression_format": (COMPRESSION,), "checksum_format": CHECKSUMS}
    for key, values in known.items():
        if metadata.get(key) not in values:
            raise UnsupportedError(RULE, f"{path}: {key}", f"{metadata.get(key)!r} is not one of {values}")
    try:
        version, base = int(metadata["version"]), int(metadata["base_version"])
        weights = {str(name): str(file) for name, file in document["weight_map"].items()}
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        raise FormatError(RULE, str(path), "no version, base version or weight map") from None
    if not all(map(SHARD_NAME.fullmatch, weights.values())):
        raise FormatError(RULE, str(path), "not the name of a .safetensors file in the same directory")
    own = {key: str(value) for key, value in metadata.items()}
    return VersionIndex(version, base, metadata["delta_encoding"], metadata["checksum_format"], weights, own)


def encoded(old: Array, new: Array, encoding: Encoding) -> bytes:
    """Return the compressed difference of the bytes of a tensor to those of its base."""
    if encoding == "xor":
        return compressed(np.bitwise_xor(old, new))
    if old.size > _MAX_BYTES:
        raise ArgumentError(f"a tensor of {old.size} bytes is too large to be overwritten: use xor")
    places = np.flatnonzero(old != new).astype("<u4")
    parts = (np.array([places.size], "<u4").view("u1"), places.view("u1"), new[places])
    return compressed(np.concatenate(parts))


def compressed(data: Array) -> bytes:
    """Return bytes as a frame of zstd."""
    return bytes(_compressor().compress(data.data))


def apply(data: bytes | memoryview, target: Array, encoding: Encoding, where: str) -> None:
    """Change the bytes of a tensor into those that a delta stands for; errors call it `where`."""
    if encoding == "xor":
        done = 0
        for piece in _decompressed(data, target.size, where):
            target[done : done + piece.size] ^= piece
            done += piece.size
        if done != target.size:
            raise FormatError(RULE, where, f"{done} bytes for a tensor of {target.size}")
        return
    pieces = list(_decompressed(data, 4 + 5 * target.size, where))
    found = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
    count = int(found[:4].view("<u4")[0]) if found.size >= 4 else -1
    if found.size != 4 + 5 * count:
        raise FormatError(RULE, where, f"{found.size} bytes for {count} places")
    places = found[4 : 4 + 4 * count].view("<u4")
    if count and int(places.max()) >= target.size:
        raise FormatError(RULE, where, f"a place behind the end of a tensor of {target.size} bytes")
    target[places] = found[4 + 4 * count :]


def check_digest(algorithm: Checksum, data: Array, expected: object, where: str) -> None:
    """Raise ``ChecksumError`` if bytes have another digest."""
    if (found := digest(algorithm, data)) != expected:
        message = f"the tensor has the digest {found} after the delta, and {expected!r:.80} is noted"
        raise ChecksumError(RULE, where, message)


def digest(algorithm: Checksum, data: Array) -> str:
    """Return the digest of bytes, hexadecimal."""
    if algorithm == "adler32":
        return f"{zlib.adler32(data.data):08x}"
    try:
        if algorithm == "xxh3-128":
            import xxhash

            return str(xxhash.xxh3_128(data.data).hexdigest())
        import blake3

        return str(blake3.blake3(data.data).hexdigest())
    except ImportError as error:
        raise DependencyError(f"the digest {algorithm} needs the package {error.name}") from None


def changed_adler32(before: str, nbytes: int, places: Array, old: Array, new: Array) -> str:
    """Return the digest ``adler32`` of little-endian numbers after a change, from the one before.

    Adler-32 is two sums modulo 65521: of the bytes, and of the bytes times their distance from the
    end. So only the numbers that differ are needed: unsigned integers, and their places.
    """
    low, high = int(before, 16) & 0xFFFF, int(before, 16) >> 16
    rises = np.zeros(places.size, np.int64)  # of the bytes of each number
    for byte in range(new.itemsize):
        rise = (new >> new.dtype.type(8 * byte) & new.dtype.type(0xFF)).astype(np.int64)
        rise -= (old >> old.dtype.type(8 * byte) & old.dtype.type(0xFF)).astype(np.int64)
        rises += rise
        high -= byte * int(rise.sum())
    low += int(rises.sum())
    # A factor is below 2^16 and a rise below 2^11: 2^36 of them fit into 64 bits.
    high += int(np.dot((nbytes - new.itemsize * places) % _ADLER_PRIME, rises))
    return f"{(high % _ADLER_PRIME) << 16 | low % _ADLER_PRIME:08x}"


def _decompressed(data: bytes | memoryview, most: int, where: str) -> Iterable[Array]:
    """Yield what bytes decompress to, piece by piece; refuse more than `most`."""
    zstd = _library()
    done = 0
    try:
        with zstd.ZstdDecompressor().stream_reader(bytes(data)) as stream:
            while piece := stream.read(_PIECE_BYTES):
                done += len(piece)
                if done > most:
                    raise FormatError(RULE, where, f"more than {most} bytes")
                yield np.frombuffer(piece, np.uint8)
    except zstd.ZstdError as error:
        raise FormatError(RULE, where, f"not whole frames of zstd: {error}") from None


def _compressor() -> Any:
    return _library().ZstdCompressor(level=_LEVEL)


def _library() -> Any:
    try:
        import zstandard
    except ImportError:
        raise DependencyError("weight versions need zstandard: pip install 'lccodec[weights]'") from None
    return zstandard
