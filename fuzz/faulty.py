"""A package with a fault in one module, in a process of its own with bounded time and memory."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sites import Mutant

CPU_SECONDS = 5  # for an answer; without a fault the slowest takes one, most a millisecond
REAL_RATIO = 12  # of the seconds on the clock to those of CPU, on a busy machine
MEMORY_BYTES = 4 << 30

_WITHIN = ("fget", "func", "__func__", "__wrapped__")  # where a descriptor has its function


class _Faulty(SourceFileLoader):
    """Loads one module with a fault."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, _: str) -> CodeType:
        """Return the code of the module; the cache of compiled modules is left alone."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder:
    """Finds the module with a fault in place of the sound one."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return where the module comes from; None for all others."""
        if name != self._name:
            return None
        loader = _Faulty(name, str(self._path), self._source)
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


def install(mutant: Mutant, package: Path, *users: str) -> None:
    """Put a fault into a package in this process.

    Where it is in a function of a module that is imported, the function gets the faulty code.
    Otherwise the modules of the package, and those that use it, are to be imported anew.
    """
    path = package / mutant.path
    name = ".".join([package.name, *Path(mutant.path).with_suffix("").parts]).removesuffix(".__init__")
    source = mutant.mutated(path.read_bytes())
    if mutant.function:
        _exchange(sys.modules[name], mutant.function, compile(source, str(path), "exec", dont_inherit=True))
        return
    replace(package, {path: source}, *users)


def replace(package: Path, sources: dict[Path, bytes], *users: str) -> None:
    """Let modules of a package have other sources once it, and what uses it, is imported again."""
    for path, source in sources.items():
        name = ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
        sys.meta_path.insert(0, _Finder(name.removesuffix(".__init__"), path, source))
    for imported in list(sys.modules):
        if imported in users or imported.split(".", maxsplit=1)[0] == package.name:
            del sys.modules[imported]


def _exchange(module: ModuleType, function: str, code: CodeType) -> None:
    """Give a function of a module its code in the compiled source of another."""
    found: Any = module
    for name in function.split(".<locals>", maxsplit=1)[0].split("."):
        found = vars(found)[name]
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    while not isinstance(found, FunctionType):  # a property, or a function with a decorator
        found = next(getattr(found, name) for name in _WITHIN if hasattr(found, name))
    inspect.unwrap(found).__code__ = code


def in_a_child(work: Callable[[], Any], seconds: int | None = None) -> Any:
    """Return what `work` returns in a child process, as JSON; "limits" if it does not end well.

    It has so many seconds, by default `CPU_SECONDS`; `allow` gives it more.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        with suppress(BaseException):
            _limit(CPU_SECONDS if seconds is None else seconds)
            os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(process, 0)
    return json.loads(told) if told else "limits"


def allow(seconds: int) -> None:
    """Let this process go on for so many seconds of CPU from now, and not for ever on the clock."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(REAL_RATIO * seconds)


def _limit(seconds: int) -> None:
    """Bound what a child may take, and silence it."""
    allow(seconds)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
