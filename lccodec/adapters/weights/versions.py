"""Weight versions: what slime, miles and SGLang's ``pull_weights`` read, and what SkyRL reads.

A version is a directory. Of the form ``weight-versions`` it is ``weight_v000001``, in Hugging
Face's layout. A *full* one is an ordinary model. A *delta* has in its index, under ``metadata``,
its ``version`` and the ``base_version`` before it, both in six digits, and how its tensors are
made: ``delta_encoding``, ``compression_format`` (``zstd``) and ``checksum_format``. Each of its
tensors is the compressed difference of a tensor of the model to that of the base, in bytes:

- ``xor``: the bytes of both, combined by exclusive or.
- ``overwrite``: the number of bytes that differ, their places, and their new values; number and
  places as little-endian uint32.

The metadata of its ``.safetensors`` files have a digest of each tensor as it is afterwards.

Of the form ``skyrl`` it is ``delta-00000001``, always a delta, and always by ``xor``. It has a
``manifest.json`` instead of the index, with the version, that of the base and all tensors, each
with its digest.

Sources, read in their code: slime at 624b824 of 2026-08-21 (``update_weight_from_disk_delta.py``,
``disk_delta.py``, and its patch of SGLang), miles at 31f1ca9, SGLang at 01d5bfe
(``weight_sync/local_checkpoint.py``), SkyRL at a956457 of 2026-08-21
(``weight_sync/delta_checkpoint.py``, as of 2026-07-29).
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ...byteorder import read_numbers, stored_view
from ...element_types import Array
from ...errors import (
    ArgumentError,
    DependencyError,
    FormatError,
    StorageError,
    UnsupportedError,
)
from ...loops.differences import differing
from ..files.disk import parsed, read_bounded
from ..files.shards import MAX_INDEX_BYTES, SHARD_NAME
from .layout import INDEX_NAME

FormName: TypeAlias = Literal["weight-versions", "skyrl"]
Encoding: TypeAlias = Literal["xor", "overwrite"]
Checksum: TypeAlias = Literal["adler32", "xxh3-128", "blake3", "sha256"]
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)
CHECKSUMS: Final[tuple[Checksum, ...]] = get_args(Checksum)
COMPRESSION: Final = "zstd"

RULE: Final = "weight-versions"
_LEVEL: Final = 1  # of zstd, as slime and SkyRL have it
_MAX_BYTES: Final = 1 << 32  # that places of four bytes can name
_PIECE_BYTES: Final = 1 << 20  # stay in the cache while they are used
_ADLER_PRIME: Final = 65521  # RFC 1950


@dataclass(frozen=True)
class Form:
    """A form of versions."""

    start: str  # of the name of a version; then comes its number
    digits: int  # of the number, at least
    index: str  # the file that says what a delta is
    file: str  # of a rank, of so many
    encodings: tuple[Encoding, ...]  # that a delta may have; the first is the default
    checksums: tuple[Checksum, ...]  # the same
    has_full: bool  # whether a version may be a full one

    def version_name(self, version: int) -> str:
        """Return the name of the directory of a version."""
        return f"{self.start}{version:0{self.digits}d}"

    def versions_in(self, names: Collection[str]) -> list[int]:
        """Return the versions among names, rising."""
        numbers = (name.removeprefix(self.start) for name in names if name.startswith(self.start))
        versions = (int(number) for number in numbers if _NUMBER.fullmatch(number))
        return sorted({version for version in versions if self.version_name(version) in names})


_NUMBER: Final = re.compile(r"[0-9]{6,15}")
FORMS: Final[Mapping[FormName, Form]] = {
    "weight-versions": Form(
        "weight_v", 6, INDEX_NAME, "model-{:05d}-of-{:05d}.safetensors",
        ENCODINGS, ("adler32", "xxh3-128", "blake3"), True,
    ),
    "skyrl": Form(
        "delta-", 8, "manifest.json", "delta-rank{:05d}-file000000.safetensors",
        ("xor",), ("xxh3-128", "sha256"), False,
    ),
}  # fmt: skip


def find_form(names: Collection[str]) -> Form:
    """Return the form of the versions among names; without any, the usual one."""
    return next((form for form in FORMS.values() if form.versions_in(names)), FORMS["weight-versions"])


@dataclass(frozen=True)
class Entry:
    """A tensor of a delta: its file, its key there, and its digest unless the file has that.

    What it is, and the bytes of its difference, are known where it is written.
    """

    file: str
    key: str
    digest: str | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True)
class VersionIndex:
    """The index of a delta: what it is, and which file has which tensors."""

    version: int
    base_version: int
    encoding: Encoding
    checksum: Checksum
    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]

    def to_json(self, form: Form) -> bytes:
        """Return the index as a form stores it."""
        if form.has_full:
            metadata = {
                "version": f"{self.version:06d}",
                "base_version": f"{self.base_version:06d}",
                "delta_encoding": self.encoding,
                "compression_format": COMPRESSION,
                "checksum_format": self.checksum,
                **self.metadata,
            }
            weights = {name: entry.file for name, entry in self.tensors.items()}
            return json.dumps({"metadata": metadata, "weight_map": weights}, indent=1).encode()
        records = [
            {
                "name": name,
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "uncompressed_num_bytes": entry.nbytes,
                "compressed_num_bytes": entry.stored_bytes,
                "payload_file": entry.file,
                "payload_key": entry.key,
                "checksum": entry.digest,
                "checksum_algorithm": self.checksum,
            }
            for name, entry in self.tensors.items()
        ]
        manifest = {
            "version": self.version,
            "base_version": self.base_version,
            "tensors": records,
            "total_uncompressed_num_bytes": sum(entry.nbytes for entry in self.tensors.values()),
            "total_compressed_num_bytes": sum(entry.stored_bytes for entry in self.tensors.values()),
            "payload_files": sorted({entry.file for entry in self.tensors.values()}),
        }
        return json.dumps({**self.metadata, **manifest}).encode()


def read_index_of(directory: Path) -> VersionIndex | None:
    """Return the index of a version; ``None`` if it is a full one.

    A ``DataError`` says that the index is damaged or too large, or names an encoding, compression
    or digest that is not known.
    """
    form = find_form([directory.name])
    path = directory / form.index
    try:
        document: Any = parsed(read_bounded(path, MAX_INDEX_BYTES, RULE), RULE, str(path))
    except StorageError as error:
        if error.errno == errno.ENOENT and form.has_full:
            return None
        raise
    try:
        index = _parsed_index(document) if form.has_full else _parsed_manifest(document)
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        raise FormatError(RULE, str(path), "no version, base version or map of tensors") from None
    if index is None:
        return None
    for key, value, known in (
        ("delta_encoding", index.encoding, form.encodings),
        ("checksum_format", index.checksum, form.checksums),
        ("compression_format", index.metadata.get("compression_format", COMPRESSION), (COMPRESSION,)),
    ):
        if value not in known:
            raise UnsupportedError(RULE, f"{path}: {key}", f"{value!r} is not one of {known}")
    if not all(SHARD_NAME.fullmatch(entry.file) for entry in index.tensors.values()):
        raise FormatError(RULE, str(path), "not the name of a .safetensors file in the same directory")
    return index


def _parsed_index(document: Any) -> VersionIndex | None:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or "delta_encoding" not in metadata:
        return None
    tensors = {str(name): Entry(str(file), str(name)) for name, file in document["weight_map"].items()}
    own = {"compression_format": "", **{key: str(value) for key, value in metadata.items()}}
    numbers = int(metadata["version"]), int(metadata["base_version"])
    return VersionIndex(*numbers, own["delta_encoding"], own["checksum_format"], tensors, own)  # type: ignore[arg-type]


def _parsed_manifest(document: Any) -> VersionIndex:
    tensors, algorithms = dict[str, Entry](), set[str]()
    for record in document["tensors"]:
        algorithm = "sha256" if "checksum" not in record else record.get("checksum_algorithm", "xxh3-128")
        algorithms.add(str(algorithm))
        digest = str(record["sha256"] if "checksum" not in record else record["checksum"])
        tensors[str(record["name"])] = Entry(str(record["payload_file"]), str(record["payload_key"]), digest)
    own = {key: value for key, value in document.items() if isinstance(value, str)}
    numbers = int(document["version"]), int(document["base_version"])
    checksum: Any = " and ".join(sorted(algorithms)) or "xxh3-128"
    return VersionIndex(*numbers, "xor", checksum, tensors, own)


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
    return bytes(_library().ZstdCompressor(level=_LEVEL).compress(data.data))


def make(
    data: bytes | memoryview, before: Array, out: Array, encoding: Encoding, checksum: Checksum, where: str
) -> str:
    """Write what a delta makes of the bytes of a tensor, which may be `out`; return its digest.

    Errors call the delta `where`.
    """
    digests = _digests(checksum)
    if encoding == "xor":
        done = 0
        for piece in _decompressed(data, before.size, where):
            part = slice(done, done + piece.size)
            np.bitwise_xor(before[part], piece, out=out[part])
            digests.update(out[part].data)
            done += piece.size
        if done != before.size:
            raise FormatError(RULE, where, f"{done} bytes for a tensor of {before.size}")
        return str(digests.hexdigest())
    places, values = _overwritten(data, before.size, where)
    if out is not before:
        out[:] = before
    out[places] = values
    digests.update(out.data)
    return str(digests.hexdigest())


class Changed(NamedTuple):
    """What a delta changes of a tensor: places (int64, rising), and the bits before and after."""

    places: Array
    old: Array
    new: Array


def change_by(
    data: bytes | memoryview, before: Array, encoding: Encoding, where: str, most: int
) -> Changed | None:
    """Return what a delta changes of a tensor, without making it; errors call the delta `where`.

    `before` are the bits of the tensor, 1-D, in the host's byte order. ``None`` is returned for
    more places than `most`, which take as much time as :func:`make`, and for places out of order.
    """
    if encoding == "xor":
        return _changed_by_xor(data, before, where, most)
    places, values = _overwritten(data, before.nbytes, where)
    if (places[1:] <= places[:-1]).any():
        return None
    elements = places.astype(np.int64) // before.itemsize
    first = np.ones(elements.size, bool)
    first[1:] = elements[1:] != elements[:-1]
    there = elements[first]
    if there.size > most:
        return None
    old = before.take(there)
    new = stored_view(old).copy()
    new[(np.cumsum(first) - 1) * before.itemsize + places % before.itemsize] = values
    return Changed(there, old, read_numbers(new, before.dtype))


def _changed_by_xor(data: bytes | memoryview, before: Array, where: str, most: int) -> Changed | None:
    places, differences = [np.zeros(0, np.int64)], [before[:0]]
    done, changes, rest = 0, 0, np.zeros(0, np.uint8)  # bytes of a number whose others are in the next piece
    for piece in _decompressed(data, before.nbytes, where):
        own = np.concatenate([rest, piece]) if rest.size else piece
        whole = own.size - own.size % before.itemsize
        words, rest = read_numbers(own[:whole], before.dtype), own[whole:].copy()
        some = differing(words, words[:0])
        differences.append(words.take(some))
        some += done // before.itemsize
        places.append(some)
        done, changes = done + whole, changes + some.size
        if changes > most:
            return None
    if done != before.nbytes or rest.size:
        raise FormatError(RULE, where, f"{done + rest.size} bytes for a tensor of {before.nbytes}")
    there = np.concatenate(places)
    old = before.take(there)
    return Changed(there, old, old ^ np.concatenate(differences))


def _overwritten(data: bytes | memoryview, nbytes: int, where: str) -> tuple[Array, Array]:
    """Return the places and the new values of the bytes that a delta overwrites."""
    pieces = [piece.copy() for piece in _decompressed(data, 4 + 5 * nbytes, where)]
    stored = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
    count = int(stored[:4].view("<u4")[0]) if stored.size >= 4 else -1
    if stored.size != 4 + 5 * count:
        raise FormatError(RULE, where, f"{stored.size} bytes for {count} places")
    places = stored[4 : 4 + 4 * count].view("<u4")
    if count and int(places.max()) >= nbytes:
        raise FormatError(RULE, where, f"a place behind the end of a tensor of {nbytes} bytes")
    return places, stored[4 + 4 * count :]


def digest_of(checksum: Checksum, data: Array) -> str:
    """Return the digest of bytes, hexadecimal."""
    digests = _digests(checksum)
    digests.update(data.data)
    return str(digests.hexdigest())


class _Adler32:
    """Adler-32, as the objects of `hashlib` are."""

    def __init__(self) -> None:
        self._value = 1

    def update(self, data: memoryview) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _digests(checksum: Checksum) -> Any:
    """Return an object that makes a digest of the bytes that it is given."""
    if checksum in ("adler32", "sha256"):
        return _Adler32() if checksum == "adler32" else hashlib.sha256()
    try:
        if checksum == "xxh3-128":
            import xxhash

            return xxhash.xxh3_128()
        import blake3

        return blake3.blake3()
    except ImportError as error:
        raise DependencyError(f"the digest {checksum} needs the package {error.name}") from None


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


def _decompressed(data: bytes | memoryview, most: int, where: str) -> Iterator[Array]:
    """Yield what bytes decompress to, piece by piece; refuse more than `most`.

    A piece is overwritten by the next one: memory that is new for each costs as much as the bytes.
    """
    zstd = _library()
    done, room = 0, np.empty(min(_PIECE_BYTES, most + 1), np.uint8)
    try:
        with zstd.ZstdDecompressor().stream_reader(data) as stream:
            while size := stream.readinto(room.data):
                done += size
                if done > most:
                    raise FormatError(RULE, where, f"more than {most} bytes")
                yield room[:size]
    except zstd.ZstdError as error:
        raise FormatError(RULE, where, f"not whole frames of zstd: {error}") from None


def _library() -> Any:
    try:
        import zstandard
    except ImportError:
        raise DependencyError("weight versions need zstandard: pip install 'lccodec[weights]'") from None
    return zstandard
