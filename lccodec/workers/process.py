"""Starting a worker, and ending it: a program of its own that holds one end of a socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ..errors import WorkerError
from ..parallel import uninterrupted
from .messages import Channel

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
    """A worker process, and the channel to it.

    Parameters
    ----------
    module
        The module whose function `main` is the program. Its argument is a descriptor.
    types, errors
        What messages may have (:class:`lccodec.workers.messages.Channel`).
    inherited
        Descriptors that stay open in the worker until it ends.

    Raises
    ------
    WorkerError
        If it cannot be started.
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
