"""A package with a fault in one module, in a process of its own with bounded time and memory."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from sites import Mutant

CPU_SECONDS = 5  # for all vectors; without a fault they take half a second
REAL_SECONDS = 60
MEMORY_BYTES = 4 << 30


class _Faulty(SourceFileLoader):
    """Loads one module with a fault."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, _: str) -> CodeType:
        """Return the code of the module; the cache of compiled modules is left alone."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


class Finder:
    """Finds a module of the package with a fault in it, in place of the sound one."""

    def __init__(self, mutant: Mutant, package: Path) -> None:
        parts = [package.name, *Path(mutant.path).with_suffix("").parts]
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path = package / mutant.path
        self._source = mutant.mutated(self._path.read_bytes())

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return where the module comes from; None for all others."""
        if name != self._name:
            return None
        loader = _Faulty(name, str(self._path), self._source)
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


def in_a_child(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a child process, as JSON; "limits" if it does not end well."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        with suppress(BaseException):
            _limit()
            os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(process, 0)
    return json.loads(told) if told else "limits"


def _limit() -> None:
    """Bound what a child may take, and silence it."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(REAL_SECONDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
