"""Worker processes: the memory that they share, what is said to them, their start and their end.

A segment of shared memory is a file without a name that is mapped into memory. There is nothing to
clean up: the system frees it when no process maps it and no descriptor refers to it.

Processes say values of a few known types to each other over a socket, without pickle. A message is
a head of fixed size, a JSON text, and bytes. Numbers, strings, lists and dicts are JSON. A
dataclass of a known type is an object of its fields. An array in shared memory is its place: its
segment is passed along when the other side does not have it yet. Other arrays, and bytes, follow
the text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from ..constants import ELEMENT_TYPES, ElementType
from ..element_types import Array
from ..errors import StorageError, WorkerError
from ..parallel import uninterrupted

#: Bytes of a segment at least: small arrays share one.
_MIN_SEGMENT_BYTES: Final = 1 << 20

_NO_SPACE: Final = frozenset((errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_counter = itertools.count()


class Segment(mmap.mmap):
    """A piece of shared memory. Arrays in it keep it mapped."""

    # Names the segment among those of all processes: the process that made it, and a number.
    identity: tuple[int, int]
    descriptor: int  # the descriptor of its file, to be passed on; -1 once it is closed
    address: int  # where it begins in the memory of this process

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """Return a new segment of so many bytes; raise ``StorageError`` if there is no memory."""
        descriptor = -1
        try:
            descriptor = _nameless_file()
            os.ftruncate(descriptor, nbytes)
            if hasattr(os, "posix_fallocate"):  # or the lack of memory would be a signal, SIGBUS
                os.posix_fallocate(descriptor, 0, nbytes)
            return cls.attach(descriptor, nbytes, (os.getpid(), next(_counter)))
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            what = "no room for" if error.errno in _NO_SPACE else "cannot make"
            raise StorageError(error.errno, f"{what} {nbytes} bytes of shared memory: {error}") from error

    @classmethod
    def attach(cls, descriptor: int, nbytes: int, identity: tuple[int, int]) -> Self:
        """Map the segment of a descriptor, which is then the segment's own."""
        segment = cls(descriptor, nbytes)
        segment.identity, segment.descriptor = identity, descriptor
        segment.address = address_of(np.frombuffer(segment, np.uint8))
        return segment

    def __del__(self) -> None:
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Close the descriptor: the segment cannot be passed on any more."""
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def array(self, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return the 1-D array at an offset in bytes."""
        found: Array = np.frombuffer(self, dtype, count, offset)
        return found


def _nameless_file() -> int:
    """Return the descriptor of a file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lccodec", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def place_of(array: Array) -> tuple[Segment, int] | None:
    """Return the segment that an array lies in, and its offset in bytes; ``None`` if in none."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, memoryview) or not isinstance(owner.obj, Segment):
        return None
    return owner.obj, address_of(array) - owner.obj.address


def address_of(array: Array) -> int:
    """Return where an array begins in the memory of this process."""
    address: int = array.__array_interface__["data"][0]
    return address


