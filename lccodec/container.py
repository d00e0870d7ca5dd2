"""One checkpoint file: trailer, manifest and frames (SPEC sections 8 and 9).

::

    head of the HDF5 file | payload: the frames | HDF5 between the datasets | manifest | trailer

The reader goes by the trailer with positioned reads and needs neither h5py nor the HDF5 library: stored bytes
enter no C code but SHA-256 and the JSON parser. The digests of the manifest cover the payload, and the root,
the SHA-256 of all other bytes (LCC-TRL-05), covers the rest: every byte of the file is hashed once. Every
declared size is held against the size of the file before memory is taken.

A checkpoint is written under a temporary name and linked into place once it is on the disk (LCC-CHN-06): it
is there as a whole or not at all. A failure leaves nothing behind; a kill leaves a temporary, which
`remove_stale_temporaries` clears.
"""

from __future__ import annotations

import base64
import errno
import itertools
import json
import os
import re
import secrets
import stat
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, Self, TypeAlias

from .constants import (
    DIGEST_SIZE,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_ARRAYS,
    MAX_INTEGER_DIGITS,
    MAX_MANIFEST_BYTES,
    MAX_NESTING,
    MAX_STEP,
    PAYLOAD_OFFSET,
    ROOT_SIZE,
    SKELETON_SIZE,
    TEMPORARY_PREFIX,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from .errors import (
    ArgumentError,
    ChecksumError,
    DataError,
    FormatError,
    LimitError,
    StorageError,
    TruncatedError,
    UnsupportedError,
)
from .state import Json, array_names, parse_scalars, parse_tree

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "INHERITED",
    "SYSTEM",
    "CheckpointReader",
    "CheckpointWriter",
    "FrameEntry",
    "Manifest",
    "Parent",
    "System",
    "Trailer",
    "check_skeleton",
    "open_bytes",
    "open_checkpoint",
    "parse_manifest",
    "parse_trailer",
    "remove_stale_temporaries",
    "to_bytes",
]

Bytes: TypeAlias = bytes | bytearray | memoryview
StrPath: TypeAlias = str | os.PathLike[str]

# --- wire structures ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trailer:
    """The last bytes of the file (LCC-TRL-02): where payload and manifest lie, and the root.

    The file has offsets too; as the HDF5 layout is fixed (LCC-H5-05), the two lengths imply them.
    """

    payload_length: int
    manifest_length: int
    root: bytes = bytes(ROOT_SIZE)
    minor: int = FORMAT_MINOR

    @property
    def manifest_offset(self) -> int:
        """Where the manifest begins, in bytes."""
        return self.payload_length + SKELETON_SIZE

    @property
    def file_length(self) -> int:
        """Size of the whole file in bytes, the trailer included."""
        return self.manifest_offset + self.manifest_length + TRAILER_SIZE

    def to_bytes(self) -> bytes:
        """The trailer as it stands in the file."""
        return _TRAILER.pack(
            TRAILER_MAGIC,
            FORMAT_MAJOR,
            self.minor,
            0,
            PAYLOAD_OFFSET,
            self.payload_length,
            self.manifest_offset,
            self.manifest_length,
            self.file_length,
            self.root,
        )


_TRAILER: Final = struct.Struct(f"<8sHHI5Q{ROOT_SIZE}s")  # LCC-TRL-02


def parse_trailer(data: bytes, where: str) -> Trailer:
    """Read a trailer of `TRAILER_SIZE` bytes.

    Raises
    ------
    FormatError
        Not a trailer (LCC-TRL-01, LCC-TRL-02); offsets and lengths that do not fit together (LCC-TRL-06).
    UnsupportedError
        A newer major version (LCC-TRL-03), a reserved field in use (LCC-TRL-04).
    LimitError
        The manifest is too long (LCC-LIM-04).
    """
    if len(data) != TRAILER_SIZE or not data.startswith(TRAILER_MAGIC):
        raise FormatError("LCC-TRL-01", where, "no trailer")
    _, major, minor, reserved, *spans, root = _TRAILER.unpack(data)
    if major != FORMAT_MAJOR:
        raise UnsupportedError("LCC-TRL-03", where, f"format version {major}.{minor}")
    if reserved:
        raise UnsupportedError("LCC-TRL-04", where, f"reserved field is {reserved:#x}")
    trailer = Trailer(payload_length=spans[1], manifest_length=spans[3], root=root, minor=minor)
    if trailer.manifest_length > MAX_MANIFEST_BYTES:
        raise LimitError("LCC-LIM-04", where, f"a manifest of {trailer.manifest_length} bytes")
    if spans[::2] != [PAYLOAD_OFFSET, trailer.manifest_offset, trailer.file_length]:
        raise FormatError("LCC-TRL-06", where, f"offsets and lengths do not fit together: {spans}")
    return trailer


