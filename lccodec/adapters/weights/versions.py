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

Whoever publishes them, `follow` reads them: the counterpart of :func:`publish`. What a version
changes is found, and the digest of each tensor is compared, before anything of the held state
changes. So a damaged version, or one for another base, leaves the state as it was. A tensor is made
in memory of its own, unless few of its values change and its digest before, which was verified,
tells that after.

Sources, read in their code: slime at 624b824 of 2026-08-21 (``update_weight_from_disk_delta.py``,
``disk_delta.py``, and its patch of SGLang), miles at 31f1ca9, SGLang at 01d5bfe
(``weight_sync/local_checkpoint.py``), SkyRL at a956457 of 2026-08-21
(``weight_sync/delta_checkpoint.py``, as of 2026-07-29).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ...chain.read.followed_state import SPARSE_RATIO, ArrayChange, CancelledError, change_of, difference
from ...chain.read.follower import POLL_SECONDS, Follower, Lag, Update, checked_waits
from ...chain.read.replay import DecodedArray
from ...container.folder import read_bounded, regular_file
from ...container.system import checked_path, storage_errors
from ...container.tree import leaf_name
from ...element_types import Array, components, read_numbers, stored_view
from ...errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    DataError,
    DependencyError,
    FormatError,
    LccodecError,
    StorageError,
    UnsupportedError,
    warn,
)
from ...loops.search import differing
from ..files.header import FLOAT8_NAMES, Tensor, read_header
from ..files.shards import MAX_INDEX_BYTES, SHARD_NAME, parsed
from ..tree import names_by_type, with_types
from .layout import INDEX_NAME, SINGLE_NAME, Layout, Prefix, read_layout

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
    """Return the index of a version; ``None`` if it is a full one."""
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
    """Write to `out` what a delta makes of the bytes before; return the digest."""
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
    """Return what a delta changes of a tensor, 1-D bits, without making it.

    ``None`` for more places than `most`, which take as long as :func:`make`, or out of order.
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
    end.
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
    """Yield what bytes decompress to, at most `most`. A piece is overwritten by the next one."""
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


def follow(
    versions: str | os.PathLike[str],
    base: str | os.PathLike[str] | None = None,
    *,
    poll: float = POLL_SECONDS,
    timeout: float | None = None,
) -> Follower:
    """Follow weight versions, as :func:`lccodec.follow` follows a chain; a step is a version.

    Parameters
    ----------
    versions
        The directory of the versions, which need not exist yet.
    base
        The model that is version 0, in Hugging Face's layout. It is needed unless there is a full
        version.
    poll, timeout
        As for :func:`lccodec.follow`.

    Raises
    ------
    ArgumentError
        For paths and seconds that cannot be any.
    """
    pause, wait = checked_waits(poll, timeout)
    watch = _Versions(checked_path(versions), None if base is None else checked_path(base))
    return Follower(watch, once=False, poll=pause, timeout=wait)


@dataclass
class _State:
    """The tensors of a version (-1: none) as bits, types that NumPy lacks, and verified digests."""

    version: int = -1
    arrays: dict[str, DecodedArray] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    adler32: dict[str, str] = field(default_factory=dict)


class _Prepared(NamedTuple):
    update: Update | None
    state: _State
    changes: Mapping[str, ArrayChange]


class _Delta(NamedTuple):
    """The delta of a tensor in a version, and the noted digest of the tensor after it."""

    name: str
    version: VersionIndex
    path: Path
    tensor: Tensor
    digest: object

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"{self.path}: {self.name!r}"

    @property
    def adler32(self) -> str:
        """The digest, if it tells that of a tensor of which few values change; else empty."""
        return str(self.digest) if self.version.checksum == "adler32" else ""

    def make(self, before: Array, out: Array) -> None:
        """Write what it makes of the bytes of the tensor before, which may be `out`."""
        version = self.version
        self._check(make(self._read(), before, out, version.encoding, version.checksum, self.where))

    def change(self, before: DecodedArray, digest: str | None) -> Changed | None:
        """Return what it changes; None if `make` takes less time.

        The digest of the tensor before, which was verified, tells that of the tensor after.
        """
        bits = before.bits
        if not digest or not self.adler32 or before.kind.components > 1:
            return None
        most = bits.size // SPARSE_RATIO
        changed = change_by(self._read(), bits, self.version.encoding, self.where, most)
        if changed is not None:
            self._check(changed_adler32(digest, bits.nbytes, *changed))
        return changed

    def _read(self) -> bytes:
        with regular_file(self.path) as stream:
            stream.seek(self.tensor.offset)
            return stream.read(self.tensor.nbytes)

    def _check(self, found: str) -> None:
        if found != self.digest:
            noted = f"the tensor has the digest {found} after the delta, and {self.digest!r:.80} is noted"
            raise ChecksumError(RULE, self.where, noted)


class _Versions:
    """The held version, and what comes after it."""

    def __init__(self, directory: Path, base: Path | None) -> None:
        self.place: object = directory
        self._directory, self._base, self._form = directory, base, find_form(())
        self._held = _State()
        self._refused: dict[int, tuple[tuple[int, ...], str]] = {}
        self._unread: set[int] = set()  # of those, the ones that may be read later
        self._indices: dict[int, VersionIndex | None] = {}  # that were read for one update

    @property
    def step(self) -> int | None:
        """The held version."""
        return self._held.version if self._held.version >= 0 else None

    def next(self, wanted: Callable[[], bool]) -> _Prepared | None:
        """Prepare the way to the newest version that can be read."""
        there, held = self._there(), self._held
        if max(there, default=-1) < held.version:  # the trainer has begun again
            held = _State()
        self._indices = {}
        for version in reversed([number for number in there if number > held.version]):
            seen = self._look_at(version)
            if self._refused.get(version, ((), ""))[0] == seen and version not in self._unread:
                continue
            try:
                return self._prepare(version, held, wanted)
            except CancelledError:
                return None
            except (DataError, ChainError, StorageError) as error:
                self._refuse(version, seen, error)
        return None

    def commit(self, way: _Prepared) -> None:
        """Go a way that was prepared. Doing it again does nothing."""
        for name, change in way.changes.items():
            if change.places is not None and way.state.arrays[name] is self._held.arrays.get(name):
                change.write(way.state.arrays[name].bits)
        self._held = way.state
        self._refused = {v: why for v, why in self._refused.items() if v > way.state.version}
        self._unread = set(self._refused)  # they may have needed what could not be read before

    def refused(self) -> Mapping[int, str]:
        """Return why newer versions cannot be read."""
        return {version: reason for version, (_, reason) in self._refused.items()}

    def lag(self) -> Lag:
        """Return the versions after the held one, and the bytes of their files."""
        later = [version for version in self._there() if version > self._held.version]
        return Lag(len(later), sum(map(self._size, later)))

    def state(self, dtype: str | None) -> dict[str, Array]:
        """Return copies of the tensors by name."""
        return {name: array.array(dtype).copy() for name, array in self._held.arrays.items()}

    def names(self) -> list[str]:
        """Return the names of the tensors of the held version."""
        return [leaf_name((name,)) for name in self._held.arrays]

    def array(self, path: str) -> DecodedArray | None:
        """Return a tensor of the held version; it must not be changed."""
        return self._held.arrays.get(Prefix("").name(path))

    def close(self) -> None:
        """Release the memory."""
        self._held = _State()

    def _there(self) -> list[int]:
        if not self._directory.is_dir():
            return []
        with storage_errors("cannot list", self._directory):
            names = os.listdir(self._directory)  # noqa: PTH208
        self._form = find_form(names)
        return [version for version in self._form.versions_in(names) if self._is_complete(version)]

    def _is_complete(self, version: int) -> bool:
        """Return whether a version has its index, which is written last, or its one file."""
        if (self._path(version) / self._form.index).is_file():
            return True
        names = [path.name for path in self._path(version).glob("*.safetensors")]
        return self._form.has_full and names == [SINGLE_NAME]

    def _path(self, version: int) -> Path:
        return self._directory / self._form.version_name(version)

    def _size(self, version: int) -> int:
        with storage_errors("cannot look at", self._path(version)):
            return sum(path.lstat().st_size for path in self._path(version).iterdir())

    def _look_at(self, version: int) -> tuple[int, ...]:
        with storage_errors("cannot look at", self._path(version)):
            files = sorted(self._path(version).iterdir())
            statuses = [path.lstat() for path in files]
        return tuple(number for status in statuses for number in (status.st_size, status.st_mtime_ns))

    def _refuse(self, version: int, seen: tuple[int, ...], error: LccodecError) -> None:
        said, self._refused[version] = self._refused.get(version), (seen, str(error))
        self._unread.discard(version)
        if isinstance(error, StorageError):  # what the system cannot read is tried again
            self._unread.add(version)
        if said == self._refused[version]:
            return
        stays = "there is no state yet" if self.step is None else f"the state stays at version {self.step}"
        warn(f"{self._directory}: version {version} cannot be read, and {stays}: {error}")

    def _prepare(self, version: int, held: _State, wanted: Callable[[], bool]) -> _Prepared:
        """Prepare the way to a version, from the newest full one, the held one, or the base."""
        deltas = list[VersionIndex]()
        number, full = version, None
        while number > max(held.version, 0):
            if number not in self._indices:
                self._indices[number] = read_index_of(self._path(number))
            if (index := self._indices[number]) is None:
                full = self._path(number)
                break
            if index.version != number or index.base_version != number - 1:
                message = f"says that it is version {index.version} on {index.base_version}"
                raise FormatError(RULE, str(self._path(number)), message)
            deltas.append(index)
            number -= 1
        if full is None and held.version < 0:
            if self._base is None:
                raise ChainError(f"{self._directory}: there is no full version, and no base was given")
            full = self._base
        state = _State(version, dict(held.arrays), held.types, dict(held.adler32))
        if full is not None:
            layout = read_layout(full)
            noted = ((name, FLOAT8_NAMES.get(tensor.dtype)) for name, tensor in layout.tensors.items())
            state.types = {name: kind for name, kind in noted if kind is not None}
            state.arrays, state.adler32 = _loaded(layout), {}
        read = [index.version for index in deltas]
        changes = self._changes(state, deltas[::-1], owns=full is not None, wanted=wanted)
        return self._way(state, changes, read if full in (None, self._base) else [*read, number])

    def _changes(
        self, state: _State, deltas: Sequence[VersionIndex], *, owns: bool, wanted: Callable[[], bool]
    ) -> dict[str, ArrayChange]:
        """Return what deltas change of the held state; `state` gets the arrays that are new whole.

        It may change the arrays of `state` if it `owns` them. Else a tensor is made in memory that
        the next one uses again, or it is not made at all.
        """
        held, sources = self._held.arrays, self._by_name(deltas, state.arrays)
        buffer, changes = np.empty(0, np.uint8), dict[str, ArrayChange]()
        for name in state.arrays if owns else sources:
            if not wanted():
                raise CancelledError
            read, before = sources.get(name, []), state.arrays[name]
            sparse = read[0].change(before, state.adler32.get(name)) if len(read) == 1 and not owns else None
            if sparse is not None:
                change = change_of(before, sparse.places, sparse.new)
            else:
                old = stored_view(before.bits)
                if not owns and buffer.size < old.size:
                    buffer = np.empty(old.size, np.uint8)
                new = old if owns else buffer[: old.size]
                for number, delta in enumerate(read):
                    delta.make(new if number else old, new)
                bits = read_numbers(new, before.bits.dtype)
                after = DecodedArray(before.kind, before.shape, bits)
                change = difference(held.get(name), after)
                if change is not None and change.places is None and not owns:
                    buffer = np.empty(0, np.uint8)  # the array keeps the memory
                if owns or (change is not None and change.places is None):
                    state.arrays[name] = after
            if change is not None:
                changes[name] = change
            if read:
                state.adler32[name] = read[-1].adler32
        return changes

    def _by_name(
        self, indices: Sequence[VersionIndex], arrays: Mapping[str, DecodedArray]
    ) -> dict[str, list[_Delta]]:
        """Return the deltas of each tensor, in the order of their versions."""
        deltas: dict[str, list[_Delta]] = {}
        for index in indices:
            files = dict[str, list[str]]()
            for name, entry in index.tensors.items():
                files.setdefault(entry.file, []).append(name)
            for file, names in sorted(files.items()):
                path = self._path(index.version) / file
                tensors, digests = read_header(path)
                keys = {index.tensors[name].key: name for name in names}
                if differing := sorted(keys.keys() ^ tensors.keys()):
                    told = ", ".join(differing)
                    raise FormatError(RULE, str(path), f"only one of index and file has {told}")
                for key, name in keys.items():
                    noted = index.tensors[name].digest
                    digest = digests.get(key) if noted is None else noted
                    deltas.setdefault(name, []).append(_Delta(name, index, path, tensors[key], digest))
        if unknown := sorted(deltas.keys() - arrays.keys()):
            raise FormatError(RULE, deltas[unknown[0]][0].where, "the version before has no such tensor")
        return deltas

    def _way(self, state: _State, changed: Mapping[str, ArrayChange], read: Sequence[int]) -> _Prepared:
        before = self._held.arrays
        changes = {leaf_name((name,)): change for name, change in changed.items()}
        newest = self._path(state.version)
        index = read_index_of(newest)
        metadata = dict(index.metadata) if index is not None else {}
        types = names_by_type((leaf_name((name,)), kind) for name, kind in state.types.items())
        update = Update(
            step=state.version,
            base=self.step,
            names=tuple(changes),
            removed=tuple(leaf_name((name,)) for name in before if name not in state.arrays),
            metadata=with_types(metadata, types),
            steps=len(read),
            bytes_read=sum(map(self._size, read)),
            root="",
            base_root=None if self.step is None else "",
            _changes=changes,
        )
        return _Prepared(update, state, changed)


def _loaded(layout: Layout) -> dict[str, DecodedArray]:
    arrays = {}
    for name, array in layout.arrays().items():
        kind, bits = components(array)
        arrays[name] = DecodedArray(kind, array.shape, np.array(bits))
    missing = [name for name, tensor in layout.tensors.items() if tensor.kind is None]
    if missing:
        raise ArgumentError(f"{layout.directory}: tensor {missing[0]!r} is of a type that is not known")
    return arrays
