"""Operating systems that fail."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from lccodec.container.system import System
from lccodec.errors import StorageError

OPERATIONS = (
    "mode",
    "open",
    "set_mode",
    "lock",
    "exists",
    "write",
    "write_at",
    "truncate",
    "fsync",
    "close",
    "link",
    "replace",
    "unlink",
    "listdir",
    "mkdir",
    "rmdir",
)


class Faulty(System):
    """The real system, but for the operations that `fails` picks by name and number.

    They raise an `OSError` of a code, or an interrupt of a type.
    """

    def __init__(
        self, code: int | type[BaseException] = 0, fails: Callable[[str, int], bool] = lambda *_: False
    ) -> None:
        self.log: list[str] = []
        self.descriptors: set[int] = set()
        for name in OPERATIONS:
            setattr(self, name, self._wrap(name, code, fails))

    def _wrap(
        self, name: str, code: int | type[BaseException], fails: Callable[[str, int], bool]
    ) -> Callable[..., Any]:
        real = getattr(System, name)

        def call(*arguments: Any) -> Any:
            self.log.append(name)
            failed = fails(name, len(self.log) - 1)
            error = OSError(code, os.strerror(code)) if isinstance(code, int) else code()
            if failed and (name != "close" or not isinstance(code, int)):
                raise error
            result = real(*arguments)
            if name == "open":
                self.descriptors.add(result)
            if name == "close":
                self.descriptors.discard(arguments[0])
            if failed:  # a close that fails has closed the file all the same
                raise error
            return result

        return call


@contextmanager
def everywhere(system: System) -> Iterator[None]:
    """Let every store have this system while the context lasts."""
    with ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(mock.patch.object(System, name, staticmethod(getattr(system, name))))
        yield


def failing_at(position: int, *, sticky: bool = False, spared: str = "") -> Callable[[str, int], bool]:
    """What picks one operation; with `sticky` also those after it, but for the spared one."""
    return lambda name, number: number == position or (sticky and number > position and name != spared)


def attempts(
    origin: Path, act: Callable[[Path, System], object], code: int = errno.EIO, *, sticky: bool = False
) -> Iterator[tuple[Path, StorageError | None]]:
    """Act on a copy of a directory for each operation, which fails there; first on a healthy one.

    Yields the copy, and the error if one was raised. It has the code, and no file stays open.
    """
    healthy = Faulty()
    act(place := Path(shutil.copytree(origin, origin.parent / "healthy")), healthy)
    assert not healthy.descriptors
    yield place, None
    for position in range(len(healthy.log)):
        place = Path(shutil.copytree(origin, origin.parent / f"attempt-{position}"))
        system, raised = Faulty(code, failing_at(position, sticky=sticky)), None
        try:
            act(place, system)
        except StorageError as error:
            raised = error
            assert error.errno == code
        assert not system.descriptors
        yield place, raised