@dataclass(frozen=True)
class FrameEntry:
    """What the manifest says of a frame: its length in bytes, and the start of its SHA-256 (LCC-MAN-08)."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, frame: Bytes) -> Self:
        """The entry of a frame."""
        return cls(memoryview(frame).nbytes, sha256(frame).digest()[:DIGEST_SIZE])


@dataclass(frozen=True)
class Parent:
    """The checkpoint that a delta is taken against, by its step and its root (LCC-MAN-04)."""

    step: int
    root: bytes


class Inherited(Enum):
    """The type of `INHERITED`; ``None`` is a tree already, that of a state that is one scalar."""

    TREE = "tree"


INHERITED: Final = Inherited.TREE  # LCC-MAN-07: the place of a tree that is equal to the parent's


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds (LCC-MAN-03); the names of the fields are those in the file.

    Attributes
    ----------
    step
        The training step, or None.
    parent
        What a delta is taken against; None for a keyframe.
    policy
        A JSON value that tells how the frames were made; readers do not need it.
    metadata
        The user's own strings.
    tree
        As `state.flatten` makes it, or `INHERITED` where it is equal to the parent's.
    scalars
        As `state.flatten` makes them.
    frames
        An entry for each array; None where the array is the parent's, unchanged.
    """

    step: int | None
    parent: Parent | None
    policy: Json
    metadata: dict[str, str]
    tree: Json
    scalars: list[Json]
    frames: tuple[FrameEntry | None, ...]
    minor: int = FORMAT_MINOR

    @property
    def payload_length(self) -> int:
        """The lengths of all frames together, in bytes."""
        return sum(entry.length for entry in self.frames if entry)

    def inherit(self, tree: Json, where: str) -> Manifest:
        """This manifest with its parent's `tree` in the place of `INHERITED`, which is checked as its own."""
        if self.tree is not INHERITED:
            return self
        return replace(self, tree=parse_tree(tree, len(self.frames), len(self.scalars), f"{where}: tree"))

    def to_bytes(self) -> bytes:
        """The manifest as it stands in the file (LCC-MAN-01, LCC-MAN-03)."""
        parent = self.parent and {"step": self.parent.step, "root": self.parent.root.hex()}
        document = {
            "lccodec": [FORMAT_MAJOR, self.minor],
            "step": self.step,
            "parent": parent,
            "policy": self.policy,
            "metadata": self.metadata,
            "tree": self.tree,
            "scalars": self.scalars,
            "frames": [[entry.length, _digest_text(entry.digest)] if entry else 0 for entry in self.frames],
        }
        if not self.metadata:
            del document["metadata"]
        if self.tree is INHERITED:
            del document["tree"]
        try:
            return _dump(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"the manifest cannot be written as JSON: {error}") from error