class Arena:
    """Shared memory for arrays that are all given up together, and whose place is used again.

    Memory that was used before is warm: the system has given it to the process already. So copying
    into it is faster than into new memory. `place` has of the array that was given out last the
    number of its segment, and its place there.
    """

    ALIGNMENT_BYTES: Final = 64  # arrays begin at a multiple of it: a line of the cache

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._current, self._used = 0, 0
        self.place = 0, 0

    def memory(self) -> list[Array]:
        """Return all memory of the arena, as bytes."""
        return [segment.array(0, len(segment), np.dtype(np.uint8)) for segment in self.segments]

    def clear(self) -> None:
        """Give up all arrays: the next ones take their place."""
        self._current = self._used = 0
        self.place = 0, 0

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array with undefined values.

        A new segment has room for `more` bytes at least.
        """
        nbytes = count * dtype.itemsize
        while self._current < len(self.segments):
            if self._used + nbytes <= len(self.segments[self._current]):
                break
            self._current, self._used = self._current + 1, 0
        else:
            size = max(nbytes, more, _MIN_SEGMENT_BYTES)
            self.segments.append(Segment.create(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE))
        self.place = self._current, self._used
        found = self.segments[self._current].array(self._used, count, dtype)
        self._used += -(-nbytes // self.ALIGNMENT_BYTES) * self.ALIGNMENT_BYTES
        return found


class PrivateArena(Arena):
    """Memory of this process alone, where it need not be shared."""

    def __init__(self) -> None:
        super().__init__()
        self._arrays: list[Array] = []

    def memory(self) -> list[Array]:
        """Return the arrays as bytes."""
        return [array.view(np.uint8) for array in self._arrays]

    def clear(self) -> None:
        """Give up all arrays."""
        self._arrays = []

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:  # noqa: ARG002
        """Return a new array."""
        self.place = len(self._arrays), 0
        self._arrays.append(np.empty(count, dtype))
        return self._arrays[-1]


def shared_empty(count: int, dtype: np.dtype[Any]) -> Array:
    """Return a 1-D array with undefined values, in a segment of its own."""
    nbytes = max(count * dtype.itemsize, 1)
    return Segment.create(nbytes).array(0, count, dtype)


_HEAD: Final = struct.Struct("<QQQ")  # bytes of the text, bytes behind it, and segments passed along
_MAX_SEGMENTS: Final = 200  # that are passed along with one message; Linux takes 253


class Channel:
    """One end of a connection of two processes, a Unix socket.

    `types` are the dataclasses, and `errors` the classes of errors, that messages may have.
    """

    def __init__(
        self, connection: socket.socket, types: Iterable[type], errors: Iterable[type[Exception]] = ()
    ) -> None:
        self._socket = connection
        self._types = {kind.__name__: kind for kind in types}
        self._errors = {kind.__name__: kind for kind in errors}
        self._theirs: dict[tuple[int, int], Segment] = {}  # segments that the other side has passed
        self._passed: dict[tuple[int, int], weakref.finalize[Any, Segment]] = {}
        self._dropped: list[tuple[int, int]] = []  # passed, and freed here since
        self.passes_on = False  # whether segments may be passed on to others

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def limit(self, seconds: float | None) -> None:
        """Let calls raise ``TimeoutError`` if the other side does nothing for so long."""
        self._socket.settimeout(seconds)

    def is_ended(self) -> bool:
        """Return whether the other side is gone; what it has said before may still be received."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close this end. The other side finds the end of its messages."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # also if a thread waits for a message
        self._socket.close()

    def forget(self) -> None:
        """Close this copy of the end, which another process has too; the other side goes on."""
        self._socket.close()

    def send(self, value: Any) -> None:
        """Send a value; raise ``EOFError`` if the other side is gone."""
        writing = _Writing(self)
        packed = writing.pack(value)
        dropped, self._dropped = self._dropped, []
        text = json.dumps([packed, writing.segments, dropped]).encode()
        behind = sum(memoryview(piece).nbytes for piece in writing.behind)
        head = _HEAD.pack(len(text), behind, len(writing.descriptors))
        try:
            first, rest = writing.descriptors[:_MAX_SEGMENTS], writing.descriptors[_MAX_SEGMENTS:]
            socket.send_fds(self._socket, [head], first)
            for start in range(0, len(rest), _MAX_SEGMENTS):
                socket.send_fds(self._socket, [b"+"], rest[start : start + _MAX_SEGMENTS])
            self._socket.sendall(text)
            for piece in writing.behind:
                self._socket.sendall(piece)
        except TimeoutError:
            raise
        except OSError as error:  # also if this end is closed
            raise EOFError("the other process is gone") from error

    def receive(self) -> Any:
        """Return the next value; raise ``EOFError`` if the other side is gone."""
        head, descriptors = self._receive_descriptors(_HEAD.size)
        length, behind, count = _HEAD.unpack(head)
        while len(descriptors) < count:
            descriptors += self._receive_descriptors(1)[1]
        value, segments, dropped = json.loads(self._receive_bytes(length))
        data = memoryview(self._receive_bytes(behind))
        for identity in dropped:
            self._theirs.pop(tuple(identity), None)
        for descriptor, (process, number, nbytes) in zip(descriptors, segments, strict=True):
            segment = Segment.attach(descriptor, nbytes, (process, number))
            if not self.passes_on:
                segment.close_descriptor()
            self._theirs[segment.identity] = segment
        return self._unpack(value, data)

    def pass_on(self, segment: Segment) -> bool:
        """Return whether a segment must be passed along now, because the other side lacks it."""
        if segment.identity in self._theirs or segment.identity in self._passed:
            return False
        self._passed[segment.identity] = end = weakref.finalize(segment, self.drop, segment.identity)
        end.atexit = False
        return True

    def drop(self, identity: tuple[int, int]) -> None:
        """Let the other side unmap a segment, with the next message."""
        if (end := self._passed.pop(identity, None)) is not None:
            end.detach()
            self._dropped.append(identity)

    def _receive_descriptors(self, count: int) -> tuple[bytes, list[int]]:
        found, descriptors = b"", []
        while len(found) < count:
            try:
                data, more, _, _ = socket.recv_fds(self._socket, count - len(found), _MAX_SEGMENTS)
            except ConnectionError:
                data, more = b"", []
            descriptors += more
            if not data:
                for descriptor in descriptors:
                    os.close(descriptor)
                raise EOFError("the other process is gone")
            found += data
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return found, descriptors

    def _receive_bytes(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            try:
                received = self._socket.recv_into(view)
            except ConnectionError:
                received = 0
            if not received:
                raise EOFError("the other process is gone")
            view = view[received:]
        return data

    def _unpack(self, value: Any, data: memoryview) -> Any:
        if isinstance(value, list):
            plain = all(type(item) is int or type(item) is str for item in value)
            return value if plain else [self._unpack(item, data) for item in value]
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        if tag == "dict":
            return {key: self._unpack(item, data) for key, item in content.items()}
        if tag == "tuple":
            return tuple(self._unpack(item, data) for item in content)
        if tag == "kind":
            return ELEMENT_TYPES[content]
        if tag == "bytes":
            start, length = content
            return bytes(data[start : start + length])
        if tag == "shared":
            process, number, offset, dtype, count = content
            return self._theirs_or_own((process, number)).array(offset, count, np.dtype(dtype))
        if tag == "array":
            start, dtype, count = content
            return np.frombuffer(data, dtype, count, start).copy()
        if tag == "error":
            name, arguments, text = content
            if name in self._errors:
                return self._errors[name](*arguments)
            return WorkerError(f"a worker failed: {text}")
        fields = {key: self._unpack(item, data) for key, item in content.items()}
        return self._types[tag](**fields)

    def _theirs_or_own(self, identity: tuple[int, int]) -> Segment:
        if identity in self._theirs:
            return self._theirs[identity]
        found = self._passed[identity].peek()
        if found is None:
            raise WorkerError(f"the segment {identity} of a message is gone")
        return found[0]


class _Writing:
    """A message while it is written: what is behind the text, and the segments passed along."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._length = 0
        self.behind: list[Any] = []
        self.segments: list[tuple[int, int, int]] = []
        self.descriptors: list[int] = []

    def pack(self, value: Any) -> Any:
        """Return a value as JSON."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list):  # there may be thousands of names and numbers
            plain = all(type(item) is int or type(item) is str for item in value)
            return value if plain else [self.pack(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [self.pack(item) for item in value]}
        if isinstance(value, Mapping):
            return {"dict": {key: self.pack(item) for key, item in value.items()}}
        if isinstance(value, bytes | bytearray | memoryview):
            return {"bytes": [self._append(value), memoryview(value).nbytes]}
        if isinstance(value, np.ndarray):
            return self._pack_array(value)
        if isinstance(value, ElementType):  # each is one object
            return {"kind": value.code}
        if isinstance(value, BaseException):
            return {"error": [type(value).__name__, _arguments(value), _told(value)]}
        if dataclasses.is_dataclass(value):
            fields = {f.name: self.pack(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {type(value).__name__: fields}
        raise TypeError(f"{value!r:.100} cannot be sent to another process")

    def _pack_array(self, array: np.ndarray[Any, Any]) -> Any:
        place = place_of(array)
        if place is None or not array.flags.c_contiguous:
            own = np.ascontiguousarray(array)
            return {"array": [self._append(own.view(np.uint8).data), own.dtype.str, own.size]}
        segment, offset = place
        if self._channel.pass_on(segment):
            self.segments.append((*segment.identity, len(segment)))
            self.descriptors.append(segment.descriptor)
        return {"shared": [*segment.identity, offset, array.dtype.str, array.size]}

    def _append(self, piece: Any) -> int:
        start = self._length
        self.behind.append(piece)
        self._length += memoryview(piece).nbytes
        return start


def _arguments(error: BaseException) -> list[Any]:
    """Return what an error was made of; `OSError` keeps a file name apart."""
    found = list(error.args)
    if isinstance(error, OSError) and error.filename is not None:
        found.append(error.filename)
    return [item if isinstance(item, int | str | None) else str(item) for item in found]


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).strip()


#: A worker has so long to begin, in seconds: a busy machine may take long to start Python.
_SECONDS_TO_BEGIN: Final = 60.0

#: A worker that was told to end has so long to do it, in seconds.
_SECONDS_TO_END: Final = 5.0

#: Signals that a terminal or a scheduler sends to all processes of a job. The process that a worker
#: works for decides what they mean: many save once more on SIGTERM.
_SIGNALS_OF_A_JOB: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")

_open: weakref.WeakSet[Worker]
_starting = threading.Lock()  # a fork waits for it: it must know of every socket


class Worker:
    """A worker process, and the channel to it; raises ``WorkerError`` if it cannot be started.

    The function `main` of a module is the program. Its argument is a descriptor. Those that are
    `inherited` stay open in the worker until it ends.
    """

    def __init__(
        self,
        module: str,
        types: Iterable[type],
        errors: Iterable[type[Exception]],
        inherited: Iterable[int] = (),
    ) -> None:
        if not sys.executable:  # of a program that embeds Python
            raise WorkerError("a worker cannot be started: sys.executable names no interpreter")
        # A worker must find this package, and nothing else of the program that starts it.
        place = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths(place))}
        program = f"from {module} import main; main()"
        # An interrupt must not leave the lock to a signal handler, nor a program that nobody ends.
        uninterrupted(partial(self._start, program, environment, inherited, (types, errors)))

    def _start(  # what, and how it is spoken to
        self,
        program: str,
        environment: Mapping[str, str],
        inherited: Iterable[int],
        known: tuple[Iterable[type], Iterable[type[Exception]]],
    ) -> None:
        with _starting:
            ours, theirs = socket.socketpair()
            try:
                command = [sys.executable, "-P", "-c", program, str(theirs.fileno())]
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own module
                    command, pass_fds=[theirs.fileno(), *inherited], env=environment, stdin=subprocess.DEVNULL
                )
            except BaseException as error:
                ours.close()
                if isinstance(error, OSError | ValueError):  # a path may have a null character
                    raise WorkerError(f"a worker cannot be started: {error}") from error
                raise
            finally:
                theirs.close()
            self.channel = Channel(ours, *known)
            _open.add(self)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def ready(self, seconds: float = _SECONDS_TO_BEGIN) -> None:
        """Wait until the program has begun; raise ``WorkerError`` if it does not in time."""
        self.channel.limit(seconds)
        try:
            self.channel.receive()
        except (EOFError, TimeoutError):
            raise WorkerError(f"a worker did not begin: it {self.state()}") from None
        self.channel.limit(None)

    def end(self, seconds: float = _SECONDS_TO_END) -> None:
        """Close the channel, so that the worker ends by itself; kill it if it does not in time."""
        self.channel.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def __del__(self) -> None:
        if hasattr(self, "channel"):
            self.end()

    def kill(self) -> None:
        """End the worker at once, whatever it does."""
        self._process.kill()  # also ends a stopped process
        self._process.wait()
        self.channel.close()

    def state(self) -> str:
        """Return what became of the process, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code is None:
            return "runs"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def leave_to_parent(self) -> None:
        """Forget a worker that a fork has copied: it is the parent's."""
        self.channel.forget()
        self._process.returncode = 0  # or its destructor would warn of a child that still runs


_open = weakref.WeakSet()


def _paths(place: str) -> list[str]:
    """Return where a worker looks for modules: as this process does, and where the package is."""
    paths = [path for path in sys.path if path]
    return paths if place in paths else [place, *paths]


def _after_fork() -> None:
    """Close the channels in a child: otherwise workers would go on after the parent's end."""
    _starting.release()
    for worker in list(_open):
        worker.leave_to_parent()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_after_fork
    )


def connect(descriptor: int, types: Iterable[type], errors: Iterable[type[Exception]]) -> Channel:
    """Return the channel of this process, which is a worker, to the process that started it."""
    for name in _SIGNALS_OF_A_JOB:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor), types, errors)
    with contextlib.suppress(EOFError):
        channel.send(None)  # `Worker.ready` waits for it
    return channel