_MAX_LENGTH: Final = MAX_STEP  # for the same reason: exact in every JSON reader
_KEYS: Final = ("lccodec", "step", "parent", "policy", "metadata", "tree", "scalars", "frames")  # LCC-MAN-03
_OPTIONAL_KEYS: Final = ("metadata", "tree")
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest.

    Parameters
    ----------
    data
        All bytes of the manifest.
    where
        What to call it in an error.

    Raises
    ------
    FormatError
        Not canonical JSON (LCC-MAN-01), or a field of another form (LCC-MAN-02 to LCC-MAN-08, LCC-STA-01 to
        LCC-STA-06).
    UnsupportedError
        A key that this version does not know (LCC-MAN-03), a newer major version (LCC-MAN-09).
    LimitError
        Nested too deep (LCC-LIM-05), too many arrays (LCC-LIM-06), too long an integer (LCC-LIM-07).
    """
    document = _parse_json(data, where)
    if type(document) is not dict:
        raise FormatError("LCC-MAN-03", where, "not a JSON object")
    if unknown := [key for key in document if key not in _KEYS]:
        raise UnsupportedError("LCC-MAN-03", where, f"unknown key {unknown[0]!r}")
    if list(document) != [key for key in _KEYS if key in document or key not in _OPTIONAL_KEYS]:
        raise FormatError("LCC-MAN-03", where, f"keys missing or out of order: {', '.join(document)}")

    version, step, parent = document["lccodec"], document["step"], document["parent"]
    if type(version) is not list or len(version) != 2 or not all(_is_integer(n, 0xFFFF) for n in version):
        raise FormatError("LCC-MAN-09", f"{where}: lccodec", "not a version")
    if version[0] != FORMAT_MAJOR:
        raise UnsupportedError("LCC-MAN-09", f"{where}: lccodec", f"format version {version[0]}.{version[1]}")
    if step is not None and not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "neither null nor a step")
    metadata = document.get("metadata", {})
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "not an object of strings")
    if not metadata and "metadata" in document:
        raise FormatError("LCC-MAN-06", f"{where}: metadata", "empty, and not left out")
    if "tree" not in document and parent is None:
        raise FormatError("LCC-MAN-07", f"{where}: tree", "left out where there is no parent")

    manifest = Manifest(
        step=step,
        parent=None if parent is None else _parse_parent(parent, f"{where}: parent"),
        policy=document["policy"],
        metadata=metadata,
        tree=INHERITED,
        scalars=parse_scalars(document["scalars"], f"{where}: scalars"),
        frames=_parse_frames(document["frames"], parent is not None, f"{where}: frames"),
        minor=version[1],
    )
    return manifest.inherit(document["tree"], where) if "tree" in document else manifest


def _parse_json(data: bytes, where: str) -> Json:
    """Parse JSON, and only the one way to write it that `_dump` has (LCC-MAN-01)."""
    # The standard library's parser is recursive: bound the depth first. A round takes the innermost pairs.
    brackets = _JSON_STRING.sub(b"", data).translate(_SQUARE, delete=_NOT_BRACKETS)
    for _ in range(MAX_NESTING + 1):
        brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets or len(brackets) > MAX_NESTING:
        raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING + 1}")

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            raise LimitError("LCC-LIM-07", where, f"an integer of {len(digits)} digits")
        return int(digits)

    try:
        document = json.loads(data.decode(), parse_int=integer)
        canonical = _dump(document)  # refuses NaN, infinities and lone surrogates, which `loads` lets pass
    except DataError:
        raise
    except ValueError as error:
        raise FormatError("LCC-MAN-01", where, f"not JSON: {error}") from error
    # Catches duplicate keys as well: the parser has kept one of them.
    if canonical != data:
        place = _first_difference(canonical, data)
        raise FormatError("LCC-MAN-01", f"{where}: byte {place}", "not in canonical form")
    return document


def _parse_parent(parent: Json, where: str) -> Parent:
    if type(parent) is not dict or list(parent) != ["step", "root"]:
        raise FormatError("LCC-MAN-04", where, "not an object of step and root")
    step, root = parent["step"], parent["root"]
    if not _is_integer(step, MAX_STEP):
        raise FormatError("LCC-MAN-02", f"{where}: step", "not a step")
    if type(root) is not str or not re.fullmatch(f"[0-9a-f]{{{2 * ROOT_SIZE}}}", root):
        raise FormatError("LCC-MAN-04", f"{where}: root", f"not {2 * ROOT_SIZE} hexadecimal digits")
    return Parent(step, bytes.fromhex(root))


def _parse_frames(frames: Json, is_delta: bool, where: str) -> tuple[FrameEntry | None, ...]:
    if type(frames) is not list:
        raise FormatError("LCC-MAN-05", where, "not a list")
    if len(frames) > MAX_ARRAYS:
        raise LimitError("LCC-LIM-06", where, f"{len(frames)} arrays, more than {MAX_ARRAYS}")
    entries: list[FrameEntry | None] = []
    for index, entry in enumerate(frames):
        if type(entry) is int and entry == 0 and is_delta:
            entries.append(None)
        elif type(entry) is list and len(entry) == 2 and _is_integer(entry[0], _MAX_LENGTH) and entry[0]:
            entries.append(FrameEntry(entry[0], _parse_digest(entry[1], f"{where}[{index}]")))
        else:
            raise FormatError("LCC-MAN-05", f"{where}[{index}]", "not a length and digest, nor 0 in a delta")
    return tuple(entries)


def _parse_digest(text: Json, where: str) -> bytes:
    if type(text) is str and len(text) == len(_digest_text(bytes(DIGEST_SIZE))):
        with suppress(ValueError):
            digest = base64.urlsafe_b64decode(f"{text}==")
            if _digest_text(digest) == text:
                return digest
    raise FormatError("LCC-MAN-08", where, "not a digest")


def _digest_text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def _is_integer(value: Json, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum


def _dump(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _first_difference(left: bytes, right: bytes) -> int:
    same, end = 0, min(len(left), len(right))
    while same < end:  # halving leaves the comparing to memcmp
        middle = (same + end + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            end = middle - 1
    return same


# --- reading --------------------------------------------------------------------------------------

_HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_HDF5_END: Final = slice(40, 48)  # where a file of this form says how long its HDF5 part is
_HDF5_NAMES: Final = slice(720, 737)  # where it has the names of its datasets
_NAMES: Final = b"payload\0manifest\0"


class _Source(Protocol):
    """Something of a fixed size to read from; reads may come from several threads at once."""

    size: int

    def read(self, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class CheckpointReader:
    """A checkpoint that is open to be read; `open_checkpoint` and `open_bytes` make it.

    Opening has verified the root and parsed the manifest; `frame` verifies each frame. A context manager.
    Frames may be read from several threads at once, but not while another thread closes the reader.

    Attributes
    ----------
    name
        What errors call the file.
    manifest, trailer
        What they say.
    root
        The root, which stands for all bytes of the file.
    file_size
        The size of the file in bytes.
    """

    def __init__(self, source: _Source, name: str) -> None:
        self._source: _Source | None = source
        self.name = name
        self.file_size = source.size
        try:
            self.trailer = self._read_trailer(source)
            self.root = self.trailer.root
            self.manifest = self._read_manifest(source)
        except BaseException:
            self.close()
            raise
        lengths = (entry.length if entry else 0 for entry in self.manifest.frames)
        self._offsets = list(itertools.accumulate(lengths, initial=PAYLOAD_OFFSET))

    def frame(self, index: int) -> bytes:
        """The bytes of a frame, verified.

        Raises
        ------
        ArgumentError
            There is no such frame in this file: the index is out of range, or the array is the parent's.
        ChecksumError
            The bytes are not those that were written (LCC-MAN-08).
        """
        entry = self._entry(index)
        data = self._read(self._offsets[index], entry.length)
        if FrameEntry.of(data) != entry:
            raise ChecksumError("LCC-MAN-08", self._place(index), "the bytes do not match their digest")
        return data

    def frame_head(self, index: int, size: int) -> bytes:
        """The first `size` bytes of a frame, or all of a shorter one, not verified."""
        return self._read(self._offsets[index], min(size, self._entry(index).length))

    def close(self) -> None:
        """Close the file; to close it again does nothing."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _entry(self, index: int) -> FrameEntry:
        if not 0 <= index < len(self.manifest.frames):
            raise ArgumentError(f"{self.name}: no frame {index}, there are {len(self.manifest.frames)}")
        entry = self.manifest.frames[index]
        if entry is None:
            raise ArgumentError(f"{self._place(index)}: unchanged, to be read from the parent")
        return entry

    def _place(self, index: int) -> str:
        tree = self.manifest.tree
        names = [] if tree is INHERITED else [name for name, i in array_names(tree).items() if i == index]
        return f"{self.name}: frame {index}" + (f" ({names[0]!r})" if names else "")

    def _read(self, offset: int, size: int) -> bytes:
        if self._source is None:
            raise ArgumentError(f"{self.name}: closed")
        return self._source.read(offset, size)

    def _read_trailer(self, source: _Source) -> Trailer:
        data = source.read(max(0, source.size - TRAILER_SIZE), min(source.size, TRAILER_SIZE))
        if not data.startswith(TRAILER_MAGIC):
            raise _not_a_checkpoint(source, self.name)
        trailer = parse_trailer(data, f"{self.name}: trailer")
        if trailer.file_length != source.size:
            message = f"says that the file has {trailer.file_length} bytes; it has {source.size}"
            raise FormatError("LCC-TRL-06", f"{self.name}: trailer", message)
        return trailer

    def _read_manifest(self, source: _Source) -> Manifest:
        trailer = self.trailer
        payload_end = PAYLOAD_OFFSET + trailer.payload_length
        head = source.read(0, PAYLOAD_OFFSET)
        tail = source.read(payload_end, trailer.file_length - payload_end)
        if _root_of(head, tail[:-ROOT_SIZE]) != trailer.root:
            raise ChecksumError("LCC-TRL-05", self.name, "the bytes around the payload do not match the root")
        where = f"{self.name}: manifest"
        manifest = parse_manifest(tail[trailer.manifest_offset - payload_end : -TRAILER_SIZE], where)
        if manifest.minor != trailer.minor:
            raise FormatError("LCC-MAN-09", f"{where}: lccodec", "not the version of the trailer")
        if manifest.payload_length != trailer.payload_length:
            message = f"{manifest.payload_length} bytes in a payload of {trailer.payload_length}"
            raise FormatError("LCC-MAN-05", f"{where}: frames", message)
        return manifest


def open_checkpoint(path: StrPath) -> CheckpointReader:
    """Open a checkpoint file.

    Raises
    ------
    StorageError
        The operating system cannot open or read it.
    DataError
        It is not a checkpoint (FormatError), is cut off (TruncatedError), is damaged (ChecksumError), is of a
        newer version (UnsupportedError) or beyond a limit (LimitError).
    """
    return CheckpointReader(_FileSource(path), str(path))


def open_bytes(data: Bytes, name: str = "<bytes>") -> CheckpointReader:
    """Open a checkpoint that is in memory, which must not change while it is read; errors as for files."""
    return CheckpointReader(_BytesSource(data), name)


def check_skeleton(reader: CheckpointReader) -> FormatError | None:
    """Compare the HDF5 metadata of a checkpoint with those the HDF5 library writes for its sizes (LCC-H5-05).

    Returns
    -------
    FormatError or None
        The problem: HDF5 tools may see something else in this file than lccodec does.
    """
    from .hdf5 import skeleton

    trailer = reader.trailer
    made = skeleton(trailer.payload_length, trailer.manifest_length)
    middle = trailer.manifest_offset - len(made.middle)
    for offset, expected in ((0, made.head), (middle, made.middle)):
        if (found := reader._read(offset, len(expected))) != expected:
            place = offset + _first_difference(found, expected)
            return FormatError("LCC-H5-05", f"{reader.name}: byte {place}", "not what HDF5 writes here")
    return None


_SEEKING: Final = threading.Lock()


def _read_at(fd: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    with _SEEKING:  # Windows
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)


class _FileSource:
    def __init__(self, path: StrPath) -> None:
        self._name = str(path)
        # Without O_NONBLOCK, opening a FIFO waits for a writer.
        flags = os.O_RDONLY | _flag("O_NONBLOCK") | _OPEN_FLAGS
        with _storage("cannot open", self._name):
            self._fd = os.open(_checked(path), flags)
        try:
            with _storage("cannot read", self._name):
                status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError("LCC-H5-01", self._name, "not a regular file")
        except BaseException:
            self.close()
            raise
        self.size = status.st_size

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size:
            with _storage("cannot read", self._name):
                part = _read_at(self._fd, size, offset)
            if not part:
                raise TruncatedError("LCC-H5-01", self._name, f"ends at byte {offset}")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        with _storage("cannot close", self._name):
            os.close(self._fd)


class _BytesSource:
    def __init__(self, data: Bytes) -> None:
        self._view = memoryview(data).cast("B")
        self.size = self._view.nbytes

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._view[offset : offset + size])

    def close(self) -> None:
        self._view.release()


def _not_a_checkpoint(source: _Source, name: str) -> DataError:
    """Why a file that does not end in a trailer is refused: it is cut off, extended, damaged or not ours."""
    head = source.read(0, min(source.size, PAYLOAD_OFFSET))
    if not head:
        return FormatError("LCC-TRL-01", name, "not an lccodec checkpoint: empty")
    if not head.startswith(_HDF5_SIGNATURE[: len(head)]) or not _NAMES.startswith(head[_HDF5_NAMES]):
        return FormatError("LCC-TRL-01", name, "not an lccodec checkpoint")
    end = int.from_bytes(head[_HDF5_END], "little") + TRAILER_SIZE
    if len(head) < PAYLOAD_OFFSET or source.size < end:
        return TruncatedError("LCC-H5-01", name, f"cut off at byte {source.size}")
    extra = source.size - end
    return FormatError("LCC-TRL-01", name, f"{extra} bytes behind the trailer" if extra else "no trailer")


# --- writing --------------------------------------------------------------------------------------


def _flag(name: str) -> int:
    flag: int = getattr(os, name, 0)  # not every system has every flag
    return flag


_OPEN_FLAGS: Final = _flag("O_CLOEXEC") | _flag("O_BINARY")
_NO_HARD_LINKS: Final = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.ENOTSUP))


class System:
    """The calls to the operating system that writing makes; tests put a faulty system in its place."""

    open = staticmethod(os.open)
    seek = staticmethod(os.lseek)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    close = staticmethod(os.close)
    link = staticmethod(os.link)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    exists = staticmethod(os.path.lexists)
    listdir = staticmethod(os.listdir)

    @staticmethod
    def lock(fd: int, wait: bool) -> None:
        """Take the lock of a writer at work, or fail with OSError where there is none to be had."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


SYSTEM: Final = System()


class CheckpointWriter:
    """Writes one checkpoint file, frame by frame, and commits it atomically (LCC-CHN-06).

    A context manager: to leave it without a commit, or by an exception, leaves nothing behind. After an error
    the writer is closed; nothing is tried again, as the state of a file is unknown after a failed fsync.

    Parameters
    ----------
    path
        The file to make.
    overwrite
        Replace a file of that name; otherwise it is an error, and the file stays as it is.
    system
        The operating system's calls.

    Attributes
    ----------
    root
        None until the file is committed, then its root.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "one.lcc.h5"
    >>> with CheckpointWriter(path) as writer:
    ...     entry = writer.write_frame(b"a frame")
    ...     root = writer.commit(Manifest(7, None, "lossless", {}, {"w": 0}, [], (entry,)))
    >>> with open_checkpoint(path) as reader:
    ...     reader.manifest.step, reader.frame(0), reader.root == root
    (7, b'a frame', True)
    """

    def __init__(self, path: StrPath, *, overwrite: bool = False, system: System = SYSTEM) -> None:
        self.root: bytes | None = None
        self._path = _checked(path)
        self._overwrite = overwrite
        self._system = system
        self._fd = -1
        self._temporary: Path | None = None
        self._entries: list[FrameEntry] = []

    def __enter__(self) -> Self:
        try:
            with _storage("cannot create", self._path):
                if not self._overwrite and self._system.exists(self._path):
                    raise ArgumentError(f"{self._path} already exists")
                self._create_temporary()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def write_frame(self, frame: Bytes) -> FrameEntry:
        """Append a frame to the payload and return its entry for the manifest."""
        with self._working():
            self._write(frame)
        self._entries.append(FrameEntry.of(frame))
        return self._entries[-1]

    def commit(self, manifest: Manifest) -> bytes:
        """Write all but the payload and give the file its name.

        Parameters
        ----------
        manifest
            Its frames are the entries that `write_frame` returned, in that order, and None.

        Returns
        -------
        bytes
            The root.

        Raises
        ------
        ArgumentError
            There is a file of that name, or the manifest is none: not committed.
        StorageError
            Not committed; or, where the message says so and `root` is set, committed with unknown durability:
            the file is in place, but its directory could not be synced.
        """
        with self._working() as temporary:
            if [entry for entry in manifest.frames if entry] != self._entries:
                raise ArgumentError("the manifest does not list the frames that were written")
            head, tail = _assemble(manifest)
            self._write(tail)
            self._seek(0)
            self._write(head)
            self._system.fsync(self._fd)
            self._publish(temporary)
            self.root = tail[-ROOT_SIZE:]
        self._discard()
        with _storage("committed, but durability unknown: cannot sync the directory of", self._path):
            self._sync_directory()
        return self.root

    @contextmanager
    def _working(self) -> Iterator[Path]:
        if self._temporary is None:
            raise ArgumentError(f"the writer of {self._path} is closed")
        try:
            with _storage("cannot write", self._path):
                yield self._temporary
        except BaseException:
            self._discard()
            raise

    def _create_temporary(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS
        while True:
            temporary = self._path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
            self._fd = self._system.open(temporary, flags, 0o666)
            self._temporary = temporary
            with suppress(OSError):  # without locks, nobody can take the temporary for a stale one either
                self._system.lock(self._fd, True)
            # Someone may have cleaned up between the two calls.
            if self._system.exists(temporary):
                break
            self._discard()
        self._seek(PAYLOAD_OFFSET)

    def _seek(self, offset: int) -> None:
        self._system.seek(self._fd, offset, os.SEEK_SET)

    def _write(self, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self._system.write(self._fd, view) :]

    def _publish(self, temporary: Path) -> None:
        if fcntl is None:  # Windows neither renames nor unlinks an open file
            self._close()
        if self._overwrite:
            self._system.replace(temporary, self._path)
            return
        try:
            self._system.link(temporary, self._path)  # unlike a rename, it does not replace
        except FileExistsError:
            raise ArgumentError(f"{self._path} already exists") from None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if self._system.exists(self._path):
                raise ArgumentError(f"{self._path} already exists") from None
            self._system.replace(temporary, self._path)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._system.close(fd)

    def _discard(self) -> None:
        """Close and unlink the temporary; once it is committed, that takes away its second name."""
        self._close()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            with suppress(OSError):
                self._system.unlink(temporary)

    def _sync_directory(self) -> None:
        if os.name == "nt":  # has no such call
            return
        fd = self._system.open(self._path.parent, os.O_RDONLY | _OPEN_FLAGS)
        try:
            self._system.fsync(fd)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
        finally:
            self._system.close(fd)


def to_bytes(frames: Sequence[Bytes], manifest: Manifest) -> bytes:
    """The bytes of a checkpoint file: what `CheckpointWriter` would write.

    Raises
    ------
    ArgumentError
        The manifest is not one of these frames, or cannot be written.
    """
    if [entry for entry in manifest.frames if entry] != [FrameEntry.of(frame) for frame in frames]:
        raise ArgumentError("the manifest does not list the frames that were given")
    head, tail = _assemble(manifest)
    return b"".join((head, *frames, tail))


def remove_stale_temporaries(directory: StrPath, system: System = SYSTEM) -> list[str]:
    """Remove the temporaries in a directory whose writers are gone; return their names.

    A writer holds a lock on its temporary. Where the file system has no locks, nothing is removed.
    """
    removed = []
    flags = os.O_RDWR | _flag("O_NONBLOCK") | _flag("O_NOFOLLOW") | _OPEN_FLAGS
    with _storage("cannot list", directory):
        names = sorted(name for name in system.listdir(directory) if name.startswith(TEMPORARY_PREFIX))
    for name in names:
        with suppress(OSError):
            fd = system.open(Path(directory) / name, flags)
            try:
                system.lock(fd, False)
                system.unlink(Path(directory) / name)
                removed.append(name)
            finally:
                system.close(fd)
    return removed


def _assemble(manifest: Manifest) -> tuple[bytes, bytes]:
    """The bytes before and behind the payload; the last of them are the root."""
    from .hdf5 import skeleton

    data = manifest.to_bytes()
    trailer = Trailer(manifest.payload_length, len(data))
    try:
        # What is written can be read: the reader's rules are the only ones.
        parse_manifest(data, "manifest")
        parse_trailer(trailer.to_bytes(), "trailer")
    except DataError as error:
        raise ArgumentError(f"a manifest that could not be read again: {error}") from error
    made = skeleton(trailer.payload_length, trailer.manifest_length)
    tail = b"".join((made.middle, data, trailer.to_bytes()[:-ROOT_SIZE]))
    return made.head, tail + _root_of(made.head, tail)


def _root_of(head: bytes, tail: bytes) -> bytes:
    """LCC-TRL-05: of all bytes before the payload, and all behind it up to the root."""
    digest = sha256(head)
    digest.update(tail)
    return digest.digest()


@contextmanager
def _storage(action: str, path: StrPath) -> Iterator[None]:
    """Let what the operating system refuses surface as StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error.errno, f"{action}: {error.strerror or error}", str(path)) from error


def _checked(path: StrPath) -> Path:
    """The path, if there can be a file of that name."""
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ArgumentError(f"not a path: {path!r}")
    return Path(path)
